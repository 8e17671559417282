"""Schemas of what ``/budgets`` answers; they document, the planner writes the documents."""

from __future__ import annotations

from marshmallow import Schema, fields

from planner.api.plan_answer import OpenSchema


def _numbers() -> fields.Field[list[float | None]]:
    return fields.List(fields.Float())


class BudgetTotalsSchema(OpenSchema):
    """Sums over all months, in the billing currency; amounts are named as FOCUS names them."""

    list_cost = fields.Float()
    contracted_cost = fields.Float()
    effective_cost = fields.Float()
    billed_cost = fields.Float()
    on_demand_cost = fields.Float()
    committed_cost = fields.Float()
    owned_cost = fields.Float()
    breakage_cost = fields.Float()
    savings = fields.Float()
    requests = fields.Integer()
    cost_per_thousand_requests = fields.Float(allow_none=True)
    energy_kwh = fields.Float(allow_none=True)
    kg_co2e = fields.Float(allow_none=True)
    peak_gpus = fields.Integer()
    peak_month = fields.Integer()


class BudgetMonthSchema(OpenSchema):
    """One month of the base scenario; what it turned out to be, where that was given."""

    month = fields.Integer()
    charge_period_start = fields.String()
    charge_period_end = fields.String()
    requests_per_second = fields.Float()
    requests = fields.Integer()
    gpus = fields.Integer()
    owned_gpus = fields.Integer()
    committed_gpus = fields.Integer()
    burst_gpus = fields.Integer()
    unused_gpus = fields.Integer()
    list_cost = fields.Float()
    contracted_cost = fields.Float()
    effective_cost = fields.Float()
    billed_cost = fields.Float()
    on_demand_cost = fields.Float()
    committed_cost = fields.Float()
    owned_cost = fields.Float()
    breakage_cost = fields.Float()
    cost_per_thousand_requests = fields.Float(allow_none=True)
    energy_kwh = fields.Float(allow_none=True)
    kg_co2e = fields.Float(allow_none=True)
    actual_requests_per_second = fields.Float(allow_none=True)
    actual_gpus = fields.Float(allow_none=True)
    actual_cost = fields.Float(allow_none=True)
    variance_gpus = fields.Float(allow_none=True)
    variance_cost = fields.Float(allow_none=True)
    variance_share = fields.Float(allow_none=True)


class BudgetScenarioSchema(OpenSchema):
    """A scenario's totals and curves."""

    name = fields.String()
    growth_added_per_month = fields.Float()
    demand_multiplier = fields.Float()
    price_multiplier = fields.Float()
    totals = fields.Nested(BudgetTotalsSchema)
    gpus = _numbers()
    effective_cost = _numbers()


class BudgetWorkloadLineSchema(OpenSchema):
    """One workload: who serves it, or why nobody does."""

    name = fields.String()
    model = fields.String()
    fleet = fields.String(allow_none=True)
    served = fields.Boolean()
    reason = fields.String(allow_none=True)
    starts_month = fields.Integer()
    ends_month = fields.Integer(allow_none=True)
    requests_per_second = _numbers()
    tokens_factor = _numbers()
    unserved_months = fields.List(fields.Dict(), metadata={
        "description": "Months that need more than max_gpus: month, gpus, gpus_short"})


class BudgetCapacitySchema(OpenSchema):
    """Highest rate that so many replicas hold."""

    replicas = _numbers()
    requests_per_second = _numbers()


class BudgetPoolSchema(OpenSchema):
    """A pool at its fixed layout, by month."""

    role = fields.String()
    gpu = fields.String()
    layout = fields.String()
    gpus_per_replica = fields.Integer()
    capacity = fields.Nested(BudgetCapacitySchema)
    replicas = _numbers()
    gpus = _numbers()


class BudgetFleetSchema(OpenSchema):
    """Replicas that serve one or more workloads."""

    name = fields.String()
    model = fields.String()
    setup = fields.String()
    weights = fields.String()
    kv = fields.String()
    limited_by = fields.String(allow_none=True)
    sized_month = fields.Integer()
    regions = fields.Integer()
    spare_replicas = fields.Integer()
    target_utilization = fields.Float()
    workloads = fields.List(fields.String())
    gpus = _numbers()
    pools = fields.List(fields.Nested(BudgetPoolSchema))


class BudgetTermSchema(OpenSchema):
    """A commitment on offer or taken."""

    term_months = fields.Integer()
    usd_per_gpu_hour = fields.Float()
    break_even_utilization = fields.Float()
    source = fields.String()


class BudgetLineSchema(OpenSchema):
    """GPUs of one kind at one price: what is committed, what bursts."""

    name = fields.String()
    gpu = fields.String()
    usd_per_gpu_hour = fields.Float()
    provider = fields.String()
    region = fields.String()
    commitment = fields.String()
    source = fields.String()
    term = fields.Nested(BudgetTermSchema, allow_none=True)
    offered = fields.List(fields.Nested(BudgetTermSchema))
    gpus = _numbers()
    committed_gpus = _numbers()
    burst_gpus = _numbers()
    unused_gpus = _numbers()
    effective_cost = _numbers()
    rental_cost = fields.Float()
    staggered_cost = fields.Float()


class BudgetBuyOrRentSchema(OpenSchema):
    """Buying a line's GPUs against renting them."""

    name = fields.String()
    gpu = fields.String()
    gpus_per_server = fields.Integer()
    servers = _numbers()
    servers_bought = _numbers()
    rent_cost = _numbers()
    buy_cash = _numbers()
    buy_cost = _numbers()
    book_value = _numbers()
    rent_total = fields.Float()
    buy_total = fields.Float()
    break_even_month = fields.Integer(allow_none=True)
    break_even_month_with_resale = fields.Integer(allow_none=True)


class BudgetOrderSchema(OpenSchema):
    """What to order by when."""

    name = fields.String()
    gpu = fields.String()
    kind = fields.String()
    count = fields.Integer()
    month = fields.Integer()
    needed_from = fields.String()
    order_by = fields.String()
    before_start = fields.Boolean()
    overdue = fields.Boolean(metadata={
        "description": "Whether it should have been ordered before the budget was made"})


class BudgetWhatIfSchema(OpenSchema):
    """The base scenario under a question."""

    name = fields.String()
    from_month = fields.Integer()
    price_multiplier = fields.Float()
    gpu = fields.String(allow_none=True)
    usd_per_gpu_hour = fields.Float(allow_none=True)
    gpus = _numbers()
    effective_cost = _numbers()
    total = fields.Float(allow_none=True)
    difference = fields.Float(allow_none=True)
    reason = fields.String(allow_none=True)


class BudgetUnservedSchema(OpenSchema):
    """A workload that is not served, or not to the end."""

    pointer = fields.String()
    name = fields.String()
    reason = fields.String()


class BudgetAnswerSchema(Schema):
    """A stored budget."""

    id = fields.String()
    created_at = fields.String(metadata={"format": "date-time"})
    request = fields.Dict(metadata={"description": "The request, every default filled in"})
    billing_currency = fields.String()
    totals = fields.Nested(BudgetTotalsSchema)
    months = fields.List(fields.Nested(BudgetMonthSchema))
    scenarios = fields.List(fields.Nested(BudgetScenarioSchema))
    workloads = fields.List(fields.Nested(BudgetWorkloadLineSchema))
    fleets = fields.List(fields.Nested(BudgetFleetSchema))
    gpu_lines = fields.List(fields.Nested(BudgetLineSchema))
    buy_or_rent = fields.List(fields.Nested(BudgetBuyOrRentSchema))
    orders = fields.List(fields.Nested(BudgetOrderSchema))
    what_if = fields.List(fields.Nested(BudgetWhatIfSchema))
    infeasible = fields.List(fields.Nested(BudgetUnservedSchema))
    assumptions = fields.List(fields.Dict())
    catalog_as_of = fields.String()


class BudgetSummarySchema(Schema):
    """A budget in a list."""

    id = fields.String()
    created_at = fields.String(metadata={"format": "date-time"})
    name = fields.String()
    months = fields.Integer()
    workloads = fields.Integer()
    peak_gpus = fields.Integer()
    effective_cost = fields.Float()
    billing_currency = fields.String()
