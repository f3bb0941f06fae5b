"""What every command shares: the common options, the settings, and presets of options from `batchpay.toml`.

Imports click and plain Python only, so that help and completion answer at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from batchpay.cli.commands import DECISIONS, REMOVED_OPTIONS, command_options, preset_name
from batchpay.errors import BatchpayError, SettingsNotUsable
from batchpay.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from batchpay.settings import Settings

COMMON = ("config", "profile", "json", "quiet", "verbose", "color")
_DAY_S = 86_400
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass
class Context:
    """The common options of one call, and the settings that follow from them."""

    config: str | None = None
    profile: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    color: bool = field(
        default_factory=lambda: (
            not any(map(os.environ.get, ("NO_COLOR", "BATCHPAY_NO_COLOR"))) and os.environ.get("TERM") != "dumb"
        )
    )
    json_printed: bool = False
    """Whether the object of --json was printed."""

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The tables of the settings file, with the profile's laid over them."""
        from batchpay.cli.settings_file import read_settings_file, settings_file  # not for help

        path = settings_file(self.config)
        if self.verbose and not self.quiet:
            click.echo(f"settings {printable(str(path.absolute())) if path else 'of no file'}", err=True)
        return read_settings_file(path, self.profile)

    @cached_property
    def settings(self) -> Settings:
        """All settings; raises SettingsNotUsable that names the key."""
        from batchpay.settings import check_tables, load_settings  # not for help

        check_tables(self.tables, command_options(self.tables))
        if abs(time.localtime().tm_gmtoff) >= _DAY_S:  # TZ=UTC-48, for one
            raise SettingsNotUsable("the time zone (TZ) is a day or more from UTC; set a real one")
        return load_settings(self.tables)

    @property
    def settings_path(self) -> Path | None:
        """The settings file that the call obeys; None where there is none, or where the one named is not there."""
        from batchpay.cli.settings_file import settings_file  # not for help

        try:
            return settings_file(self.config)
        except BatchpayError:
            return None

    @property
    def settings_to_look_with(self) -> Settings:
        """The settings, or where they are refused what is readable of them: to see whether a row is in doubt.

        A file that is refused for anything says nothing: then the environment and the defaults tell where to look.
        """
        return self._settings_of(self._sound_tables, dict)

    @property
    def settings_as_far_as_known(self) -> Settings:
        """The settings, or what can be read of them: for what must be looked at before they are told to be wrong."""
        return self._settings_of(lambda: self.tables, lambda: {"ledger": self.tables["ledger"]}, dict)

    def _settings_of(self, *readings: Callable[[], dict[str, Any]]) -> Settings:
        """Give the settings, or where they are refused those of the first reading of the file that settings make."""
        from batchpay.settings import Settings, load_settings, readable_environment  # not for help

        with contextlib.suppress(BatchpayError):
            return self.settings
        environment = readable_environment()
        for tables in readings:
            with contextlib.suppress(BatchpayError, KeyError, TypeError, AttributeError):  # a table may be none
                return load_settings(tables(), environment)
        return Settings()

    def _sound_tables(self) -> dict[str, Any]:
        """Give the file's tables if they are right whatever the environment says; raises SettingsNotUsable."""
        from batchpay.settings import check_tables, load_settings  # not for help

        check_tables(self.tables, command_options(self.tables))
        load_settings(self.tables, {})
        return self.tables


class Presets(MutableMapping[str, Any]):
    """Presets of a command's options from its table in the settings file, read only when an option asks for one.

    What `validate` and `submit` share may stand in either table; a command's own table wins.
    """

    def __init__(self, context: click.Context, command: str) -> None:
        self._context = context
        self._tables = ("validate", command) if command == "submit" else (command,)

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for table in self._tables:
            values.update(self._context.ensure_object(Context).tables.get(table, {}))
        return values

    def key_of(self, name: object) -> str:
        """Name the key under which an option is preset."""
        given = self._context.ensure_object(Context).tables
        table = next(one for one in reversed(self._tables) if preset_name(name) in given.get(one, {}))
        return f"{table}.{preset_name(name)}"

    def __contains__(self, name: object) -> bool:
        return name not in {*COMMON, *DECISIONS} and preset_name(name) in self._values()

    def __getitem__(self, name: str) -> Any:
        """Return the value as it would be typed: `expect_total = 1234` means 1234.00, not 1234 cents."""
        value = self._values()[preset_name(name)]
        if isinstance(value, list):
            option = next(one for one in self._context.command.params if one.name == name)
            if option.multiple and not any(isinstance(one, list | dict) for one in value):
                return [str(one) for one in value]
        if isinstance(value, list | dict):
            raise SettingsNotUsable(f"{self.key_of(name)} must be a single value")
        return str(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError("presets come from the settings file")

    __delitem__ = __setitem__  # type: ignore[assignment]


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a common option's value; one given after the command beats one given before it."""
    name = str(parameter.name)
    if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
        setattr(context.ensure_object(Context), name, value)


def common_options() -> list[click.Option]:
    """Make the options that every command takes."""

    def common(*names: str, **attributes: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_remember, is_eager=True, **attributes)

    return [
        common("--config", metavar="FILE", envvar="BATCHPAY_CONFIG", help="Settings file."),
        common(
            "--profile", metavar="NAME", envvar="BATCHPAY_PROFILE", help="Apply [profile.NAME] on top of the settings."
        ),
        common("--json", is_flag=True, envvar="BATCHPAY_JSON", help="Print one JSON object on standard output."),
        common("-q", "--quiet", is_flag=True, envvar="BATCHPAY_QUIET", help="Print only errors and results."),
        common("-v", "--verbose", is_flag=True, envvar="BATCHPAY_VERBOSE", help="Print more on standard error."),
        common(
            "--color/--no-color",
            default=None,
            envvar="BATCHPAY_COLOR",
            help="Color on a terminal (NO_COLOR is respected).",
        ),
    ]


class Whole(click.IntRange):
    """A whole number, in the words of a message: click's own are `'x' is not a valid integer range`."""

    name = "whole number"


class NameOnDisk(click.types.StringParamType):
    """The text of a path, which a shell completes with what is on the disk.

    An option's is not blank: `--from-plan "$PLAN"` with PLAN not set would send without a plan.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the text, or say that an option's is blank; `--config` has its own words, and exit code 5."""
        text = super().convert(value, param, ctx)
        if isinstance(param, click.Option) and param.name not in COMMON and not text.strip():
            self.fail("the name is blank", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        """Leave it to the shell, which knows what is there."""
        return [CompletionItem(incomplete, type=self._kind)]


_ON_DISK = {
    "FILE": NameOnDisk("file"),
    "PATH": NameOnDisk("file"),
    "PLAN": NameOnDisk("file"),
    "SHEET": NameOnDisk("file"),
    "DIR": NameOnDisk("dir"),
}
"""What an option takes, by the word that its help has for it."""


class Preset(click.Command):
    """What takes presets of its options from the settings file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, with presets in place of click's own defaults map."""
        ctx.default_map = presets = Presets(ctx, str(self.name))
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if (place := _set_elsewhere(ctx, error.param, presets)) is None:
                raise
            raise SettingsNotUsable(f"{place}: {error.message}") from None
        except click.NoSuchOption as error:
            if error.option_name not in REMOVED_OPTIONS:
                raise
            told = f"{error.option_name} was removed in 0.2.0: {REMOVED_OPTIONS[error.option_name]}"
            raise click.UsageError(told, ctx) from None


class Command(Preset):
    """A command with the common options, presets from the settings file, and `-h`."""

    def __init__(self, *arguments: Any, sections: dict[str, str] | None = None, **attributes: Any) -> None:
        """Declare a command; `sections` says by title which options, in words, help shows under it."""
        attributes.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **attributes)
        self.sections = sections or {}
        self.params.extend(common_options())
        for parameter in self.params:
            if parameter.type is click.STRING:
                parameter.type = _ON_DISK.get((parameter.metavar or "").strip("[].").upper(), parameter.type)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command in a context of its own: what one call knows of its notices is not the next one's."""
        return contextvars.copy_context().run(super().invoke, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section; those that stand in none come last."""
        left = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for title, words in (*self.sections.items(), ("Options", None)):
            shown = [one for one in left if words is None or preset_name(one.name) in words.split()]
            left = [one for one in left if one not in shown]
            with formatter.section(title):
                formatter.write_dl([record for one in shown if (record := one.get_help_record(ctx))])


def _set_elsewhere(ctx: click.Context, parameter: click.Parameter | None, presets: Presets) -> str | None:
    """Name the variable or the settings file's key that gave an option its value; None if the command line did."""
    source = ctx.get_parameter_source(parameter.name) if parameter and parameter.name else None
    if parameter and source is ParameterSource.ENVIRONMENT:
        return str(parameter.envvar)
    if parameter and source is ParameterSource.DEFAULT_MAP:
        return presets.key_of(parameter.name)
    return None


class Group(click.Group):
    """A group whose commands are Commands."""

    command_class = Command

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        attributes.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **attributes)
        self.params.extend(common_options())


def option(*names: str, own: str = "", **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option; it also has an environment variable, BATCHPAY_ and its name, unless a person decides by it.

    `own` precedes the name where a command has variables of its own: BATCHPAY_RESULTS and BATCHPAY_LIMIT are others'.
    """
    long_name = next(name for name in names if name.startswith("--"))
    parameter = long_name.split("/")[0].removeprefix("--").replace("-", "_")
    variable = None if parameter in DECISIONS else f"BATCHPAY_{own}{parameter.upper().removeprefix(own)}"
    return click.option(*names, envvar=variable, **attributes)


def declared(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Give a command several options, listed in help in this order."""

    def declare(function: Decorated) -> Decorated:
        for one in reversed(options):
            function = one(function)
        return function

    return declare
