"""A benchmark's closed loop: so many clients, each sending its next request when one is answered.

The operating points are those of the plans: with ``n`` sequences running a token takes
``D(n) + n S / o``, which is the mean-field row ``D / (1 - lambda S)`` at the rate that keeps n
running. What differs from a plan is the protocol: no arrivals from outside, a burst at the start,
and as many waiting as there are clients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.engine import lag_s
from planner.setups.continuous import RESIDUAL

Array = NDArray[np.float64]
CONSTANTS = ("ttft_scale", "request_s", "burst_share", "client_s", "queue_scale", "first_steps",
             "prompt_token_s")
"""The constants of a profile that the time to first token of a closed loop takes."""
MAX_LOAD = 0.97
"""Prefill load above which the wait is no longer extrapolated."""


def token_s(decode_s: Array, prefill_s: Array, running: Array, output_tokens: Array) -> Array:
    """Time per output token [s]: every running sequence's prefill stalls the others once.

    From ``lambda = n / (o D + n S)`` and ``TPOT = D / (1 - lambda S)``.
    """
    return np.asarray(decode_s + running * prefill_s / output_tokens)


def running_share(ttft_s: Array, token: Array, output_tokens: Array) -> Array:
    """Share of the clients that decode: the rest waits for its first token (Little's law)."""
    decoding = np.maximum(output_tokens - 1.0, 1e-9) * token
    return np.asarray(decoding / (decoding + ttft_s))


def first_token_s(constants: Array, alone_s: Array, prefill_s: Array, token: Array,
                  clients: Array, prompt_tokens: Array, output_tokens: Array) -> Array:
    """Time to first token [s] of a closed loop with ``clients`` per rank.

    ``scale S + D(1) / 2 + lag + queue rho / (1 - rho) S + burst (N - 1) / 2 S + client N``: an idle
    engine's first token, the rest of the running step, :func:`planner.engine.lag_s`, the wait
    behind other prefills, the start-up burst that a share of the requests meets, and what each
    client adds on the host.

    Parameters
    ----------
    constants : ndarray, shape (7,) or (7, n)
        In the order of :data:`CONSTANTS`.
    alone_s : ndarray, shape (n,)
        [s] of a decode step of one sequence.
    """
    scale, request, burst, client, queue, steps, per_token = constants
    cycle = output_tokens * token + prefill_s
    load = np.minimum(clients * prefill_s / cycle, MAX_LOAD)
    return np.asarray(
        scale * prefill_s + RESIDUAL * alone_s
        + lag_s(request, steps, per_token, alone_s, prompt_tokens)
        + queue * load / (1.0 - load) * prefill_s
        + burst * np.maximum(clients - 1.0, 0.0) / 2.0 * prefill_s + client * clients)
