"""The body of ``POST /plans`` as a :class:`PlanRequest`. Usable without Flask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import ValidationError, fields, pre_load, validates_schema

from planner.api.fields import (
    SLUG,
    Choice,
    Flag,
    Map,
    Number,
    Text,
    Unique,
    Whole,
    name_field,
    slug_field,
)
from planner.api.validation import InvalidDocument, StrictSchema, load_document, pointers, schema_of
from planner.api.workload_schema import (
    SloSchema,
    TraceWorkloads,
    WorkloadSchema,
    with_trace,
    workload_of,
)
from planner.errors import NotInCatalog
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.requests import (
    COMMITMENTS,
    OBJECTIVES,
    SETUPS,
    CurvePoint,
    Layout,
    Limits,
    MeasuredWorker,
    PlanRequest,
    Precisions,
    Pricing,
    Speculative,
)
from planner.units import ms_to_s

DEFAULT_GPUS = ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb", "l40s", "b200-sxm-180gb",
                "mi300x")
"""GPUs tried when a request names none: what several clouds rent on demand."""
FIDELITIES = ("napkin", "operator")
ROLES = ("serve", "prefill", "decode")
MAX_PARALLEL = 1024
SavedWorkloads = Callable[[str], Mapping[str, Any] | None]


class LayoutSchema(StrictSchema):
    """How one replica is spread over GPUs."""

    tensor_parallel = Whole(lowest=1, highest=MAX_PARALLEL, load_default=1)
    pipeline_parallel = Whole(lowest=1, highest=MAX_PARALLEL, load_default=1)
    expert_parallel = Whole(lowest=1, highest=MAX_PARALLEL, load_default=1)
    data_parallel = Whole(lowest=1, highest=MAX_PARALLEL, load_default=1)


class PrecisionsSchema(StrictSchema):
    """Weight and KV precision to try; null or absent: what the model ships in."""

    weights = Choice(WEIGHT_PRECISIONS, allow_none=True, load_default=None)
    kv = Choice(KV_PRECISIONS, allow_none=True, load_default=None)


class SpeculativeSchema(StrictSchema):
    """Speculative decoding."""

    draft_tokens = Whole(lowest=1, highest=64, required=True)
    acceptance = Number(lowest=0, highest=1, required=True)
    draft_model = name_field(allow_none=True, load_default=None)


class LimitsSchema(StrictSchema):
    """Bounds of the search and of the fleet."""

    max_gpus = Whole(lowest=1, highest=1_000_000, load_default=Limits().max_gpus)
    max_tensor_parallel = Whole(lowest=1, highest=MAX_PARALLEL,
                                load_default=Limits().max_tensor_parallel)
    max_pipeline_parallel = Whole(lowest=1, highest=MAX_PARALLEL,
                                  load_default=Limits().max_pipeline_parallel)
    max_sequences = Whole(lowest=1, highest=1_000_000, allow_none=True, load_default=None)
    target_utilization = Number(above=0, highest=1, load_default=Limits().target_utilization)
    spare_replicas = Whole(lowest=0, highest=100_000, load_default=Limits().spare_replicas)
    regions = Whole(lowest=1, highest=1000, load_default=1)
    memory_utilization = Number(above=0, highest=1, allow_none=True, load_default=None)
    layouts = Unique(fields.Nested(LayoutSchema), allow_none=True, load_default=None)
    token_budgets = Unique(Whole(lowest=1, highest=10_000_000), allow_none=True, load_default=None)

    @validates_schema
    def layouts_within_bounds(self, data: dict[str, Any], **_: Any) -> None:
        """A bound that is not the usual one holds for the layouts that are named too."""
        for place, layout in enumerate(data["layouts"] or ()):
            for degree in ("tensor_parallel", "pipeline_parallel"):
                most = data[f"max_{degree}"]
                if layout[degree] > most != getattr(Limits(), f"max_{degree}"):
                    raise ValidationError({"layouts": {place: {degree: [
                        f"{layout[degree]} is above max_{degree}, {most}"]}}})


class PricingSchema(StrictSchema):
    """Which price applies."""

    commitment = Choice(COMMITMENTS, load_default="on_demand")
    provider = Text(longest=100, shortest=1, allow_none=True, load_default=None)
    region = Text(longest=100, shortest=1, allow_none=True, load_default=None)
    usd_per_gpu_hour = Map(
        keys=slug_field(), values=Number(above=0, highest=1e6), load_default=dict,
        metadata={"description": "Own price per GPU slug; wins over the catalog"})
    utilization_hours_per_month = Number(above=0, highest=744, load_default=730.0)
    pue = Number(lowest=1, highest=10, load_default=Pricing().pue)
    usd_per_kwh = Number(lowest=0, highest=1000, load_default=Pricing().usd_per_kwh)


class CurvePointSchema(StrictSchema):
    """A measured operating point: a batch (or clients of a closed loop) and its latencies."""

    batch_size = Number(above=0, highest=1e6)
    concurrency = Number(above=0, highest=1e6)
    tpot_ms = Number(above=0, highest=1e9, allow_none=True, load_default=None)
    ttft_ms = Number(above=0, highest=1e9, allow_none=True, load_default=None)

    @validates_schema
    def one_load(self, data: dict[str, Any], **_: Any) -> None:
        """A point has one of the two loads."""
        if ("batch_size" in data) == ("concurrency" in data):
            raise ValidationError("give batch_size or concurrency", "batch_size")


class MeasuredWorkerSchema(StrictSchema):
    """A worker that was measured: its rate at the latency targets, or a curve of points."""

    requests_per_second = Number(above=0, highest=1e9, allow_none=True, load_default=None)
    gpus = Whole(lowest=1, highest=100_000, load_default=1)
    points = fields.List(fields.Nested(CurvePointSchema), load_default=list)

    @validates_schema
    def one_way(self, data: dict[str, Any], **_: Any) -> None:
        """A rate or points, not both and not neither."""
        if (data["requests_per_second"] is None) == (not data["points"]):
            raise ValidationError("give requests_per_second or points", "requests_per_second")


class MeasuredSchema(StrictSchema):
    """Measured workers by role; they replace the computed capacities. A bare list is its points."""

    @pre_load
    def lists_are_points(self, data: Any, **_: Any) -> Any:
        """``"decode": [{...}]`` is short for ``"decode": {"points": [{...}]}``."""
        if not isinstance(data, Mapping):
            return data
        return {k: {"points": v} if isinstance(v, list) else v for k, v in data.items()}

    serve = fields.Nested(MeasuredWorkerSchema)
    prefill = fields.Nested(MeasuredWorkerSchema)
    decode = fields.Nested(MeasuredWorkerSchema)


class WorkloadField(fields.Field[Any]):
    """A workload, or the slug of a saved one."""

    def __init__(self, **kwargs: Any) -> None:
        doc = {"oneOf": [{"$ref": "#/components/schemas/Workload"},
                         {"type": "string", "pattern": f"^{SLUG.pattern}$"}],
               "description": "A workload, or the slug of a saved one"}
        super().__init__(metadata=doc, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, str):
            return slug_field().deserialize(value)
        if not isinstance(value, Mapping):
            raise ValidationError("must be a workload or the slug of a saved one")
        return schema_of(WorkloadSchema).load(value)


class PlanSchema(StrictSchema):
    """A planning job. Only ``model``, ``workload`` and ``slo`` are required."""

    name = Text(longest=200, load_default="")
    model = name_field(required=True)
    workload = WorkloadField(required=True)
    slo = fields.Nested(SloSchema, metadata={
        "description": "Required unless the saved workload brings its own"})
    gpus = Unique(slug_field(), load_default=lambda: list(DEFAULT_GPUS))
    setups = Unique(Choice(SETUPS), load_default=lambda: list(SETUPS))
    precisions = Unique(fields.Nested(PrecisionsSchema),
                        load_default=lambda: [{"weights": None, "kv": None}])
    engine = Text(longest=100, shortest=1, load_default="vllm", metadata={
        "description": "An engine's name, a profile's slug, or ideal"})
    fidelity = Choice(FIDELITIES, load_default="operator")
    limits = fields.Nested(LimitsSchema, load_default=lambda: schema_of(LimitsSchema).load({}))
    pricing = fields.Nested(PricingSchema, load_default=lambda: schema_of(PricingSchema).load({}))
    speculative = fields.Nested(SpeculativeSchema, allow_none=True, load_default=None)
    power_cap_w = Number(above=0, highest=1e5, allow_none=True, load_default=None)
    objective = Choice(OBJECTIVES, load_default="cost")
    verify = Flag(load_default=False, metadata={
        "description": "Simulate the best options; add replicas until every target holds"})
    advice = Flag(load_default=True, metadata={
        "description": "Whether every lever is planned as well; false answers sooner"})
    measured = fields.Nested(MeasuredSchema, load_default=dict)


def parse_plan(document: Any, saved: SavedWorkloads | None = None,
               traces: TraceWorkloads | None = None) -> PlanRequest:
    """Read a plan request.

    Parameters
    ----------
    document : dict
        The body of ``POST /plans``.
    saved : callable, optional
        Looks a saved workload up: slug to ``{"workload", "slo"}`` or None.
    traces : callable, optional
        Looks a trace up: slug to the workload at its peak, or None.

    Raises
    ------
    InvalidDocument
        With a JSON pointer for every field at fault.
    NotInCatalog
        When no workload or trace of that slug is stored.

    Examples
    --------
    >>> parse_plan({"model": "llama-3.1-8b", "slo": {"tpot_ms": 50}, "workload": {
    ...     "requests_per_second": 2, "prompt_tokens": 1000, "output_tokens": 200}}).gpus[0]
    'h100-sxm-80gb'
    """
    return plan_of(load_document(schema_of(PlanSchema), document), saved, traces)


def plan_of(data: Mapping[str, Any], saved: SavedWorkloads | None = None,
            traces: TraceWorkloads | None = None) -> PlanRequest:
    """A plan request from a document that :class:`PlanSchema` has loaded."""
    if data["verify"] and data["measured"]:
        raise InvalidDocument([("/verify", "does not go with measured workers, whose step times "
                                "are not known")])
    if data["limits"]["token_budgets"] and "chunked" not in data["setups"]:
        raise InvalidDocument([("/limits/token_budgets", "only goes with the setup chunked")])
    stated, slo = _workload_and_slo(data, saved)
    workload, assumed = with_trace(stated, traces)
    read = workload_of(workload, slo)
    return PlanRequest(
        model=data["model"],
        workload=read.workload,
        gpus=tuple(data["gpus"]),
        name=data["name"],
        setups=tuple(data["setups"]),
        precisions=tuple(Precisions(**p) for p in data["precisions"]),
        engine=data["engine"],
        fidelity=data["fidelity"],
        limits=_limits(data["limits"]),
        pricing=Pricing(**data["pricing"]),
        speculative=Speculative(**data["speculative"]) if data["speculative"] else None,
        power_cap_w=data["power_cap_w"],
        objective=data["objective"],
        advice=data["advice"],
        verify=data["verify"],
        measured={role: _worker(row) for role, row in data["measured"].items()},
        stated=read.stated,
        assumptions=assumed + read.assumptions,
    )


def _worker(row: Mapping[str, Any]) -> MeasuredWorker:
    curve = tuple(CurvePoint(
        p["concurrency"] if "concurrency" in p else p["batch_size"],
        None if p["tpot_ms"] is None else ms_to_s(p["tpot_ms"]),
        None if p["ttft_ms"] is None else ms_to_s(p["ttft_ms"]), "concurrency" in p)
        for p in row["points"])
    return MeasuredWorker(row["requests_per_second"], row["gpus"], curve)


def _workload_and_slo(data: Mapping[str, Any], saved: SavedWorkloads | None
                      ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    workload, slo = data["workload"], data.get("slo")
    if isinstance(workload, str):
        found = saved(workload) if saved else None
        if found is None:
            raise NotInCatalog(f"no workload {workload!r} is saved", "/workload")
        workload, slo = _saved(found, slo)
    if slo is None:
        raise InvalidDocument([("/slo", "is required")])
    return workload, slo


def _saved(document: Mapping[str, Any], slo: Mapping[str, Any] | None) -> tuple[Any, Any]:
    try:
        own = SloSchema().load(document["slo"]) if document.get("slo") else None
        return WorkloadSchema().load(document["workload"]), slo or own
    except ValidationError as error:
        found = [(f"/workload{p}", m) for p, m in pointers(error.messages)]
        raise InvalidDocument(found) from None


def layout_of(row: Mapping[str, int]) -> Layout:
    """A layout from its four degrees."""
    return Layout(row["tensor_parallel"], row["pipeline_parallel"], row["expert_parallel"],
                  row["data_parallel"])


def _limits(row: Mapping[str, Any]) -> Limits:
    layouts, budgets = row["layouts"], row["token_budgets"]
    return Limits(**{
        **row,
        "layouts": tuple(map(layout_of, layouts)) if layouts else None,
        "token_budgets": tuple(budgets) if budgets else None,
    })
