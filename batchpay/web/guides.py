"""Help for people who fill in a payment file: an empty one with drop-downs, and what every cell must contain."""

from __future__ import annotations

from functools import cache
from typing import Any

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from batchpay.web import papers
from batchpay.web.site import site

blueprint = Blueprint("guides", __name__)


@blueprint.get("/template.xlsx")
def template() -> ResponseReturnValue:
    """Download an empty payment file."""
    return papers.download(papers.make(site(), "template"), "payments-template.xlsx")


@blueprint.get("/rules")
def rules() -> ResponseReturnValue:
    """Show every rule of a payment file, column by column."""
    lines = _rules()
    columns = list(dict.fromkeys(line["where"] for line in lines))
    grouped = [(column, [line for line in lines if line["where"] == column]) for column in columns]
    return render_template("rules.html", grouped=grouped)


@cache
def _rules() -> list[dict[str, Any]]:
    """Have a child read the rules from the schemas, once: the server itself does not load them."""
    found: list[dict[str, Any]] = papers.read_json(site(), "rules")
    return found
