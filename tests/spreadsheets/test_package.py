"""Hostile and mistaken files: refused with a reason, never unpacked beyond the limits."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
import zipfile

import openpyxl
import pytest
from sheet_files import ROW, altered, archive, read, saved, table, workloads

from planner.errors import PlannerError
from planner.spreadsheets.package import MAX_UNPACKED_BYTES, FileTooLarge, UnreadableFile
from planner.spreadsheets.sheets import MAX_ROWS, read_csv, read_workbook

GOOD = workloads(ROW)
SHEET = "xl/worksheets/sheet1.xml"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600


@pytest.mark.parametrize(("data", "words"), [
    (b"", "empty"),
    (OLE, "old Excel file"),
    (OLE + "EncryptedPackage".encode("utf-16-le"), "password"),
    (b"Name,Model\nchat,llama", "CSV"),
    (b"Name;Model\r\nchat;llama", "CSV"),
    (b"%PDF-1.7", "PDF"),
    (b"  <html><table>", "web page"),
    (b'<?xml version="1.0"?><Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"/>',
     "XML"),
    (b'{"plans": []}', "JSON"),
    (b"\x00\x01\x02", "no workbook"),
    (archive({"mimetype": "application/vnd.oasis.opendocument.spreadsheet"}), ".ods"),
    (archive({"[Content_Types].xml": "<Types/>", "xl/workbook.bin": "x"}), ".xlsb"),
    (archive({"[Content_Types].xml": "<Types/>", "word/document.xml": "<w/>"}), "Office file"),
    (archive({"a.txt": "hello"}), "zip archive"),
    (b"PK\x03\x04" + b"rubbish" * 50, "damaged"),
    (GOOD[:len(GOOD) // 2], "damaged"),
], ids=range(16))
def test_another_kind_of_file(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableFile, match=words):
        read_workbook(data)


def test_a_zip_bomb_is_refused_before_it_unpacks() -> None:
    bomb = altered(GOOD, {"xl/sharedStrings.xml": b"<a>" + b"0" * (MAX_UNPACKED_BYTES + 1)})
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(FileTooLarge, match="unpacks to"):
        read_workbook(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_part_that_states_too_small_a_size() -> None:
    """The stated size bounds what is read, so the lie shows as damage."""
    data = bytearray(altered(GOOD, {SHEET: b"<a>" + b" " * 3_000_000}))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as source:
        part = source.getinfo("xl/worksheets/sheet1.xml")
    found = bytes(data).index(b"PK\x01\x02")
    while bytes(data)[found + 46:found + 46 + len(part.filename)] != part.filename.encode():
        found = bytes(data).index(b"PK\x01\x02", found + 4)
    data[found + 24:found + 28] = struct.pack("<I", 10)
    with pytest.raises(UnreadableFile):
        read_workbook(bytes(data))


def test_too_many_parts() -> None:
    with pytest.raises(FileTooLarge, match="parts"):
        read_workbook(archive({f"xl/{i}.xml": "" for i in range(2_001)}))


BOMB = (b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "' + b"A" * 100 + b'">'
        b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><worksheet>&b;</worksheet>')


@pytest.mark.parametrize("part", [SHEET, "xl/workbook.xml", "[Content_Types].xml"])
@pytest.mark.parametrize("text", [BOMB, BOMB.decode().encode("utf-16")])
def test_entities_are_refused(part: str, text: bytes) -> None:
    data = altered(GOOD, {part: text})
    with pytest.raises(UnreadableFile, match="document type"):
        read_workbook(data)


def test_an_external_entity_is_not_fetched() -> None:
    text = b'<?xml version="1.0"?><!DOCTYPE x SYSTEM "file:///etc/passwd"><worksheet/>'
    with pytest.raises(UnreadableFile, match="document type"):
        read_workbook(altered(GOOD, {SHEET: text}))


@pytest.mark.parametrize("part", ["xl/workbook.xml", SHEET, "xl/styles.xml",
                                  "xl/sharedStrings.xml"])
@pytest.mark.parametrize("content", [b"", b"<", b"<x/>", b"\xff\xfe", None])
def test_damaged_parts_are_problems_not_crashes(part: str, content: bytes | None) -> None:
    data = altered(GOOD, {part: content})
    with contextlib.suppress(PlannerError):
        assert read(data).rows


def test_macros_and_links_are_not_read() -> None:
    data = altered(GOOD, {"xl/vbaProject.bin": b"\x00" * 100,
                            "xl/externalLinks/externalLink1.xml": b"<externalLink/>"})
    assert read(data).rows[0].request.model == "llama-3.1-8b"


def test_too_many_rows() -> None:
    with pytest.raises(FileTooLarge, match="filled rows"):
        read_workbook(table([["x"]] * (MAX_ROWS + 1)))


def test_other_sheets_may_be_as_long_as_they_like() -> None:
    book = openpyxl.load_workbook(io.BytesIO(GOOD))
    other = book.create_sheet("Raw data")
    for _ in range(MAX_ROWS + 1):
        other.append(["x"])
    sheets = read_workbook(saved(book), ("workloads",))
    assert [(s.name, len(s.lines)) for s in sheets] == [("Workloads", 2), ("Raw data", 0)]


def test_too_many_columns() -> None:
    with pytest.raises(FileTooLarge, match="column"):
        read_workbook(table([["x"] * 251]))


def test_blank_rows_and_columns_far_away_do_no_harm() -> None:
    book = openpyxl.load_workbook(io.BytesIO(GOOD))
    page = book.active
    page.cell(1_048_576, 1).number_format = "0.00"
    page.cell(1, 16_384).number_format = "0.00"
    assert len(read(saved(book)).rows) == 1


def test_a_row_number_that_no_program_writes() -> None:
    sheet = (b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
             b'<sheetData><row r="99999999999"><c r="A99999999999"><v>1</v></c></row></sheetData>'
             b"</worksheet>")
    assert read_workbook(altered(GOOD, {SHEET: sheet}))[0].lines == []


@pytest.mark.parametrize("stated", ["A1:XFD1048576", "A1", "nonsense"])
def test_the_stated_size_of_a_sheet_is_not_believed(stated: str) -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as source:
        text = source.read("xl/worksheets/sheet1.xml").decode()
    start = text.index("<dimension ref=\"") + len("<dimension ref=\"")
    changed = text[:start] + stated + text[text.index('"', start):]
    data = altered(GOOD, {SHEET: changed.encode()})
    try:
        assert len(read(data).rows) == 1
    except UnreadableFile:
        assert stated == "nonsense"


@pytest.mark.parametrize(("data", "words"), [
    (b"\xff\xfe\x00", "UTF-8|not text"), (b"slug,name\nM\xfcller,x", "UTF-8"), (b"", "empty"),
    (b"a\x00,b", "not text"), (b'a,"b', "not CSV"),
])
def test_csv_that_is_none(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableFile, match=words):
        read_csv(data, "gpus")


@pytest.mark.parametrize("text", ["a,b\n1,2", "a;b\n1;2", "a\tb\r\n1\t2", "a,b\r1,2",
                                  "a;b\r1;2\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_csv_of_every_kind(text: str, encoding: str) -> None:
    lines = read_csv(text.encode(encoding), "x").lines
    assert [[c.value for c in line.cells.values()] for line in lines] == [["a", "b"], ["1", "2"]]
