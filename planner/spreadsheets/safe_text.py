"""Text that a spreadsheet program would take for a formula, in CSV files.

An xlsx cell has a type, so its text is safe as it is. A CSV field has none: one that begins with
``=``, ``+``, ``-``, ``@``, a tab or a carriage return is run as a formula by the program that
opens the file (OWASP, "CSV Injection"). Such a text gets an apostrophe in front, which those
programs show as text; reading takes it away again, so that nothing is lost on a round trip.
"""

from __future__ import annotations

import re

_RISKY = re.compile(r"'*[=+\-@\t\r＝＋－＠]")


def for_csv(text: str) -> str:
    """A text as a CSV field that stays text.

    Examples
    --------
    >>> for_csv("=1+1"), for_csv("plain"), from_csv(for_csv("'=1+1"))
    ("'=1+1", 'plain', "'=1+1")
    """
    return f"'{text}" if _RISKY.match(text) else text


def from_csv(text: str) -> str:
    """The text of a CSV field: one apostrophe before a risky beginning is taken away."""
    return text[1:] if text.startswith("'") and _RISKY.match(text[1:]) else text
