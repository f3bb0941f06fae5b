"""A dry run that asks the gateway: `submit --dry-run --preflight`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from batchpay.errors import CredentialsNotUsable, SettingsNotUsable
from batchpay.payment import State
from tests.support.command import small_file
from tests.support.in_process import Caller


def test_the_gateway_is_asked_about_the_accounts_of_each_file(call: Caller, tmp_path: Path) -> None:
    """The second file was refused for want of a key: reading it for the first one takes it out of the environment."""
    call("ledger", "init")
    for name, first in (("a.csv", 1), ("b.csv", 10)):
        file = small_file(tmp_path / name, 2, first=first)
        file.write_text(file.read_text().replace(",1001,", f",47{first},", 1))
    found = call("submit", "a.csv", "b.csv", "--dry-run", "--preflight")
    assert [one["counts"] for one in found["files"]] == [{"gatewayId.unknown": 1}] * 2
    assert call("submit", "a.csv", "--dry-run")["counts"] == {}


def test_a_plan_goes_without_the_rows_that_the_gateway_takes_no_payments_for(call: Caller, tmp_path: Path) -> None:
    """One account that the gateway does not know, and one for cards: the good row could never go by any plan."""
    call("ledger", "init")
    file = small_file(tmp_path / "a.csv", 3)
    first, *rows = file.read_text().splitlines()
    changed = [row.replace(",1001,", f",{account},", 1) for row, account in zip(rows, (1001, 9999, 1003), strict=True)]
    file.write_text("\n".join([first, *changed]) + "\n")
    unasked = call("submit", "a.csv", "--dry-run", "--plan", "unasked.json")
    assert (unasked["exit_code"], unasked["would_send"]) == (0, 3)
    assert "--preflight checks them" in unasked["notes"][-1]
    told = call("submit", "a.csv", "--dry-run", "--no-preflight", "--plan", "told.json")
    assert not any("--preflight checks them" in note for note in told["notes"])
    asked = call("submit", "a.csv", "--dry-run", "--preflight", "--plan", "plan.json")
    assert (asked["exit_code"], asked["would_send"], asked["rejected"]) == (3, 1, 2)
    assert asked["counts"] == {"gatewayId.unknown": 1, "gatewayId.not_echeck": 1}
    assert asked["seal"] != unasked["seal"]
    sent = call("submit", "a.csv", "--from-plan", "plan.json")
    assert (sent["exit_code"], sent["accepted"], sent["rejected"], sent["seal"]) == (3, 1, 2, asked["seal"])


def test_credentials_that_the_payments_refuse_are_told_by_the_dry_run(call: Caller, tmp_path: Path) -> None:
    """Though the accounts take them: the header has another name there. Without the option nothing is asked."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    call.settings(BATCHPAY_SERVICE_HEADER="OTHER")
    assert call("submit", "a.csv", "--dry-run", "--preflight")["exit_code"] == 6
    assert call("submit", "a.csv", "--dry-run")["exit_code"] == 0


def test_an_address_with_a_password_is_refused_and_not_shown(call: Caller, tmp_path: Path) -> None:
    """A dry run printed it, password and all, and what no submission would accept ended with 0."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    for address in ("https://ann:Passw0rd@pay.example.com", "pay.example.com", "http://pay.example.com"):
        call.settings(BATCHPAY_BASE_URL=address)
        assert call.exit_code("submit", "a.csv", "--dry-run") == SettingsNotUsable.exit_code
        assert "Passw0rd" not in call.text("submit", "a.csv", "--dry-run")


def test_the_ledgers_key_is_never_sent_as_the_gateways(call: Caller, tmp_path: Path) -> None:
    """A line copied from BATCHPAY_LEDGER_KEY_FILE: the gateway was sent what decrypts the ledger, and refused it."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    (key,) = tmp_path.rglob("ledger.key")
    call.settings(BATCHPAY_API_KEY_FILE=str(key))
    for command in (("submit", "a.csv", "--yes"), ("test-connection",), ("gateway", "list")):
        assert call.fails(*command) == CredentialsNotUsable.exit_code
    assert call("status")["batches"] == []


def test_a_known_file_has_the_states_of_the_ledger(call: Caller, tmp_path: Path) -> None:
    """The paid row stood as pending, and with --release the two of them where one would be sent."""
    call("ledger", "init")
    limits, path = tmp_path / "batchpay.toml", str(small_file(tmp_path / "a.csv", 3))
    limits.write_text('[limits]\nmax_amount = "1.50"\n')
    submitted = call("submit", path, "--yes")
    assert states(submitted) == {"accepted": "1.25", "rejected": "5.50"}
    limits.write_text('[limits]\nmax_amount = "2.50"\n')
    plain = call("submit", path, "--dry-run")
    assert (states(plain), plain["would_send"]) == (states(submitted), 0)
    release = ("--release", "--reason", "looked at", "--dry-run")
    released = call("submit", path, *release)
    assert states(released) == {"accepted": "1.25", "rejected": "3.25", "pending": "2.25"}
    assert (released["valid"], released["debit"]["rows"] + released["credit"]["rows"]) == (2, 2)
    lines = [line.split() for line in call.text("submit", path, *release).splitlines()]
    assert [line for line in lines if line[:1] in (["accepted"], ["pending"], ["valid"])] == [
        ["accepted", "1", "1.25"], ["pending", "1", "2.25"],
    ]  # fmt: skip


def test_a_check_of_a_paid_file_shows_nothing_to_approve(call: Caller, tmp_path: Path) -> None:
    """`validate` printed all of it once more as payments to approve, with a line to sign, under the same content."""
    call("ledger", "init")
    path = str(small_file(tmp_path / "a.csv", 3))
    assert call("validate", path)["to_send"]["total"]["rows"] == 3
    batch = call("submit", path, "--limit", "1")["batch"]
    checked, dry = call("validate", path), call("submit", path, "--dry-run")
    assert (checked["batch"], checked["valid"], checked["to_send"]) == (batch, 3, dry["to_send"])
    assert checked["to_send"]["total"] == {"rows": 2, "amount": "5.50"}
    assert call("submit", path)["accepted"] == 3
    text = call.text("validate", path)
    assert [line.split()[3:] for line in text.splitlines() if line.startswith("would be sent")] == [["0", "0.00"]]
    assert f"this content is already batch {batch}: 3 accepted, 0 declined, 0 in doubt; 0 rows would be sent" in text


def test_a_paid_row_that_fails_todays_rules_is_not_rejected_on_the_page(call: Caller, tmp_path: Path) -> None:
    """The limit was lowered since: the page had two rows as rejected, and one reason, where one was paid."""
    call("ledger", "init")
    path = str(small_file(tmp_path / "a.csv", 2))
    call("submit", path, "--limit", "1")
    (tmp_path / "batchpay.toml").write_text('[limits]\nmax_amount = "1.00"\n')
    for command in (("validate", path), ("submit", path, "--dry-run")):
        lines = call.text(*command).partition("PAYMENTS TO APPROVE")[2].splitlines()
        figures = {line[:40].strip(): line[40:].split() for line in lines}
        assert (figures["rejected"], figures["would be sent"]) == (["0", "0.00"], ["0", "0.00"])
        assert figures["not sent: held back by today's rules"] == ["1", "2.25"]
        assert lines[lines.index("why rows are rejected or held back") + 1].split() == ["1", "amount.limit"]


def test_files_that_repeat_each_other_are_said_not_to_be_compared(call: Caller, tmp_path: Path) -> None:
    """Four rows would be sent, said the dry run of two files with the same bills; the submission sent two."""
    call("ledger", "init")
    first = small_file(tmp_path / "a.csv", 2)
    (tmp_path / "b.csv").write_text(first.read_text().replace("P-", "Q-"))
    for command in (("validate",), ("submit", "--dry-run")):
        one, two = call(*command, "a.csv", "b.csv")["files"]
        said = [
            any("not compared with the files before it in this call" in note for note in x["notes"]) for x in (one, two)
        ]
        assert (one["valid"], two["valid"], said) == (2, 2, [False, True])
        assert call(*command, "b.csv")["notes"] == []
    one, two = call("submit", "a.csv", "b.csv")["files"]
    assert (one["accepted"], two["accepted"], two["counts"]) == (2, 0, {"row.duplicate": 2})


def test_a_dry_run_tells_that_a_submission_would_wait_for_approval(call: Caller, tmp_path: Path) -> None:
    """It ended with 0, and said how long sending takes: the submission ended with 8. So with rows from before."""
    call("ledger", "init")
    path, begun = (str(small_file(tmp_path / name, 2, first=n)) for name, n in (("a.csv", 1), ("b.csv", 10)))
    call("submit", begun, "--limit", "1")

    def told(*options: str) -> list[str]:
        return [note for note in call("submit", *options, "--dry-run")["notes"] if "to approve" in note]

    assert told(path) == told(begun) == []
    call.settings(BATCHPAY_APPROVALS="2", BATCHPAY_APPROVE_ABOVE="3.50")
    for file in (path, begun):
        assert call.exit_code("submit", file) == 8
        assert told(file) == [
            "a submission would wait for 2 other people to approve: --plan PLAN writes what they need"
        ]
        assert told(file, "--plan", "plan.json") == []
    call.settings(BATCHPAY_APPROVE_ABOVE="100.00")
    assert told(path) == []
    assert call("submit", path)["accepted"] == 2
    call.settings(BATCHPAY_APPROVE_ABOVE="3.50")
    assert told(path) == []


def test_the_requests_that_are_shown_are_those_that_would_be_sent(call: Caller, tmp_path: Path) -> None:
    """Of a batch that had stopped, the first requests were those of payments made already, and so with none left."""
    call("ledger", "init")
    limits, path = tmp_path / "batchpay.toml", str(small_file(tmp_path / "a.csv", 4))
    limits.write_text('[limits]\nmax_amount = "3.50"\n')

    def shown(*options: str) -> list[str]:
        found = call("submit", path, "--dry-run", "--show-requests", "2", *options)
        return [json.loads(one)["amount"] for one in found["requests"]]

    assert shown() == ["1.25", "2.25"]
    call("submit", path, "--limit", "1")
    assert shown() == ["2.25", "3.25"]
    call("submit", path)
    limits.unlink()
    assert (shown(), shown("--release", "--reason", "looked at")) == ([], ["4.25"])


def test_a_preset_number_of_requests_is_for_dry_runs_alone(call: Caller, tmp_path: Path) -> None:
    """Typed without --dry-run it is refused, since it sent the payments; preset it must stop no nightly submission."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    call.settings(BATCHPAY_SHOW_REQUESTS="1")
    assert len(call("submit", "a.csv", "--dry-run")["requests"]) == 1
    assert call("submit", "a.csv", "--yes")["accepted"] == 2


def test_a_payment_in_doubt_is_in_doubt_for_a_dry_run(call: Caller, tmp_path: Path) -> None:
    """It was shown as a row that waits, with exit code 0: a person must look."""
    call("ledger", "init")
    file = small_file(tmp_path / "a.csv", 2)
    file.write_text(file.read_text().replace("770000021", "77990004"))
    assert call("submit", str(file), "--yes")["in_doubt"] == 1
    found = call("submit", str(file), "--dry-run")
    assert (found["in_doubt"], found["accepted"], found["pending"], found["exit_code"]) == (1, 1, 0, 7)
    (tmp_path / "other").mkdir()
    other = str(small_file(tmp_path / "other" / "b.csv", 3))
    assert call.exit_code("submit", other, "--dry-run") == 3, "duplicates; a doubt elsewhere is none of this file"


def test_a_doubt_comes_before_what_a_restored_ledger_waits_for(call: Caller, tmp_path: Path) -> None:
    """It ended with 8: nobody was told that the row which the lost part may have paid is in doubt."""
    call("ledger", "init")
    ledger, limits = tmp_path / "state" / "ledger.db", tmp_path / "batchpay.toml"
    limits.write_text('[limits]\nmax_amount = "2.50"\n')
    path = str(small_file(tmp_path / "a.csv", 3))
    assert call.exit_code("submit", path, "--limit", "1") == 6
    backup = ledger.read_bytes()
    assert call("submit", path)["accepted"] == 2
    ledger.write_bytes(backup)
    call("ledger", "accept", "--reason", "the disk died")
    limits.unlink()
    found = call("submit", path, "--release", "--reason", "looked at", "--dry-run")
    assert (found["in_doubt"], found["exit_code"], "since" in found["waits_for"]) == (1, 7, True)


def states(found: dict[str, Any]) -> dict[str, str]:
    """Give the amounts of the states in which there are rows."""
    return {str(state): found["amount"][state] for state in State if found[state]}


def test_an_expected_total_may_be_typed_with_its_thousands_commas(call: Caller, tmp_path: Path) -> None:
    """Each in its place and with two decimals: what could be read in another way is asked for again."""
    path = str(small_file(tmp_path / "a.csv", 50))
    for total, code in (
        ("1287.50", 0), ("1,287.50", 0), ("1,287.05", 4), ("12,87.50", 2), ("1,287", 2), ("1287,50", 2),
    ):  # fmt: skip
        assert (total, call.exit_code("validate", path, "--expect-total", total)) == (total, code)


def test_what_differs_from_a_plan_is_told_line_by_line(call: Caller, tmp_path: Path) -> None:
    """Content, totals and rows of another file, each on a line of its own; the object has them in one."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    call("submit", "a.csv", "--dry-run", "--plan", "plan.json")
    small_file(tmp_path / "a.csv", 3)
    told = call.text("submit", "a.csv", "--from-plan", "plan.json")
    assert "a.csv is not what the plan approved:\n" in told
    assert "\n  the content differs\n" in told
    assert "\n  to send: total is 3 rows and 6.75, approved was 2 rows and 3.50\n" in told
    error = call("submit", "a.csv", "--from-plan", "plan.json")["error"]
    assert "the content differs, in file is 3 rows" in error


def test_a_check_of_a_file_above_a_limit_ends_with_4(call: Caller, tmp_path: Path) -> None:
    """The dry run and the check say what a submission would: it is refused whole."""
    small_file(tmp_path / "a.csv", 3)
    toml = tmp_path / "batchpay.toml"
    toml.write_text(f'{toml.read_text() if toml.exists() else ""}\n[limits]\nmax_total = "0.01"\n')
    for words in (("validate", "a.csv"), ("submit", "a.csv", "--dry-run"), ("submit", "a.csv")):
        found = call(*words)
        assert found["exit_code"] == 4, words
        assert "limits.max_total (0.01)" in str(found.get("over_limits", found.get("error")))
