"""Reading an XLSX file as chunks of text, through a child process that holds the libraries (worker.py)."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.header import CellForm, Header
from batchpay.intake.streams import OpenFile
from batchpay.intake.table_rows import finish_chunk, with_text_formulas
from batchpay.schemas.columns import CELL_MARKS

ANSWER_S_MAX = 300.0
"""The child must send its next piece within this many seconds."""
_ROOT = Path(__file__).parents[3]
# -I keeps PYTHON* variables and the working directory out; the path of this package is the only one added.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from batchpay.intake.xlsx.worker import main; main()"


class XlsxReader:
    """The rows of one sheet. It is parsed once: the result of the first pass is kept, compressed, for later passes."""

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
        self._job = json.dumps(job)
        self._begun: _Run | None = _Run(file, self._job)
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
        for frame in self._parsed():
            packed = io.BytesIO()
            frame.write_ipc(packed, compression="zstd")
            kept.append(packed.getvalue())
            yield frame
        self._kept = kept

    def _parsed(self) -> Iterator[pl.DataFrame]:
        run, self._begun = self._begun or _Run(self._file, self._job), None
        header = self._header
        places = [f"c{at}" for at in range(len(header.names))]
        names = dict(zip(places, header.internal, strict=True))
        marks = {kind + place: kind + name for place, name in names.items() if name for kind in CELL_MARKS}
        header.examples.restart()
        row = 0
        try:
            for frame in run.frames():
                found = [name for name in frame.columns if name.startswith(CELL_MARKS)]
                frame = frame.drop(name for name in found if name not in marks)
                frame = frame.rename({name: marks[name] for name in found if name in marks})
                frame = finish_chunk(self._file.name, frame, places, header, row, first_column=self._first_column)
                row += frame.height
                if frame.height:
                    yield with_text_formulas(frame, header.own)
        finally:
            run.stop()

    def close(self) -> None:
        """End a child whose output is no longer needed."""
        if self._begun is not None:
            self._begun.stop()


class _Run:
    """One running child process."""

    def __init__(self, file: OpenFile, job: str) -> None:
        self._name = file.name
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-I", "-c", _BOOT, str(_ROOT), job],
            stdin=file.descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},
            close_fds=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._stop = weakref.finalize(self, _end, self._process)
        self.first = self._answer(self._until_newline())

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the chunks as the child sends them."""
        while length := self._exactly(8, end_allowed=True):
            line, _, text = self._exactly(int.from_bytes(length, "big")).partition(b"\n")
            part = self._answer(line)
            first, rows = part["first_row"], part["rows"]
            cells = pl.select(cell=pl.lit(text.decode()).str.split(part["separator"]).explode())
            cells = cells.select(pl.when(pl.col("cell") != "").then("cell"))
            columns = {name: cells.to_series().slice(at * rows, rows) for at, name in enumerate(part["columns"])}
            columns["_line"] = pl.int_range(first, first + rows, dtype=pl.UInt32, eager=True)
            yield pl.DataFrame(columns)
        if self._process.wait() != 0:
            raise self._broken()

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Parse a line of JSON; raises FileRefused where it is a refusal."""
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            self.stop()
            raise FileRefused(f"{self._name}: {answer['refused']}")
        return answer

    def stop(self) -> None:
        """End the child."""
        self._stop()

    def _until_newline(self) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            piece = self._read(1)
            if not piece:
                raise self._broken()
            found += piece
        return found

    def _exactly(self, count: int, *, end_allowed: bool = False) -> bytes:
        pieces, missing = [], count
        while missing:
            piece = self._read(min(missing, 1 << 20))
            if not piece:
                if end_allowed and missing == count:
                    return b""
                raise self._broken()
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _read(self, most: int) -> bytes:
        ready, _, _ = select.select([self._out], [], [], ANSWER_S_MAX)
        if not ready:
            self.stop()
            raise FileRefused(f"{self._name}: takes longer to read than a payment file may")
        return os.read(self._out, most)

    def _broken(self) -> FileRefused:
        self.stop()
        return FileRefused(
            f"{self._name}: could not be read within the limits of memory and time for a payment file, or is broken"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
