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
