"""What ``/simulations`` takes and answers. No Flask here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields, validates_schema

from planner.api.fields import Choice, Entries, Flag, Number, Text, Whole, name_field, slug_field
from planner.api.plan_answer import OpenSchema, PercentilesSchema
from planner.api.plan_schema import FIDELITIES, LayoutSchema, SpeculativeSchema, WorkloadField
from planner.api.validation import StrictSchema
from planner.api.workload_schema import FROM_TRACE, SloSchema
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.requests import SETUPS
from planner.units import SECONDS_PER_DAY

ROUTERS = ("random", "round_robin", "least_loaded", "power_of_two")
MAX_REQUESTS = 1_000_000
BESIDE_TRACE = "prefix_cache_hit_rate"
"""What of a workload counts beside a trace."""
SHORTEST_S = 1e-9
"""[s] of a burst, a pause or a day; shorter ones are lost in the rounding of the times."""
ROLES = ("serve", "prefill", "decode")


class FleetPoolSchema(LayoutSchema):
    """Replicas that are alike."""

    role = Choice(ROLES, metadata={"description": "Default: serve; with two pools prefill, decode"})
    gpu = slug_field(required=True)
    replicas = Whole(lowest=1, highest=10_000, required=True)
    batch_size = Whole(lowest=1, highest=1_000_000, allow_none=True, load_default=None, metadata={
        "description": "Most running sequences; of a prefill pool: prompts in one pass"})
    token_budget = Whole(lowest=1, highest=10_000_000, allow_none=True, load_default=None)


class FleetSchema(StrictSchema):
    """A fleet by hand: one pool that serves, or a prefill and a decode pool."""

    model = name_field(required=True)
    setup = Choice(SETUPS, required=True)
    weights = Choice(WEIGHT_PRECISIONS, allow_none=True, load_default=None)
    kv = Choice(KV_PRECISIONS, allow_none=True, load_default=None)
    engine = Text(longest=100, shortest=1, load_default="vllm")
    fidelity = Choice(FIDELITIES, load_default="operator")
    memory_utilization = Number(above=0, highest=1, allow_none=True, load_default=None)
    speculative = fields.Nested(SpeculativeSchema, allow_none=True, load_default=None)
    power_cap_w = Number(above=0, highest=1e5, allow_none=True, load_default=None)
    pools = Entries(fields.Nested(FleetPoolSchema), shortest=1, longest=2, required=True)

    @validates_schema
    def roles(self, data: dict[str, Any], **_: Any) -> None:
        """The pools are those that the setup has, in their order."""
        wanted = ["prefill", "decode"] if data["setup"] == "disaggregated" else ["serve"]
        roles = [pool.get("role", role) for pool, role in
                 zip(data["pools"], [*wanted, None, None], strict=False)]
        if roles != wanted:
            raise ValidationError(f"{data['setup']} has these pools, in this order: "
                                  f"{', '.join(wanted)}", "pools")
        self._budgets(data)

    @staticmethod
    def _budgets(data: dict[str, Any]) -> None:
        """Static batches and decode pools have no budget of tokens."""
        kinds = {"static": ["static batches"], "disaggregated": ["", "a decode pool"]}
        wrong = {place: {"token_budget": [f"does not go with {kind}, whose steps have no budget"]}
                 for place, (pool, kind) in enumerate(zip(
                     data["pools"], kinds.get(data["setup"], ()), strict=False))
                 if kind and pool["token_budget"] is not None}
        if wrong:
            raise ValidationError({"pools": wrong})


_PATTERNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "on_off": (("on_s", "off_s"), ()), "diurnal": (("profile",), ("day_s",))}
"""Fields that each pattern needs, and may have."""


class ArrivalsSchema(StrictSchema):
    """Another arrival process than the workload's gaps."""

    pattern = Choice(("on_off", "diurnal"), required=True)
    on_s = Number(lowest=SHORTEST_S, highest=1e7, metadata={
        "description": "Mean length [s] of a burst"})
    off_s = Number(lowest=SHORTEST_S, highest=1e7, metadata={
        "description": "Mean length [s] of a pause"})
    profile = fields.List(Number(lowest=0, highest=1e9), metadata={
        "minItems": 1, "maxItems": 1440,
        "description": "Relative rate in equal parts of the day"})
    day_s = Number(lowest=SHORTEST_S, highest=1e7, metadata={"default": SECONDS_PER_DAY})

    @validates_schema
    def complete(self, data: dict[str, Any], **_: Any) -> None:
        """Each pattern has its own fields."""
        needed, own = _PATTERNS[data["pattern"]]
        wrong = {name: ["is required"] for name in needed if name not in data}
        wrong |= {name: [f"does not go with the pattern {data['pattern']}"] for name in data
                  if name not in ("pattern", *needed, *own)}
        if wrong:
            raise ValidationError(wrong)
        profile = data.get("profile")
        if profile is not None and not (1 <= len(profile) <= 1440 and sum(profile) > 0):
            raise ValidationError("must have 1 to 1440 rates that are not all 0", "profile")


class FailureSchema(StrictSchema):
    """A replica that is down for a while; its requests start again elsewhere."""

    at_s = Number(lowest=0, highest=1e9, required=True)
    duration_s = Number(above=0, highest=1e9, required=True)
    pool = Whole(lowest=0, highest=1, load_default=0)
    replica = Whole(lowest=0, highest=100_000, load_default=0)


class ServedWorkloadField(WorkloadField):
    """A workload of a fleet by hand. Beside a trace only what the trace does not say."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        beside = data if isinstance(data, Mapping) else {}
        if beside.get("trace") is None:
            self._refuse_cv(value, beside)
            return super()._deserialize(value, attr, data, **kwargs)
        if isinstance(value, str):
            raise ValidationError("a saved workload does not go with a trace; of a workload only "
                                  f"{BESIDE_TRACE} does")
        if isinstance(value, Mapping):
            ignored = {name: ["does not go with a trace, which says it itself"]
                       for name in FROM_TRACE if name in value}
            if value.get("trace", beside["trace"]) != beside["trace"]:
                ignored["trace"] = ["must be the trace that is replayed; leave it out"]
            if ignored:
                raise ValidationError(ignored)
            value = {**value, "trace": beside["trace"]}
        return super()._deserialize(value, attr, data, **kwargs)

    @staticmethod
    def _refuse_cv(value: Any, beside: Mapping[str, Any]) -> None:
        if isinstance(value, Mapping) and "arrival_cv" in value and beside.get("arrivals"):
            raise ValidationError({"arrival_cv": [
                "does not go with arrivals, which have gaps of their own"]})


class SimulationSchema(StrictSchema):
    """A simulation of a stored plan's option, or of a fleet by hand."""

    plan = Text(longest=100, shortest=1, metadata={"description": "Id of a stored plan"})
    rank = Whole(lowest=1, highest=100_000, metadata={"description": "Option of the plan, first 1",
                                                      "default": 1})
    fleet = fields.Nested(FleetSchema)
    workload = ServedWorkloadField()
    slo = fields.Nested(SloSchema)
    trace = slug_field(metadata={"description": "Stored trace to replay"})
    requests = Whole(lowest=10, highest=MAX_REQUESTS, metadata={
        "description": "Requests to generate from the workload; default 20,000"})
    arrivals = fields.Nested(ArrivalsSchema, allow_none=True, load_default=None)
    rate_scale = Number(above=0, highest=1e6, load_default=1.0, metadata={
        "description": "Multiplies the rate of the trace or of the workload"})
    start_s = Number(lowest=0, highest=1e10, load_default=0.0)
    end_s = Number(above=0, highest=1e10, allow_none=True, load_default=None)
    seed = Whole(lowest=0, highest=2**31 - 1, load_default=0)
    router = Choice(ROUTERS, load_default="random", metadata={
        "description": "A plan assumes random"})
    warmup_share = Number(lowest=0, below=1, load_default=0.1)
    failures = Entries(fields.Nested(FailureSchema), longest=1000, load_default=list)
    spares = Flag(load_default=False, metadata={
        "description": "Let a plan's spare replicas serve too"})

    @validates_schema
    def what(self, data: dict[str, Any], **_: Any) -> None:
        """A plan or a fleet; a trace or generated requests."""
        if ("plan" in data) == ("fleet" in data):
            raise ValidationError("give a plan or a fleet", "plan")
        if "trace" in data:
            for name in ("requests", "arrivals"):
                if data.get(name) is not None:
                    raise ValidationError("does not go with a trace", name)
        else:
            given = [name for name in ("start_s", "end_s") if data[name]]
            if given:
                raise ValidationError({name: ["only goes with a trace"] for name in given})
        if data["end_s"] is not None and data["end_s"] <= data["start_s"]:
            raise ValidationError("must be above start_s", "end_s")
        if "fleet" in data:
            self._fleet(data)
        else:
            for name in ("workload", "slo"):
                if name in data:
                    raise ValidationError("comes from the plan", name)

    def _fleet(self, data: dict[str, Any]) -> None:
        given = [name for name in ("rank", "spares") if data.get(name)]
        if given:
            raise ValidationError({name: ["only goes with a plan"] for name in given})
        missing = {} if "slo" in data else {"slo": ["is required with a fleet"]}
        if "workload" not in data and "trace" not in data:
            missing["workload"] = ["is required with a fleet, or a trace"]
        if missing:
            raise ValidationError(missing)


class FiguresSchema(OpenSchema):
    """Latencies [ms]."""

    ttft_ms = fields.Nested(PercentilesSchema, allow_none=True)
    tpot_ms = fields.Nested(PercentilesSchema, allow_none=True)
    itl_ms = fields.Nested(PercentilesSchema, allow_none=True)
    e2e_ms = fields.Nested(PercentilesSchema, allow_none=True)


class SimulationAnswerSchema(OpenSchema):
    """What a simulation observed, next to what the plan promised (null for a fleet by hand)."""

    id = fields.String(required=True)
    plan = fields.String(required=True, allow_none=True)
    rank = fields.Integer(required=True, allow_none=True)
    trace = fields.String(required=True, allow_none=True)
    request = fields.Dict(required=True, allow_none=True, metadata={
        "description": "What was asked for with every default filled in; sent again it asks for "
                       "the same. Null for simulations of earlier versions"})
    seed = fields.Integer(required=True)
    requests = fields.Integer(required=True)
    requests_per_second = fields.Float(required=True, metadata={
        "description": "Of generated requests as asked for, of users as they send; of a trace the "
                       "mean"})
    simulated_s = fields.Float(required=True)
    wall_s = fields.Float(required=True)
    observed = fields.Nested(FiguresSchema, required=True)
    promised = fields.Nested(FiguresSchema, required=True, allow_none=True)
    attainment = fields.Dict(required=True)
    goodput_rps_per_gpu = fields.Float(required=True)
    utilization = fields.Float(required=True)
    lost = fields.Integer(required=True)
    preemptions = fields.Integer(required=True)
    timeline = fields.Dict(required=True)


class SimulationSummarySchema(Schema):
    """A simulation in a list."""

    id = fields.String(required=True)
    status = fields.String(required=True)
    progress = fields.Float(required=True)
    plan = fields.String(required=True, allow_none=True)
    rank = fields.Integer(required=True, allow_none=True)
    trace = fields.String(required=True, allow_none=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
