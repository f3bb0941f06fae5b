"""The settings file: what is wrong with it is told by its key, whatever is wrong."""

from __future__ import annotations

import grp
import os
import pwd
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from batchpay.cli.commands import COMMANDS, DECISIONS, command_options, load_command, preset_name
from batchpay.cli.context import Context, Presets
from batchpay.cli.main import cli
from batchpay.cli.settings_file import read_settings_file, settings_file
from batchpay.errors import SettingsNotUsable
from batchpay.ledger.open import file_of
from batchpay.settings import check_tables, load_settings


@pytest.mark.parametrize(("text", "told"), [
    ("profile = 3", "profile must be a table"), ("[profile]\nnight = 3", "profile.night must be a table"),
    ("[profile.night]\ngateway = 3", "profile.night.gateway must be a table"),
    ("gateway = 3\n[profile.night.gateway]\ntimeout = 3", "gateway must be a table"),
    ("[profile.day]", "did you mean day"), ("[gateway", "can't be read"),
    ('ledger.url = "a\\u0000b"', "has a NUL character"),
    ("# Montréal".encode("latin-1"), "can't be read: it is not UTF-8"),
    ("a = " + "[" * 3000, "too deep"), ("a = " + "9" * 5000, "too long"),
])  # fmt: skip
def test_malformed_files(tmp_path: Path, text: str | bytes, told: str) -> None:
    """No shape of a file is an internal error. Four of these once were."""
    file = tmp_path / "batchpay.toml"
    content = text.encode() if isinstance(text, str) else text
    file.write_bytes(content)
    with pytest.raises(SettingsNotUsable, match=told):
        read_settings_file(file, "dya" if b"day" in content else "night")


def test_a_key_in_the_settings_is_told_where_keys_are() -> None:
    """The message was `did you mean api_id?`: whoever follows it writes the key under that name."""
    with pytest.raises(SettingsNotUsable, match="BATCHPAY_API_KEY_FILE names") as refused:
        check_tables({"gateway": {"api_key": "k-1"}}, {})
    assert "k-1" not in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path) -> None:
    """Some editors write one, and the file was refused as an invalid statement in line 1."""
    file = tmp_path / "batchpay.toml"
    file.write_text('[submit]\nrate = "5"\n', "utf-8-sig")
    assert read_settings_file(file, None) == {"submit": {"rate": "5"}}


@pytest.mark.parametrize("value", ["{}", "[]", "[{}]", "1e999", "nan", "1.5", "true", '""', "2026-11-28", "-1"])
def test_a_preset_of_another_kind_is_told_by_its_key(tmp_path: Path, value: str) -> None:
    """`workers = 1e999` and `expect_rows = {}` were internal errors, `expect_rows = 1.5` was 1: of every option."""
    file = tmp_path / "batchpay.toml"
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            continue
        presettable = command_options({name: {}})[name]
        for option in (one for one in command.params if preset_name(one.name) in presettable):
            file.write_text(f"[{name}]\n{preset_name(option.name)} = {value}\n")
            with click.Context(command, obj=Context(config=str(file))) as context:
                try:
                    command.parse_args(context, [] if isinstance(option, click.Argument) else ["x"])
                except SettingsNotUsable as error:
                    assert preset_name(option.name) in str(error)
                except click.UsageError as error:
                    assert not isinstance(error, click.BadParameter) or error.param is not option, (name, option.name)
                else:
                    is_whole = isinstance(option.type, click.types.IntParamType)
                    assert value not in ("1.5", "1e999", "{}") or not is_whole, (name, option.name)


def test_a_preset_amount_is_what_it_would_be_on_the_command_line(tmp_path: Path) -> None:
    """`expect_total = 1234`, a number of TOML, was 12.34; 1234.50 lost its last digit."""
    file = tmp_path / "batchpay.toml"
    command = load_command("validate")
    for written, cents in (('"1,234.50"', 123_450), ("1234.50", 123_450), ("1234", None)):
        file.write_text(f"[validate]\nexpect_total = {written}\n")
        with click.Context(command, obj=Context(config=str(file))) as context:
            if cents is None:
                with pytest.raises(SettingsNotUsable, match=r"validate\.expect_total: write the amount"):
                    command.parse_args(context, ["x"])
            else:
                command.parse_args(context, ["x"])
                assert context.params["expect_total"] == cents


def test_a_ledger_in_no_folder_is_refused(tmp_path: Path) -> None:
    """`ledger.url = "/"` was an internal error of `submit` and `validate`."""
    for setting in ("url", "key_file", "witness"):
        with pytest.raises(SettingsNotUsable, match="/ is a folder"):
            file_of(load_settings({"ledger": {"url": str(tmp_path / "ledger.db"), setting: "/"}}, {}).ledger)


@pytest.mark.parametrize("key", ["policy.duplicate_days", "policy.approval_days", "retention.details_days"])
def test_days_that_no_calendar_has(key: str) -> None:
    """`duplicate_days = 99999999`, for "at any age", ended every check as an internal error."""
    table, name = key.split(".")
    with pytest.raises(SettingsNotUsable, match=rf"{key} must be at most 100000"):
        load_settings({table: {name: 99_999_999}}, {})


def test_a_time_zone_more_than_a_day_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows no such zone: every command that asks for the day ended with an internal error."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC-48")
        time.tzset()
        with pytest.raises(SettingsNotUsable, match=r"time zone \(TZ\)"):
            assert Context().settings
    time.tzset()
    assert Context().settings


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "x", True, [1]])
def test_numbers(value: object) -> None:
    """A timeout is a number that can be waited for."""
    with pytest.raises(SettingsNotUsable, match=r"gateway\.timeout must be a number"):
        load_settings({"gateway": {"timeout": value}}, {})


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("recurring_agreement", ["Z", "", "YES", "0"], ["1", "Y", "y"]),
        ("emails_node", ["", 'e"mails', "e mails"], ["emails", "billing_emails"]),
        ("service_header", ["", "A B", "A\r\nX: y", "ACME:"], ["ACME", "x-acme"]),
    ],
)
def test_a_name_on_the_wire_has_its_form(name: str, wrong: list[str], right: list[str]) -> None:
    """`Z` for the agreement was sent as 1, and a node or a header without a name went to the gateway."""
    for value in wrong:
        with pytest.raises(SettingsNotUsable, match=rf"^gateway\.{name} must be "):
            load_settings({"gateway": {name: value}}, {})
    for value in right:
        assert getattr(load_settings({"gateway": {name: value}}, {}).gateway, name) == value


@pytest.mark.parametrize(("variable", "key"), [
    ("BATCHPAY_MAX_AMOUNT", "limits.max_amount"), ("BATCHPAY_LIMITS_MAX_AMOUNT", "limits.max_amount"),
    ("BATCHPAY_DUPLICATE_DAYS", "policy.duplicate_days"), ("BATCHPAY_ACCOUNT_HYPHENS", "rules.account_hyphens"),
])  # fmt: skip
def test_a_limit_that_no_variable_sets_is_not_passed_over(variable: str, key: str) -> None:
    """A payment of 900.00 was sent although the job's environment had BATCHPAY_MAX_AMOUNT=200.00: nothing read it."""
    with pytest.raises(SettingsNotUsable, match=f"no variable sets {key}, so {variable} would have no effect"):
        load_settings({"limits": {"max_amount": "100.00"}}, {variable: "200"})
    assert load_settings({}, {variable: "", "BATCHPAY_APPROVALS": "1"}).policy.approvals == 1


def test_every_option_has_a_key() -> None:
    """An option is preset by its own name, where Python needs another one too."""
    options = command_options({name: {} for name in COMMANDS})
    assert {"format", "map", "expect_rows"} <= options["submit"] & options["validate"]
    assert "from" in options["resolve"]
    check_tables({"submit": {"map": "bank.toml", "format": "csv"}, "resolve": {"from": "sheet.csv"}}, options)
    with pytest.raises(SettingsNotUsable, match="did you mean map"):
        check_tables({"submit": {"mpa": "bank.toml"}}, options)


def put(folder: Path, mode: int = 0o600, folder_mode: int = 0o700) -> Path:
    """A settings file of this user."""
    folder.mkdir(exist_ok=True)
    file = folder / "batchpay.toml"
    file.write_text('[gateway]\nbase_url = "https://elsewhere.example"\n')
    file.chmod(mode)
    folder.chmod(folder_mode)
    return file


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o644, 0o755), (0o600, 0o700), (0o400, 0o500)])
def test_a_file_that_only_its_owner_writes_is_obeyed(tmp_path: Path, mode: int, folder_mode: int) -> None:
    """Others may read it."""
    assert read_settings_file(put(tmp_path / "mine", mode, folder_mode), None)["gateway"]


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o646, 0o755), (0o644, 0o757), (0o644, 0o1777)])
def test_a_file_that_others_may_write_is_not_obeyed(tmp_path: Path, mode: int, folder_mode: int) -> None:
    """Nor one in a folder where others may put one: it would say where payments go."""
    file = put(tmp_path / "shared", mode, folder_mode)
    with pytest.raises(SettingsNotUsable, match=r"is not used: .* can be written by others"):
        read_settings_file(file, None)


def test_a_group_may_write_where_it_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give each user a group alone, and files that it may write; any other group is others."""
    user, number = "ada", os.getuid()
    record = pwd.struct_passwd((user, "", number, os.getgid(), "", "", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: record)
    file = put(tmp_path / "mine", 0o664, 0o775)
    for name, members, obeyed in (("ada", [], True), ("ada", ["ada", "eve"], False), ("staff", ["ada"], False)):
        group = grp.struct_group((name, "", os.getgid(), members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        if obeyed:
            assert read_settings_file(file, None)
        else:
            with pytest.raises(SettingsNotUsable, match="can be written by others"):
                read_settings_file(file, None)


def test_a_file_of_another_user_is_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the file, and the owner of its folder."""
    file = put(tmp_path / "theirs")
    others = os.getuid() + 1
    if os.geteuid() == 0:
        for owned in (file, file.parent):
            os.chown(owned, others, -1)
            with pytest.raises(SettingsNotUsable, match="belongs to another user"):
                read_settings_file(file, None)
            os.chown(owned, 0, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: others)
        with pytest.raises(SettingsNotUsable, match="belongs to another user"):
            read_settings_file(file, None)


def test_a_link_in_a_folder_of_others_is_not_obeyed(tmp_path: Path) -> None:
    """Where others may put a link to one of the user's own files, they choose which."""
    real, shared = put(tmp_path / "mine"), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "batchpay.toml").symlink_to(real)
    with pytest.raises(SettingsNotUsable, match=r"its folder .*shared can be written"):
        read_settings_file(shared / "batchpay.toml", None)


@pytest.mark.parametrize("place", ["current folder", "configuration folder"])
@pytest.mark.parametrize("what", ["link", "folder"])
def test_what_is_no_settings_file_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, what: str
) -> None:
    """A link to a disk that was not mounted counted as no settings: no limit held, and nobody had to approve."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    path = Path("batchpay.toml") if place == "current folder" else tmp_path / "config" / "batchpay" / "batchpay.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "link":
        path.symlink_to("/not-mounted/batchpay.toml")
    else:
        path.mkdir()
    with pytest.raises(SettingsNotUsable, match="a link to a missing file, or no file; restore or remove it"):
        settings_file(None)


def test_a_name_that_is_blank_is_none(tmp_path: Path) -> None:
    """`--config "$FILE"` with FILE not set meant any other settings; a blank profile meant the gateway of none."""
    with pytest.raises(SettingsNotUsable, match=r"settings file \(blank\) does not exist"):
        settings_file("")
    for path in (None, put(tmp_path / "mine")):
        with pytest.raises(SettingsNotUsable, match=r"profile.*\(blank\)"):
            read_settings_file(path, "")


def test_a_current_folder_that_can_not_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds no settings for this user: the user's own are taken. Once it was a fault of the program."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = put(tmp_path / "batchpay")
    monkeypatch.chdir(tmp_path)
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if not path.is_absolute():
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert settings_file(None) == own
    with pytest.raises(SettingsNotUsable, match="Permission denied"):
        settings_file("batchpay.toml")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_persons_decision_has_no_other_place(command: str) -> None:
    """Options by which a person decides have no variable, and no settings file may hold them."""
    if command == "gateway":
        return  # a group
    parameters = [one for one in load_command(command).params if one.name in DECISIONS]
    assert [one.envvar for one in parameters] == [None] * len(parameters)
    for one in parameters:
        with pytest.raises(SettingsNotUsable, match=f"{command}.{one.name} is not a setting"):
            check_tables({command: {one.name: True}}, command_options({command: {}}))


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"web"}))
def test_every_other_option_has_a_variable(command: str) -> None:
    """`rules --markdown` and `gateway list --deleted` had none; who may use the page is decided on the command line."""
    named = load_command(command)
    for one in named.commands.values() if isinstance(named, click.Group) else [named]:
        options = [option for option in one.params if isinstance(option, click.Option)]
        assert [option.name for option in options if not option.envvar and option.name not in DECISIONS] == []


@pytest.mark.parametrize(("text", "variable", "told"), [
    ('[submit]\nlimit = "x"', None, "submit.limit: 'x' is not a valid whole number"),
    ('[validate]\nas_of = "x"', None, "validate.as_of: write the date"),
    ("", ("BATCHPAY_LIMIT", "x"), "BATCHPAY_LIMIT: 'x' is not a valid"),
    ("[submit]\nlimit = 3", ("BATCHPAY_RATE", "0"), "BATCHPAY_RATE: the rate must be a number"),
])  # fmt: skip
def test_a_wrong_value_is_told_where_it_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, variable: tuple[str, str] | None, told: str
) -> None:
    """Exit code 5 and the key or variable; it was code 2 and named an option that nobody had written."""
    if variable:
        monkeypatch.setenv(*variable)
    file = tmp_path / "batchpay.toml"
    file.write_text(text)
    done = CliRunner().invoke(cli, ["submit", "a.csv", "--config", str(file)], standalone_mode=False, obj=Context())
    assert isinstance(done.exception, SettingsNotUsable) and str(done.exception).startswith(told)


def test_a_wrong_value_on_the_command_line_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the environment is wrong too: the option beats it."""
    monkeypatch.setenv("BATCHPAY_LIMIT", "y")
    done = CliRunner().invoke(cli, ["submit", "a.csv", "--limit", "x"], standalone_mode=False, obj=Context())
    assert isinstance(done.exception, click.UsageError) and done.exception.exit_code == 2


def test_a_preset_decision_is_never_read() -> None:
    """A table that was not looked over decides nothing either."""
    context = Context()
    context.__dict__["tables"] = {"submit": {"again": True, "yes": True, "reason": "x", "limit": 3}}
    with click.Context(click.Command("submit"), obj=context) as called:
        presets = Presets(called, "submit")
        assert [name for name in ("again", "yes", "reason", "limit") if name in presets] == ["limit"]


def test_what_is_a_persons_decision() -> None:
    """CONTRACT's four, and every option that lifts what the program holds back."""
    assert {"again", "release", "reason", "yes"} <= DECISIONS
    assert {"allow_duplicates", "stale", "settle", "rows_in_doubt", "confirm"} <= DECISIONS
    assert "accept_suggestions" in DECISIONS
    assert {"paid_elsewhere_checked", "beside_another"} <= DECISIONS
