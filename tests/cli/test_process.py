"""The edges of the process: output that can't be written, descriptors that are closed, signals that come late."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpay.cli import process
from batchpay.cli.process import OutputThatLasts
from batchpay.sending.limits import SignalStop
from batchpay.writing import process_memory

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FULL = Path("/dev/full")


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Signals that count, and handlers as they were, afterwards: a shell's `&` ignores SIGINT, and nohup SIGHUP."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def command(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process where `code` was run before."""
    start = f"import os, signal, sys\nfrom batchpay.cli import main\n{code}\nmain.main()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")
def test_a_full_output_raises_nothing() -> None:
    """The first reason is kept, and nothing is tried again."""
    descriptor = os.open(FULL, os.O_WRONLY)
    with OutputThatLasts(descriptor, "w") as output:
        assert [output.write(b"one"), output.write(b"two!")] == [3, 4]
        assert output.problem == "No space left on device"


def test_an_output_that_nobody_reads_raises_nothing() -> None:
    """As `| head` leaves it behind."""
    reading, writing = os.pipe()
    with OutputThatLasts(writing, "w") as output:
        assert output.write(b"one") == 3
        assert os.read(reading, 9) == b"one"
        os.close(reading)
        assert output.write(b"two") == 3
        assert output.problem == "Broken pipe"


def test_a_slow_reader_gets_everything() -> None:
    """A pipe that doesn't block is waited for, not given up."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"], stdin=reading, stdout=-1
    )
    os.close(reading)
    with OutputThatLasts(writing, "w") as output:
        sent = sum(output.write(b"x" * 65_536) for _ in range(8))
    assert int(reader.communicate()[0]) == sent
    assert output.problem is None


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_descriptors_are_opened(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """No file that is opened later takes the place of standard output, where a message would be written into it."""
    told = tmp_path / "told"
    code = (
        f"for one in {closed}: os.close(one)\n"
        "def call(context):\n"
        f"    with open({str(told)!r}, 'w') as file: file.write(str(file.fileno()))\n"
        "    print('out'); print('err', file=sys.stderr); return len(sys.stdin.read())\n"
        "main._call = call\n"
    )
    done = command(code)
    assert int(told.read_text()) > 2
    assert (done.returncode, done.stdout == "out\n", done.stderr == "err\n") == (0, 1 not in closed, 2 not in closed)


def test_a_signal_after_the_end_changes_nothing() -> None:
    """The exit code stands, and there is no traceback."""
    at_exit = "import atexit\nfor number in (1, 2, 15): atexit.register(os.kill, os.getpid(), number)\n"
    done = command(f"{at_exit}main._call = lambda _: 7")
    assert (done.returncode, done.stderr) == (7, "")


def test_a_signal_between_the_command_and_its_end_is_told_in_a_line() -> None:
    """Where it came before the exit code was known."""
    done = command("main._call = lambda _: os.kill(os.getpid(), 15)")
    assert (done.returncode, done.stderr) == (6, "batchpay: stopped by a signal; safe to run again\n")


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_after_a_run_only_asks(number: signal.Signals) -> None:
    """What a run found, a row in doubt for one, is not hidden by a signal while its results are printed."""
    stop = SignalStop()
    stop.begin()
    os.kill(os.getpid(), number)
    assert stop.reason == f"stopped by {number.name}"


@pytest.mark.usefixtures("own_signals")
def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup wants it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = SignalStop()
    stop.begin()
    os.kill(os.getpid(), signal.SIGHUP)
    assert stop.reason is None


@pytest.mark.parametrize(("recorded", "name", "how"), [
    ("4294967295", "uid 54321", ""), ("54321", "uid 54321", ""), ("54322", "uid 54322", "login, running as uid 54321"),
    ("nonsense", "uid 54321", ""), (None, "uid 54321", ""),
], ids=["no login", "own login", "another login", "nonsense", "no record"])  # fmt: skip
def test_a_shared_account_is_the_person_who_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str | None, name: str, how: str
) -> None:
    """Behind `sudo -u payments` stands the login that the kernel recorded; without a record the account itself."""
    login = tmp_path / "loginuid"
    if recorded is not None:
        login.write_text(recorded)
    monkeypatch.setattr(process, "_LOGIN_UID", login)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    found = process.actor()
    assert (found.name, found.authenticated_by) == (name, how)


def test_polars_is_told_to_keep_freed_memory_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that reads a file has told it in time, and what a person set stays."""
    monkeypatch.delenv("_RJEM_MALLOC_CONF", raising=False)  # polars, imported here, has set it
    code = "import atexit; atexit.register(lambda: print(os.environ['_RJEM_MALLOC_CONF']))"
    assert "narenas:1,dirty_decay_ms:5000" in command(code, "rules").stdout
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "narenas:2")
    process_memory.keep_freed_memory()
    assert os.environ["_RJEM_MALLOC_CONF"] == "narenas:2"


def test_threads_of_a_command_share_what_they_freed(tmp_path: Path) -> None:
    """Each had a store of its own, in which a submission of a million rows left 40 MiB."""
    told = tmp_path / "stores.xml"
    code = f"""
import atexit, ctypes, threading
def tell():
    waiting = threading.Barrier(4)
    threads = [threading.Thread(target=lambda: (bytearray(9999), waiting.wait())) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    libc = ctypes.CDLL(None)
    libc.fopen.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    file = libc.fopen({str(told)!r}.encode(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(file))
    libc.fclose(file)
atexit.register(tell)"""
    assert command(code, "--version").returncode == 0
    assert told.read_text().count("<heap ") == 1


def test_a_command_looks_for_garbage_rarely_and_not_at_its_end() -> None:
    told = "print(gc.get_threshold()[0], gc.get_freeze_count() > 1000)"
    done = command(f"import atexit, gc; atexit.register(lambda: {told})", "--version")  # registered first, called last
    assert done.stdout.splitlines()[-1] == "200000 True"


@pytest.mark.parametrize(
    "line", ["nope --json", "status --nope --json", "status --json --nope", "rules --markdown=x --json"]
)
def test_a_line_that_cannot_be_parsed_has_its_object_too(line: str) -> None:
    """Whoever reads standard output as JSON was given nothing where the parser stopped before it came to --json."""
    done = command("", *line.split())
    assert done.returncode == json.loads(done.stdout)["exit_code"] == 2


def test_a_word_after_the_options_does_not_ask_for_an_object() -> None:
    done = command("", "nope", "--", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_version_tells_what_a_report_of_a_problem_needs() -> None:
    """One line: version and date of its commit, Python, polars, SQLite; a checkout asks git."""
    told = command("", "--version").stdout
    number = r"[0-9]+(\.[0-9]+)+"
    date = r"( \([0-9]{4}-[0-9]{2}-[0-9]{2}\))?"  # nobody knows it where neither git nor a build has told it
    assert re.fullmatch(rf"batchpay {number}{date}, Python {number}, polars {number}, SQLite {number}\n", told)


@pytest.mark.parametrize("line", ["web", "web --demo", "web user list", "sandbox", "demo"])
def test_a_command_without_its_add_on_says_what_to_install(line: str, tmp_path: Path) -> None:
    """The core runs without Flask and waitress: it was an internal error."""
    (tmp_path / "flask.py").write_text("raise ModuleNotFoundError('none', name='flask')")
    (tmp_path / "waitress.py").write_text("raise ModuleNotFoundError('none', name='waitress')")
    (tmp_path / "werkzeug.py").write_text("raise ModuleNotFoundError('none', name='werkzeug')")
    code = f"sys.path.insert(0, {str(tmp_path)!r}); os.environ['PYTHONPATH'] = {str(tmp_path)!r}; os.chdir(sys.path[0])"
    done = command(code, *line.split())
    assert (done.returncode, done.stdout) == (5, "")
    assert re.fullmatch(r"batchpay: [a-z]+ is not installed; .* -m pip install 'batchpay\[web\]'\n", done.stderr)
