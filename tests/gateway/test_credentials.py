"""Where the id and the key are found, in which order, and what can't be a key; no text ever shows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchpay.errors import CredentialsNotUsable
from batchpay.gateway import credentials
from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE, API_KEY_VARIABLE, load_credentials
from batchpay.settings import GatewaySettings

ANN = GatewaySettings(api_id="ann")


def keyring_with(monkeypatch: pytest.MonkeyPatch, **keys: str) -> None:
    """Let the system keyring hold these keys of batchpay, by id."""
    stored = SimpleNamespace(get_password=lambda service, name: keys.get(name) if service == "batchpay" else None)
    monkeypatch.setitem(sys.modules, "keyring", stored)


def test_file_before_variable_before_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets a file means the file: another key is another account at the gateway."""
    keyring_with(monkeypatch, ann="of-the-keyring", ben="another")
    path = tmp_path / "key"
    path.write_text("of-the-file\n")
    path.chmod(0o600)
    environment = {API_KEY_FILE_VARIABLE: str(path), API_KEY_VARIABLE: " of-the-variable\n", "HOME": "/"}
    for expected in ("of-the-file", "of-the-variable", "of-the-keyring"):
        found = load_credentials(ANN, environment)
        assert (found.api_id, found.api_key.reveal()) == ("ann", expected)
        environment.pop(API_KEY_FILE_VARIABLE, None)
    assert environment == {"HOME": "/"}, "no child inherits a key that was read"


@pytest.mark.parametrize("mode", [0o440, 0o400])
def test_a_secret_of_kubernetes_is_taken(tmp_path: Path, mode: int) -> None:
    """A volume names a secret through two links, and a group of the process reads it: it was refused."""
    (tmp_path / "..2026_11").mkdir()
    (tmp_path / "..data").symlink_to("..2026_11")
    (tmp_path / "key").symlink_to("..data/key")
    secret = tmp_path / "..2026_11" / "key"
    secret.write_text("of-the-volume\n")
    secret.chmod(mode)
    environment = {API_KEY_FILE_VARIABLE: str(tmp_path / "key")}
    assert load_credentials(ANN, environment).api_key.reveal() == "of-the-volume"


@pytest.mark.parametrize("mode", [0o444, 0o460, 0o640 | 0o004])
def test_a_key_that_others_read_or_a_group_writes_is_refused(tmp_path: Path, mode: int) -> None:
    """A group may read a key, and no more."""
    secret = tmp_path / "key"
    secret.write_text("canary")
    secret.chmod(mode)
    with pytest.raises(CredentialsNotUsable, match="readable by other users") as error:
        load_credentials(ANN, {API_KEY_FILE_VARIABLE: str(secret)})
    assert "canary" not in str(error.value)


def test_a_link_in_a_folder_that_others_write_is_no_key(tmp_path: Path) -> None:
    """Whoever may replace the link decides which key is sent; nor does a link's target of anyone count."""
    (tmp_path / "secret").write_text("of-the-owner")
    (tmp_path / "secret").chmod(0o600)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "key").symlink_to("../secret")
    (tmp_path / "outer").symlink_to("shared/key")
    assert load_credentials(ANN, {API_KEY_FILE_VARIABLE: str(tmp_path / "outer")}).api_key.reveal() == "of-the-owner"
    shared.chmod(0o777)
    for name in ("shared/key", "outer"):
        with pytest.raises(CredentialsNotUsable, match="can't be read"):
            load_credentials(ANN, {API_KEY_FILE_VARIABLE: str(tmp_path / name)})


@pytest.mark.parametrize("name", ["a\0b", "circle"])
def test_a_path_that_can_be_none_is_no_key(tmp_path: Path, name: str) -> None:
    """A NUL, and links in a circle: no internal error."""
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(CredentialsNotUsable, match="can't be read"):
        load_credentials(ANN, {API_KEY_FILE_VARIABLE: str(tmp_path / name)})


def test_a_command_prints_the_key(tmp_path: Path) -> None:
    """It runs once, without a shell; its key comes before the variable's and after the file's."""
    runs = tmp_path / "runs"
    command = f"{sys.executable} -c \"print('of-the-command'); open('{runs}', 'a').write('.')\""
    settings = GatewaySettings(api_id="ann", api_key_command=command)
    environment = {API_KEY_VARIABLE: "of-the-variable"}
    assert load_credentials(settings, environment).api_key.reveal() == "of-the-command"
    assert (runs.read_text(), environment) == (".", {})


@pytest.mark.parametrize(("command", "problem"), [
    ("sh -c 'echo canary; echo canary >&2; exit 3'", "ended with code 3; run it by hand"), ("true", "printed nothing"),
    ("/nowhere/at-all", "can't be run: No such file"), ("'", "can't be run: it is not a command line"),
    (" ", "can't be run: it is not a command line"), ("a\0b", "can't be run"),
    ("sleep 60", "did not end within 0 seconds"), ("sh -c 'sleep 60'", "did not end within 0 seconds"),
    ("yes canary", "printed more than 65,536 bytes"),
])  # fmt: skip
def test_a_command_without_a_key_stops_and_shows_nothing(
    command: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it printed may be half a key."""
    if "sleep" in command:
        monkeypatch.setattr(credentials, "COMMAND_TIMEOUT_S", 0)
    with pytest.raises(CredentialsNotUsable, match=problem) as error:
        load_credentials(GatewaySettings(api_id="ann", api_key_command=command), {API_KEY_VARIABLE: "k"})
    assert "canary" not in str(error.value)


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    """A container puts an empty folder where a secret was not mounted: it was an internal error."""
    with pytest.raises(CredentialsNotUsable, match="is not a regular file"):
        load_credentials(ANN, {API_KEY_FILE_VARIABLE: str(tmp_path)})


def test_the_process_itself_forgets_a_key_that_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists the processes of this machine, or starts one from ours, would find the key in its environment."""
    monkeypatch.delenv(API_KEY_FILE_VARIABLE, raising=False)
    monkeypatch.setenv(API_KEY_VARIABLE, "of-the-variable")
    assert load_credentials(ANN).api_key.reveal() == "of-the-variable"
    assert API_KEY_VARIABLE not in os.environ


def test_without_an_id_or_a_key_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names what to set."""
    keyring_with(monkeypatch, ben="another", ann="")
    with pytest.raises(CredentialsNotUsable, match=r"gateway\.api_id \(BATCHPAY_API_ID\) is not set"):
        load_credentials(GatewaySettings(), {API_KEY_VARIABLE: "k"})
    with pytest.raises(CredentialsNotUsable, match=f"no key: set {API_KEY_FILE_VARIABLE}"):
        load_credentials(ANN, {})


def test_a_keyring_that_is_missing_or_fails_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has none; a locked one raises what its backend likes."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(CredentialsNotUsable, match="no key"):
        load_credentials(ANN, {})

    def locked(service: str, name: str) -> str:
        raise ZeroDivisionError("canary")

    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_password=locked))
    with pytest.raises(CredentialsNotUsable, match="no key") as error:
        load_credentials(ANN, {})
    assert "canary" not in str(error.value)


@pytest.mark.parametrize("character", [" ", "\r\n", "\x7f", "\u00e9", "\0"])
def test_a_key_that_can_break_a_header_is_refused_unseen(character: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes from."""
    key = f"can{character}ary"
    keyring_with(monkeypatch, ann=key)
    for environment in ({API_KEY_VARIABLE: key}, {}):
        with pytest.raises(CredentialsNotUsable, match="not allowed in a header") as error:
            load_credentials(ANN, environment)
        assert "ary" not in str(error.value)
    assert load_credentials(ANN, {API_KEY_VARIABLE: "!~"}).api_key.reveal() == "!~"
