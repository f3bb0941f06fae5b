"""What an answer means: as CONTRACT.md says it, as the settings change it, and what is taken from the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.answer import Secrets, masked
from batchpay.gateway.profile import Profile
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.settings import GatewaySettings

RETRY_AFTER = {"retry-after": "3"}


def load(profile: dict[str, Any] | None = None, **settings: Any) -> Profile:
    return Profile.load(GatewaySettings(profile=profile or {}, **settings))


def state(profile: Profile, status: int, body: Any = None, **headers: str) -> State:
    return profile.outcome_of(status, headers, json.dumps(body or {}).encode()).state


def test_every_status_has_the_contracts_meaning() -> None:
    """Each HTTP status from 100 to 999 means what CONTRACT.md's table says."""
    profile = load()
    for status in range(100, 1000):
        outcome = profile.outcome_of(status, {}, b'{"status":"declined"}')
        if 200 <= status < 300 or status in (400, 402, 404, 405, 410, 413, 415, 422):
            expected = State.DECLINED
        elif status in (401, 403, 429):
            expected = State.PENDING
        else:
            expected = State.IN_DOUBT
        stops = status in (401, 403, 404, 405, 415) or 300 <= status < 400
        assert (status, outcome.state, outcome.stop is not None) == (status, expected, stops)
        if status in (401, 403):
            assert outcome.stop == "credentials refused"


def test_success_outside_2xx_is_never_accepted() -> None:
    """The word `success` makes a payment accepted only with a 2xx status; with a refusal it proves nothing."""
    profile = load()
    found = {status: state(profile, status, {"status": "success"}) for status in range(100, 1000)}
    assert found == {status: State.ACCEPTED if 200 <= status < 300 else State.IN_DOUBT for status in range(100, 1000)}


def test_switches_for_429_and_503() -> None:
    """429 is pending unless switched off; 503 with Retry-After only where switched on; 503 without it never."""
    assert state(load(resend_after_429=False), 429) is State.IN_DOUBT
    assert state(load(), 503, **RETRY_AFTER) is State.IN_DOUBT
    assert state(load(resend_after_503=True), 503, **RETRY_AFTER) is State.PENDING
    assert state(load(resend_after_503=True), 503) is State.IN_DOUBT
    limit = {"ratelimit-policy": "10;w=1"}
    assert state(load(resend_after_503=True), 503, **limit) is State.IN_DOUBT, "a limit is no word about this payment"


def test_a_stop_is_told_by_its_status() -> None:
    """Only a redirect is told as one: whoever reads it corrects gateway.base_url, of a 400 in vain."""
    profile = load({"http": {"400": "declined, stop"}})
    stops = {status: profile.outcome_of(status, {}, b'{"status":"declined"}').stop or "" for status in (300, 399, 400)}
    assert [("redirects" in stop) for stop in stops.values()] == [True, True, False]
    assert "HTTP 400, at which gateway.profile stops" in stops[400]


def test_profile_changes_words_and_places() -> None:
    """A profile names the deciding member and its words; the default words then mean nothing."""
    profile = load({"status_member": "result.word", "accepted": ["OK"], "declined": ["NO", "false"]})
    assert state(profile, 200, {"result": {"word": "OK"}}) is State.ACCEPTED
    assert state(profile, 200, {"result": {"word": "NO"}}) is State.DECLINED
    assert state(profile, 200, {"result": {"word": False}}) is State.DECLINED
    assert state(load({"status_member": "code", "declined": ["17"]}), 200, {"code": 17}) is State.DECLINED
    assert state(profile, 200, {"result": {"word": "success"}, "status": "success"}) is State.IN_DOUBT
    assert state(profile, 200, {"result": "OK"}) is State.IN_DOUBT


def test_profile_changes_statuses() -> None:
    """A profile gives an HTTP status, or a class of them, another meaning; the single status wins."""
    profile = load({"http": {"409": "declined", "402": "word", "5xx": "declined", "503": "pending, stop"}})
    assert state(profile, 409) is State.DECLINED
    assert state(profile, 402, {"status": "declined"}) is State.DECLINED
    assert state(profile, 402) is State.IN_DOUBT
    assert state(profile, 500) is State.DECLINED
    outcome = profile.outcome_of(503, {}, b"")
    assert (outcome.state, outcome.stop) == (
        State.PENDING,
        "the gateway answered HTTP 503, at which gateway.profile stops",
    )


@pytest.mark.parametrize(("profile", "named"), [
    ({"accpeted": ["OK"]}, "gateway.profile.accpeted"), ({"accepted": "OK"}, "gateway.profile.accepted"),
    ({"accepted": []}, "gateway.profile.accepted"), ({"declined": [1]}, "gateway.profile.declined"),
    ({"accepted": ["error"]}, "both accepted and declined"), ({"status_member": ""}, "gateway.profile.status_member"),
    ({"status_member": "a..b"}, "gateway.profile.status_member"),
    ({"status_member": ["a"]}, "gateway.profile.status_member"), ({"reference": [""]}, "gateway.profile.reference"),
    ({"http": []}, "gateway.profile.http"), ({"http": {"9xx": "declined"}}, "gateway.profile.http.9xx"),
    ({"http": {"4x4": "declined"}}, "gateway.profile.http.4x4"),
    ({"http": {"409": "accepted"}}, "gateway.profile.http.409"),
    ({"http": {"409": "refused"}}, "gateway.profile.http.409"),
    ({"http": {"409": "declined, halt"}}, "gateway.profile.http.409"),
    ({"http": {"409": 1}}, "gateway.profile.http.409"), ({"http": {"302": "declined"}}, "gateway.profile.http.302"),
    ({"http": {"307": "word"}}, "gateway.profile.http.307"), ({"http": {"200": "pending"}}, "gateway.profile.http.200"),
    ({"http": {"5xx": "pending"}}, "gateway.profile.http.5xx"),
])  # fmt: skip
def test_unusable_profile_is_refused(profile: dict[str, Any], named: str) -> None:
    """A profile with an unknown part, word or status, or one that calls unproven things proven, is refused by name."""
    with pytest.raises(SettingsNotUsable) as caught:
        load(profile)
    assert named in str(caught.value)


@pytest.mark.parametrize(("body", "code", "message", "reference"), [
    ({"status": "success", "successMessage": {"response_code": 100, "message": {"payment": {"transaction_id": "S"}}}},
     "100", None, "S"),
    ({"status": "error", "errorMessage": {"response_code": "R01", "message": "Insufficient funds"}},
     "R01", "Insufficient funds", None),
    ({"status": "success", "transactionId": "T9", "message": "Approved"}, None, "Approved", "T9"),
    ({"status": "failed", "response": {"responseCode": "05", "responseText": "Do not honor"}},
     "05", "Do not honor", None),
    ({"status": "success", "response": {"responseCode": "00", "paymentId": 17}}, "00", None, "17"),
    ({"status": "fail", "message": "amount: wrong", "errors": [{"code": 7}]}, "7", "amount: wrong", None),
    ({"status": "declined", "errors": ["one", "two", 3], "error": ["one", "two", 3]}, None, "one; two", None),
    ({"status": "success", "id": True, "message": None}, None, None, None),
])  # fmt: skip
def test_code_text_and_reference_are_found(
    body: Any, code: str | None, message: str | None, reference: str | None
) -> None:
    """Code, text and id are taken from wherever they stand in the answer's nodes."""
    answer = load().outcome_of(200, {}, json.dumps(body).encode()).answer
    assert (answer.response_code, answer.message, answer.gateway_reference) == (code, message, reference)


def test_texts_are_defused_and_cut() -> None:
    """A text from outside becomes one printable line of bounded length."""
    wild = "a\u001b[31mb\u202ec\n\td\u0000" + "x" * 500
    body = json.dumps({"status": "success", "message": wild, "id": "r" * 500, "code": "c" * 500}).encode()
    answer = load().outcome_of(200, {}, body).answer
    assert answer.message is not None and answer.message.startswith("a [31mb c d xxx")
    assert answer.message.isprintable()
    assert (len(answer.message), len(answer.gateway_reference or ""), len(answer.response_code or "")) == (200, 64, 16)


def test_what_must_not_be_stored_is_masked() -> None:
    """An account number that an answer repeats, in whatever spacing, keeps its last four characters only."""
    texts = "for 4111222233334444, 4111-2222-3333-4444, 4111 2222.3333 4444, ABc123xyz; 7777"
    body = json.dumps({"status": "success", "message": texts, "id": "4111222233334444"}).encode()
    secrets = Secrets("4111222233334444", ("abC123XYZ", "7777"))
    answer = load().outcome_of(200, {}, body, secrets=lambda: secrets).answer
    assert answer.message == "for ****4444, ****4444, ****4444, ****3XYZ; 7777"
    assert answer.gateway_reference == "****4444"


@pytest.mark.parametrize(("text", "kept"), [
    ("account 41112 refused", "account **** refused"), ("account 4111 refused", "account 4111 refused"),
    ("account ...33334444", "account ...****4444"), ("account 411122223333XXXX", "account ****XXXX"),
    ("4 1 1 1 2 2 2 2", "****"), ("4_1_1_1_2-2", "****"),
    ("\uff14\uff11\uff11\uff11\uff12\uff12\uff12\uff12\uff13\uff13\uff13\uff13\uff14\uff14\uff14\uff14", "****4444"),
    ("\u0664\u0661\u0661\u0661\u0662\u0662", "****"), ("4\u200b1\u200b1\u200b1\u200b2\u200b2", "****"),
    ("\u2074\u00b9\u00b9\u00b9\u00b2\u2461", "****"), ("\u32b6\u246a\u3252\u3252", "****"),
    ("x" * 190 + " 4111222233334444", "x" * 190 + " ****4444"), ("9994111222299", "999****99"),
    ("41112 and 22233", "**** and ****"), ("reference 1000012", "reference 1000012"),
])  # fmt: skip
def test_five_digits_of_an_account_are_masked_in_any_dress(text: str, kept: str) -> None:
    """Cut, spaced, hyphenated, full-width or between other digits: five of an account's digits in a row never stay."""
    assert masked(text, Secrets("4111222233334444")) == kept
    assert masked(text, Secrets("4111-2222-3333-4444")) == kept


def test_short_account_and_one_with_letters_are_masked_too() -> None:
    """An account of five digits is masked whole; one with letters in it where it stands whole, in any letter case."""
    assert masked("no account 12345", Secrets("12345")) == "no account ****2345"
    assert masked("no account ab-12 34 z", Secrets("AB1234Z")) == "no account ****234Z"


@pytest.mark.parametrize("extra", [
    {"errorMessage": {"response_code": "R01"}}, {"errorMessage": "R01"}, {"error": True}, {"errors": [{"code": 7}]},
    {"response": {"detail": {"error_message": "no"}}},
])  # fmt: skip
def test_success_beside_an_error_proves_nothing(extra: dict[str, Any]) -> None:
    """An answer that says `success` and holds an error is in doubt: the payment may have been made or not."""
    outcome = load().outcome_of(200, {}, json.dumps({"status": "success", **extra}).encode())
    assert (outcome.state, outcome.reason) == (State.IN_DOUBT, "HTTP 200, but the answer says both yes and no")
    assert state(load({"error": ["fault"]}), 200, {"status": "success", **extra}) is State.ACCEPTED
    assert state(load(), 200, {"status": "error", "successMessage": {"message": "Approved"}}) is State.IN_DOUBT


@pytest.mark.parametrize("nothing", [None, False, 0, "", " ", [], {}])
def test_an_empty_error_is_none(nothing: Any) -> None:
    """A member for errors that holds nothing does not contradict the word beside it."""
    assert state(load(), 200, {"status": "success", "errorMessage": nothing}) is State.ACCEPTED
    assert state(load(), 200, {"status": "declined", "successMessage": nothing}) is State.DECLINED


def test_another_payments_answer_proves_nothing() -> None:
    """An answer that repeats another invoiceNumber leaves the payment in doubt; its own, or none, is fine."""
    profile = load()
    body = json.dumps({"status": "success", "payment": {"invoiceNumber": "INV-1"}}).encode()
    assert profile.outcome_of(200, {}, body, sent={"invoiceNumber": "INV-2"}.get).state is State.IN_DOUBT
    assert profile.outcome_of(200, {}, body, sent={"invoiceNumber": "inv-1 "}.get).state is State.ACCEPTED
    assert profile.outcome_of(200, {}, body).state is State.ACCEPTED
    assert (
        profile.outcome_of(200, {}, b'{"status":"success"}', sent={"invoiceNumber": "INV-2"}.get).state
        is State.ACCEPTED
    )


PAYMENT = {"invoiceNumber": "INV-2", "amount": "100.00", "transactionType": "CREDIT", "currencyCode": "USD"}


def judged(profile: Profile, **answer: Any) -> Outcome:
    """What an answer that says `success` proves for PAYMENT."""
    body = json.dumps({"status": "success", **answer}).encode()
    return profile.outcome_of(200, {}, body, sent=PAYMENT.get)


@pytest.mark.parametrize("answer", [
    {"transaction": {"id": "T1", "status": "declined", "message": "Insufficient funds"}},
    {"message": "Insufficient funds"},
    {"successMessage": {"response_code": "51", "message": {"payment": {"id": "T1", "result": "Declined"}}}},
    {"successMessage": {"transaction_id": "T1", "status": "pending review"}},
    {"transaction_id": "T1", "payment_status": "PENDING_REVIEW"},
    {"transaction_id": "T1", "transactionStatus": "OnHold"}, {"data": {"id": "T1", "state": "Payment returned"}},
    {"data": {"state": "void", "inner": {"reference": 17}}}, {"results": [{"status": "failed"}]},
    {"id": "T1", "approved": False}, {"id": "T1", "state": "payment not approved"},
    {"id": "T1", "status_text": "ﬁled; DECLINED"}, {"id": "T1", "amount": "999.00"}, {"id": "T1", "amount": 10000},
    {"id": "T1", "amount": "-100.00"}, {"payment": {"amount": "$1,000.00"}},
    {"payment": {"transactionType": "debit "}}, {"payment": {"currencyCode": "EUR"}},
    {"request": {"amount": "100.01"}}, {"echo": {"ach": {}, "transactionType": "DEBIT"}},
    {"payment": {"invoiceNumber": "INV-1"}}, {"one": {"invoiceNumber": "inv-2"}, "two": {"invoiceNumber": "INV-1"}},
])  # fmt: skip
def test_an_answer_that_contradicts_itself_or_its_request_proves_nothing(answer: dict[str, Any]) -> None:
    """It was believed by its one word: declined for lack of funds, in review, or another payment's altogether."""
    outcome = judged(load(), **answer)
    assert outcome.state is State.IN_DOUBT
    assert outcome.reason.startswith(("HTTP 200, status success, but the answer ", "the answer names another"))


@pytest.mark.parametrize("answer", [
    {"id": "T1", "avs": {"status": "declined", "error": "no match"}, "cvvResult": {"result": "failed"}},
    {"id": "T1", "billing": {"status": "pending"}, "shipping": {"state": "void"}, "customer": {"status": "held"}},
    {"id": "T1", "account": {"id": 5, "status": "review"}, "batch": {"id": "B1", "status": "pending"}},
    {"id": "T1", "request": {"ach": {"status": "failed"}}, "recurring": {"status": "pending"}},
    {"transaction": {"id": "T1", "status": "Approved"}, "history": {"status": "declined"}},
    {"id": "T1", "payment_status": "not declined", "message": "no review needed: nothing was rejected"},
    {"id": "T1", "amount": 100, "currency": "usd", "transactionType": "credit", "invoiceNumber": "ｉnv-2 "},
    {"id": "T1", "amount": 100.0}, {"id": "T1", "amount": "$100"},
    {"id": "T1", "fee": {"amount": "0.25"}, "balance": {"amount": "7.00"}},
    {"id": "T1", "amount": None, "currency": "", "transactionType": " ", "invoiceNumber": None},
    {"id": "T1", "amount": "see below", "currency": "840", "transactionType": "ACH"},
    {"id": "T1", "result": 0, "state": 1},
])  # fmt: skip
def test_honest_answers_are_not_hurt(answer: dict[str, Any]) -> None:
    """What is said of an address, a card check or a customer, and amounts written another way, contradict nothing."""
    outcome = judged(load(), **answer)
    assert outcome.state is State.ACCEPTED, outcome.reason
    assert outcome.answer.gateway_reference == "T1"


def test_a_status_on_no_list_is_noted() -> None:
    """It is no contradiction, and whoever reads the results sees that there was more; its word is not quoted."""
    outcome = judged(load(), transaction={"id": "T1", "status": "canary"})
    assert outcome.state is State.ACCEPTED
    assert outcome.reason == "HTTP 200, status success; what it says under status is on no list"


def test_what_contradicts_is_the_profiles() -> None:
    """Names and words are lists that can be emptied; a word that means accepted contradicts nothing."""
    assert judged(load({"not_accepted": []}), id="T1", state="pending").state is State.ACCEPTED
    assert judged(load({"status": []}), id="T1", state="pending").state is State.ACCEPTED
    assert judged(load({"not_accepted": ["Settling"]}), id="T1", state="settling").state is State.IN_DOUBT
    assert judged(load({"echo_amount": []}), id="T1", amount=10000).state is State.ACCEPTED
    assert judged(load({"echo_direction": ["kind"]}), id="T1", kind="Debit").state is State.IN_DOUBT
    profile = load({"accepted": ["success", "PENDING"]})
    assert judged(profile, status="PENDING", transaction={"status": "pending"}).state is State.ACCEPTED


def test_a_decline_that_contradicts_itself_proves_nothing() -> None:
    """A person may pay a declined row again."""
    declined = {"status": "declined", "transaction": {"id": "T1"}}
    assert judged(load(), **declined).state is State.DECLINED
    assert judged(load(), **declined, result="approved").state is State.IN_DOUBT
    assert judged(load(), **declined, amount="7.00").state is State.IN_DOUBT


def test_reason_never_quotes_the_body() -> None:
    """The reason of an outcome holds nothing of an answer but words that the profile knows."""
    for body in (b"canary", b'{"status":"canary"}', b'{"canary":1', b'{"status":"success","canary":NaN}'):
        for status in (200, 302, 400, 401, 404, 429, 500):
            outcome = load().outcome_of(status, {}, body)
            assert "canary" not in outcome.reason + (outcome.stop or "")
