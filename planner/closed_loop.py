"""A benchmark's closed loop: so many clients, each sending its next request when one is answered.

The operating points are those of the plans: with ``n`` sequences running a token takes
``D(n) + n S / o``, which is the mean-field row ``D / (1 - lambda S)`` at the rate that keeps n
running. What differs from a plan is the protocol: no arrivals from outside, a burst at the start,
and as many waiting as there are clients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MAX_LOAD = 0.97
"""Prefill load above which the wait is no longer extrapolated."""


def token_s(decode_s: Array, prefill_s: Array, running: Array, output_tokens: Array) -> Array:
    """Time per output token [s]: every running sequence's prefill stalls the others once.

    From ``lambda = n / (o D + n S)`` and ``TPOT = D / (1 - lambda S)``.
    """
    return np.asarray(decode_s + running * prefill_s / output_tokens)


def running_share(decode_s: Array, prefill_s: Array, token: Array, output_tokens: Array) -> Array:
    """Share of the clients that decode: the rest waits for or is in its prefill (Little's law)."""
    decoding = np.maximum(output_tokens - 1.0, 1e-9) * token
    return np.asarray(decoding / (decoding + prefill_s + decode_s))


def first_token_s(constants: Array, decode_s: Array, prefill_s: Array, token: Array,
                  clients: Array, output_tokens: Array) -> Array:
    """Time to first token [s] of a closed loop with ``clients`` per rank.

    ``scale (S + D) + request + queue rho / (1 - rho) S + burst (N - 1) / 2 S + client N``: an idle
    engine's first token, the wait behind other prefills, the start-up burst that a share of the
    requests meets, and what each client adds on the host.

    Parameters
    ----------
    constants : ndarray, shape (5,)
        ``ttft_scale``, ``request_s``, ``burst_share``, ``client_s``, ``queue_scale``.
    """
    scale, request, burst, client, queue = constants
    cycle = output_tokens * token + prefill_s
    load = np.minimum(clients * prefill_s / cycle, MAX_LOAD)
    return np.asarray(
        scale * (prefill_s + decode_s) + request + queue * load / (1.0 - load) * prefill_s
        + burst * np.maximum(clients - 1.0, 0.0) / 2.0 * prefill_s + client * clients)
