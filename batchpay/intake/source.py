"""One payment file, whatever its kind, as chunks of faithful text: the entry point for the rest of batchpay.

Objects in object stores are what polars reads by URL, with polars' own options in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import polars as pl

from batchpay.errors import FileRefused, ForeignColumns
from batchpay.intake.amount_evidence import AmountEvidence
from batchpay.intake.bank_files import HEAD_BYTES, refuse_bank_file
from batchpay.intake.csv.grammar import read_dialect, with_trailing_cells
from batchpay.intake.csv.reader import CsvReader, CsvText
from batchpay.intake.header import (
    Examples,
    Header,
    canonical_name,
    ours_as_meant,
    read_header,
    refuse_no_header,
    told_apart,
)
from batchpay.intake.streams import (
    FileKind,
    OpenFile,
    PrivateCopy,
    in_blocks,
    kind_of,
    memory_file,
    private_copy,
    seal,
    sha256_of,
)
from batchpay.intake.table_rows import FileEnd, one_content, without_totals_row
from batchpay.payment import Totals
from batchpay.schemas.columns import COLUMNS, MONEY, REQUIRED
from batchpay.text import column_name
from batchpay.writing.atomic import FileIdentity

if TYPE_CHECKING:
    from batchpay.intake.ach_payments import Keys
    from batchpay.intake.maps.application import CountingColumns
    from batchpay.intake.maps.mapping import Mapping


@dataclass(frozen=True)
class Source:
    """An opened payment file.

    A chunk has `_row` and `_line`, the known columns present, the carried ones, and only where they occur
    `_fault.COLUMN` (the code of a cell's fault, and `: ` and a message where it has its own), `_suggest.COLUMN`,
    `_ragged` (why a row does not fit the table), `_surplus` (the cells beyond the header's) and `_missing` (how many
    are missing). All cells are text; a blank one is null.
    """

    name: str
    kind: FileKind
    columns: tuple[str, ...]
    """Known columns present, in file order."""
    carried: tuple[str, ...]
    """Unknown columns, in file order."""
    own_columns: tuple[str, ...]
    """Names in a chunk of the user's own cells, in file order."""
    own_header: tuple[str, ...]
    """What the file itself calls them."""
    own_of: dict[str, str]
    """The own column, by its name in a chunk, that a known or carried column comes from (itself without a map)."""
    own_amounts: frozenset[str]
    """The own columns, by their names in a chunk, whose amounts are written like ours."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Ours by the file's own names, where those differ in case, blanks or line breaks."""
    examples: Examples = field(default_factory=Examples)
    """Example rows skipped in the latest reading."""
    end: FileEnd = field(default_factory=FileEnd)
    """What the latest reading found at the end of the file."""
    left_out: dict[str, Totals] = field(default_factory=dict)
    """Rows that the map left out in the latest complete reading, by the word that says they are no payments."""
    used: frozenset[str] = frozenset()
    """The carried columns that the map uses all the same: for which rows are payments, for both sides of amounts, in
    templates."""
    counting: CountingColumns | None = None
    """What a reading found about the columns that a map makes paymentIds from."""
    sheet: str | None = None
    """The sheet of a workbook that is read."""
    column_map: str | None = None
    """SHA-256 of the map that the file is read through (Mapping.digest), or None."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the reading: hidden rows, the chosen sheet, a map."""
    separator: str = ","
    """Of a CSV; a comma for other kinds."""
    _chunks: Callable[[], Iterator[pl.DataFrame]] = field(default=lambda: iter(()), repr=False)
    _payments: Callable[[Iterator[pl.DataFrame]], Iterator[pl.DataFrame]] = field(default=lambda rows: rows, repr=False)
    """Leaves out what a map says is no payment."""
    _evidence: AmountEvidence | None = field(default=None, repr=False)
    _negative: str | None = None
    """The direction of negative amounts, where a map says that the file writes the direction as a sign."""
    _file: OpenFile | None = field(default=None, repr=False)
    _end: Callable[[], None] = field(default=lambda: None, repr=False)
    _digest: Callable[[], bytes] = field(default=lambda: b"", repr=False)

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read the file from its start, some 10,000 rows at a time; may be called again.

        Raises FileRefused where the file turns out to be broken further on, or differs from the first complete
        reading: nothing may be acted on before the last chunk was yielded.
        """
        chunks = self._chunks() if self._evidence is None else self._evidence.chunks(self._chunks)
        return self._payments(without_totals_row(chunks, self.own_of, self.end, self._negative))

    def file_digest(self) -> bytes:
        """Return the SHA-256 of the file's bytes, unpacked: two files that have the same differ in how they are read.

        An object of a store is not read again: it is that of the private copy.
        """
        return self._digest()

    @property
    def line_word(self) -> str:
        """What a row's position is called: a CSV has lines, a sheet has rows."""
        return {FileKind.CSV: "line", FileKind.ACH: "record"}.get(self.kind, "row")

    @property
    def identity(self) -> FileIdentity | None:
        """Which file on a disk was opened; None for standard input and objects of a store."""
        return None if self._file is None else self._file.identity

    def hold(self) -> AbstractContextManager[None]:
        """Lock the file against other submissions on this machine, whatever their ledger; raises BatchHeld."""
        return nullcontext() if self._file is None else self._file.hold()

    def close(self) -> None:
        """Close the file."""
        self._end()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_source(
    path: str,
    *,
    format: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    include_hidden: bool = False,
    mapping: Mapping | None = None,
    amounts_in: str | None = None,
    required: Iterable[str] = REQUIRED,
    name: str | None = None,
    keys: Keys | None = None,
) -> Source:
    """Open a payment file, `-` for standard input; raises FileRefused with the place of what is wrong.

    `name` is what a person calls it, where that is not the path; `amounts_in` what amounts without decimals are in;
    `keys` are a ledger's, for what must be kept nowhere and is to be known again.

    `required` names the columns that must be present. Whether the file may be cut off, and whether its rows add up to
    the total that it states itself, is known at its end: check `Source.end` before acting on anything.
    """
    if amounts_in is not None:
        from batchpay.intake.maps.mapping import Mapping as ColumnMap  # few files have a map

        mapping = (mapping or ColumnMap(OPTION)).with_unit(amounts_in)
    file = open_stored(path, format) if "://" in path else OpenFile(path, asked=format, name=name)
    try:
        kind, packing = kind_of(file.head(HEAD_BYTES), file.name, format)
        if kind is FileKind.CSV:
            source = _open_csv(file, CsvText(file, packing, encoding), mapping, tuple(required))
        elif kind is FileKind.PARQUET:
            source = _open_parquet(file, mapping, tuple(required))
        elif kind is FileKind.ACH:
            source = _open_ach(file, mapping, tuple(required), keys)
        else:
            source = _open_xlsx(file, sheet, include_hidden, mapping, tuple(required))
    except BaseException:
        file.close()
        raise
    if mapping is not None:
        old = ', which is written "theirs = ours": a new one is written "ours = theirs"' if mapping.is_turned else ""
        told = [] if mapping.name == OPTION else [f"columns are mapped by {mapping.name}{old}"]
        if (number := mapping.numbers.get("amount")) is not None and number.unit:
            told.append(f"amounts without decimals are in {number.unit}")
        source = replace(source, notes=(*source.notes, *told), column_map=mapping.digest)
    if sheet is not None and kind is not FileKind.XLSX:  # a preset is for the workbooks among several files
        note = f"the sheet {column_name(sheet)} was not looked for: only a workbook has sheets"
        source = replace(source, notes=(*source.notes, note))
    if source.renamed:
        note = ", ".join(f"{column_name(name)} as {ours}" for name, ours in source.renamed.items())
        note = f"columns whose names differ only in case or blanks are read: {note}"
        source = replace(source, notes=(*source.notes, note))
    return source


def _open_csv(file: OpenFile, text: CsvText, mapping: Mapping | None, required: tuple[str, ...]) -> Source:
    head = text.head()
    with text.naming_encodings():
        dialect = with_trailing_cells(file.name, head, read_dialect(file.name, head, _known_names(mapping)))
    names, repeated = told_apart(dialect.names, () if mapping is None else mapping.sources)
    header, own = _headers(file.name, names, mapping, required)
    reader = CsvReader(text, head, dialect, own)
    source = _source(file, FileKind.CSV, header, own, mapping, reader.chunks)
    return replace(
        source, separator=dialect.separator, notes=dialect.notes + repeated, end=reader.end, _digest=reader.digest
    )


def _open_parquet(file: OpenFile, mapping: Mapping | None, required: tuple[str, ...]) -> Source:
    from batchpay.intake.header import CellForm  # few files have typed cells
    from batchpay.intake.parquet import ParquetReader

    reader = ParquetReader(file)
    header, own = _headers(file.name, reader.names, mapping, required)
    forms = {name: CellForm(name) for name in own.names} if mapping is None else mapping.cell_forms(own.names)
    reader.use(own, forms)
    source = _source(file, FileKind.PARQUET, header, own, mapping, reader.chunks)
    return replace(source, _chunks=one_content(file.name, source._chunks))


def _open_ach(file: OpenFile, mapping: Mapping | None, required: tuple[str, ...], keys: Keys | None) -> Source:
    from batchpay.intake.ach_payments import AchReader  # few files are of a bank

    reader = AchReader(file, keys)
    header, own = _headers(file.name, reader.names, mapping, required)
    reader.use(own)
    source = _source(file, FileKind.ACH, header, own, mapping, reader.chunks)
    return replace(source, notes=reader.notes, _chunks=one_content(file.name, source._chunks))


def _open_xlsx(
    file: OpenFile, sheet: str | None, include_hidden: bool, mapping: Mapping | None, required: tuple[str, ...]
) -> Source:
    from batchpay.intake.xlsx.reader import XlsxReader  # as above

    forms = {} if mapping is None else mapping.cell_forms(mapping.sources)
    file.keep_copy()  # two libraries read it, independently
    reader = XlsxReader(file, sheet=sheet, include_hidden=include_hidden, known=_known_names(mapping), forms=forms)
    names, repeated = told_apart(reader.names, () if mapping is None else mapping.sources)
    try:
        header, own = _headers(file.name, names, mapping, required)
    except BaseException:
        reader.close()
        raise
    reader.use(own)
    source = _source(file, FileKind.XLSX, header, own, mapping, reader.chunks)
    chunks = one_content(file.name, source._chunks)
    return replace(source, sheet=reader.sheet, notes=reader.notes + repeated, _chunks=chunks, _end=reader.close)


def _source(
    file: OpenFile,
    kind: FileKind,
    header: Header,
    own: Header,
    mapping: Mapping | None,
    chunks: Callable[[], Iterator[pl.DataFrame]],
) -> Source:
    """Assemble what is the same for every kind of file; `chunks` yields the file's own cells."""
    source = Source(
        name=file.name,
        kind=kind,
        columns=header.columns,
        carried=header.carried,
        own_columns=own.own,
        own_header=own.own_header,
        own_of={name: name for name in (*header.columns, *header.carried)},
        own_amounts=frozenset(MONEY) & {*header.columns},
        renamed=header.renamed,
        examples=own.examples,
        _chunks=chunks,
        _file=file,
        _digest=lambda: sha256_of(in_blocks(file.reader())),
    )
    if mapping is None:
        return replace(source, _evidence=_evidence(header, own, mapping))
    from batchpay.intake.maps.application import Application  # few files have a map

    applied = Application(mapping, own, header)
    return replace(
        source,
        own_of=mapping.own_of(own),
        own_amounts=mapping.own_amounts(own),
        left_out=applied.left_out,
        used=frozenset(mapping.sources),
        counting=applied.counting,
        _chunks=lambda: applied.chunks(chunks()),
        _payments=source._payments if mapping.rows is None else applied.payments,
        _evidence=_evidence(header, own, mapping),
        _negative=None if mapping.signed is None else mapping.signed.negative,
    )


def _evidence(header: Header, own: Header, mapping: Mapping | None) -> AmountEvidence | None:
    """Return what the file says about its amounts; None where it has none."""
    if "amount" not in header.columns:
        return None
    if mapping is None:
        return AmountEvidence({"amount": "amount"}, None, header.carried)
    inner = dict(zip(own.names, own.internal, strict=True))
    sides, is_fixed = mapping.sides.values(), "amount" in mapping.fixed
    theirs = [name for name in own.names if name in sides or "amount" in mapping.targets_of(name)]
    columns = {str(inner[name]): name for name in theirs if not is_fixed}
    return AmountEvidence(columns or {"amount": "amount"}, mapping.numbers.get("amount"), header.carried)


def _known_names(mapping: Mapping | None) -> tuple[str, ...]:
    """Return the names by which a header is recognized."""
    return COLUMNS if mapping is None else (*COLUMNS, *mapping.header_names)


def _headers(
    name: str, names: tuple[str, ...], mapping: Mapping | None, required: tuple[str, ...]
) -> tuple[Header, Header]:
    """Return the header as the rules see it, and as the reader yields it: the same unless there is a map."""
    place = f"{name}: "
    refuse_bank_file(name, "\n".join(names))  # a workbook may hold the lines of one
    refuse_no_header(names, place)
    if mapping is None or mapping.name == OPTION:
        try:
            header = read_header(names, required=required, place=place)
        except FileRefused as error:
            if ours_as_meant(names).issuperset(required):
                raise
            raise ForeignColumns(f"{error}. For a file with its own column names: batchpay map FILE") from None
        return header, header if mapping is None else mapping.own_header(names, place)
    own = mapping.own_header(names, place)
    mapped = mapping.mapped_names(own)
    try:
        return read_header(mapped, required=required, place=place), own
    except FileRefused as error:
        if {canonical_name(name) for name in mapped}.issuperset(required):
            raise
        told = f"the map {mapping.name} must name a column or a value for each, and may be unfinished"
        raise FileRefused(f"{error}; {told}") from None


OPTION = "--amounts-in"
"""The name of the map that is made for a file with our own columns whose unit a person states."""
SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "file")


def open_stored(url: str, asked: str | None = None) -> OpenFile:
    """Read an object once into a private copy; raises FileRefused."""
    try:
        parts, name = urlsplit(url), shown_url(url)
    except ValueError:
        raise FileRefused("the URL of a payment file is malformed") from None
    if parts.scheme not in SCHEMES:
        raise FileRefused(f"{name}: {parts.scheme}:// is not a store that can be read")
    if parts.path.lower().endswith((".parquet", ".pq")):
        return OpenFile(name, _parquet(url))
    # A store shows an object only when it is complete, so the line break of its last line, which polars drops, is not
    # needed to know that nothing was cut off.
    return OpenFile(name, private_copy(_lines(url), name, asked))


def shown_url(url: str) -> str:
    """Return a URL without what could contain a key: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _parquet(url: str) -> PrivateCopy:
    """Copy a Parquet file by its columns: polars can't return the bytes of an object."""
    descriptor = memory_file()
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            pl.scan_parquet(url, glob=False).sink_parquet(file, compression="lz4", maintain_order=True)
        seal(descriptor)
    except (Exception, pl.exceptions.PanicException):  # its text may hold a signed URL or a cell of the file
        os.close(descriptor)
        raise FileRefused(f"{shown_url(url)}: can't be read from its store, or is a broken Parquet file") from None
    return PrivateCopy(descriptor, os.fstat(descriptor).st_size)


def _lines(url: str) -> Iterator[bytes]:
    try:
        for frame in pl.scan_lines(url, glob=False).collect_batches(chunk_size=50_000, maintain_order=True):
            yield "".join(f"{line}\n" for line in frame.to_series()).encode()
    except Exception:  # its text may hold a signed URL or a line of the file
        raise FileRefused(f"{shown_url(url)}: can't be read from its store, or is not UTF-8 text") from None
