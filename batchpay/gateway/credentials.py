"""The id and key that the gateway requires: where they are found; no text ever shows the key."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from batchpay.errors import CredentialsNotUsable
from batchpay.settings import GatewaySettings, Secret, read_secret_file

API_KEY_FILE_VARIABLE = "BATCHPAY_API_KEY_FILE"
API_KEY_VARIABLE = "BATCHPAY_API_KEY"
COMMAND_TIMEOUT_S = 30
"""What the command that prints the key may take."""
_KEY_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the gateway requires in its headers."""

    api_id: str
    api_key: Secret


def load_credentials(gateway: GatewaySettings, environment: MutableMapping[str, str] | None = None) -> Credentials:
    """Find the gateway's id and key: a file of mode 0600, a command's output, the variable, or the system keyring.

    The variable is removed from this process's environment once read, so that no child process inherits it.
    """
    environment = os.environ if environment is None else environment
    if not gateway.api_id:
        raise CredentialsNotUsable("gateway.api_id (BATCHPAY_API_ID) is not set")
    if path := environment.get(API_KEY_FILE_VARIABLE):
        key: Secret | None = read_secret_file(Path(path), API_KEY_FILE_VARIABLE)
    else:
        text = environment.pop(API_KEY_VARIABLE, "").strip()
        if gateway.api_key_command:
            key = _printed_by(gateway.api_key_command)
        else:
            key = Secret(text) if text else _from_keyring(gateway.api_id)
    if key is None:
        raise CredentialsNotUsable(
            f"no key: set {API_KEY_FILE_VARIABLE} to a file of mode 0600, or gateway.api_key_command, "
            f"or {API_KEY_VARIABLE}"
        )
    if not all(33 <= ord(character) <= 126 for character in key.reveal()):
        raise CredentialsNotUsable("the key contains characters that are not allowed in a header")
    return Credentials(gateway.api_id, key)


def _printed_by(command: str) -> Secret:
    """Run the command that prints the key; what it prints otherwise, which may hold the key, is shown nowhere."""
    try:
        words = shlex.split(command)
        process = subprocess.Popen(  # noqa: S603 - a settings file that only its owner or root may write names it
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "it is not a command line"
        raise CredentialsNotUsable(
            f"gateway.api_key_command can't be run: {reason}; run it by hand to see why"
        ) from None
    ended = threading.Event()

    def end() -> None:
        ended.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(COMMAND_TIMEOUT_S, end)
    timer.start()
    with process:
        assert process.stdout is not None, "it was asked for"
        printed = process.stdout.read(_KEY_BYTES_MAX + 1)
        if len(printed) > _KEY_BYTES_MAX:
            end()
    timer.cancel()
    text = printed.decode("utf-8", "replace").strip()
    if len(printed) > _KEY_BYTES_MAX:
        problem = f"printed more than {_KEY_BYTES_MAX:,} bytes"
    elif ended.is_set():
        problem = f"did not end within {COMMAND_TIMEOUT_S} seconds"
    elif process.returncode:
        problem = f"ended with code {process.returncode}"
    elif text:
        return Secret(text)
    else:
        problem = "printed nothing"
    raise CredentialsNotUsable(f"gateway.api_key_command {problem}; run it by hand to see why")


def _from_keyring(api_id: str) -> Secret | None:
    try:
        import keyring
    except ImportError:
        return None
    try:
        text = keyring.get_password("batchpay", api_id)
    except Exception:  # keyring backends may raise anything; the error's text must not be shown
        return None
    return Secret(text) if text else None
