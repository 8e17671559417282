"""Words that a cell may hold, fed from the catalog: models, GPUs, engines, providers, regions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from planner.catalog.book import Catalog
from planner.errors import NotInCatalog
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.requests import COMMITMENTS, OBJECTIVES, SETUPS
from planner.spreadsheets.quantities import BadCell, choice_of, choices_of, spelled, text_of
from planner.spreadsheets.sheets import Cell

_SETUP_WORDS = {"Static batches": "static", "Chunked prefill": "chunked",
                "disaggregated serving": "disaggregated", "disagg": "disaggregated"}
_COMMITMENT_WORDS = {"ondemand": "on_demand", "pay as you go": "on_demand", "1y": "reserved_1y",
                     "1 year": "reserved_1y", "reserved 1 year": "reserved_1y",
                     "1 year reserved": "reserved_1y", "3y": "reserved_3y",
                     "3 years": "reserved_3y", "reserved 3 years": "reserved_3y",
                     "3 year reserved": "reserved_3y", "own": "owned"}
_FIXED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "setups": (SETUPS, _SETUP_WORDS), "weights": (WEIGHT_PRECISIONS, {}),
    "kv": (KV_PRECISIONS, {}), "commitments": (COMMITMENTS, _COMMITMENT_WORDS),
    "objectives": (OBJECTIVES, {}),
}


class Choices:
    """The words of every list, and how cells that use them are read.

    Parameters
    ----------
    catalog : Catalog
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def words(self, name: str) -> list[str]:
        """The words of a list, as the drop-down shows them."""
        if name in _FIXED:
            return list(_FIXED[name][0])
        return {"models": lambda: sorted(self.catalog.llms),
                "gpus": lambda: sorted(self.catalog.gpus),
                "engines": lambda: [*sorted({p.engine for p in self.catalog.engines.values()}),
                                    *self._profiles],
                "providers": lambda: self._known("provider"),
                "regions": lambda: self._known("region")}[name]()

    def one(self, name: str, cell: Cell, label: str) -> str:
        """The word of a cell.

        Raises
        ------
        BadCell
        """
        if name == "models":
            return self._model(text_of(cell))
        return choice_of(cell, self._spellings(name), label)

    def several(self, name: str, cell: Cell, label: str) -> list[str]:
        """The words of a cell that may hold several.

        Raises
        ------
        BadCell
        """
        if name == "setups" and spelled(text_of(cell)) == "all":
            return list(SETUPS)
        if name != "gpus":
            return choices_of(cell, self._spellings(name), label)
        text = text_of(cell)
        try:
            return choices_of(cell, self._gpu_spellings, label)
        except BadCell as error:
            first = next((p.strip() for p in text.replace(";", ",").replace("+", ",").split(",")
                          if p.strip() and spelled(p) not in self._gpu_spellings), text)
            try:
                self.catalog.gpu(first)
            except NotInCatalog as unknown:
                raise BadCell(f"{unknown.message}; the sheet Lists has all") from None
            raise error

    def _model(self, text: str) -> str:
        for name in (text, self._model_names.get(spelled(text), text)):
            try:
                return self.catalog.llm(name).slug
            except NotInCatalog as error:
                unknown = error
        raise BadCell(f"{unknown.message}; the sheet Lists has all")

    def _spellings(self, name: str) -> dict[str, str]:
        more = _FIXED[name][1] if name in _FIXED else {}
        return _spellings(self.words(name)) | {spelled(k): v for k, v in more.items()}

    @cached_property
    def _model_names(self) -> dict[str, str]:
        """Spellings that mean one model only."""
        found: dict[str, set[str]] = {}
        for m in self.catalog.llms.values():
            for name in (m.slug, m.name, m.hf_id):
                found.setdefault(spelled(name or m.slug), set()).add(m.slug)
        return {spelling: slugs.pop() for spelling, slugs in found.items() if len(slugs) == 1}

    @cached_property
    def _gpu_spellings(self) -> dict[str, str]:
        named = {spelled(g.name): g.slug for g in self.catalog.gpus.values()}
        short = {spelled(g.name.removeprefix(g.vendor)): g.slug for g in self.catalog.gpus.values()}
        return short | named | _spellings(self.catalog.gpus)

    @cached_property
    def _profiles(self) -> list[str]:
        engines = {p.engine for p in self.catalog.engines.values()}
        return sorted(s for s in self.catalog.engines if s not in engines)

    def _known(self, field: str) -> list[str]:
        return sorted({getattr(p, field) for p in self.catalog.prices if getattr(p, field)})


def _spellings(words: Iterable[str]) -> dict[str, str]:
    return {spelled(word): word for word in words}
