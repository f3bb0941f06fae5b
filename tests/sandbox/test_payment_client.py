"""The client of the payment API against the sandbox: in every dialect, with the profile meant for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.sandbox.dialects import DIALECTS, Dialect
from batchpay.sandbox.faults import ENDINGS, RETURN_CODES, Ending
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from batchpay.settings import GatewaySettings, Secret
from tests.support.sandbox_requests import control, payment_body, with_cell

EXPECTED = {
    "decline": State.DECLINED,
    "error_in_200": State.DECLINED,
    "busy": State.PENDING,
    "silent": State.IN_DOUBT,
    "error_500": State.IN_DOUBT,
    "unavailable": State.IN_DOUBT,
    "reset_before": State.IN_DOUBT,
    "reset_after": State.IN_DOUBT,
    "truncated": State.IN_DOUBT,
    "declined_inside": State.IN_DOUBT,
    "other_amount": State.IN_DOUBT,
    "returned": State.ACCEPTED,  # what comes later is in no answer
    "same_reference": State.ACCEPTED,  # only who knows the other payments sees that one is repeated
}
"""What the client must make of each fault, whatever the dialect."""


@pytest.fixture(scope="module", params=sorted(DIALECTS))
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Dialect]]:
    """A sandbox in each dialect."""
    dialect = DIALECTS[request.param]
    with running(Options(port=0, dialect=dialect.name)) as url:
        yield url, dialect


def client_of(url: str, dialect: Dialect, key: str = "sandbox-key", timeout_s: float = 20.0) -> PaymentsClient:
    settings = GatewaySettings(base_url=url, timeout=timeout_s, profile=dict(dialect.profile))
    return PaymentsClient(settings, Credentials("sandbox", Secret(key)))


@pytest.fixture
def client(served: tuple[str, Dialect]) -> Iterator[PaymentsClient]:
    opened = client_of(*served)
    yield opened
    opened.close()


def pay(client: PaymentsClient, body: object) -> Outcome:
    return client.pay(json.dumps(body).encode(), lambda: None)


def test_a_payment_is_accepted(client: PaymentsClient) -> None:
    """An ordinary payment is accepted, and the gateway's own reference is found."""
    outcome = pay(client, payment_body())
    assert outcome.state is State.ACCEPTED
    assert outcome.answer.gateway_reference


JUDGED = [item for item in ENDINGS if item.fault != "slow" and item.ending <= "990051"]
"""All but the slow one, and of the many that come back the first."""


@pytest.mark.parametrize("ending", JUDGED, ids=lambda ending: ending.ending)
def test_each_ending_is_judged(served: tuple[str, Dialect], client: PaymentsClient, ending: Ending) -> None:
    """Declines are declined with their code, 429 is pending, what leaves it open is in doubt; nothing is sent twice."""
    control(served[0], "POST", "reset")
    outcome = pay(client, payment_body("77" + ending.ending))
    assert outcome.state is EXPECTED[ending.fault]
    if ending.code and outcome.state is State.DECLINED:
        assert (outcome.answer.response_code, outcome.answer.message) == (ending.code, RETURN_CODES[ending.code])
    counted = control(served[0], "GET", "journal")["counts"]["payment"]
    assert (counted["arrived"], counted["most_often"]) == (1, 1)


def test_slow_is_in_doubt_for_an_impatient_client() -> None:
    """An answer later than the deadline leaves the payment in doubt."""
    with running(Options(port=0)) as url:
        client = client_of(url, DIALECTS["envelope"], timeout_s=1.5)
        outcome = pay(client, payment_body("77990011"))
        client.close()
    assert outcome.state is State.IN_DOUBT


def test_a_pause_is_understood(served: tuple[str, Dialect], client: PaymentsClient) -> None:
    """A 429 slows the run in every dialect; Retry-After is read where there is one, in seconds or as a date."""
    outcome = pay(client, payment_body("77990006", invoiceNumber=served[1].name))
    assert outcome.pace is not None
    assert outcome.pace.refused
    assert (outcome.pace.retry_after_s is not None) == (served[1].retry_after != "none")


def test_a_wrong_field_is_declined(client: PaymentsClient) -> None:
    """A payment that the gateway refuses is declined, and its words name the field."""
    outcome = pay(client, with_cell(payment_body(), "amount", "1"))
    assert outcome.state is State.DECLINED
    assert "amount" in (outcome.answer.message or "")
    assert outcome.stop is None


def test_a_wrong_key_stops_the_run(served: tuple[str, Dialect]) -> None:
    """Refused credentials leave the payment pending and stop the run."""
    client = client_of(*served, key="wrong")
    outcome = pay(client, payment_body())
    client.close()
    assert (outcome.state, outcome.stop is not None) == (State.PENDING, True)


def test_the_connection_test_tells_good_from_bad_keys(served: tuple[str, Dialect]) -> None:
    """test-connection says yes with the right key and names the key with a wrong one."""
    for key, ok in (("sandbox-key", True), ("wrong", False)):
        client = client_of(*served, key=key)
        report = client.test_connection()
        client.close()
        assert report.ok is ok
        assert ok or "key" in (report.problem or "")
