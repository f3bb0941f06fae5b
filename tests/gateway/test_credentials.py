"""Where the id and the key are found, in which order, and what can't be a key; no text ever shows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchpay.errors import CredentialsNotUsable
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
