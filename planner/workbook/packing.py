"""Parts of an xlsx file in memory."""

from __future__ import annotations

from io import StringIO
from typing import Any

from xlsxwriter.packager import Packager
from xlsxwriter.sharedstrings import SharedStrings


def escaped(text: str) -> str:
    """A text as that of an XML element."""
    if "&" in text or "<" in text or ">" in text:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text


class Pieces(StringIO):
    """A text that is written in many pieces, some of them coded already, and read once."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Any] = []
        self.write = self.pieces.append  # type: ignore[method-assign, assignment]

    def coded(self) -> bytes:
        """The whole text in UTF-8."""
        return b"".join([p.encode() if p.__class__ is str else p for p in self.pieces])


class FastStrings(SharedStrings):  # type: ignore[misc]
    """The table of texts, which takes the plain ones as they are."""

    def _write_si(self, string: str) -> None:
        special = "_x" in string or string.startswith("<r>") or string != string.strip()
        if special or not string.isprintable():
            super()._write_si(string)
        else:
            self.fh.write(f"<si><t>{escaped(string)}</t></si>")


class FastPackager(Packager):  # type: ignore[misc]
    """The parts of a workbook in memory."""

    def _filename(self, xml_filename: str) -> Any:
        part = Pieces()
        self.filenames.append((part, xml_filename, False))
        return part

    def _write_shared_strings_file(self) -> None:
        texts = FastStrings()
        texts.string_table = self.workbook.str_table
        if texts.string_table.count:
            texts._set_xml_writer(self._filename("xl/sharedStrings.xml"))
            texts._assemble_xml_file()
