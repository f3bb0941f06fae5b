"""Gateway accounts from a file, one per row: read, checked, created or updated one by one, each outcome recorded.

The results file is the record of such a run. It is created before the first request, and lists an account as in doubt
before its request leaves; so a run that is killed shows what may have happened, and one that finds a results file does
nothing.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from batchpay.errors import CredentialsNotUsable, FileRefused, NotUsable, RunStopped, WrongUse
from batchpay.gateway.accounts import AccountInDoubt, AccountRefused, GatewayAccount, account_id
from batchpay.intake.small_tables import unique_names
from batchpay.intake.streams import OpenFile
from batchpay.schemas.account import ATTRIBUTES, check_accounts, wire_node
from batchpay.schemas.columns import ACCOUNT_SECRETS
from batchpay.text import guarded
from batchpay.writing.atomic import atomic_writer

BYTES_MAX = 4_000_000
ROWS_MAX = 10_000
RESULT_COLUMNS = ("row", "gateway_id", "gateway_name", "state", "message")
_KINDS = (".json", ".toml", ".csv")


@dataclass(slots=True)
class AccountRow:
    """One account of a file and its outcome."""

    row: int
    """From 1, without a header."""
    cells: dict[str, str | None] = field(repr=False)
    gateway_id: int | None = None
    state: str = "not_sent"
    """`rejected`, `not_sent`, `created`, `updated`, `refused` or `in_doubt`."""
    message: str = ""

    def result(self) -> dict[str, Any]:
        """Return the row as results show it: without any secret."""
        return {
            "row": self.row,
            "gateway_id": self.gateway_id,
            "gateway_name": self.cells.get("gateway_name"),
            "state": self.state,
            "message": self.message,
        }


class Client(Protocol):
    """The part of `AccountsClient` that is needed here."""

    def accounts(self, deleted: bool | None = None) -> list[GatewayAccount]:
        """List accounts."""

    def create(self, node: Mapping[str, int | str]) -> int:
        """Create an account."""

    def update(self, number: int, node: Mapping[str, int | str]) -> str:
        """Update an account."""


def read_account_file(path: Path, *, update: bool) -> list[AccountRow]:
    """Read a JSON, TOML or CSV file of accounts; raises FileRefused, and CredentialsNotUsable for exposed secrets.

    JSON: a list of objects, one object, or either under `gateway` or `gateways`. TOML: `[[gateway]]`, or the attributes
    alone. CSV: a header of attributes. To update, each account has its `id` as well as its attributes.
    """
    text, mode = _content(path)
    nodes = _nodes(path, text)
    if not nodes:
        raise FileRefused(f"{path} contains no accounts")
    if len(nodes) > ROWS_MAX:
        raise FileRefused(f"{path} contains more than {ROWS_MAX:,} accounts")
    allowed = ("id", *ATTRIBUTES) if update else ATTRIBUTES
    rows = [_row(path, number, node, allowed) for number, node in enumerate(nodes, start=1)]
    if mode & 0o077 and any(row.cells.get(name) for row in rows for name in ACCOUNT_SECRETS):
        raise CredentialsNotUsable(
            f"{path} contains PINs or passwords and is readable by other users; set its mode to 0600"
        )
    return rows


def reject_wrong(rows: Sequence[AccountRow], *, update: bool) -> None:
    """Mark the rows that break a rule as rejected, with every reason."""
    reasons: dict[int, list[str]] = {}
    for index, row in enumerate(rows):
        if update and row.gateway_id is None:
            reasons.setdefault(index, []).append("id: format: must be the account's id in digits")
    for failure in check_accounts([row.cells for row in rows], update=update):
        reasons.setdefault(failure.row, []).append(str(failure))
    for index, texts in reasons.items():
        rows[index].state, rows[index].message = "rejected", "; ".join(texts)


def standing_problem(accounts: Mapping[int, GatewayAccount], deleted: Mapping[int, GatewayAccount], number: int) -> str:
    """Describe why an account can't be changed; empty if it can."""
    if number in accounts:
        return ""
    return (
        f"id: {number} is a deleted account" if number in deleted else f"id: {number} is not an account at the gateway"
    )


def update_problem(account: GatewayAccount) -> str:
    """Describe why an account can't be updated through this interface; empty if it can."""
    if account.gateway_name.startswith("processorB"):
        return f"gateway_name: {account.id} is an account of processor B, which can't be updated through this interface"
    return ""


def reject_not_there(client: Client, rows: Sequence[AccountRow]) -> None:
    """Mark updates of accounts that are unknown, deleted or on processor B as rejected."""
    wanted = [row for row in rows if row.state == "not_sent"]
    if not wanted:
        return
    standing = {account.id: account for account in client.accounts(deleted=False)}
    missing = any(row.gateway_id not in standing for row in wanted)
    deleted = {account.id: account for account in client.accounts(deleted=True)} if missing else {}
    for row in wanted:
        number = row.gateway_id or 0
        problem = standing_problem(standing, deleted, number) or update_problem(standing[number])
        if problem:
            row.state, row.message = "rejected", problem


def begin_results(path: Path) -> None:
    """Claim the results file's name, so that no other run has it; raises WrongUse if the file already exists."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise WrongUse(
            f"{path} already exists and records what an earlier run did; move it, or name another file with --results"
        ) from None
    except OSError as error:
        raise NotUsable(f"{path} can't be written: {error.strerror}") from None


def send_rows(client: Client, rows: Sequence[AccountRow], results: Path, *, update: bool) -> str | None:
    """Create or update the rows that are not rejected, in order; return why the run stopped early, or None.

    An account in doubt stops the run: whatever lost its answer may lose the next ones too.
    """
    stopped = None
    for row in rows:
        if row.state != "not_sent":
            continue
        row.state, row.message = "in_doubt", "the request was under way when this was written"
        write_results(results, rows)
        try:
            _send(client, row, update=update)
        except AccountRefused as error:
            row.state, row.message = "refused", str(error)
        except AccountInDoubt as error:
            row.message = stopped = str(error)
        except RunStopped as error:
            row.state, row.message, stopped = "not_sent", "", str(error)
        if stopped:
            break
    write_results(results, rows)
    return stopped


def exit_code(rows: Sequence[AccountRow], stopped: str | None) -> int:
    """Return 7 with a row in doubt, 6 if stopped early, 3 with a row rejected or refused, else 0."""
    states = {row.state for row in rows}
    if "in_doubt" in states:
        return AccountInDoubt.exit_code
    if stopped:
        return RunStopped.exit_code
    return AccountRefused.exit_code if states & {"rejected", "refused"} else 0


def write_results(path: Path, rows: Sequence[AccountRow]) -> None:
    """Write the results as JSON or CSV, by the name's ending."""
    results = [row.result() for row in rows]
    if path.suffix == ".json":
        content = json.dumps({"accounts": results}, ensure_ascii=False, indent=2) + "\n"
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, RESULT_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: guarded(value) if isinstance(value, str) else value for name, value in result.items()}
            for result in results
        )
        content = text.getvalue()
    with atomic_writer(path) as file:
        file.write(content.encode())


def _send(client: Client, row: AccountRow, *, update: bool) -> None:
    node = wire_node(row.cells)
    if update:
        row.message = client.update(row.gateway_id or 0, node)
        row.state = "updated"
    else:
        row.gateway_id = client.create(node)
        row.state, row.message = "created", ""


def _content(path: Path) -> tuple[str, int]:
    """Return the file's text and its mode."""
    if path.suffix not in _KINDS:
        raise FileRefused(f"{path}: the name of an account file must end in {', '.join(_KINDS)}")
    file = OpenFile(str(path))
    try:
        if file.size > BYTES_MAX:
            raise FileRefused(f"{path} is larger than {BYTES_MAX:,} bytes")
        return file.head(BYTES_MAX).decode("utf-8-sig"), os.fstat(file.descriptor).st_mode
    except UnicodeDecodeError:
        raise FileRefused(f"{path} is not UTF-8") from None
    finally:
        file.close()


def _nodes(path: Path, text: str) -> list[Any]:
    try:
        if path.suffix == ".csv":
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            header = reader.fieldnames or []
            if len(set(header)) < len(header):
                raise FileRefused(f"{path} has the same column twice")
            return list(reader)
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=unique_names)
    except (csv.Error, ValueError, RecursionError):
        # The parser's own message may quote a PIN.
        raise FileRefused(f"{path} can't be read as {path.suffix[1:].upper()}") from None
    if isinstance(value, dict) and len(value) == 1 and (inner := value.get("gateways", value.get("gateway"))):
        value = inner
    return value if isinstance(value, list) else [value]


def _row(path: Path, number: int, node: Any, allowed: Sequence[str]) -> AccountRow:
    """Read one account's cells as text; raises FileRefused for what is not an account at all."""
    if not isinstance(node, dict):
        raise FileRefused(f"{path}, account {number}: is not a table of attributes")
    cells: dict[str, str | None] = {}
    for name, value in node.items():
        if name is None or (value is None and path.suffix == ".csv"):
            raise FileRefused(f"{path}, account {number}: has more or fewer cells than the header")
        if name not in allowed:
            close = difflib.get_close_matches(str(name), allowed, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise FileRefused(f"{path}, account {number}: {name} is not an attribute of an account{hint}")
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            raise FileRefused(f"{path}, account {number}: {name} must be text or a whole number")
        cells[name] = str(value) if value not in (None, "") else None
    number_text = cells.pop("id", None)
    return AccountRow(number, cells, gateway_id=account_id(number_text) if number_text else None)
