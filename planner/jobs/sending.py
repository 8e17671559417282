"""A catalog on its way to a worker process."""

from __future__ import annotations

import pickle
import zlib
from functools import lru_cache

from planner.catalog.book import Catalog


def pack_catalog(catalog: Catalog) -> bytes:
    """A catalog to send with a task; a few tens of kilobytes."""
    return zlib.compress(pickle.dumps(catalog))


@lru_cache(maxsize=2)
def unpack_catalog(data: bytes) -> Catalog:
    """The catalog again; kept, since one process works on many tasks of a job."""
    # Only ever what pack_catalog of the same service wrote.
    catalog: Catalog = pickle.loads(zlib.decompress(data))
    return catalog
