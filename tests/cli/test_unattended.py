"""How a call ends that an error ended before any file came far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchpay.cli.context import Context
from batchpay.cli.operations import unattended_run
from batchpay.cli.paths import Outputs
from batchpay.errors import BatchpayError, CredentialsNotUsable, LedgerNotUsable, NotUsable, WaitingForPerson, WrongUse
from batchpay.payment import Totals

DOUBTS = {"3f2a91c0d7e1": Totals(2, 50_000)}


@pytest.fixture
def ended_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Give what ends a call by an error: its exit code, while `doubts` are what the ledger says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHPAY_LEDGER", str(tmp_path / "ledger.db"))

    def end(error: BatchpayError, doubts: Any, *, dry_run: bool = False) -> int:
        def all_in_doubt(_: object) -> Any:
            if isinstance(doubts, Exception):
                raise doubts
            return doubts

        monkeypatch.setattr("batchpay.workflows.status.all_in_doubt", all_in_doubt)
        options = {"metrics_file": None, "ping_url": None, "log_file": None, "log_json": False, "dry_run": dry_run}
        with pytest.raises(type(error)), unattended_run(Context(), options, Outputs(())):
            raise error
        return error.exit_code

    return end


@pytest.mark.parametrize(
    "error",
    [NotUsable("no inbox"), CredentialsNotUsable("no key"), WrongUse("no such batch"), WaitingForPerson("sign first")],
)  # fmt: skip
def test_a_doubt_ends_the_call_with_7_whatever_else_is_wrong(
    ended_by: Callable[..., int], error: BatchpayError, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped inbox, a key file gone or a batch that is none ended with 5 and 2 while a payment was in doubt."""
    assert ended_by(error, DOUBTS) == 7
    assert "batchpay resolve 3f2a91c0d7e1 (2 rows, 500.00)" in capsys.readouterr().err


def test_an_error_keeps_its_code_where_nobody_must_look(ended_by: Callable[..., int]) -> None:
    """No doubt, a ledger that can't be asked, or a dry run, which looks at its file alone."""
    assert ended_by(NotUsable("no inbox"), {}) == 5
    assert ended_by(WrongUse("no such batch"), LedgerNotUsable("locked")) == 2
    assert ended_by(NotUsable("no inbox"), DOUBTS, dry_run=True) == 5
