"""What a person gives in a form, as far as it is accepted; and the page that says why something can't be done."""

from __future__ import annotations

from pathlib import PurePath

from flask import render_template, request
from flask.typing import ResponseReturnValue

from batchpay.text import printable
from batchpay.web.acts import Refused

_WORDS_MAX = 500


def given_words(field: str) -> str:
    """Return a person's own words on one line: a reason, a note."""
    return printable(" ".join(request.form.get(field, "").split()))[:_WORDS_MAX]


def given_file(field: str) -> tuple[bytes, str]:
    """Return a file's content and its name, both empty if none was chosen."""
    given = request.files.get(field)
    return (b"", "") if given is None else (given.read(), name_of(given.filename))


def name_of(path: str | None) -> str:
    """Return a file's name alone: some browsers give its whole path, as the person's machine writes it."""
    return printable(PurePath((path or "").replace("\\", "/")).name)


def refusal(problem: Refused) -> ResponseReturnValue:
    """Answer with a page that says why something can't be done."""
    return render_template("said.html", sentence=problem.sentence, code=problem.code), problem.code
