"""Writes the manual page from the commands' own help: `python -m tests.support.man_page TARGET` (make man)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from batchpay import __version__
from batchpay.cli.commands import COMMANDS, load_command
from batchpay.cli.main import cli
from batchpay.errors import EXIT_CODES


def manual() -> str:
    """Return the whole page in roff, section 1."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH BATCHPAY 1 "" "batchpay {__version__}" "User Commands"'
    yield from (".SH NAME", r"batchpay \- send a file of bank payments through an ACH gateway")
    yield from (".SH SYNOPSIS", r"\fBbatchpay\fR \fICOMMAND\fR [\fIOPTION\fR...] [\fIARGUMENT\fR...]")
    yield from (".SH DESCRIPTION", *_paragraphs(cli.help or ""))
    yield ".SH COMMANDS"
    for name in COMMANDS:
        yield from _command(name, load_command(name))
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from (".TP", rf"\fB{code}\fR", _escaped(meaning))


def _command(path: str, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=path)))
    yield from (f".SS batchpay {_escaped(path)} {_escaped(usage)}", *_paragraphs(command.help or ""))
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.expose_value and not parameter.hidden:
            record = parameter.get_help_record(click.Context(command))
            if record is not None:
                names, meaning = record
                yield from (".TP", rf"\fB{_escaped(names)}\fR", _escaped(meaning or ""))
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _command(f"{path} {name}", inner)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        yield _escaped(" ".join(paragraph.split()))


def _escaped(text: str) -> str:
    """Keep roff from reading a hyphen as a dash, or a backslash or leading period as a command."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual(), "utf-8")
