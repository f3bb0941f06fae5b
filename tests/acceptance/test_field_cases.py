"""What files in the manner of public reports must give: what a map asks about each, or what a check finds.

They stand in a folder of their own (BATCHPAY_TEST_DATA); files of the same kinds are made by the tests of each rule.
Other tests have those of amounts, bank files, encodings, warnings, exports and whole layouts.
"""

from __future__ import annotations

import pytest

from tests.support.answers import answer_map
from tests.support.command import Home
from tests.support.layouts import FIELD

pytestmark = pytest.mark.skipif(not FIELD.is_dir(), reason="the files are not here")

ASKED = [
    ("m_hs", "transactionType", "Soll/Haben", "CREDIT: H is paid out; DEBIT: S is collected"),
    (
        "m_status",
        "rows",
        "Status",
        "left out: Voided (1 row) and Paid (1 row) and On hold (1 row); Open (1 row) is paid",
    ),
    ("m_dr_cr", "amount", "Debit and Credit", "Debit is paid out, Credit is collected"),
    ("m_dr_cr0", "amount", "Debit and Credit", "Debit is paid out, Credit is collected"),
    ("t_star", "payOn", "when is each payment sent?", "on the day in Pay Date (01/15/2027 to 01/15/2027)"),
    ("m_cents", "amount", "no amount in column Amount has decimals", "dollars: 100000 is 100,000.00 dollars"),
    ("thou", "amount", "(in thousands)", "thousands: 2.14 is 2,140.00 dollars"),
    ("n_eur", "currencyCode", "marked €", "EUR"),
    ("L6_church", "rows", "Status", "left out: Paused (3 rows); Active (27 rows) is paid"),
    ("L6_church", "recurringIndicator", "Next Gift Date, Frequency", None),
    ("qbd_sub", "achNameOnCheck", "a report grouped by payee", None),
]


@pytest.mark.parametrize(("name", "about", "text", "first"), ASKED)
def test_evidence_of_money_is_asked_about(home: Home, name: str, about: str, text: str, first: str | None) -> None:
    """Each was used as something else, or not at all, without a word."""
    done = home.json("map", str(FIELD / f"{name}.csv"))
    assert done["exit_code"] == 8
    (question,) = [one for one in done["questions"] if one["about"] == about]
    assert text in question["question"]
    assert first is None or question["choices"][0] == first


@pytest.mark.parametrize(
    ("name", "counts", "warnings", "code"),
    [
        ("status", {"row.status": 4}, {}, 3),
        ("multi_inv_no_pid", {}, {"row.same_amount": 1}, 0),
        ("q_ascii", {}, {"achNameOnCheck.ascii": 4}, 0),
    ],
)
def test_a_check_says_it(home: Home, name: str, counts: dict[str, int], warnings: dict[str, int], code: int) -> None:
    """Rows whose status says no are rejected; what may be meant is a warning."""
    done = home.json("validate", str(FIELD / f"{name}.csv"))
    assert (done["counts"], done["warning_counts"], done["exit_code"]) == (counts, warnings, code)


def test_subtotals_with_bank_details_are_no_payments(home: Home) -> None:
    """The sums of each payee were paid beside their parts."""
    answers = {"transactionType": "CREDIT", "billingFirstName": "people", "gatewayId": "1001", "achAgreementFlag": "1:",
               "achAccountType": "PERSONAL", "paymentId": "no"}  # fmt: skip
    mapped = answer_map(home, answers, str(FIELD / "sub_fill.csv"), "--write", "m.toml")
    assert mapped.exit_code == 0, mapped.output
    done = home.json("validate", str(FIELD / "sub_fill.csv"), "--map", "m.toml")
    totals = (FIELD / "sub_fill.csv").read_text("utf-8").count("Subtotal")
    assert (done["counts"], done["rejected"]) == ({"row.total": totals}, totals)
