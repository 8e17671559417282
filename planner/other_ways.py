"""Other layouts and chunk budgets for an option that a simulation refutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from planner.fleet import Fleet, build_fleet
from planner.layouts import layouts
from planner.one_pool import DEFAULT_TOKEN_BUDGETS
from planner.requests import Layout, Limits, PlanRequest, Precisions
from planner.search import search
from planner.sizing import Resources

Kind = tuple[str, str, str, tuple[str, ...]]
"""Set-up, weights, KV cache and the GPUs of the pools: a plan has one option of each."""


def kind_of(fleet: Fleet) -> Kind:
    """What a fleet is, whatever its layout."""
    option = fleet.sized
    return (option.setup, option.weights, option.kv,
            tuple(p.deployment.gpu.slug for p in option.pools))


@dataclass
class OtherWays:
    """Finds the best fleets of the same kind with what was not tried yet.

    Parameters
    ----------
    request : PlanRequest
        As one region sees it.
    resources : Resources
    """

    request: PlanRequest
    resources: Resources
    _layouts: dict[Kind, set[Layout]] = field(default_factory=lambda: defaultdict(set))
    _budgets: dict[tuple[Kind, Layout], set[int]] = field(
        default_factory=lambda: defaultdict(set))

    def beside(self, fleet: Fleet, roles: frozenset[str]) -> list[Fleet]:
        """The best fleet in another layout, and in other chunks, where there is one.

        Parameters
        ----------
        roles : frozenset of str
            Pools that are to change.
        """
        kind, found = kind_of(fleet), list[Fleet]()
        for pool in fleet.sized.pools:
            if pool.role in roles:
                self._layouts[kind].add(pool.deployment.layout)
        left = [x for x in self._known(fleet) if x not in self._layouts[kind]]
        if left:
            found += self._best(fleet, replace(self.request.limits, layouts=tuple(left)))
        return found + self._other_chunks(fleet, kind)

    def _known(self, fleet: Fleet) -> Iterator[Layout]:
        """Layouts that every GPU of the fleet may have."""
        gpus = {p.deployment.gpu.slug: p.deployment.gpu for p in fleet.sized.pools}
        first, *rest = (layouts(self.resources.llm, g, self.request.limits) for g in gpus.values())
        return (x for x in first if all(x in others for others in rest))

    def _other_chunks(self, fleet: Fleet, kind: Kind) -> list[Fleet]:
        """The same layout with other token budgets."""
        pool = fleet.sized.pools[0]
        if pool.token_budget is None:
            return []
        layout = pool.deployment.layout
        tried = self._budgets[kind, layout]
        tried.add(pool.token_budget)
        limits = self.request.limits
        left = tuple(b for b in limits.token_budgets or DEFAULT_TOKEN_BUDGETS if b not in tried)
        return self._best(fleet, replace(limits, layouts=(layout,), token_budgets=left)
                          ) if left else []

    def _best(self, fleet: Fleet, limits: Limits) -> list[Fleet]:
        """The fleet of the same kind within limits, if one holds."""
        option = fleet.sized
        slugs = dict.fromkeys(p.deployment.gpu.slug for p in option.pools)
        request = replace(self.request, setups=(option.setup,), gpus=tuple(slugs), limits=limits,
                          precisions=(Precisions(option.weights, option.kv),))
        resources = replace(self.resources, gpus=tuple(
            g for g in self.resources.gpus if g.slug in slugs))
        fleets = (build_fleet(choice.sized(request), self.request)
                  for choice in search(request, resources).choices)
        return [f for f in fleets if kind_of(f) == kind_of(fleet)
                and f.gpus <= self.request.limits.max_gpus]
