"""Ids of prices that a file leaves without one: one per offer, the same each time it is sent."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

LONGEST = 100
_NAMES = ("provider", "instance", "gpu", "region", "commitment")
_MARK = 8
"""Hexadecimal digits that tell apart offers whose words would make one id."""

Offer = tuple[str, ...]


def offer_of(flat: Mapping[str, Any]) -> Offer:
    """Whose price a row is: provider, instance, GPU, region and commitment, however they are
    spelt; the price itself, its date and source are not part of it.

    Examples
    --------
    >>> offer_of({"provider": "Our  cloud", "gpu": "l4", "commitment": "spot"})
    ('our cloud', '', 'l4', '', 'spot')
    """
    return tuple(" ".join(unicodedata.normalize("NFKC", str(flat.get(name) or "")).casefold()
                          .split()) for name in _NAMES)


def price_id(flat: Mapping[str, Any], stored: Mapping[str, Mapping[str, Any]]) -> str:
    """The id of a price that has none; it is never the id of another offer.

    Words that letters of an id cannot spell, and words that another offer's id spells already,
    are told apart by a mark at the end, so that two providers never share a row.

    Parameters
    ----------
    flat : mapping
        The row, by column.
    stored : mapping
        Rows by id, stored and of the same file.

    Examples
    --------
    >>> price_id({"provider": "Our Cloud", "gpu": "l4", "commitment": "on_demand"}, {})
    'our-cloud-l4-on-demand'
    >>> price_id({"provider": "阿里云", "gpu": "l4", "commitment": "spot"}, {})
    'l4-spot-80da3f16'
    """
    plain = _spelt(flat)
    taken = plain in stored
    if (taken and is_same(flat, stored[plain])) or (not taken and _spells(flat, plain)):
        return plain
    count = str(flat.get("gpus_per_instance") or "")
    said = "\x1f".join([*offer_of(flat), count]).encode("utf-8", "backslashreplace")
    mark = hashlib.sha256(said).hexdigest()[:_MARK]
    return f"{plain[:LONGEST - _MARK - 1].rstrip('-.')}-{mark}"


def is_same(flat: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows price the same offer; instances of another size are another offer."""
    counts = {row["gpus_per_instance"] for row in (flat, other) if row.get("gpus_per_instance")}
    return len(counts) < 2 and offer_of(flat) == offer_of(other)


def _words(flat: Mapping[str, Any]) -> str:
    return "-".join(str(flat[name]) for name in _NAMES if flat.get(name))


def _spelt(flat: Mapping[str, Any]) -> str:
    text = unicodedata.normalize("NFKD", _words(flat)).lower()
    bare = "".join(c for c in text if not unicodedata.combining(c))
    return re.sub(r"[^a-z0-9.]+", "-", bare).strip("-.") or "price"


def _spells(flat: Mapping[str, Any], plain: str) -> bool:
    return _words(flat).isascii() and len(plain) <= LONGEST
