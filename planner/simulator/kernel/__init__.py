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

import hashlib
from collections.abc import Callable
from pathlib import Path

from planner.compiled import entry
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.chance import draw_steps
from planner.simulator.kernel.events import run_events
from planner.stepping import PackedSteps

__all__ = ["draw_steps", "play"]


def _stored_under(sources: str) -> Callable[..., None]:
    """The loop, whose machine code on disk is for these sources alone.

    The compiler keys what it stores by the file of the function, and by what the function closes
    over: so by the digest of every module that goes into it. The digest is in its name as well, for
    what is stored for other sources cannot even be looked through where their types are gone.
    """

    def play(
        cf: Config,
        st: State,
        p0: PackedSteps,
        p1: PackedSteps,
        d0: PackedSteps,
        d1: PackedSteps,
        upto: int,
    ) -> None:
        if len(sources) > 0:
            run_events(cf, st, p0, p1, d0, d1, upto)

    play.__qualname__ = f"play_{sources[:16]}"
    made: Callable[..., None] = entry(play)
    return made


def _sources() -> str:
    folder, digest = Path(__file__).parent, hashlib.sha256()
    others = (folder.parent / "columns.py", folder.parent / "arrays.py",
              folder.parent.parent / "stepping.py")
    for path in (*sorted(folder.glob("*.py")), *others):
        digest.update(path.read_bytes())
    return digest.hexdigest()


play = _stored_under(_sources())
"""Run to the arrival of a request: :func:`run_events`."""
