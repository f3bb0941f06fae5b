"""Which commands there are, and where each lives: imported one at a time, when it is called for."""

from __future__ import annotations

import importlib
from typing import Any

import click

COMMANDS = {
    "validate": ("batchpay.cli.validate", "Check payment files; nothing is sent."),
    "submit": ("batchpay.cli.submit", "Check payment files, send the valid rows, write results and rejects."),
    "approve": ("batchpay.cli.approve", "Add a person's approval to a plan."),
    "resume": ("batchpay.cli.resume", "Continue a batch's pending rows; the file is no longer needed."),
    "status": ("batchpay.cli.status", "Show all batches, or one: states, counts, cents."),
    "results": ("batchpay.cli.status", "Write a batch's results file again, from the ledger."),
    "resolve": ("batchpay.cli.resolve", "List rows in doubt, or settle them."),
    "cancel": ("batchpay.cli.resolve", "Cancel pending rows of a batch that must not be sent."),
    "reconcile": ("batchpay.cli.reconcile", "Match a batch with a gateway's or a bank's export."),
    "returns": ("batchpay.cli.returns", "Take in what banks sent back, and list it."),
    "recall": ("batchpay.cli.returns", "Write a sheet for the bank: payments to be reversed."),
    "report": ("batchpay.cli.status", "Write a report on a batch (HTML, self-contained)."),
    "template": ("batchpay.cli.reference", "Write an empty payment file: XLSX with drop-downs, or CSV."),
    "map": ("batchpay.cli.map_file", "Propose a column map for another system's file."),
    "rules": ("batchpay.cli.reference", "Print every rule for payment rows."),
    "test-connection": ("batchpay.cli.gateway", "Check that the gateway answers and accepts the key."),
    "gateway": ("batchpay.cli.gateway", "List, get, create, update, delete gateway accounts."),
    "health": ("batchpay.cli.health", "For monitoring: rows in doubt, stopped batches, overdue runs, disk, backups."),
    "web": ("batchpay.cli.web", "Serve the web page for finance people."),
    "ledger": ("batchpay.cli.ledger", "Create, check, accept, back up or purge the ledger."),
    "completion": (
        "batchpay.cli.reference",
        "Print what makes a shell complete commands, options and files.",
    ),
    "sandbox": ("batchpay.cli.sandbox", "Run the whole gateway interface on loopback."),
    "demo": ("batchpay.cli.demo", "Run the sandbox and submit the sample file; no credentials needed."),
}
"""Module and short help of each command, so that help imports none of them. A test holds the texts together."""

REMOVED = {
    "work": "a batch is sent by one machine; if that machine dies, submit, resume and --inbox on another take over",
}
"""What does now what commands of 0.1.0 did."""
REMOVED_OPTIONS = {
    "--accept-machine": "batchpay ledger accept --reason TEXT",
    "--accept-witness": "batchpay ledger accept --reason TEXT",
    "--lost-window-settled": "batchpay ledger accept --confirm",
    "--join": "submit takes over by itself the batch of a machine that has died; leave --join out",
}
"""What does now what options of 0.1.0 did."""

DECISIONS = frozenset(
    {
        "accept_suggestions", "again", "allow_duplicates", "approval_days", "approval_window", "approvals",
        "approve_above", "beside_another", "confirm", "gap", "hold", "host_is_gone", "makers_exempt",
        "paid_elsewhere_checked", "pay_on", "reason", "release", "rows", "rows_in_doubt", "second_above", "settle",
        "stale", "withdraw", "yes", "zone",
    }
)  # fmt: skip
"""Options by which a person decides: they count on the command line alone, never out of a file or the environment."""


def load_command(name: str) -> click.Command:
    """Import one command."""
    module = importlib.import_module(COMMANDS[name][0])
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


def preset_name(parameter: object) -> str:
    """Name a parameter as its option is named: `--map` is `map_` in Python, where `map` is taken."""
    return str(parameter).removesuffix("_")


def command_options(tables: dict[str, Any]) -> dict[str, set[str]]:
    """Name the options that may be preset in the tables of commands which the settings file has."""
    options: dict[str, set[str]] = {name: set() for name in COMMANDS}
    for name in COMMANDS:
        if name in tables:
            parameters = [one for one in load_command(name).params if one.name not in DECISIONS]
            # Common options hand no value to the command: they can't be preset.
            options[name] = {preset_name(parameter.name) for parameter in parameters if parameter.expose_value}
    options["submit"] |= options["validate"]
    return options
