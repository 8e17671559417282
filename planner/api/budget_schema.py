"""The body of ``POST /budgets`` as a :class:`BudgetRequest`. Usable without Flask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from marshmallow import ValidationError, fields, validates_schema

from planner.api.echo import echo
from planner.api.fields import Choice, Entries, Map, Number, Text, Unique, Whole, shown, slug_field
from planner.api.plan_schema import PlanSchema, SavedWorkloads, plan_of
from planner.api.validation import InvalidDocument, StrictSchema, load_document
from planner.api.workload_schema import TraceWorkloads
from planner.budget.inputs import (
    DEFAULT_SCENARIOS,
    FLAT,
    SCENARIOS,
    Actual,
    BudgetRequest,
    BudgetWorkload,
    Commitments,
    Energy,
    Owned,
    Prices,
    PriceStep,
    Scenario,
    Server,
    Spike,
    Term,
    WhatIf,
)
from planner.errors import PlannerError

LEAST_MONTHS, MOST_MONTHS = 12, 60
MOST_WORKLOADS = 200
MOST_REGIONS = 20
MONTH = re.compile(r"(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])")
CURRENCY = re.compile(r"[A-Z]{3}")
HIGHEST_USD = 1e12


def _growth(**kwargs: Any) -> Number:
    return Number(lowest=-0.9, highest=1, load_default=0.0, **kwargs)


def _month(**kwargs: Any) -> Whole:
    return Whole(lowest=1, highest=MOST_MONTHS, **kwargs)


def _usd(**kwargs: Any) -> Number:
    return Number(lowest=0, highest=HIGHEST_USD, **kwargs)


class BudgetLaunchSchema(StrictSchema):
    """A launch: the rate times ``multiplier`` for some months."""

    month = _month(required=True)
    multiplier = Number(lowest=0, highest=1000, required=True)
    months = Whole(lowest=1, highest=MOST_MONTHS, load_default=1)


class Seasonality(fields.List[float]):
    """Twelve factors, January to December."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Number(lowest=0, highest=100), metadata={
            "minItems": 12, "maxItems": 12,
            "description": "Factor of the rate in January to December"}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != 12:
            count = f"{len(value)} of them" if isinstance(value, list) else shown(value)
            raise ValidationError(f"must be a list of 12 numbers, not {count}")
        found: list[Any] = super()._deserialize(value, attr, data, **kwargs)
        return found


class BudgetWorkloadSchema(PlanSchema):
    """A plan request, and how its traffic moves. Rate and lengths are those of its first month."""

    starts_month = _month(load_default=1)
    ends_month = _month(allow_none=True, load_default=None)
    growth_per_month = _growth(metadata={"description": "Growth of the rate, compound"})
    seasonality = Seasonality(load_default=lambda: list(FLAT))
    launches = Entries(fields.Nested(BudgetLaunchSchema), longest=100, load_default=list)
    tokens_growth_per_month = Number(lowest=-0.5, highest=0.5, load_default=0.0, metadata={
        "description": "Growth of prompt and output tokens per request, compound"})
    fleet = Text(longest=100, load_default="", metadata={
        "description": "Workloads of one name share a fleet; without names those of one model "
                       "and equal settings do"})

    @validates_schema
    def _unverified(self, data: dict[str, Any], **_: Any) -> None:
        if data["verify"]:
            raise ValidationError("plans of a budget are not verified; leave it out, and verify "
                                  "a plan of its own", "verify")

    @validates_schema
    def _in_order(self, data: dict[str, Any], **_: Any) -> None:
        last = data["ends_month"]
        if last is not None and last < data["starts_month"]:
            raise ValidationError(
                f"must not be before starts_month ({data['starts_month']}), not {last}",
                "ends_month")


class BudgetChangeSchema(StrictSchema):
    """What a scenario changes; ``base`` must be among them."""

    name = Choice(SCENARIOS, required=True)
    growth_added_per_month = Number(lowest=-0.5, highest=0.5, load_default=0.0)
    demand_multiplier = Number(above=0, highest=100, load_default=1.0)
    price_multiplier = Number(above=0, highest=100, load_default=1.0)


class BudgetOfferSchema(StrictSchema):
    """A commitment on offer: its discount on the list price, or its price by GPU."""

    term_months = Whole(lowest=1, highest=MOST_MONTHS, required=True)
    discount = Number(lowest=0, below=1, allow_none=True, load_default=None)
    usd_per_gpu_hour = Map(keys=slug_field(), values=Number(above=0, highest=1e6),
                           load_default=dict)

    @validates_schema
    def _some_price(self, data: dict[str, Any], **_: Any) -> None:
        if data["discount"] is None and not data["usd_per_gpu_hour"]:
            raise ValidationError("give discount or usd_per_gpu_hour", "discount")
        if data["discount"] is not None and data["usd_per_gpu_hour"]:
            raise ValidationError("give discount or usd_per_gpu_hour, not both; a term of its own "
                                  "can hold the other", "discount")


class BudgetCommitmentsSchema(StrictSchema):
    """Which commitments may be bought; ``terms`` null: the reserved prices of the catalog."""

    terms = Entries(fields.Nested(BudgetOfferSchema), longest=10, allow_none=True,
                    load_default=None)
    committed_share = Number(lowest=0, highest=2, load_default=1.0, metadata={
        "description": "Share of the cheapest base that is committed"})
    resale_share = Number(lowest=0, highest=1, load_default=0.0)


class BudgetServerSchema(StrictSchema):
    """A server that could be bought [USD]."""

    gpu = slug_field(required=True)
    usd_per_server = _usd(required=True)
    gpus_per_server = Whole(lowest=1, highest=1024, allow_none=True, load_default=None)
    hosting_usd_per_year = _usd(load_default=0.0)
    licence_usd_per_year = _usd(load_default=0.0)


class BudgetOwnedSchema(StrictSchema):
    """Servers that could be bought, and GPUs already owned."""

    servers = Entries(fields.Nested(BudgetServerSchema), longest=50, load_default=list)
    depreciation_months = Whole(lowest=1, highest=240, load_default=48)
    residual_share = Number(lowest=0, highest=1, load_default=0.0)
    existing_gpus = Map(keys=slug_field(), values=Whole(lowest=0, highest=1_000_000),
                        load_default=dict)


class BudgetEnergySchema(StrictSchema):
    """Power and carbon."""

    pue = Number(lowest=1, highest=10, load_default=Energy().pue)
    usd_per_kwh = Number(lowest=0, highest=1000, load_default=float(Energy().usd_per_kwh))
    kg_co2e_per_kwh = Number(lowest=0, highest=10, load_default=Energy().kg_co2e_per_kwh)
    power_utilization = Number(above=0, highest=1, load_default=1.0)


class BudgetPriceStepSchema(StrictSchema):
    """All rental prices times ``multiplier`` from a month on."""

    month = _month(required=True)
    multiplier = Number(above=0, highest=100, required=True)


class BudgetPricesSchema(StrictSchema):
    """How prices move."""

    negotiated_discount = Number(lowest=0, below=1, load_default=0.0)
    change_per_month = Number(lowest=-0.5, highest=0.5, load_default=0.0)
    steps = Entries(fields.Nested(BudgetPriceStepSchema), longest=60, load_default=list)
    hours_per_month = Number(above=0, highest=744, load_default=730.0)


class BudgetQuestionSchema(StrictSchema):
    """A question: other prices, another GPU for every fleet, or both, from a month on."""

    name = Text(longest=100, shortest=1, required=True)
    from_month = _month(load_default=1)
    price_multiplier = Number(above=0, highest=100, load_default=1.0)
    gpu = slug_field(allow_none=True, load_default=None)
    usd_per_gpu_hour = Number(above=0, highest=1e6, allow_none=True, load_default=None)

    @validates_schema
    def _price_of_what(self, data: dict[str, Any], **_: Any) -> None:
        if data["usd_per_gpu_hour"] is not None and data["gpu"] is None:
            raise ValidationError("only goes with gpu", "usd_per_gpu_hour")


class BudgetActualSchema(StrictSchema):
    """What a month turned out to be; cost in the budget's currency."""

    month = _month(required=True)
    gpus = Number(lowest=0, highest=1e9, allow_none=True, load_default=None)
    cost = Number(lowest=0, highest=1e15, allow_none=True, load_default=None)
    requests_per_second = Number(lowest=0, highest=1e12, allow_none=True, load_default=None)


class Regions(fields.Field[Any]):
    """A number of regions, or their names."""

    def __init__(self, **kwargs: Any) -> None:
        doc = {"oneOf": [
            {"type": "integer", "minimum": 1, "maximum": MOST_REGIONS},
            {"type": "array", "minItems": 1, "maxItems": MOST_REGIONS, "uniqueItems": True,
             "items": {"type": "string", "minLength": 1, "maxLength": 100}},
            {"type": "null"}],
            "description": "Regions by number or name: with more than one the rest carry the "
                           "peak when one fails; null: those of each workload's limits"}
        super().__init__(metadata=doc, allow_none=True, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, list):
            return tuple(Unique(Text(longest=100, shortest=1), longest=MOST_REGIONS)
                         .deserialize(value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValidationError(f"must be a whole number or a list of names, not {shown(value)}")
        count = Whole(lowest=1, highest=MOST_REGIONS).deserialize(value)
        return tuple(f"region-{i}" for i in range(1, int(count or 1) + 1))


class BudgetSchema(StrictSchema):
    """A budgeting job. Only ``workloads`` is required."""

    name = Text(longest=200, load_default="")
    months = Whole(lowest=LEAST_MONTHS, highest=MOST_MONTHS, load_default=LEAST_MONTHS)
    start = Text(longest=7, shortest=7, pattern=MONTH, hint="a month as YYYY-MM", metadata={
        "description": "First month; the next calendar month unless given"})
    workloads = Entries(fields.Nested(BudgetWorkloadSchema), shortest=1, longest=MOST_WORKLOADS,
                        required=True)
    scenarios = Entries(fields.Nested(BudgetChangeSchema), shortest=1, longest=len(SCENARIOS))
    headroom = Number(lowest=0, highest=10, load_default=0.0, metadata={
        "description": "Share added to every rate"})
    spare_replicas = Whole(lowest=0, highest=100_000, allow_none=True, load_default=None)
    regions = Regions(load_default=None)
    currency = Text(longest=3, shortest=3, pattern=CURRENCY, load_default="USD",
                    hint="three capital letters (ISO 4217)")
    units_per_usd = Number(above=0, highest=1e9, metadata={
        "description": "Units of the currency for one USD; required unless that is USD"})
    prices = fields.Nested(BudgetPricesSchema,
                           load_default=lambda: BudgetPricesSchema().load({}))
    commitments = fields.Nested(BudgetCommitmentsSchema,
                                load_default=lambda: BudgetCommitmentsSchema().load({}))
    owned = fields.Nested(BudgetOwnedSchema, load_default=lambda: BudgetOwnedSchema().load({}))
    energy = fields.Nested(BudgetEnergySchema, load_default=lambda: BudgetEnergySchema().load({}))
    lead_time_days = Whole(lowest=0, highest=3650, load_default=0)
    what_if = Entries(fields.Nested(BudgetQuestionSchema), longest=10, load_default=list)
    actuals = Entries(fields.Nested(BudgetActualSchema), longest=MOST_MONTHS, load_default=list)

    @validates_schema
    def _money(self, data: dict[str, Any], **_: Any) -> None:
        if data["currency"] != "USD" and "units_per_usd" not in data:
            raise ValidationError(f"is required with currency {data['currency']}",
                                  "units_per_usd")
        if data["currency"] == "USD" and data.get("units_per_usd", 1) != 1:
            raise ValidationError("must be 1 with currency USD", "units_per_usd")

    @validates_schema
    def _one_of_each(self, data: dict[str, Any], **_: Any) -> None:
        if "scenarios" in data:
            names = [s["name"] for s in data["scenarios"]]
            if "base" not in names or len(set(names)) < len(names):
                raise ValidationError("must name base, and no scenario twice", "scenarios")
        for name, key in (("actuals", "month"), ("what_if", "name")):
            seen = [row[key] for row in data[name]]
            if len(set(seen)) < len(seen):
                raise ValidationError(f"has a {key} twice", name)
        servers = [row["gpu"] for row in data["owned"]["servers"]]
        if len(set(servers)) < len(servers):
            raise ValidationError({"servers": ["has a gpu twice"]}, "owned")

    @validates_schema
    def _inside(self, data: dict[str, Any], **_: Any) -> None:
        """Months that are named lie in the budget."""
        months = data["months"]
        errors: dict[str, Any] = {}
        for list_name, key in (("actuals", "month"), ("what_if", "from_month"),
                               ("workloads", "starts_month"), ("workloads", "ends_month")):
            for i, row in enumerate(data[list_name]):
                if row[key] is not None and row[key] > months:
                    errors.setdefault(list_name, {}).setdefault(i, {})[key] = [
                        f"must be at most {months} (months), not {row[key]}"]
        if errors:
            raise ValidationError(errors)


def parse_budget(document: Any, saved: SavedWorkloads | None = None,
                 traces: TraceWorkloads | None = None) -> BudgetRequest:
    """Read a budget request.

    Parameters
    ----------
    document : dict
        The body of ``POST /budgets``.
    saved : callable, optional
        Looks a saved workload up.
    traces : callable, optional
        Looks a trace up: slug to the workload at its peak.

    Raises
    ------
    InvalidDocument
        With a JSON pointer for every field at fault.
    NotInCatalog
        When no workload or trace of that slug is stored.

    Examples
    --------
    >>> parse_budget({"start": "2027-04", "workloads": [{
    ...     "model": "llama-3.1-8b", "slo": {"tpot_ms": 50}, "growth_per_month": 0.05,
    ...     "workload": {"requests_per_second": 2, "prompt_tokens": 1000,
    ...                  "output_tokens": 200}}]}).workloads[0].name
    'workload 1'
    """
    return budget_of(load_document(BudgetSchema(), document), saved, traces)


def budget_of(data: Mapping[str, Any], saved: SavedWorkloads | None = None,
              traces: TraceWorkloads | None = None) -> BudgetRequest:
    """A budget request from a document that :class:`BudgetSchema` has loaded."""
    start = data.get("start") or next_month(datetime.now(UTC))
    year, month = map(int, start.split("-"))
    names = _names([w["name"] for w in data["workloads"]])
    workloads = tuple(_workload(i, w, name, saved, traces)
                      for i, (w, name) in enumerate(zip(data["workloads"], names, strict=True)))
    _check_growth(data, workloads)
    made = BudgetRequest(
        workloads=workloads, months=data["months"], start_year=year, start_month=month,
        name=data["name"], scenarios=_scenarios(data), headroom=data["headroom"],
        spare_replicas=data["spare_replicas"], regions=data["regions"],
        prices=_prices(data), commitments=_commitments(data["commitments"]),
        owned=_owned(data["owned"]), energy=_energy(data["energy"]),
        lead_time_days=data["lead_time_days"],
        what_if=tuple(WhatIf(**{**w, "usd_per_gpu_hour": _money(w["usd_per_gpu_hour"])})
                      for w in data["what_if"]),
        actuals=tuple(Actual(**{**a, "cost": _money(a["cost"])}) for a in data["actuals"]),
        stated={**data, "start": start, "workloads": []})
    made.stated.update(_echo(made, data))
    return made


def _check_growth(data: Mapping[str, Any], workloads: tuple[BudgetWorkload, ...]) -> None:
    """Refuse growth that a scenario takes to nothing or below."""
    least = min(s.growth_added for s in _scenarios(data))
    wrong = [(f"/workloads/{i}/growth_per_month",
              f"must be above {-1.0 - least:g}, as a scenario adds {least:g}, "
              f"not {w.growth_per_month:g}")
             for i, w in enumerate(workloads) if w.growth_per_month + least <= -1.0]
    if wrong:
        raise InvalidDocument(wrong)


def next_month(now: datetime) -> str:
    """The calendar month after a time, as YYYY-MM.

    Examples
    --------
    >>> next_month(datetime(2026, 12, 9))
    '2027-01'
    """
    place = now.year * 12 + now.month
    return f"{place // 12}-{place % 12 + 1:02d}"


def _names(given: list[str]) -> list[str]:
    """A name for every workload, no two the same."""
    found: list[str] = []
    for i, name in enumerate(given, 1):
        base = name or f"workload {i}"
        choices = [base, *(f"{base} ({n})" for n in range(2, len(given) + 2))]
        found.append(next(c for c in choices if c not in found))
    return found


def _workload(place: int, row: Mapping[str, Any], name: str, saved: SavedWorkloads | None,
              traces: TraceWorkloads | None) -> BudgetWorkload:
    try:
        request = plan_of(row, saved, traces)
    except InvalidDocument as error:
        raise InvalidDocument([(f"/workloads/{place}{p}", m) for p, m in error.errors]) from None
    except PlannerError as error:
        raise type(error)(error.message, f"/workloads/{place}{error.pointer}") from None
    return BudgetWorkload(
        request, name, row["starts_month"], row["ends_month"], row["growth_per_month"],
        tuple(row["seasonality"]), tuple(Spike(**s) for s in row["launches"]),
        row["tokens_growth_per_month"], row["fleet"])


def _scenarios(data: Mapping[str, Any]) -> tuple[Scenario, ...]:
    if "scenarios" not in data:
        return DEFAULT_SCENARIOS
    found = [Scenario(s["name"], s["growth_added_per_month"], s["demand_multiplier"],
                      s["price_multiplier"]) for s in data["scenarios"]]
    return tuple(sorted(found, key=lambda s: SCENARIOS.index(s.name)))


def _money(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _amount(value: float) -> Decimal:
    return Decimal(str(value))


def _prices(data: Mapping[str, Any]) -> Prices:
    row = data["prices"]
    return Prices(data["currency"], _amount(data.get("units_per_usd", 1)),
                  row["negotiated_discount"], row["change_per_month"],
                  tuple(PriceStep(**s) for s in row["steps"]), row["hours_per_month"])


def _commitments(row: Mapping[str, Any]) -> Commitments:
    terms = None if row["terms"] is None else tuple(
        Term(t["term_months"], t["discount"],
             {k: _amount(v) for k, v in t["usd_per_gpu_hour"].items()}) for t in row["terms"])
    return Commitments(terms, row["committed_share"], row["resale_share"])


def _owned(row: Mapping[str, Any]) -> Owned:
    servers = tuple(Server(s["gpu"], _amount(s["usd_per_server"]), s["gpus_per_server"],
                           _amount(s["hosting_usd_per_year"]),
                           _amount(s["licence_usd_per_year"])) for s in row["servers"])
    return Owned(servers, row["depreciation_months"], row["residual_share"],
                 dict(row["existing_gpus"]))


def _energy(row: Mapping[str, Any]) -> Energy:
    return Energy(row["pue"], _amount(row["usd_per_kwh"]), row["kg_co2e_per_kwh"],
                  row["power_utilization"])


def _echo(made: BudgetRequest, data: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of the request that defaults or names fill in."""
    workloads = [{**echo(w.request), "name": w.name, "starts_month": w.starts_month,
                  "ends_month": w.ends_month, "growth_per_month": w.growth_per_month,
                  "seasonality": list(w.seasonality),
                  "launches": [dict(s) for s in row["launches"]],
                  "tokens_growth_per_month": w.tokens_growth_per_month, "fleet": w.fleet}
                 for w, row in zip(made.workloads, data["workloads"], strict=True)]
    scenarios = [{"name": s.name, "growth_added_per_month": s.growth_added,
                  "demand_multiplier": s.demand_multiplier,
                  "price_multiplier": s.price_multiplier} for s in made.scenarios]
    return {"workloads": workloads, "scenarios": scenarios,
            "regions": None if made.regions is None else list(made.regions),
            "units_per_usd": float(made.prices.units_per_usd)}
