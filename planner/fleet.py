"""From replicas to a fleet: spares, regions, whole nodes, power."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.hardware import Gpu
from planner.requests import PlanRequest
from planner.sizing import Pool, Sized
from planner.units import W_PER_KW


@dataclass(frozen=True, slots=True)
class FleetPool:
    """A pool with its spares, in one region.

    Attributes
    ----------
    pool : Pool
    spare_replicas : int
        On top of ``pool.replicas``, which alone carry the peak.
    """

    pool: Pool
    spare_replicas: int

    @property
    def replicas(self) -> int:
        """Replicas with spares."""
        return self.pool.replicas + self.spare_replicas

    @property
    def gpus(self) -> int:
        """GPUs with spares."""
        return self.replicas * self.pool.deployment.layout.gpus

    @property
    def utilization(self) -> float:
        """Peak load over what the replicas without spares could carry."""
        capacity = self.pool.capacity_rps * self.pool.replicas
        return self.pool.rate_per_s / capacity if capacity > 0 else 0.0


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Pools with their spares, in every region."""

    pools: tuple[FleetPool, ...]
    regions: int

    @property
    def gpus(self) -> int:
        """GPUs of the whole fleet."""
        return self.regions * sum(p.gpus for p in self.pools)

    def gpus_by_kind(self) -> dict[str, int]:
        """GPUs of the whole fleet by GPU slug."""
        totals: dict[str, int] = defaultdict(int)
        for p in self.pools:
            totals[p.pool.deployment.gpu.slug] += self.regions * p.gpus
        return dict(totals)

    @property
    def nodes(self) -> int:
        """Whole nodes of the fleet; nodes are not shared between GPU types or regions."""
        kinds: dict[str, tuple[Gpu, list[int]]] = {}
        for p in self.pools:
            gpu = p.pool.deployment.gpu
            sizes = [p.pool.deployment.layout.gpus] * p.replicas
            kinds.setdefault(gpu.slug, (gpu, []))[1].extend(sizes)
        return self.regions * sum(nodes_for(sizes, gpu.node_gpus)
                                  for gpu, sizes in kinds.values())

    @property
    def gpus_in_whole_nodes(self) -> int:
        """GPUs that the whole nodes hold, idle ones included."""
        return self.regions * sum(
            nodes_for([q.pool.deployment.layout.gpus for q in self.pools
                       if q.pool.deployment.gpu.slug == slug for _ in range(q.replicas)], size)
            * size
            for slug, size in {p.pool.deployment.gpu.slug: p.pool.deployment.gpu.node_gpus
                               for p in self.pools}.items())

    def power_kw(self, power_cap_w: float | None) -> float | None:
        """Board power of all GPUs at their limit [kW], None when one is unknown."""
        watts = 0.0
        for p in self.pools:
            tdp = p.pool.deployment.gpu.tdp_w
            if tdp is None:
                return None
            watts += self.regions * p.gpus * min(tdp, power_cap_w or tdp)
        return watts / W_PER_KW


@dataclass(frozen=True, slots=True)
class Fleet(FleetSize):
    """An option's fleet, with what users see."""

    sized: Sized


def nodes_for(replica_gpus: Iterable[int], node_gpus: int) -> int:
    """Fewest nodes that hold whole replicas, none split unless larger than a node.

    First-fit decreasing; exact when every size divides the node, as powers of two do.
    """
    free: dict[int, int] = defaultdict(int)
    nodes = 0
    for size in sorted(replica_gpus, reverse=True):
        whole, rest = divmod(size, node_gpus)
        nodes += whole
        if not rest:
            continue
        room = min((f for f, count in free.items() if count and f >= rest), default=None)
        if room is None:
            nodes, room = nodes + 1, node_gpus
        else:
            free[room] -= 1
        free[room - rest] += 1
    return nodes


def fleet_size(pools: Iterable[Pool], request: PlanRequest) -> FleetSize:
    """Add spares and regions to sized pools (whose rate is already one region's)."""
    spare = request.limits.spare_replicas
    return FleetSize(tuple(FleetPool(p, spare) for p in pools), request.limits.regions)


def build_fleet(sized: Sized, request: PlanRequest) -> Fleet:
    """Add spares and regions to a sized option."""
    size = fleet_size(sized.pools, request)
    return Fleet(size.pools, size.regions, sized)


def region_rate(rate_per_s: float, regions: int) -> float:
    """Peak of one region [1/s]: with R > 1 regions one may fail, so each carries 1 / (R - 1)."""
    return rate_per_s / (regions - 1) if regions > 1 else rate_per_s
