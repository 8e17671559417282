"""Column names of published traces.

References
----------
- Azure LLM inference traces 2023 and 2024: ``TIMESTAMP, ContextTokens, GeneratedTokens``
  (Azure/AzurePublicDataset).
- BurstGPT: ``Timestamp, [Session ID, Elapsed time,] Model, Request tokens, Response tokens, …``,
  times in seconds (HPMLL/BurstGPT).
- Mooncake: JSON lines with ``timestamp, input_length, output_length, hash_ids``, times in
  milliseconds (kvcache-ai/Mooncake, FAST25-release/traces).
- Vidur: ``arrived_at, num_prefill_tokens, num_decode_tokens`` (microsoft/vidur).

A time column may say its unit, as in ``arrived_at_s``, ``timestamp_ms`` or ``Timestamp (seconds)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import InvalidValue

FIELDS = ("timestamp", "prompt_tokens", "output_tokens")
_NAMES = {
    "timestamp": ("timestamp", "arrived_at", "arrival_time"),
    "prompt_tokens": ("prompt_tokens", "ContextTokens", "Request tokens", "input_length",
                      "input_tokens", "num_prefill_tokens"),
    "output_tokens": ("output_tokens", "GeneratedTokens", "Response tokens", "output_length",
                      "num_decode_tokens"),
}
FORMATS = {"contexttokens": "azure", "requesttokens": "burstgpt", "numprefilltokens": "vidur"}
"""Whose trace it is, by the name of its prompt column; any other is ``plain``, but for Mooncake's,
whose three names must all be there: its times are in milliseconds."""
_MOONCAKE = ("timestamp", "inputlength", "outputlength")
_UNIT_WORDS = {"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
               "ms": "ms", "msec": "ms", "msecs": "ms", "millis": "ms", "millisecond": "ms",
               "milliseconds": "ms"}
_UNIT_ENDING = re.compile(rf"(?:^|[\W_])(?:in[\W_]+)?({'|'.join(_UNIT_WORDS)})[\W_]*$",
                          re.IGNORECASE)


def plain_name(name: str) -> str:
    """A column name without case, spaces and punctuation.

    Examples
    --------
    >>> plain_name("Request tokens")
    'requesttokens'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def split_unit(name: str) -> tuple[str, str | None]:
    """A column name without the unit of time that it ends with, and ``s``, ``ms`` or None.

    Examples
    --------
    >>> split_unit("arrived_at_ms"), split_unit("Timestamp (seconds)"), split_unit("Timestamps")
    (('arrived_at', 'ms'), ('Timestamp', 's'), ('Timestamps', None))
    """
    ending = _UNIT_ENDING.search(name)
    if ending is None:
        return name, None
    return name[:ending.start()].rstrip(), _UNIT_WORDS[ending[1].lower()]


_FIELD_OF = {plain_name(n): field for field, names in _NAMES.items() for n in names}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the three fields are.

    Attributes
    ----------
    index : tuple of int
        Places of timestamp, prompt and output.
    names : tuple of str
        Their names in the file, for messages.
    format : str
    time_unit : str
        ``s`` or ``ms`` of numeric times: what the name of the time column says, or else the format.
    """

    index: tuple[int, int, int]
    names: tuple[str, str, str]
    format: str
    time_unit: str


def find_columns(header: Sequence[str]) -> Columns:
    """The columns of a header.

    Raises
    ------
    InvalidValue
        When one is missing, or two columns claim one field.
    """
    found: dict[str, int] = {}
    for place, name in enumerate(header):
        field = _field_of(name)
        if field is None:
            continue
        if field in found:
            raise InvalidValue(f"the columns {header[found[field]]!r} and {name!r} could both be "
                               f"{field}; leave one of them out", f"/{field}")
        found[field] = place
    for field in FIELDS:
        if field not in found:
            raise InvalidValue(_missing(field, header), f"/{field}")
    index = (found["timestamp"], found["prompt_tokens"], found["output_tokens"])
    names = (header[index[0]], header[index[1]], header[index[2]])
    form = _format_of(names)
    unit = split_unit(names[0])[1] or ("ms" if form == "mooncake" else "s")
    return Columns(index, names, form, unit)


def _field_of(name: str) -> str | None:
    bare, unit = split_unit(name)
    field = _FIELD_OF.get(plain_name(bare))
    return field if unit is None or field == "timestamp" else None


def _format_of(names: tuple[str, str, str]) -> str:
    bare = tuple(map(plain_name, (split_unit(names[0])[0], *names[1:])))
    return "mooncake" if bare == _MOONCAKE else FORMATS.get(bare[1], "plain")


def _missing(field: str, header: Sequence[str]) -> str:
    others = ", ".join(_NAMES[field][1:]) + (
        ", and these ending in _s or _ms" if field == "timestamp" else "")
    shown = ", ".join(repr(n[:40]) for n in header[:12]) or "nothing"
    return f"the trace has no column {field!r} (also accepted: {others}); its columns are {shown}"
