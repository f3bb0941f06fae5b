"""What no output may take the place of: every option that names one, against every file that a call lives on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import calling
from tests.support.command import small_file
from tests.support.in_process import Caller

EXPORT = "reference,invoice,amount,status\nQ,INV-1,1.25,Settled\n"
BY_OPTION = {
    "metrics": ("submit", "b.csv", "--metrics-file"),
    "metrics of a wrong line": ("submit", "b.csv", "--no-such-option", "--metrics-file"),
    "metrics of resume": ("resume", "--metrics-file"),
    "log": ("submit", "b.csv", "--log-file"),
    "plan": ("submit", "b.csv", "--dry-run", "--plan"),
    "rejects": ("submit", "b.csv", "--rejects"),
    "rejects of a dry run": ("submit", "b.csv", "--dry-run", "--rejects"),
    "results": ("submit", "b.csv", "--results"),
    "results of resume": ("resume", "--results"),
    "report": ("report", "--out"),
    "report of a check": ("validate", "b.csv", "--report"),
    "rejects of a check": ("validate", "b.csv", "--rejects"),
    "results again": ("results", "--results"),
    "reconciliation": ("reconcile", "BATCH", "--against", "export.csv", "--out"),
    "sheet": ("resolve", "BATCH", "--export"),
    "template": ("template", "--force"),
    "map": ("map", "b.csv", "--write"),
    "backup": ("ledger", "backup"),
    "sandbox": ("sandbox", "--port", "0", "--db"),
}
OWN = (
    "state/ledger.db",
    "state/ledger.db-wal",
    "state/ledger.db.lock",
    "keys/ledger.key",
    "batchpay.toml",
    "api.key",
)
"""Files of the call; the ledger's witness is one as well."""


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory, server: str) -> Path:
    """A ledger with a batch, its key and witness, settings, an API key's file, an export, and a second file."""
    folder = tmp_path_factory.mktemp("furnished") / "office"
    folder.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch, calling(folder, server, patch) as call:
        Path("api.key").write_text("sandbox-key\n")
        Path("api.key").chmod(0o600)
        Path("batchpay.toml").write_text('[submit]\nrate = "5000"\n')
        Path("batchpay.toml").chmod(0o600)
        Path("export.csv").write_text(EXPORT)
        call.settings(BATCHPAY_API_KEY_FILE="api.key")
        small_file(Path("a.csv"), 1)
        small_file(Path("b.csv"), 1, first=7)
        call("submit", "a.csv")
    shutil.copytree(folder, folder.with_name("as made"))
    return folder


@pytest.fixture
def office(furnished: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """All of it as it was made, written into the same ledger's file: another file at its path would be a copy."""
    made = furnished.with_name("as made")
    for path in furnished.rglob("*"):
        if path.is_symlink() or (path.is_file() and not (made / path.relative_to(furnished)).exists()):
            path.unlink()
    shutil.copytree(made, furnished, dirs_exist_ok=True)
    with calling(furnished, url, monkeypatch) as call:
        call.settings(BATCHPAY_API_KEY_FILE="api.key")
        yield call


def everything() -> dict[str, bytes]:
    """All files with what they hold, without the record that a call ended, which every call writes."""
    found = (path for path in Path().rglob("*") if path.is_file() and path.suffix != ".last-call")
    return {str(path): path.read_bytes() for path in found}


def refused(office: Caller, words: tuple[str, ...], path: str) -> str:
    """Call a command with a path for its output: exit code 2, and no file of the folder is another one."""
    before = everything()
    assert office.exit_code(*_named(office, words), path) == 2
    assert everything() == before
    return path


def _named(office: Caller, words: tuple[str, ...]) -> list[str]:
    """Put the batch's name into a command that needs it."""
    if "BATCH" not in words:
        return [*words]
    batch = office("status")["batches"][0]["batch"]
    return [batch if word == "BATCH" else word for word in words]


@pytest.mark.parametrize("option", BY_OPTION)
def test_no_output_takes_the_place_of_what_a_call_lives_on(office: Caller, option: str) -> None:
    """`--metrics-file ledger.db` ended with 0 and the ledger was a page of counts; a dry run destroyed the key."""
    (witness,) = Path("keys").glob("*.witness")
    for path in (*OWN, str(witness)):
        refused(office, BY_OPTION[option], path)
        refused(office, BY_OPTION[option], str(Path(path).absolute()))


def test_the_record_of_the_last_call_is_not_taken_either(office: Caller) -> None:
    """Before the first call there is none: with a page of counts there health says that nothing has ever run."""
    Path("state/ledger.db.last-call").unlink()
    refused(office, BY_OPTION["metrics"], "state/ledger.db.last-call")


@pytest.mark.parametrize("option", BY_OPTION)
def test_a_link_is_the_file_that_it_leads_to(office: Caller, option: str) -> None:
    """Hard or symbolic, in a folder that is a link itself."""
    key = Path("keys/ledger.key").absolute()
    Path("other").symlink_to("keys", target_is_directory=True)
    Path("soft.csv").symlink_to(key)
    Path("hard.csv").hardlink_to(key)
    for path in ("soft.csv", "hard.csv", "other/ledger.key"):
        refused(office, BY_OPTION[option], path)


@pytest.mark.parametrize(
    "option", ["metrics", "log", "plan", "rejects", "results", "report of a check", "rejects of a check"]
)
def test_no_output_takes_the_place_of_an_input(office: Caller, option: str) -> None:
    """The log's lines went into the payment file, whose mode they changed."""
    Path("names.toml").write_text("")
    Path("b.csv.control.toml").write_text("rows = 1\n")
    *words, last = BY_OPTION[option]
    for path in ("b.csv", "b.csv.control.toml", "names.toml"):
        refused(office, (*words, "--map", "names.toml", last), path)


@pytest.mark.parametrize(
    "option", ["metrics", "log", "plan", "report", "report of a check", "reconciliation", "sandbox"]
)
def test_a_file_of_another_kind_stays(office: Caller, option: str) -> None:
    """A reconciliation replaced the bank's export, and a plan the results."""
    Path("list.json").write_text('{"plan": "B"}')
    Path("page.html").write_text("<!doctype html>\n<html><title>Somebody else's</title>")
    with sqlite3.connect("c.db") as database:
        database.execute("CREATE TABLE customer (name TEXT)")
    for path in ("export.csv", "a.csv", "a.results.csv", "batchpay.toml", "list.json", "page.html", "c.db"):
        refused(office, BY_OPTION[option], path)


@pytest.mark.parametrize("option", ["report", "report of a check"])
def test_a_report_is_named_as_the_page_that_it_is(office: Caller, option: str) -> None:
    """`--out may.pdf` wrote a page that nothing which reads PDFs can open."""
    words = _named(office, BY_OPTION[option])
    for path in ("may.pdf", "may"):
        assert office.exit_code(*words, path) == 2
        assert not Path(path).exists()


def test_outputs_of_one_call_stay_apart(office: Caller) -> None:
    """`--metrics-file b.results.csv` ended with 2 and wrote over the results all the same."""
    refused(office, ("submit", "b.csv", "--log-file"), "b.results.csv")
    refused(office, ("submit", "b.csv", "--dry-run", "--plan", "one", "--log-file"), "one")
    assert office.exit_code("submit", "b.csv", "--metrics-file", "b.results.csv") == 2
    office("submit", "b.csv")
    refused(office, ("submit", "b.csv", "--metrics-file"), "b.results.csv")
    refused(office, ("resume", "--results", "r.csv", "--metrics-file"), "r.csv")


@pytest.mark.parametrize(
    ("option", "path"),
    [("metrics", "m.prom"), ("log", "run.log"), ("plan", "p.json"), ("report", "r.html"),
     ("report of a check", "c.html"), ("reconciliation", "x.csv"), ("reconciliation", "x.xlsx")],
)  # fmt: skip
def test_what_an_earlier_call_wrote_is_replaced(office: Caller, option: str, path: str) -> None:
    """The same line every night; an empty file is nobody's."""
    words = _named(office, BY_OPTION[option])
    Path(path).touch()
    assert office.exit_code(*words, path) == 0
    assert Path(path).read_bytes()
    assert office.exit_code(*words, path) == 0
    if option == "log":
        Path(path).unlink()
        assert office.exit_code(*words, path, "--log-json") == office.exit_code(*words, path, "--log-json") == 0
        assert Path(path).read_text().startswith("{")


def test_settings_that_cannot_be_read_protect_the_ledger_all_the_same(office: Caller) -> None:
    """A call that such settings end still writes its metrics and its log."""
    Path("batchpay.toml").write_text('[ledger]\nkey_fil = "keys/ledger.key"\n[submit]\nworkers = "many"\n')
    before = everything()
    for path in ("state/ledger.db", "keys/ledger.key", "batchpay.toml", "b.csv"):
        assert office.exit_code("submit", "b.csv", "--metrics-file", path) in (2, 5)
        assert office.exit_code("submit", "b.csv", "--log-file", path) in (2, 5)
    assert everything() == before


def test_a_copy_of_a_ledger_is_no_sandbox(office: Caller) -> None:
    """The sandbox added its tables to a live ledger."""
    shutil.copyfile("state/ledger.db", "copy.db")
    refused(office, BY_OPTION["sandbox"], "copy.db")
