"""Reading an XLSX file as chunks of text, through a child process that holds the libraries (worker.py)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict

import polars as pl

from batchpay.intake.header import CellForm, Header
from batchpay.intake.streams import OpenFile
from batchpay.intake.table_rows import finish_chunk, with_text_formulas
from batchpay.intake.xlsx.child import Child
from batchpay.schemas.columns import CELL_MARKS

KEPT_BYTES_MAX = 32 << 20
"""About 200,000 rows; a larger sheet is parsed anew for each pass."""


class XlsxReader:
    """The rows of one sheet; a first pass that is not too large is kept, compressed, for later ones."""

    def __init__(
        self,
        file: OpenFile,
        *,
        sheet: str | None,
        include_hidden: bool,
        known: Sequence[str],
        forms: Mapping[str, CellForm],
    ) -> None:
        self._file = file
        plain = {name: asdict(form) for name, form in forms.items()}
        job = {"sheet": sheet, "include_hidden": include_hidden, "known": list(known), "forms": plain}
        self._job = job
        self._begun: Child | None = Child(file.name, file.descriptor, job)
        first = self._begun.first
        self.names = tuple(first["names"])
        self.notes = tuple(first["notes"])
        self._first_column = first["first_column"]
        self.sheet = str(first["sheet"])
        self._kept: list[bytes] | None = None

    def use(self, header: Header) -> None:
        """Set which columns to yield."""
        self._header = header

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in file order; raises FileRefused where the workbook can't be read."""
        if self._kept is not None:
            yield from (pl.read_ipc(io.BytesIO(packed)) for packed in self._kept)
            return
        kept: list[bytes] = []
        kept_bytes = 0
        for frame in self._parsed():
            if kept_bytes <= KEPT_BYTES_MAX:
                packed = io.BytesIO()
                frame.write_ipc(packed, compression="zstd")
                kept.append(packed.getvalue())
                kept_bytes += len(kept[-1])
            else:
                kept = []
            yield frame
            del frame  # free some megabytes while waiting for the next one
        if kept_bytes <= KEPT_BYTES_MAX:
            self._kept = kept

    def _parsed(self) -> Iterator[pl.DataFrame]:
        run, self._begun = self._begun or Child(self._file.name, self._file.descriptor, self._job), None
        header = self._header
        places = [f"c{at}" for at in range(len(header.names))]
        names = dict(zip(places, header.internal, strict=True))
        marks = {kind + place: kind + name for place, name in names.items() if name for kind in CELL_MARKS}
        header.examples.restart()
        row = 0
        with closing(run):
            for frame in _frames(run):
                found = [name for name in frame.columns if name.startswith(CELL_MARKS)]
                frame = frame.drop(name for name in found if name not in marks)
                frame = frame.rename({name: marks[name] for name in found if name in marks})
                frame = finish_chunk(self._file.name, frame, places, header, row, first_column=self._first_column)
                row += frame.height
                if frame.height:
                    yield with_text_formulas(frame, header.own)

    def close(self) -> None:
        """End a child whose output is no longer needed."""
        if self._begun is not None:
            self._begun.close()


def _frames(child: Child) -> Iterator[pl.DataFrame]:
    """Yield the chunks as the child sends them."""
    for part, text in child.parts():
        first, rows = part["first_row"], part["rows"]
        cells = pl.select(cell=pl.lit(text.decode()).str.split(part["separator"]).explode())
        cells = cells.select(pl.when(pl.col("cell") != "").then("cell"))
        columns = {name: cells.to_series().slice(at * rows, rows) for at, name in enumerate(part["columns"])}
        columns["_line"] = pl.int_range(first, first + rows, dtype=pl.UInt32, eager=True)
        yield pl.DataFrame(columns)
