"""Options that contradict each other, refused with what to do instead; and the time of day that --until means."""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchpay.cli.context import Context
from batchpay.cli.main import cli
from batchpay.cli.options import nearest
from batchpay.sending.limits import StopRequest
from tests.support.command import Home


@pytest.mark.parametrize(("options", "told"), [
    (("--plan", "p.json"), "--plan goes with --dry-run"),
    (("--dry-run", "--from-plan", "p.json"), "--from-plan is for a submission"),
    (("--show-requests", "1"), "--show-requests goes with --dry-run"),
    (("--again", "--release", "--reason", "x"), "--again pays the whole content once more"),
    (("--rows", "3"), "--rows goes with --release"),
    (("--release", "--reason", "x", "--rows", "3,x"), "write row numbers like 3,7"),
    (("b.csv", "--release", "--reason", "x", "--rows", "3"), "are for a single file"),
    (("--rate", "0"), "the rate must be a number from 0.1 to 20,000, or auto"),
])  # fmt: skip
def test_options_that_contradict_each_other(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    """A dry run took a plan that does not even exist; `--show-requests` alone sent the payments."""
    settings = tmp_path / "batchpay.toml"
    settings.write_text("")
    call = ["submit", "a.csv", *options, "--config", str(settings)]
    done = CliRunner().invoke(cli, call, obj=Context())
    assert (done.exit_code, told in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("call", [
    ("submit", "a.csv", "--from-plan", ""), ("submit", "a.csv", "--archive", " "), ("validate", "a.csv", "--map", ""),
    ("resolve", "3f2a91c0d7e1", "--from", ""),
])  # fmt: skip
def test_a_file_whose_name_is_blank_was_not_left_out(tmp_path: Path, call: tuple[str, ...]) -> None:
    """`--from-plan "$PLAN"` with PLAN not set sent the file without a plan."""
    settings = tmp_path / "batchpay.toml"
    settings.write_text("")
    done = CliRunner().invoke(cli, [*call, "--config", str(settings)], obj=Context())
    assert (done.exit_code, f"'{call[2]}': the name is blank" in done.stderr) == (2, True), done.output


def test_a_preset_whose_name_is_blank_is_told_by_its_key(tmp_path: Path) -> None:
    """Settings with `from_plan = ""` sent without a plan."""
    settings = tmp_path / "batchpay.toml"
    settings.write_text('[submit]\nfrom_plan = ""\n')
    done = Home(tmp_path).run("submit", "a.csv", "--config", str(settings))
    assert (done.returncode, "submit.from_plan: the name is blank" in done.stderr) == (5, True), done.stderr


def test_choices_are_not_told_with_control_characters(tmp_path: Path) -> None:
    """They are set in with tabs, which were shown escaped."""
    done = Home(tmp_path).run("web", "user", "add", "ann")
    assert done.returncode == 2
    assert "\n  prepare,\n" in done.stderr and "\\t" not in done.stderr


def test_an_address_is_told_by_the_argument_that_gave_it(tmp_path: Path) -> None:
    """It was said to be the setting gateway.base_url, which was right."""
    done = Home(tmp_path).run("ledger", "move-gateway", "https://old.example", "new.example", "--reason", "moved")
    assert (done.returncode, "batchpay: NEW must" in done.stderr) == (5, True), done.stderr


def test_a_mistyped_command_is_told_with_the_one_that_was_meant() -> None:
    """Commands are imported when they are called for, and click knew none to suggest."""
    done = CliRunner().invoke(cli, ["sumbit", "a.csv"], obj=Context())
    assert (done.exit_code, "No such command 'sumbit'. Did you mean 'submit'?" in done.stderr) == (2, True)


def test_help_of_submit_says_what_each_option_is_for() -> None:
    """Each option of its own stands in one of four sections; only what all commands have comes after them."""
    page = CliRunner().invoke(cli, ["submit", "--help"], obj=Context()).output
    titles = ("What is read:", "What is decided:", "How it is sent:", "Where it goes:", "Options:")
    assert sorted(titles, key=page.index) == list(titles)
    rest = page[page.index("Options:") :]
    assert rest.split("\n")[1].strip().startswith("--config")
    for title, option in zip(titles, ("--sheet", "--release", "--until", "--metrics-file"), strict=False):
        section = page[page.index(title) :]
        assert option in section[: section.index("\n\n")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    """Click's own, which needed a variable that nobody remembers."""
    done = CliRunner().invoke(cli, ["completion", shell], obj=Context())
    assert done.exit_code == 0
    assert f"{shell}_complete" in done.output


@pytest.mark.parametrize(("call", "now"), [
    ("work --forever", "take"), ("work 3f2a91c0d7e1", "take"), ("submit a.csv --join", "take"),
    ("ledger check --accept-witness --reason moved", "batchpay ledger accept --reason TEXT"),
    ("ledger check --accept-machine --reason moved", "batchpay ledger accept --reason TEXT"),
    ("ledger check --lost-window-settled --reason compared", "batchpay ledger accept --confirm"),
])  # fmt: skip
def test_what_was_removed_names_what_does_it_now(tmp_path: Path, call: str, now: str) -> None:
    """A cron line of 0.1.0 that helped another machine, or a runbook for a restored ledger."""
    (settings := tmp_path / "batchpay.toml").write_text("")
    done = CliRunner().invoke(cli, ["--config", str(settings), *call.split()], obj=Context())
    assert (done.exit_code, "was removed in 0.2.0" in done.stderr, now in done.stderr) == (2, True, True)


NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


@pytest.fixture(params=[True, False], ids=["of this machine", "named"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[zoneinfo.ZoneInfo | None]:
    """New York's time zone, by its name or as this machine's own."""
    if request.param:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        yield None
        monkeypatch.undo()
        time.tzset()
    else:
        yield NEW_YORK


@pytest.mark.parametrize(("now", "until", "meant"), [
    ("2026-06-01 22:00", "04:00", "2026-06-02 04:00"), ("2026-06-01 02:00", "23:30", "2026-05-31 23:30"),
    ("2026-06-01 12:00", "17:30", "2026-06-01 17:30"), ("2026-03-08 01:30", "04:00", "2026-03-08 04:00"),
    ("2026-11-01 00:30", "04:00", "2026-11-01 04:00"),
])  # fmt: skip
def test_until_is_what_clocks_show(zone: zoneinfo.ZoneInfo | None, now: str, until: str, meant: str) -> None:
    """The nearest such time. In the night of a change, without a zone's name, it once was an hour off."""
    now_s = datetime.datetime.fromisoformat(now).replace(tzinfo=NEW_YORK).timestamp()
    expected_s = datetime.datetime.fromisoformat(meant).replace(tzinfo=NEW_YORK).timestamp()
    assert nearest(datetime.time.fromisoformat(until).replace(tzinfo=zone), now_s) == expected_s


def test_a_time_that_is_over_is_told_with_its_day(zone: zoneinfo.ZoneInfo | None) -> None:
    """At 18:00 --until 07:30 is this morning's: the run sent nothing, night after night, and did not say why."""
    now_s = datetime.datetime(2020, 6, 1, 18, tzinfo=NEW_YORK).timestamp()
    stop = StopRequest(until=nearest(datetime.time(7, 30, tzinfo=zone), now_s))
    assert stop
    if zone is None:  # it is told in the machine's own
        assert stop.reason == "the time given by --until, 2020-06-01 07:30:00 EDT, is reached"
