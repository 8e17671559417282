"""Which price applies to a fleet: the market's middle, on instances that hold a replica."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from planner.catalog.book import Catalog, PriceChoice, middle_price
from planner.errors import InvalidValue
from planner.fleet import FleetSize
from planner.hardware import Gpu
from planner.requests import Pricing
from planner.sizing import stage_gpus

STAGE_WIDTHS = (*range(1, 17), 32, 64)
"""GPUs of a stage for which prices are looked up."""


@dataclass(frozen=True, slots=True)
class Pricer:
    """Prices of one request: a catalog and a wish."""

    catalog: Catalog
    pricing: Pricing
    known: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """Rows and choices that were looked up."""

    def check(self) -> None:
        """Refuse a provider or region that has no price at all.

        Raises
        ------
        InvalidValue
        """
        for name in ("provider", "region"):
            wish = getattr(self.pricing, name)
            if wish is None:
                continue
            known = sorted({getattr(p, name) for p in self.catalog.prices if getattr(p, name)})
            if known and wish.lower() not in {k.lower() for k in known}:
                raise InvalidValue(f"no price is known of {name} {wish!r}; known are "
                                   f"{', '.join(known)}", f"/pricing/{name}")

    def choice(self, slug: str, least_gpus: int = 1) -> PriceChoice | None:
        """The price of a GPU on instances of at least ``least_gpus``."""
        if slug in self.pricing.usd_per_gpu_hour:
            return self.catalog.price_choice(slug, self.pricing)
        if slug not in self.known:
            self.known[slug] = self.catalog.price_rows(slug, self.pricing)
        if (slug, least_gpus) not in self.known:
            self.known[slug, least_gpus] = middle_price(self.known[slug], least_gpus)
        choice: PriceChoice | None = self.known[slug, least_gpus]
        return choice

    def of_fleet(self, fleet: FleetSize) -> dict[str, PriceChoice]:
        """Prices of a fleet's GPUs; a kind without one is missing."""
        least: dict[str, int] = {}
        for p in fleet.pools:
            d = p.pool.deployment
            stage = stage_gpus(d.gpu, d.layout)
            least[d.gpu.slug] = max(least.get(d.gpu.slug, 1), stage)
        found = {slug: self.choice(slug, gpus) for slug, gpus in least.items()}
        return {slug: choice for slug, choice in found.items() if choice is not None}

    def by_stage(self, gpus: Iterable[Gpu]) -> dict[tuple[str, int], float]:
        """USD per GPU-hour by GPU slug and GPUs of a stage; what has no price is missing."""
        pairs = {(g.slug, min(width, g.node_gpus)) for g in gpus for width in STAGE_WIDTHS}
        found = {pair: self.choice(*pair) for pair in pairs}
        return {pair: float(choice.price.usd_per_gpu_hour)
                for pair, choice in found.items() if choice is not None}

    def usd_per_hour(self, fleet: FleetSize) -> float | None:
        """What a fleet costs per hour [USD], None when a GPU has no price."""
        return fleet_usd(fleet, self.of_fleet(fleet))


def fleet_usd(fleet: FleetSize, prices: dict[str, PriceChoice]) -> float | None:
    """GPUs times their price [USD/h], None when one is missing."""
    kinds = fleet.gpus_by_kind()
    if any(slug not in prices for slug in kinds):
        return None
    return sum(n * float(prices[slug].price.usd_per_gpu_hour) for slug, n in kinds.items())


def whole_instances_usd(fleet: FleetSize, prices: dict[str, PriceChoice]) -> float | None:
    """The same when only whole instances can be rented [USD/h]."""
    kinds = fleet.gpus_by_kind()
    if any(slug not in prices for slug in kinds):
        return None
    total = 0.0
    for slug, gpus in kinds.items():
        price = prices[slug].price
        size = 1 if price.sold_singly else price.gpus_per_instance or 1
        total += ceil(gpus / size) * size * float(price.usd_per_gpu_hour)
    return total
