"""Assembles the sandbox as a Flask application."""

from __future__ import annotations

import json

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from batchpay.errors import WrongUse
from batchpay.sandbox.accounts import account_api
from batchpay.sandbox.control import control_api
from batchpay.sandbox.dialects import DIALECTS, Problem
from batchpay.sandbox.exchange import Sandbox
from batchpay.sandbox.faults import BadRule
from batchpay.sandbox.options import Options
from batchpay.sandbox.payments import payment_api
from batchpay.sandbox.store import Store


def open_sandbox(options: Options) -> Sandbox:
    """Build the state behind the application; raises WrongUse for an option that can't be used."""
    if options.dialect not in DIALECTS:
        raise WrongUse(f"--dialect {options.dialect} is unknown; there are {', '.join(DIALECTS)}")
    if options.limit is not None and not options.limit > 0:
        raise WrongUse("--limit must be more than 0")
    sandbox = Sandbox(options, Store(options.db))
    if options.faults is not None:
        try:
            sandbox.rules.set(json.loads(options.faults.read_text("utf-8")))
        except (OSError, ValueError) as error:
            reason = str(error) if isinstance(error, BadRule) else "it can't be read as JSON"
            raise WrongUse(f"--faults {options.faults}: {reason}") from None
    return sandbox


def create_app(options: Options) -> Flask:
    """Build a sandbox; raises WrongUse."""
    return build_app(open_sandbox(options))


def build_app(sandbox: Sandbox) -> Flask:
    """Add the routes for a sandbox."""
    app = Flask("batchpay.sandbox", static_folder=None)
    app.register_blueprint(payment_api(sandbox))
    app.register_blueprint(account_api(sandbox))
    app.register_blueprint(control_api(sandbox))

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        """Answer a request that no route accepts, in the dialect."""
        kind = {404: "not_found", 405: "method"}.get(error.code or 500, "error")
        reply = sandbox.dialect.refusal(kind, [Problem("", error.name)])
        headers = dict(reply.headers)
        if kind == "method" and (allowed := getattr(error, "valid_methods", None)):
            headers["Allow"] = ", ".join(sorted(allowed))
        return Response(reply.body, reply.status, headers, content_type=reply.content_type)

    return app
