"""How many requests of a process may be read at once, so that others always find a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST_AT_ONCE = 4
"""Readers of a server that does not say how many threads it has."""
RETRY_S = 5
"""[s] after which a request that was refused may come again."""


class BodyTooSlow(Exception):
    """The client stopped sending its request, or sends it too slowly."""


class TooManyReaders(Exception):
    """Too many requests are being read now."""


class Readers:
    """Threads that read a request which takes long: a large one, or one that must be waited for.

    Parameters
    ----------
    most : int
        Such threads at once.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self.most, self._reading = most, set[int]()
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Count this thread among the readers, once however often it is called.

        Raises
        ------
        TooManyReaders
        """
        with self._lock:
            if threading.get_ident() in self._reading:
                return
            if len(self._reading) >= self.most:
                raise TooManyReaders(f"{self.most} requests are being read already, which is the "
                                     f"most at once; send it again in {RETRY_S} s")
            self._reading.add(threading.get_ident())

    def leave(self) -> None:
        """Count this thread no more."""
        with self._lock:
            self._reading.discard(threading.get_ident())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be a reader inside the block.

        Raises
        ------
        TooManyReaders
        """
        self.enter()
        try:
            yield
        finally:
            self.leave()


READERS = Readers()
"""Those of this process; a server with threads makes them half of its threads."""
