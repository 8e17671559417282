"""Cell formats by short names, so that every sheet looks the same.

A format is a mix of named pieces: ``styles.get("cell", "usd")``. The font is Arial: every office
program has it or a font of the same widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FONT = "Arial"
FONT_SIZE = 10
NAVY = "#1F3864"
GREY = "#595959"
LINE = "#BFC8D6"
FILL = "#EAF0F8"
GOOD_FILL = "#E6F2E6"
BAD_FILL = "#FBE5E3"
BAD_TEXT = "#9C0006"
INPUT_TEXT, INPUT_FILL = "#0000FF", "#FFFBE6"
LINK_TEXT = "#00701A"
ENGINE_FILL = "#EDEDED"
SERIES = ("#1F3864", "#8FAADC", "#C9A227", "#A5A5A5", "#7B4B94", "#5B9F6A", "#D9D9D9")
"""Chart colours, distinct in grey print as well."""

PIECES: dict[str, dict[str, Any]] = {
    "text": {"align": "left", "text_wrap": True, "indent": 1},
    "label": {"align": "left"},
    "short": {"align": "left", "indent": 1},
    "rank": {"num_format": "0", "align": "center"},
    "count": {"num_format": "#,##0", "align": "right"},
    "signed": {"num_format": "+#,##0;-#,##0;0", "align": "right"},
    "one": {"num_format": "#,##0.0", "align": "right"},
    "two": {"num_format": "#,##0.00", "align": "right"},
    "three": {"num_format": "#,##0.000", "align": "right"},
    "small": {"num_format": "0.000000", "align": "right"},
    "figure": {"num_format": "#,##0", "align": "right"},
    "fraction": {"num_format": "#,##0.0###", "align": "right"},
    "price": {"num_format": "#,##0.00##", "align": "right"},
    "percent": {"num_format": "0%", "align": "right"},
    "percent1": {"num_format": "0.0%", "align": "right"},
    "cell": {"bottom": 1, "bottom_color": LINE, "valign": "vcenter"},
    "header": {"bold": True, "font_color": "#FFFFFF", "bg_color": NAVY, "text_wrap": True,
               "valign": "vcenter", "border": 1, "border_color": NAVY},
    "title": {"bold": True, "font_size": 18, "font_color": NAVY, "valign": "vcenter",
              "text_wrap": True},
    "heading": {"bold": True, "font_size": 12, "font_color": NAVY, "valign": "vcenter"},
    "note": {"font_color": GREY, "text_wrap": True, "valign": "top", "align": "left"},
    "body": {"text_wrap": True, "valign": "top", "align": "left"},
    "answer": {"bold": True, "font_size": 12, "text_wrap": True, "valign": "vcenter",
               "align": "left", "bg_color": FILL, "indent": 1},
    "refused": {"bold": True, "font_size": 12, "text_wrap": True, "valign": "vcenter",
                "align": "left", "bg_color": BAD_FILL, "indent": 1},
    "tile_label": {"font_color": GREY, "bg_color": FILL, "align": "left",
                   "valign": "vcenter", "indent": 1, "top": 2, "top_color": NAVY,
                   "text_wrap": True},
    "tile": {"bold": True, "font_size": 14, "bg_color": FILL, "valign": "vcenter", "indent": 1},
    "general": {"num_format": "General", "align": "right"},
    "science": {"num_format": "0.000E+00", "align": "right"},
    "six": {"num_format": "0.000000", "align": "right"},
    "grey": {"font_color": GREY},
    "input": {"font_color": INPUT_TEXT, "bg_color": INPUT_FILL},
    "link": {"font_color": LINK_TEXT},
    "engine": {"bg_color": ENGINE_FILL, "italic": True},
    "left": {"align": "left"},
    "best": {"bold": True, "bg_color": GOOD_FILL},
    "bold": {"bold": True},
    "quoted": {"quote_prefix": True},
}
"""What each name stands for, in XlsxWriter's format properties."""


class Styles:
    """Formats of one workbook, each made once.

    Parameters
    ----------
    book : xlsxwriter.Workbook
    """

    def __init__(self, book: Any) -> None:
        self._book = book
        self._made: dict[tuple[str, ...], Any] = {}

    def get(self, *names: str) -> Any:
        """The format that mixes the pieces of the given names; later pieces win.

        Raises
        ------
        KeyError
            When a name is not in :data:`PIECES`.
        """
        if names not in self._made:
            properties: dict[str, Any] = {}
            for name in names:
                properties.update(PIECES[name])
            self._made[names] = self._book.add_format(properties)
        return self._made[names]

    def mark(self, properties: Mapping[str, Any]) -> Any:
        """A format of the given properties only, for conditional formatting."""
        return self._book.add_format(dict(properties))
