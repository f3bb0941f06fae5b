"""`import batchpay`: five functions that return what their commands print, and let out errors of errors.py alone."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest

import batchpay
from batchpay import library
from batchpay.cli.commands import DECISIONS, load_command, preset_name
from batchpay.errors import BatchpayError, CredentialsNotUsable, FileRefused, LedgerMissing, SettingsNotUsable, WrongUse
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.output_schemas import SCHEMAS, require_schema
from tests.support.postgres import Server
from tests.support.sandbox_requests import control

SURFACE = {
    "check": "(path: 'Path', *, settings: 'SettingsGiven' = None, **options: 'Unpack[ReadOptions]') -> 'Check'",
    "results": "(batch: 'str | None' = None, path: 'Path | None' = None, *, settings: 'SettingsGiven' = None)"
    " -> 'Batch'",
    "resume": "(batch: 'str | None' = None, *, settings: 'SettingsGiven' = None, **options: 'Unpack[SendOptions]')"
    " -> 'Batch'",
    "status": "(batch: 'str | None' = None, *, settings: 'SettingsGiven' = None) -> 'Batches | BatchStatus'",
    "submit": "(path: 'Path', *, settings: 'SettingsGiven' = None, **options: 'Unpack[SubmitOptions]') -> 'Submission'",
}
OPTIONS = {"validate": library.ReadOptions, "resume": library.SendOptions, "submit": library.SubmitOptions}
OBJECTS = [
    (library.Batch, "resume"), (library.Submission, "submit"), (library.Check, "validate"),
    (library.BatchStatus, "status"), (library.Batch, "results"),
]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, call: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A new ledger of each kind, which the calls' settings name."""
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres_server")
        for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            monkeypatch.delenv(variable, raising=False)
        database = server.new_database()
        call.settings(BATCHPAY_LEDGER=server.url(database))
        call("ledger", "init", "--owner-url", server.owner_url(database))
    else:
        call("ledger", "init")
    call.settings(BATCHPAY_API_KEY="sandbox-key")
    return call


Own = Callable[..., Any]


@pytest.fixture
def own(capfd: pytest.CaptureFixture[str]) -> Own:
    """Calls a function of the library, which prints nothing and leaves every signal's handler."""

    def call_quietly(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        capfd.readouterr()
        before = [signal.getsignal(number) for number in signal.valid_signals()]
        try:
            return function(*arguments, **options)
        finally:
            assert capfd.readouterr() == ("", "")
            assert [signal.getsignal(number) for number in signal.valid_signals()] == before

    return call_quietly


def test_the_surface() -> None:
    """Names, signatures and options are a promise; what a person decides is not among them."""
    assert batchpay.__all__ == sorted(SURFACE) == sorted(set(dir(library)) & set(SURFACE))
    assert {name: str(inspect.signature(getattr(batchpay, name))) for name in SURFACE} == SURFACE
    assert not hasattr(batchpay, "release")
    for command, options in OPTIONS.items():
        names = options.__annotations__.keys()
        assert names <= {preset_name(one.name) for one in load_command(command).params} - DECISIONS
    assert OPTIONS["validate"].__annotations__.keys() >= {"map", "normalize", "expect_total"}


def test_the_import_is_light() -> None:
    """`import batchpay` and the names of its functions load neither polars nor click; type checkers find the types."""
    code = "import sys, batchpay; batchpay.__all__; print({'polars', 'click', 'pandera', 'requests'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(("kind", "command"), OBJECTS, ids=[f"{kind.__name__} {name}" for kind, name in OBJECTS])
def test_types_are_those_of_the_schemas(kind: type, command: str) -> None:
    """Each type has the keys of the first object of its command's schema, required or not, with their types."""
    schema = json.loads((SCHEMAS / f"{command}.json").read_text("utf-8"))
    assert_same(kind, schema["anyOf"][0])


PARTS = json.loads((SCHEMAS / "parts.json").read_text("utf-8"))["$defs"]
PLAIN: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}


def assert_same(kind: Any, schema: dict[str, Any]) -> None:
    """Compare a type with what a schema lets through; what is `Any` may be anything."""
    if "$ref" in schema:
        schema = PARTS[schema["$ref"].rsplit("/", 1)[1]]
    if kind is Any:
        return
    if is_typeddict(kind):
        parts = [PARTS[one["$ref"].rsplit("/", 1)[1]] for one in schema.get("allOf", ())]
        found = {name: one for part in (*parts, schema) for name, one in part.get("properties", {}).items()}
        required = {name for part in (*parts, schema) for name in part.get("required", ())}
        hints = get_type_hints(kind)
        assert required <= hints.keys() <= found.keys()
        assert kind.__required_keys__ == required
        for name, hint in hints.items():
            assert_same(hint, found[name])
        return
    if get_origin(kind) is list:
        assert schema["type"] == "array"
        assert_same(get_args(kind)[0], schema["items"])
        return
    if get_origin(kind) is dict:
        assert schema["type"] == "object"
        below = schema.get("additionalProperties") or next(iter(schema["properties"].values()))
        assert_same(get_args(kind)[1], below)
        return
    assert members(kind) == allowed(schema), (kind, schema)


def members(kind: Any) -> set[Any]:
    """Split a union into its types, a Literal into its values."""
    kinds = get_args(kind) or (kind,)
    return {word for one in kinds for word in (get_args(one) if get_origin(one) is Literal else (one,))}


def allowed(schema: dict[str, Any]) -> set[Any]:
    if "$ref" in schema:
        return allowed(PARTS[schema["$ref"].rsplit("/", 1)[1]])
    if "anyOf" in schema:
        return {one for each in schema["anyOf"] for one in allowed(each)}
    if "enum" in schema:
        return {type(one) if one is None else one for one in schema["enum"]}
    given = schema["type"]
    return {PLAIN[one] for one in ([given] if isinstance(given, str) else given)}


def test_each_function_returns_the_object_of_its_command(ledger: Caller, own: Own, url: str, tmp_path: Path) -> None:
    """Checked, sent with an answer missing, continued, looked at, written again; each object is the command's."""
    path = small_file(tmp_path / "a.csv", 3)
    checked, told = own(batchpay.check, "a.csv", expect_rows=3, expect_total="6.75"), ledger("validate", "a.csv")
    times = {"started_at": "", "finished_at": ""}
    assert checked | times == told | times
    control(url, "POST", "faults", [{"fault": "silent", "at": 2}])
    ledger.settings(BATCHPAY_TIMEOUT="1")
    sent = own(batchpay.submit, path, workers=1, limit=2)
    require_schema(["submit"], sent)
    assert (sent["accepted"], sent["in_doubt"], sent["pending"], sent["exit_code"]) == (1, 1, 1, 7)
    ledger.settings(BATCHPAY_API_KEY="sandbox-key")
    resumed = own(batchpay.resume, sent["batch"], results=tmp_path / "r.csv")
    require_schema(["resume"], resumed)
    assert (resumed["accepted"], resumed["in_doubt"], resumed["pending"]) == (2, 1, 0)
    of_one = own(batchpay.status, sent["batch"][:6])
    require_schema(["status"], of_one)
    assert of_one | {"runs": 0} == ledger("status", sent["batch"]) | {"runs": 0}
    assert own(batchpay.status) == ledger("status")
    again = own(batchpay.results, sent["batch"], tmp_path / "again.csv")
    assert again == ledger("results", sent["batch"], "--results", str(tmp_path / "again.csv"))
    for written in ("a.results.csv", "r.csv", "again.csv"):
        assert (tmp_path / written).stat().st_mode & 0o777 == 0o600


def test_an_error_says_what_the_command_would(
    ledger: Caller, own: Own, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stops a call is its error, with 7 while a row is in doubt; no frame or cause behind it may hold a row."""
    (tmp_path / "wrong.csv").write_text("nonsense\n021000021,0012345678\n")
    with pytest.raises(FileRefused) as refused:
        own(batchpay.submit, "wrong.csv")
    assert (refused.value.exit_code, refused.value.__cause__) == (4, None)
    for words in ({"again": True}, {"until": "soon"}):
        with pytest.raises(WrongUse, match=next(iter(words))):
            own(batchpay.submit, "wrong.csv", **words)
    with pytest.raises(TypeError, match="path"):
        own(batchpay.submit)
    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    ledger.settings(BATCHPAY_API_KEY="sandbox-key", BATCHPAY_TIMEOUT="1")
    batch = own(batchpay.submit, small_file(tmp_path / "a.csv", 1))["batch"]
    ledger.settings(BATCHPAY_API_KEY="sandbox-key")
    with pytest.raises(FileRefused) as refused:
        own(batchpay.submit, "wrong.csv")
    assert (refused.value.exit_code, FileRefused.exit_code) == (7, 4)
    assert refused.value.__notes__ == [f"a person must look: batchpay resolve {batch}"]
    (last,) = (one for one in ledger("health")["checks"] if one["check"] == "last call")
    assert (last["exit_code_of_call"], last["completed_at"] < last["ended_at"]) == (7, True)  # it was refused

    def fails(*_: object) -> None:
        account = "".join(["00123", "45678"])
        raise ValueError(f"cell {account}")

    monkeypatch.setattr("batchpay.workflows.check.validate", fails)
    with pytest.raises(BatchpayError, match=r"^internal error: ValueError") as fault:
        own(batchpay.check, "a.csv")
    shown = traceback.TracebackException.from_exception(fault.value, capture_locals=True)
    assert "0012345678" not in "".join(shown.format())


def test_settings_are_a_file_its_tables_or_the_commands_own(
    call: Caller, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or its tables say what they say to a command: presets count, unknown ones are refused, variables win."""
    path = small_file(tmp_path / "a.csv", 2)
    presets: dict[str, Any] = {"validate": {"expect_rows": 3}, "limits": {"max_amount": "2.00"}}
    with pytest.raises(FileRefused, match="3"):
        batchpay.check(path, settings=presets)
    assert batchpay.check(path, settings=presets, expect_rows=2)["rejected"] == 1
    named = tmp_path / "own.toml"
    named.write_text('[validate]\nexpect_rows = 3\n[limits]\nmax_amount = "2.00"\n')
    with pytest.raises(FileRefused, match="3"):
        batchpay.check(path, settings=named)
    wrongs: tuple[Any, ...] = ({"limit": {}}, {"limits": {"max": 1}}, tmp_path / "none.toml")
    for wrong in wrongs:
        with pytest.raises(SettingsNotUsable):
            batchpay.check(path, settings=wrong)
    call.settings(BATCHPAY_API_KEY="sandbox-key")
    with pytest.raises(WrongUse, match="dry run"):
        batchpay.submit(path, settings={"submit": {"dry_run": True}})
    for name in ("BATCHPAY_LEDGER", "BATCHPAY_BASE_URL"):
        monkeypatch.delenv(name)
    elsewhere = {"gateway": {"base_url": url, "environment": "live"}, "ledger": {"url": str(tmp_path / "none.db")}}
    with pytest.raises(LedgerMissing):
        batchpay.submit(path, settings=elsewhere)
    with pytest.raises(CredentialsNotUsable):  # a key in the environment is read once, and taken out of it
        batchpay.submit(path, settings=elsewhere)


def test_it_is_called_in_a_thread_and_its_events_reach_the_callers_log(
    ledger: Caller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker's thread has no signals to give, and a scheduler has its own log: no event has a long number."""
    path, found = small_file(tmp_path / "a.csv", 2), list[Any]()
    with caplog.at_level(logging.INFO, "batchpay"):
        thread = threading.Thread(target=lambda: found.append(batchpay.submit(path)))
        thread.start()
        thread.join()
        logging.getLogger("batchpay").info("note", extra={"reason": "account 0012345678"})
    assert found[0]["accepted"] == 2
    assert {"registered", "file finished"} <= {record.getMessage() for record in caplog.records}
    assert caplog.records[-1].__dict__["reason"] == "account ****"
    assert os.environ.get("BATCHPAY_API_KEY") is None


def test_the_page_does_what_it_shows(call: Caller, tmp_path: Path) -> None:
    """The example of docs/python.md runs as it stands, in an interpreter of its own."""
    call("ledger", "init")
    small_file(tmp_path / "payments.csv", 3)
    page = (SCHEMAS.parent / "python.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    key = tmp_path / "api-key"
    key.write_text("sandbox-key\n")
    key.chmod(0o600)
    call.settings(BATCHPAY_API_KEY_FILE=str(key), PYTHONPATH=str(SCHEMAS.parents[1]))
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    results = tmp_path / "results" / "payments.results.csv"
    assert done.stdout.splitlines() == [
        "3 of 3 rows are valid, 6.75 would be sent",
        f"3 accepted, exit code 0 {results.relative_to(tmp_path)}",
        "0 in doubt",
        "1 batches",
    ]
    assert done.stderr == "" and (tmp_path / "today.xlsx").exists()
    options = {f"`{name}`" for kind in OPTIONS.values() for name in kind.__annotations__}
    assert not {name for name in options if name not in page}
