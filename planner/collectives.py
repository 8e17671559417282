"""Time of the collectives that parallel layouts need, over the link that applies.

All follow the latency-bandwidth (Hockney) form ``latency + bytes on the wire / bandwidth``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.engine import EngineProfile
from planner.hardware import Gpu

Array = NDArray[np.float64]
NETWORK_EFFICIENCY = 0.8
"""Share of the card's rate that large RDMA writes reach (perftest on 400 Gb/s InfiniBand: 0.9 and
more; the rest is for headers and competing traffic)."""


def all_reduce_wire_bytes(message_bytes: float, ranks: int) -> float:
    """Bytes [B] each rank sends in a ring all-reduce: 2 (t - 1) / t of the message.

    Source: Patarasuk & Yuan, *Bandwidth optimal all-reduce algorithms*, JPDC 2009, section 3.
    """
    return 2.0 * (ranks - 1) / ranks * message_bytes


def all_to_all_wire_bytes(message_bytes: float, ranks: int) -> float:
    """Bytes [B] each rank sends when its message is spread evenly: (e - 1) / e of it."""
    return (ranks - 1) / ranks * message_bytes


def link_time_s(wire_bytes: float, gpu: Gpu, group_gpus: int, profile: EngineProfile,
                operations: float) -> float:
    """Seconds [s] for ``operations`` collectives that put ``wire_bytes`` [B] on each GPU's link.

    The link is the slowest one inside a group of ``group_gpus``: the NVLink (or mesh) domain,
    PCIe inside a host, else the network card.

    Parameters
    ----------
    wire_bytes : float
        [B] per GPU, all operations together.
    operations : float
        Number of collectives; each pays the profile's latency (twice outside the domain).
    """
    bandwidth, kind = gpu.group_link(group_gpus)
    latency_s = profile.collective_latency_s * (2.0 if kind == "network" else 1.0)
    return wire_bytes / (bandwidth * profile.link_efficiency) + operations * latency_s


def kv_transfer_s(kv_bytes: Array, source: Gpu, target: Gpu, sending_gpus: int,
                  receiving_gpus: int, profile: EngineProfile) -> Array:
    """Seconds [s] to move one request's cache from a prefill to a decode replica.

    Each GPU sends its shard over its own network card; the slower side sets the pace. Prefill and
    decode replicas sit on different nodes of a fleet, so the fast domain is not assumed.
    DistServe (OSDI 2024) section 3.3.
    """
    bandwidth = network_bytes_per_s(source, target, sending_gpus, receiving_gpus)
    return kv_bytes / bandwidth + profile.collective_latency_s


def network_bytes_per_s(source: Gpu, target: Gpu, sending_gpus: int, receiving_gpus: int) -> float:
    """What the network cards of the slower of two replicas carry [B/s]."""
    sending = sending_gpus * source.nic_bytes_per_s
    receiving = receiving_gpus * target.nic_bytes_per_s
    return min(sending, receiving) * NETWORK_EFFICIENCY
