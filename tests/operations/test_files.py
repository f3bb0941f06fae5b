"""Inbox and archive on real folders."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.errors import NotUsable
from batchpay.operations import archive as archive_module
from batchpay.operations.archive import archive
from batchpay.operations.inbox import complete_files, is_payment_name, is_still_complete
from batchpay.writing.atomic import FileIdentity, ReadFiles

_PLACES = Path("/dev/shm"), Path(tempfile.gettempdir())  # noqa: S108 - one is another file system than tmp_path


def put(path: Path, text: str = "a,b\n", *, age_s: float = 0) -> Path:
    path.write_text(text)
    moment = time.time() - age_s
    os.utime(path, (moment, moment))
    return path


def read(file: Path) -> ReadFiles:
    """What a command notes of the files it reads."""
    control = Path(f"{file}.control.toml")
    return ReadFiles(FileIdentity.of(file.stat()), FileIdentity.of(control.stat()) if control.exists() else None)


def archived(file: Path, folder: Path) -> Path:
    """Move a file that was read just now."""
    moved = archive(file, folder, read(file))
    assert moved is not None
    return moved


def later(seconds: float) -> float:
    return time.time() + seconds


def test_a_file_is_taken_once_it_is_left_alone(tmp_path: Path) -> None:
    """A file that somebody may still be writing stays; after the settle time it is taken."""
    file = put(tmp_path / "pay.csv")
    assert complete_files(tmp_path, now_s=later(0)) == []
    assert complete_files(tmp_path, now_s=later(59)) == []
    assert complete_files(tmp_path, now_s=later(61)) == [file]


def test_a_time_stamp_ahead_of_the_clock_keeps_no_file_from_being_paid(tmp_path: Path) -> None:
    """A copy that keeps the time of a computer whose clock is years ahead was never taken, and nothing told of it."""
    file = put(tmp_path / "pay.csv", age_s=-9 * 365 * 86_400)
    assert complete_files(tmp_path, now_s=later(59)) == []
    assert complete_files(tmp_path, now_s=later(61)) == [file]
    assert is_still_complete(file, now_s=later(61))


def test_an_old_time_stamp_alone_proves_nothing(tmp_path: Path) -> None:
    """A copy that keeps the original's time is as new as its arrival."""
    put(tmp_path / "pay.csv", age_s=86_400)
    assert complete_files(tmp_path, now_s=later(0)) == []


def test_a_control_file_says_that_it_is_complete(tmp_path: Path) -> None:
    """With `FILE.control.toml` beside it a file is taken at once; the control file itself never is."""
    file = put(tmp_path / "pay.csv")
    put(tmp_path / "pay.csv.control.toml", "rows = 1\n")
    put(tmp_path / "other.csv")
    assert complete_files(tmp_path, now_s=later(0)) == [file]


def test_a_file_that_is_written_anew_before_its_turn_is_not_complete_any_more(tmp_path: Path) -> None:
    """What was taken by its age must still be left alone, what a control file stated must still be stated."""
    file = put(tmp_path / "pay.csv")
    assert is_still_complete(file, now_s=later(61))
    assert not is_still_complete(file, now_s=later(59))
    control = put(tmp_path / "pay.csv.control.toml", "rows = 1\n")
    assert is_still_complete(file, now_s=later(0))
    for path in (control, file):
        path.unlink()
    assert is_still_complete(file, now_s=later(0))  # another run took it: whoever opens it says so


def test_the_oldest_comes_first(tmp_path: Path) -> None:
    """Files are given in the order in which they were written, whatever their names."""
    names = ["b.csv", "a.csv", "c.parquet"]
    files = [put(tmp_path / name, age_s=300 - 100 * place) for place, name in enumerate(names)]
    assert complete_files(tmp_path, now_s=later(999)) == files


def test_what_is_no_file_of_the_folder_is_left(tmp_path: Path) -> None:
    """Links, pipes and folders are passed over without being opened."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "link.csv").symlink_to(put(tmp_path / "secret.csv"))
    (inbox / "dangling.csv").symlink_to("nowhere")
    (inbox / "folder.csv").mkdir()
    os.mkfifo(inbox / "pipe.csv")
    put(inbox / "pay.csv")
    (inbox / "pay.csv.control.toml").symlink_to(tmp_path / "secret.csv")
    assert complete_files(inbox, now_s=later(0)) == []
    assert complete_files(inbox, now_s=later(999)) == [inbox / "pay.csv"]


def test_a_file_that_is_renamed_while_the_inbox_is_read_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender renames at the end of an upload; the whole call ended with 5, "No such file or directory"."""
    file, part = put(tmp_path / "pay.csv", age_s=61), tmp_path / "new.csv.part"
    entries = [SimpleNamespace(name=path.name, stat=path.stat) for path in (part, file)]
    monkeypatch.setattr("os.scandir", lambda _: contextlib.nullcontext(entries))
    assert complete_files(tmp_path, now_s=later(61)) == [file]


@pytest.mark.parametrize(
    "name",
    [
        ".pay.csv", "pay.csv.part", "pay.csv.tmp", "pay.csv.filepart", "pay.csv~", "~pay.csv", "pay.part", "notes.pdf",
        "notes.txt", "pay.csv.control.toml", "csv",
    ],
)  # fmt: skip
def test_unfinished_and_foreign_names_are_no_payment_files(name: str) -> None:
    """Uploads under way and files of other kinds are never taken for payments."""
    assert not is_payment_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "pay.results.csv", "pay.rejects.xlsx", "pay.rejects.csv", "PAY.RESULTS.CSV", "pay.results-2.csv",
        "pay.rejects.csv.gz",
    ],
)  # fmt: skip
def test_what_is_named_as_ours_is_a_payment_file_where_a_control_file_says_so(tmp_path: Path, name: str) -> None:
    """What batchpay wrote is never taken for payments; what a person corrected was not, whatever lay beside it."""
    file = put(tmp_path / name)
    assert complete_files(tmp_path, now_s=later(999)) == []
    put(tmp_path / f"{name}.control.toml")
    assert complete_files(tmp_path, now_s=later(999)) == [file]


@pytest.mark.parametrize("name", ["pay.csv", "PAY.CSV", "p.q.xlsx", "x.parquet", "x.csv.gz", "x.tsv", "results.csv"])
def test_payment_names(name: str) -> None:
    """What batchpay reads is taken, in any letter case."""
    assert is_payment_name(name)


def test_an_inbox_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A missing folder is not an empty folder: a disk may not be mounted."""
    with pytest.raises(NotUsable, match="can't be read"):
        complete_files(tmp_path / "none", now_s=0)


def test_a_finished_file_moves_with_its_control_file(tmp_path: Path) -> None:
    """Both are in the archive with mode 0600 and gone from where they were."""
    file = put(tmp_path / "pay.csv", "rows")
    put(tmp_path / "pay.csv.control.toml", "rows = 1\n")
    file.chmod(0o644)
    done = tmp_path / "years" / "2026" / "done"
    assert archived(file, done) == done / "pay.csv"
    assert (done / "pay.csv").read_text() == "rows"
    assert (done / "pay.csv.control.toml").read_text() == "rows = 1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["years"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in done.iterdir()} == {0o600}
    assert stat.S_IMODE(done.stat().st_mode) == 0o700


def test_nothing_in_the_archive_is_overwritten(tmp_path: Path) -> None:
    """The same name gets a number in front of its ending, and a file never gets another one's control file."""
    done = tmp_path / "done"
    first = [archived(put(tmp_path / "pay.csv.gz", text), done).name for text in ("one", "two", "three")]
    assert first == ["pay.csv.gz", "pay-2.csv.gz", "pay-3.csv.gz"]
    assert [(done / name).read_text() for name in first] == ["one", "two", "three"]
    put(done / "x.csv.control.toml", "left over")
    put(tmp_path / "x.csv.control.toml", "its own")
    assert archived(put(tmp_path / "x.csv"), done) == done / "x-2.csv"
    assert (done / "x-2.csv.control.toml").read_text() == "its own"
    assert sorted(path.name for path in done.iterdir() if path.name.startswith("x")) == [
        "x-2.csv", "x-2.csv.control.toml", "x.csv.control.toml",
    ]  # fmt: skip


def test_a_move_to_another_disk_is_a_copy_first(tmp_path: Path) -> None:
    """Where renaming can't be done the file is copied whole, with mode 0600, before it is taken away here."""
    others = [place for place in _PLACES if place.is_dir() and place.stat().st_dev != tmp_path.stat().st_dev]
    if not others:
        pytest.skip("no second file system to move to")
    folder = others[0] / f"batchpay-test-{os.getpid()}"
    try:
        moved = archived(put(tmp_path / "pay.csv", "x" * 3_000_000), folder)
        assert moved.stat().st_size == 3_000_000
        assert stat.S_IMODE(moved.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == []
        assert [path.name for path in folder.iterdir()] == ["pay.csv"]
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.parametrize("kind", ["another", "changed", "link", "missing", "folder"])
def test_only_the_file_that_was_read_is_archived(tmp_path: Path, kind: str) -> None:
    """What came to its place meanwhile stays, the next file of the same name above all; once nobody read it."""
    target = put(tmp_path / "pay.csv", "a,b\n")
    seen = read(target)
    if kind == "changed":
        with target.open("a") as file:
            file.write("1,2\n")
    elif kind == "another":
        put(tmp_path / "next", "a,b\n").rename(target)
    else:
        target.rename(tmp_path / "moved.csv")
    if kind == "link":
        target.symlink_to(tmp_path / "moved.csv")
    elif kind == "folder":
        target.mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert archive(target, tmp_path / "done", seen) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("moment", ["opening", "renaming", "copying"])
def test_a_file_that_comes_while_the_other_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In the moment between looking and moving: the newcomer is put back, under its name and whole."""
    target, done = put(tmp_path / "pay.csv", "old"), tmp_path / "done"
    seen = read(target)

    def comes(*_: object) -> None:
        put(tmp_path / "next", "new").rename(target)

    reserve = archive_module._reserved

    def reserve_late(*arguments: Any) -> Path:
        comes()
        return reserve(*arguments)

    if moment == "copying":
        monkeypatch.setattr(archive_module, "_renamed", lambda *_: False)
        monkeypatch.setattr(shutil, "copyfileobj", comes)
        assert archive(target, done, seen) == done / "pay.csv"
    else:
        if moment == "opening":
            monkeypatch.setattr(archive_module, "_reserved", reserve_late)
        else:
            monkeypatch.setattr(os, "fchmod", comes)
        assert archive(target, done, seen) is None
        assert list(done.iterdir()) == []
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["pay.csv"]


def test_a_disk_that_is_full_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one name after another was taken: the next ten thousand would not do either, and the file stays."""
    file = put(tmp_path / "pay.csv")
    seen, opened = read(file), os.open

    def full(path: Any, flags: int, *mode: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(NotUsable, match=os.strerror(errno.ENOSPC)):
        archive(file, tmp_path / "done", seen)
    assert file.exists()


def test_what_another_program_wrote_to_the_archive_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move failed, and its place in the archive is given up: but not a file that somebody put there meanwhile."""
    file, done = put(tmp_path / "pay.csv"), tmp_path / "done"

    def fails(*_: object) -> None:
        put(done / "pay.csv", "theirs")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fchmod", fails)
    with pytest.raises(NotUsable, match=os.strerror(errno.EIO)):
        archive(file, done, read(file))
    assert (done / "pay.csv").read_text() == "theirs"
    assert file.exists()


def test_a_control_file_of_the_next_one_stays(tmp_path: Path) -> None:
    """Uploaders put it there first: with the old file in the archive the next one would come without its totals."""
    target, control = put(tmp_path / "pay.csv"), put(tmp_path / "pay.csv.control.toml", "rows = 1")
    seen = read(target)
    put(tmp_path / "next", "rows = 2").rename(control)
    assert archive(target, tmp_path / "done", seen) == tmp_path / "done" / "pay.csv"
    assert control.read_text() == "rows = 2"
    again = read(put(target))
    control.unlink()
    assert archive(target, tmp_path / "done", again) == tmp_path / "done" / "pay-2.csv"


def test_a_file_that_can_not_be_taken_away_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call, of an inbox whose folder is another user's, left one more copy with its account numbers."""
    file, done = put(tmp_path / "pay.csv"), tmp_path / "done"
    replace, rename = Path.replace, Path.rename

    def denied(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def move(self: Path, target: Path) -> Path:
            if self == file:
                raise PermissionError(errno.EACCES, "Permission denied")
            return real(self, target)

        return move

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", denied(replace))
        patched.setattr(Path, "rename", denied(rename))
        for _ in range(2):
            with pytest.raises(NotUsable, match=r"can't be moved to .*: Permission denied"):
                archive(file, done, read(file))
            assert list(done.iterdir()) == []
    assert archived(file, done) == done / "pay.csv"
