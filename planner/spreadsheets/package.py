"""What an uploaded file is, and whether it may be opened: kind, size, number of parts."""

from __future__ import annotations

import io
import xml.parsers.expat
import zipfile
from collections.abc import Iterator
from typing import IO

from planner.errors import PlannerError

MAX_UNPACKED_BYTES = 30_000_000
"""[B] most that the parts of a workbook may come to; a filled template has 0.3 MB."""
MAX_PARTS = 2_000
CHUNK_BYTES = 65_536
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_MAIN = "xl/workbook.xml"
SAVE_AS = "save it as an Excel workbook (.xlsx)"


class UnreadableFile(PlannerError):
    """An upload that is no workbook, is protected, damaged, or another kind of file."""

    code = "unreadable-file"
    title = "The file cannot be read"


class FileTooLarge(PlannerError):
    """An upload with too many rows, columns or parts, or that unpacks to too much."""

    code = "file-too-large"
    title = "The file holds too much"


def check_package(data: bytes) -> None:
    """Let a file through only when it is an .xlsx (or .xlsm) that is safe to unpack.

    Parameters
    ----------
    data : bytes

    Raises
    ------
    UnreadableFile
        For another kind of file, an encrypted one, a damaged one, or XML with a DTD.
    FileTooLarge
        When the parts would unpack to more than :data:`MAX_UNPACKED_BYTES`. The sizes are those
        the archive states; a part that holds more than it states is never read past them.
    """
    if not data:
        raise UnreadableFile("the file is empty")
    if not data.startswith(b"PK"):
        raise UnreadableFile(_what_it_is(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            _check_sizes(parts)
            _check_kind({p.filename for p in parts}, archive)
            for part in parts:
                if part.filename.endswith((".xml", ".rels")):
                    _refuse_dtd(archive, part)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError,
            xml.parsers.expat.ExpatError) as error:
        if isinstance(error, PlannerError):
            raise
        raise UnreadableFile("the file is damaged: it cannot be unpacked") from None


def _what_it_is(data: bytes) -> str:
    """The message for a file that is no zip archive."""
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            return "the workbook is protected by a password; save it without one"
        return f"this is an old Excel file (.xls); {SAVE_AS}"
    start = data[:2048].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"%pdf"):
        return "this is a PDF, not a workbook"
    if start.startswith((b"<!doctype html", b"<html", b"<table")):
        return f"this is a web page, not a workbook; open it in a spreadsheet program and {SAVE_AS}"
    if start.startswith(b"<"):
        return f"this is XML, not a workbook; open it in a spreadsheet program and {SAVE_AS}"
    if start.startswith((b"{", b"[")):
        return "this is JSON, not a workbook"
    if b"\x00" not in data[:2048] and any(s in data[:2048] for s in (b",", b";", b"\t")):
        return f"this is a text file such as CSV, not a workbook; open it and {SAVE_AS}"
    return f"this is no workbook; {SAVE_AS}"


def _check_sizes(parts: list[zipfile.ZipInfo]) -> None:
    if len(parts) > MAX_PARTS:
        raise FileTooLarge(f"the workbook has {len(parts):,} parts; at most {MAX_PARTS:,} are read")
    unpacked = sum(p.file_size for p in parts)
    if unpacked > MAX_UNPACKED_BYTES:
        raise FileTooLarge(
            f"the workbook unpacks to {unpacked:,} bytes; at most {MAX_UNPACKED_BYTES:,} are read")
    if any(p.flag_bits & 1 for p in parts):
        raise UnreadableFile("the workbook is protected by a password; save it without one")


def _check_kind(names: set[str], archive: zipfile.ZipFile) -> None:
    if _MAIN in names:
        return
    if "mimetype" in names and b"opendocument" in archive.read("mimetype")[:200]:
        raise UnreadableFile(f"this is an OpenDocument file (.ods); {SAVE_AS}")
    if "xl/workbook.bin" in names:
        raise UnreadableFile(f"this is a binary Excel workbook (.xlsb); {SAVE_AS}")
    if "[Content_Types].xml" not in names:
        raise UnreadableFile(f"this is a zip archive, not a workbook; {SAVE_AS}")
    # Some programs name the main part otherwise; the reader finds it by its content type.
    if any(n.startswith(("word/", "ppt/")) for n in names):
        raise UnreadableFile(f"this is another kind of Office file; {SAVE_AS}")


class _Started(Exception):
    """The root element has begun: no DTD can follow."""


def _refuse_dtd(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Refuse a document type: the format forbids one, and entities can grow without bound."""
    parser = xml.parsers.expat.ParserCreate()

    def doctype(*_: object) -> None:
        raise UnreadableFile(f"part {part.filename} declares a document type, which workbooks "
                             "must not")

    def started(*_: object) -> None:
        raise _Started

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = started
    try:
        with archive.open(part) as source:
            for chunk in _chunks(source):
                parser.Parse(chunk, False)
    except _Started:
        return


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk
