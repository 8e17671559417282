"""The compiled event loop. State is a set of arrays, so a run can stop and go on.

A *server* is one data-parallel rank of one replica. Servers are advanced lazily: only when an
arrival, a router or a failure needs to know them. An iteration costs O(1): batch size, sum of
contexts, a heap of finish steps. Runs of decode steps between two events are one closed form,
because a step is straight in the mean context between the knots that
:func:`planner.stepping.decode_line` names, and the mean context grows by a constant a
step; so are the blocks that they take (sequences by the phase of their last block).

From the bottom up: ``chance``, ``lists`` and ``heaps``; ``blocks`` of the KV cache and ``gaps``
between tokens; the ``batch`` of a server, ``decoding`` and ``admission``; one step of each
scheduler (``prefill_first``, ``chunked``, ``static``); ``servers``, ``routing`` and ``failures``;
``events``.
Nothing here is meant to be called but by :mod:`planner.simulator.run`.
"""

from __future__ import annotations

from planner.simulator.kernel.chance import draw_steps
from planner.simulator.kernel.events import run_events

__all__ = ["draw_steps", "run_events"]
