"""Which settings file is obeyed, and its tables: one that somebody else could have written decides nothing.

A file in the current folder is taken without being named: where others write to the folder, whoever puts one there
would say where payments go (git had this fault, CVE-2022-24765).
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from batchpay.errors import SettingsNotUsable, did_you_mean
from batchpay.settings import config_directory

_BLANK = "(blank)"
"""How a name is shown that was given and is blank, as where a shell's variable is not set."""


def settings_file(explicit: str | None) -> Path | None:
    """Find the settings file: the one named, else `./batchpay.toml`, else the user's own; None where there is none.

    A current folder that this user may not look into has none. Raises SettingsNotUsable.
    """
    if explicit is not None:
        if not _is_file(Path(explicit)):
            raise SettingsNotUsable(f"settings file {explicit or _BLANK} does not exist")
        return Path(explicit)
    here, own = Path("batchpay.toml"), config_directory() / "batchpay.toml"
    with contextlib.suppress(SettingsNotUsable):
        if _is_file(here):
            return here
    _require_nothing(here)
    if _is_file(own):
        return own
    _require_nothing(own)
    return None


def read_settings_file(path: Path | None, profile: str | None) -> dict[str, Any]:
    """Read the tables of the settings file, those of `[profile.NAME]` laid over the rest.

    Raises SettingsNotUsable; also where somebody else could have written the file, or put it there.
    """
    if path is None:
        if profile is not None:
            raise SettingsNotUsable(f"profile {profile or _BLANK} was requested, but there is no settings file")
        return {}
    import tomllib  # not every call has a settings file

    try:
        with path.open("rb") as file:
            for name, status in _may_decide(path, os.fstat(file.fileno())):
                if problem := _written_by_others(status):
                    raise SettingsNotUsable(
                        f"settings file {path} is not used: {name} {problem}; it decides where payments go, so it "
                        "must be yours or root's, and nobody else may write to it or its folder (chmod go-w)"
                    )
            text = file.read().decode("utf-8-sig")
            if "\\u0000" in text:  # TOML has no other way to write it, and no path or name has one
                raise SettingsNotUsable(f"settings file {path} has a NUL character (\\u0000)")
            tables = tomllib.loads(text, parse_float=Decimal)  # 1234.50 keeps its last digit
    except OSError as error:
        raise SettingsNotUsable(f"settings file {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsNotUsable(f"settings file {path} can't be read: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        is_told = isinstance(error, tomllib.TOMLDecodeError)
        told = str(error) if is_told else "a number is too long, or brackets are nested too deep"
        raise SettingsNotUsable(f"settings file {path} can't be read: {told}") from None
    profiles = _table(path, "profile", tables.pop("profile", {}))
    if profile is not None:
        if profile not in profiles:
            raise SettingsNotUsable(
                f"settings file {path} has no [profile.{profile or _BLANK}]{did_you_mean(profile, profiles)}"
            )
        for table, values in _table(path, f"profile.{profile}", profiles[profile]).items():
            beneath = _table(path, table, tables.get(table, {}))
            tables[table] = {**beneath, **_table(path, f"profile.{profile}.{table}", values)}
    return tables


def _require_nothing(path: Path) -> None:
    """Raise SettingsNotUsable if something else than a file is there: limits must not be left out without a word."""
    if os.path.lexists(path):
        raise SettingsNotUsable(f"settings file {path} is a link to a missing file, or no file; restore or remove it")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise SettingsNotUsable(f"settings file {path} can't be read: {error.strerror}") from None


def _may_decide(path: Path, opened: os.stat_result) -> Iterator[tuple[str, os.stat_result]]:
    """The file, the folder that names it, and the folder that it lies in, which a link makes another one."""
    yield "it", opened
    for folder in dict.fromkeys((path.absolute().parent, path.resolve().parent)):
        yield f"its folder {folder}", folder.stat()


def _written_by_others(status: os.stat_result) -> str | None:
    """Say who but this user and root could write a file or folder; None where nobody can."""
    if status.st_uid not in (0, os.getuid()):
        return "belongs to another user"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)):
        return "can be written by others"
    return None


def _is_own_group(number: int) -> bool:
    """Whether a group has no member but this user, as many systems make one for each."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _table(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsNotUsable(f"settings file {path}: {name} must be a table: [{name}]")
    return value
