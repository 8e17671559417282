"""Numbers with their nouns, as sentences write them."""

from __future__ import annotations


def gpus(count: float, form: str = "") -> str:
    """So many GPUs.

    Examples
    --------
    >>> gpus(1), gpus(0), gpus(1234, ","), gpus(-1, "+")
    ('1 GPU', '0 GPUs', '1,234 GPUs', '-1 GPU')
    """
    return f"{count:{form}} GPU" + ("" if abs(count) == 1 else "s")


def in_full(value: float) -> str:
    """A number for a message: whole ones below 10^15 in full, and no two alike that differ.

    Examples
    --------
    >>> in_full(1_000_001), in_full(1e6), in_full(0.5), in_full(1e30), in_full(1234567.5)
    ('1000001', '1000000', '0.5', '1e+30', '1234567.5')
    """
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return repr(float(value))
