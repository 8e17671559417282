"""The Catalog sheet: the model, GPUs, prices and engine profiles that the plan used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.units import (
    BYTES_PER_GIB,
    FLOP_PER_TFLOP,
    US_PER_S,
    bytes_to_gb,
    bytes_to_gib,
    s_to_ms,
)
from planner.workbook.layout import (
    Column,
    Page,
    clean,
    key,
    number,
    print_bands,
    set_up,
    write_table,
)
from planner.workbook.plan import Plan, Row
from planner.workbook.words import spaced

NAME = "Catalog"
WIDTHS = (26, 32, 44, 12, 13, 16, *(12.0,) * 6, 26, 14, 12)
"""Wide enough for every block; the 13th column holds the notes of prices."""
BILLION = 1e9
"""Parameters are counted in billions."""


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet: a block for each catalog."""
    set_up(page, plan.name, NAME)
    page.widths(WIDTHS)
    as_of = clean(plan.document.get("catalog_as_of") or "n/a")
    page.write(0, 0, "Catalog rows used", "heading")
    page.write(0, 1, f"by this plan, as of {as_of}", "label")
    page.sheet.freeze_panes(1, 1)
    page.sheet.repeat_rows(0)
    models = [m for m in map(plan.snapshot.get, ("model", "draft")) if isinstance(m, dict)]
    row = 2
    for title, columns, rows in (
            ("Model", _model_columns(), models),
            ("GPUs", _gpu_columns(), plan.rows("gpus")),
            ("Prices", _price_columns(plan), plan.rows("prices")),
            ("Engine profiles", _engine_columns(), plan.rows("engines"))):
        row = _block(page, row, title, columns, rows)
    page.sheet.print_area(0, 0, row - 1, len(WIDTHS) - 1)
    print_bands(page, WIDTHS, 1)


def _block(page: Page, row: int, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """A heading, a table as wide as the grid, and a blank row."""
    page.write(row, 0, title, "heading")
    placed = [Column(c.label, c.value, WIDTHS[i], c.style) for i, c in enumerate(columns)]
    end = write_table(page, row + 1, placed, rows)
    if not rows:
        page.write(end, 0, "none", "label")
        end += 1
    return end + 1


def _column(label: str, name: str, style: str = "text") -> Column:
    return Column(label, key(name), style=style)


def _scaled(label: str, name: str, factor: float, style: str = "one") -> Column:
    """A column of a number divided by a unit."""
    def value(row: Row) -> Any:
        found = number(row.get(name))
        return None if found is None else found / factor
    return Column(label, value, style=style)


def _model_columns() -> list[Column]:
    return [_column("Name", "name"), _column("Hugging Face id", "hf_id"),
            _column("Architecture", "architecture"),
            _scaled("Parameters [10⁹]", "total_params", BILLION, "two"),
            _scaled("Active parameters [10⁹]", "active_params", BILLION, "two"),
            _column("Layers", "layers", "count"), _column("Hidden size", "hidden", "count"),
            _column("Vocabulary [tokens]", "vocab", "count"),
            _column("Longest context [tokens]", "max_context", "count"),
            _column("KV cache per token [B]", "kv_bytes_per_token", "count"),
            _scaled("State per sequence [GiB]", "state_bytes_per_sequence", BYTES_PER_GIB, "three"),
            _column("Weights as shipped", "native_weights"),
            _column("KV cache as shipped", "native_kv")]


def _gpu_columns() -> list[Column]:
    def gib(row: Row) -> Any:
        found = number(row.get("memory_bytes"))
        return None if found is None else bytes_to_gib(found)

    def bandwidth(name: str) -> Any:
        def value(row: Row) -> Any:
            found = number(row.get(name))
            return None if found is None else bytes_to_gb(found)
        return value

    return [_column("Name", "name"), _column("Slug", "slug"), _column("Source", "source_url"),
            _column("Architecture", "architecture"),
            Column("Memory [GiB]", gib, style="one"),
            Column("Memory bandwidth [GB/s]", bandwidth("bandwidth_bytes_per_s")),
            *(Column(f"{p.upper()} dense [TFLOP/s]", _peak(p)) for p in ("bf16", "fp8", "fp4")),
            Column("Link to other GPUs [GB/s]", bandwidth("link_bytes_per_s")),
            _column("GPUs on the link", "link_domain_gpus", "count"),
            _column("GPUs per node", "node_gpus", "count"),
            Column("Network per GPU [GB/s]", bandwidth("nic_bytes_per_s")),
            _column("Board power [W]", "tdp_w", "count"),
            Column("Released", lambda r: str(r.get("release_year") or ""), style="text")]


def _peak(precision: str) -> Any:
    def value(row: Row) -> Any:
        found = number((row.get("peak_flop_per_s") or {}).get(precision))
        return None if found is None else found / FLOP_PER_TFLOP
    return value


def _price_columns(plan: Plan) -> list[Column]:
    return [Column("GPU", lambda r: plan.gpu_name(r.get("gpu")), style="text"),
            _column("Provider", "provider"), _column("Source", "source"),
            _column("Price [USD per GPU-hour]", "usd_per_gpu_hour", "three"),
            _column("As of", "as_of"),
            Column("Commitment", lambda r: spaced(r.get("commitment")), style="text"),
            _column("Region", "region"), _column("Instance", "instance"),
            _column("GPUs per instance", "gpus_per_instance", "count"),
            _column("Lowest price [USD per GPU-hour]", "usd_per_gpu_hour_low", "three"),
            _column("Highest price [USD per GPU-hour]", "usd_per_gpu_hour_high", "three"),
            _column("Providers", "providers", "count"), _column("Note", "notes")]


def _engine_columns() -> list[Column]:
    def ms(name: str) -> Any:
        def value(row: Row) -> Any:
            found = number(row.get(name))
            return None if found is None else s_to_ms(found)
        return value

    return [_column("Profile", "slug"),
            Column("Engine", lambda r: f"{r.get('engine') or ''} {r.get('version') or ''}".strip(),
                   style="text"),
            _column("Source", "source"),
            Column("GPU, precision", style="text",
                   value=lambda r: f"{r.get('gpu') or 'any'}, {r.get('precision') or ''}"),
            _column("MFU [%]", "mfu", "percent"), _column("MBU [%]", "mbu", "percent"),
            _column("Attention MFU [%]", "attention_mfu", "percent"),
            _column("Attention MBU [%]", "attention_mbu", "percent"),
            _column("Link efficiency [%]", "link_efficiency", "percent"),
            _scaled("Layer overhead [µs]", "layer_s", 1.0 / US_PER_S),
            Column("Step overhead [ms]", ms("step_s"), style="two"),
            Column("Request overhead [ms]", ms("request_s"), style="two"),
            _column("Memory utilisation [%]", "memory_utilization", "percent"),
            _column("Obtained", "obtained"), _column("As of", "as_of")]
