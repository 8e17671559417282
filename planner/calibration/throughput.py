"""Published throughput: output tokens per second and GPU of whole systems, and ours beside it.

Offline rows have every request waiting at the start, so a prediction is a closed loop that fills
the server. Server rows run as many clients as the limit of TPOT allows. Rows of MLPerf say how many
GPUs ran and not in what layout: the best of the layouts of a host that hold the model is taken, as
a planner would.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.catalog.book import Catalog
from planner.errors import PlannerError
from planner.memory import memory_budget
from planner.prediction import Point, predict
from planner.requests import Layout
from planner.roofline import Deployment

Array = NDArray[np.float64]
THROUGHPUT = Path(__file__).parent / "throughput.csv"
SATURATING = 16384.0
"""Clients per replica that fill any engine's places."""
LIMITED = tuple(float(round(2.0 ** (k / 3.0))) for k in range(6, 34))
"""Clients per replica to try where a limit of TPOT holds: 4 to 2,048, a quarter apart."""
TPOT_TAIL = 1.18
"""99th percentile of TPOT over its mean: median of the 184 MLPerf server results that state both
(eight in ten are within 1.07 and 1.35). A limit at the percentile is one of this less to the mean.
"""
HOST_GPUS = 8
TENSOR = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """One published result.

    Attributes
    ----------
    suite : str
        ``MLPerf``, ``TensorRT-LLM`` or ``InferenceMAX``.
    scenario : str
        ``offline``, ``server``, ``interactive`` or ``closed loop``.
    tensor, pipeline, data : int
        Layout of a replica; ``tensor`` 0 where the source does not say.
    gpus : int
        Of the system.
    clients : float
        Concurrent requests of a closed loop; 0 = as many as fit.
    ttft_p99_ms, tpot_p99_ms : float
        Limits of a server scenario; 0 = none.
    output_tokens_per_s_per_gpu : float
        What was measured.
    """

    suite: str
    scenario: str
    model: str
    gpu: str
    engine: str
    engine_version: str
    weights: str
    kv: str
    tensor: int
    pipeline: int
    data: int
    gpus: int
    prompt_tokens: float
    output_tokens: float
    clients: float
    ttft_p99_ms: float
    tpot_p99_ms: float
    output_tokens_per_s_per_gpu: float
    source: str

    def points(self) -> list[Point]:
        """Predictions to ask for, by layout and load; the best one within the limits counts."""
        layouts = ([self.layout] if self.layout else
                   [Layout(t) for t in TENSOR if t <= min(self.gpus, HOST_GPUS)
                    and self.gpus % t == 0])
        loads = ([self.clients] if self.clients else
                 list(LIMITED) if self.tpot_p99_ms else [SATURATING])
        return [Point(self.model, self.engine, self.prompt_tokens, self.output_tokens, self.gpu,
                      layout, "colocated", self.weights, self.kv or None, clients)
                for layout in layouts for clients in loads]

    @property
    def layout(self) -> Layout | None:
        """The layout of a replica, None where the source does not say."""
        if not self.tensor:
            return None
        return Layout(self.tensor, self.pipeline,
                      self.tensor * self.data if self.data > 1 else 1, self.data)


def read_throughput(path: Path = THROUGHPUT) -> list[ThroughputRow]:
    """The rows of a table of published throughput."""
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type), str)
             for f in fields(ThroughputRow)}
    with path.open(newline="", encoding="utf-8") as file:
        return [ThroughputRow(**{name: kinds[name](value) for name, value in row.items()})
                for row in csv.DictReader(file)]


def write_throughput(rows: Iterable[ThroughputRow], path: Path = THROUGHPUT) -> None:
    """Write a table of published throughput."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(f.name for f in fields(ThroughputRow))
        writer.writerows([f"{x:.6g}" if isinstance(x, float) else x for x in astuple(row)]
                         for row in rows)


def throughput_errors(rows: Sequence[ThroughputRow], catalog: Catalog) -> Array:
    """Signed relative error of the output tokens/s per GPU of every row; NaN = not answered."""
    best = [reached for reached, _ in best_points(rows, catalog)]
    measured = np.array([row.output_tokens_per_s_per_gpu for row in rows], dtype=float)
    return np.asarray(np.array(best) / measured - 1.0)


def best_points(rows: Sequence[ThroughputRow], catalog: Catalog
                ) -> list[tuple[float, Point | None]]:
    """Most output tokens/s per GPU of every row within its limit, and the point that has them.

    NaN and None where nothing can be asked or nothing keeps the limit.
    """
    points, owner = [], []
    for i, row in enumerate(rows):
        for point in row.points():
            if _known(point, catalog) and (row.layout or holds(point, catalog)):
                points.append(point)
                owner.append(i)
    best: list[tuple[float, Point | None]] = [(math.nan, None)] * len(rows)
    for i, point, answer in zip(owner, points, predict(points, catalog), strict=True):
        limit, reached = rows[i].tpot_p99_ms, answer["output_tokens_per_s_per_gpu"]
        if limit and answer["tpot_ms"] * TPOT_TAIL > limit:
            continue
        if best[i][1] is None or reached > best[i][0]:
            best[i] = reached, point
    return best


def holds(point: Point, catalog: Catalog) -> bool:
    """Whether the layout of a point has room for the model's weights and some cache."""
    gpu, llm = catalog.gpu(point.gpu or ""), catalog.llm(point.model)
    weights = point.weights or llm.native_precision
    profile = catalog.engine(point.engine, gpu, weights)
    return memory_budget(Deployment(llm, gpu, weights, point.kv or llm.native_kv, point.layout,
                                    profile)).fits


def _known(point: Point, catalog: Catalog) -> bool:
    try:
        catalog.engine(point.engine, catalog.gpu(point.gpu or ""), point.weights or "")
        catalog.llm(point.model)
    except PlannerError:
        return False
    return True
