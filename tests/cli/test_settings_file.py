"""The settings file: what is wrong with it is told by its key, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.cli.commands import COMMANDS, command_options
from batchpay.errors import SettingsNotUsable
from batchpay.settings import check_tables, load_settings, read_settings_file


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("profile = 3", "profile must be a table"),
        ("[profile]\nnight = 3", "profile.night must be a table"),
        ("[profile.night]\ngateway = 3", "profile.night.gateway must be a table"),
        ("gateway = 3\n[profile.night.gateway]\ntimeout = 3", "gateway must be a table"),
        ("[profile.day]", "did you mean day"),
        ("[gateway", "can't be read"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, told: str) -> None:
    """No shape of a file is an internal error. Four of these once were."""
    file = tmp_path / "batchpay.toml"
    file.write_text(text)
    with pytest.raises(SettingsNotUsable, match=told):
        read_settings_file(file, "dya" if "day" in text else "night")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "x", True, [1]])
def test_numbers(value: object) -> None:
    """A timeout is a number that can be waited for."""
    with pytest.raises(SettingsNotUsable, match=r"gateway\.timeout must be a number"):
        load_settings({"gateway": {"timeout": value}}, {})


def test_every_option_has_a_key() -> None:
    """An option is preset by its own name, where Python needs another one too."""
    options = command_options({name: {} for name in COMMANDS})
    assert {"format", "map", "expect_rows"} <= options["submit"] & options["validate"]
    assert "from" in options["resolve"]
    check_tables({"submit": {"map": "bank.toml", "format": "csv"}, "resolve": {"from": "sheet.csv"}}, options)
    with pytest.raises(SettingsNotUsable, match="did you mean map"):
        check_tables({"submit": {"mpa": "bank.toml"}}, options)
