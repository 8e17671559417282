"""The catalog as an in-memory value that calculations read.

The service fills one from the database; the library fills one from the shipped tables with
:func:`planner.catalog.shipped.shipped_catalog`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from planner.architectures import slug_of
from planner.engine import IDEAL, EngineProfile, profile_slug
from planner.errors import NotInCatalog
from planner.hardware import Gpu
from planner.llm import Llm
from planner.requests import Pricing


@dataclass(frozen=True, slots=True)
class Price:
    """One price row: what a provider asks for one GPU-hour, when, under which commitment."""

    id: str
    gpu: str
    provider: str
    region: str
    commitment: str
    usd_per_gpu_hour: Decimal
    as_of: str
    source: str
    instance: str = ""
    notes: str = ""
    gpus_per_instance: int | None = None
    """GPUs one must rent at once; None where it is not said."""

    @property
    def sold_singly(self) -> bool:
        """Whether the row is a price per GPU of machines of any size."""
        return self.gpus_per_instance is None or "per-gpu" in self.instance.lower()

    def holds(self, gpus: int) -> bool:
        """Whether a replica of ``gpus`` fits one instance of this row."""
        return self.sold_singly or (self.gpus_per_instance or 1) >= gpus


@dataclass(frozen=True, slots=True)
class PriceChoice:
    """The price row that stands for a market, and how far its rows spread.

    Attributes
    ----------
    price : Price
        The lower median of the providers' cheapest fitting rows.
    low, high : Decimal
        [USD per GPU-hour] cheapest and dearest provider.
    providers : int
    """

    price: Price
    low: Decimal
    high: Decimal
    providers: int


@dataclass(slots=True)
class Catalog:
    """GPUs, models, prices and engine profiles by name."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    llms: dict[str, Llm] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """Hugging Face ids and other names, lower case, to slugs."""
    prices: list[Price] = field(default_factory=list)
    engines: dict[str, EngineProfile] = field(default_factory=lambda: {"ideal": IDEAL})
    as_of: str = ""
    """Date of the newest row, for the report."""

    def gpu(self, slug: str, pointer: str = "/gpu") -> Gpu:
        """A GPU by slug.

        Raises
        ------
        NotInCatalog
        """
        if slug not in self.gpus:
            raise NotInCatalog(_unknown("GPU", slug, self.gpus), pointer)
        return self.gpus[slug]

    def llm(self, name: str, pointer: str = "/model") -> Llm:
        """A model by slug, Hugging Face id or alias (case does not matter).

        An id that is no alias is tried as the slug it would have: ``org/Meta-Llama-3-8B-Instruct``
        is the architecture of ``llama-3-8b``.

        Raises
        ------
        NotInCatalog
        """
        slug = name if name in self.llms else self.aliases.get(name.lower(), slug_of(name))
        if slug not in self.llms:
            raise NotInCatalog(_unknown("model", name, self.llms), pointer)
        return self.llms[slug]

    def engine(self, name: str, gpu: Gpu, precision: str, pointer: str = "/engine"
               ) -> EngineProfile:
        """The best profile of an engine for a GPU and weight precision, or the one of that slug.

        The closest match wins: this GPU before its architecture before any, this precision
        before any; of several, one of a name of its own before one named as shipped.

        Raises
        ------
        NotInCatalog
        """
        if name in self.engines:
            return self.engines[name]
        scored = [(s, _own(p, gpu), p.slug, p) for p in self.engines.values()
                  if p.engine == name and (s := _match(p, gpu, precision)) is not None]
        if not scored:
            names = {p.engine: None for p in self.engines.values()}
            raise NotInCatalog(_unknown("engine", name, names), pointer)
        return max(scored, key=lambda row: row[:3])[3]

    def price(self, gpu: str, pricing: Pricing, least_gpus: int = 1) -> Price | None:
        """The price that applies, see :meth:`price_choice`."""
        choice = self.price_choice(gpu, pricing, least_gpus)
        return None if choice is None else choice.price

    def price_choice(self, gpu: str, pricing: Pricing, least_gpus: int = 1
                     ) -> PriceChoice | None:
        """The price of a GPU under a wish, or None; an override wins over every row.

        Each provider stands with its cheapest row whose instance holds ``least_gpus``; of the
        providers the lower median is taken, so that neither a marketplace's bargain nor a list
        price decides a budget. A named provider leaves only its own rows.
        """
        if gpu in pricing.usd_per_gpu_hour:
            usd = Decimal(str(pricing.usd_per_gpu_hour[gpu]))
            row = Price("override", gpu, "request", "", pricing.commitment, usd, "", "request")
            return PriceChoice(row, usd, usd, 1)
        return middle_price(self.price_rows(gpu, pricing), least_gpus)

    def price_rows(self, gpu: str, pricing: Pricing) -> list[Price]:
        """The rows of a GPU under a wish, cheapest first."""
        rows = [p for p in self.prices if p.gpu == gpu and p.commitment == pricing.commitment
                and (pricing.provider is None or p.provider.lower() == pricing.provider.lower())
                and (pricing.region is None or p.region.lower() == pricing.region.lower())]
        return sorted(rows, key=_price_order)


def middle_price(rows: list[Price], least_gpus: int) -> PriceChoice | None:
    """The lower median of the providers, each with its cheapest row whose instance holds
    ``least_gpus`` (with its cheapest, where nobody's does); None without rows.

    Parameters
    ----------
    rows : list of Price
        Cheapest first.
    """
    cheapest: dict[str, Price] = {}
    for row in [p for p in rows if p.holds(least_gpus)] or rows:
        cheapest.setdefault(row.provider, row)
    ranked = list(cheapest.values())
    if not ranked:
        return None
    middle = ranked[(len(ranked) - 1) // 2]
    return PriceChoice(middle, ranked[0].usd_per_gpu_hour, ranked[-1].usd_per_gpu_hour,
                       len(ranked))


def _match(profile: EngineProfile, gpu: Gpu, precision: str) -> int | None:
    """How closely a profile fits, None when it does not."""
    gpu_score = {gpu.slug: 4, gpu.architecture.lower(): 2, "*": 0}.get(profile.gpu)
    precision_score = {precision: 1, "*": 0}.get(profile.precision)
    if gpu_score is None or precision_score is None:
        return None
    return gpu_score + precision_score


def _own(profile: EngineProfile, gpu: Gpu) -> bool:
    """Whether a profile of this GPU is a user's: shipped ones are named by what they are for."""
    return profile.gpu == gpu.slug and profile.slug != profile_slug(
        profile.engine, profile.gpu, profile.precision)


def _price_order(price: Price) -> tuple[Decimal, str, str]:
    return price.usd_per_gpu_hour, price.provider, price.id


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    wanted = name.lower().replace(" ", "-")
    near = [k for k in known if wanted and wanted in k][:4]
    near = near or difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"unknown {kind} {name!r}{hint}"
