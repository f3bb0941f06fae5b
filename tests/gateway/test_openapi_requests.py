"""Every request that `batchpay submit` sends, held against the description of the interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.command import SAMPLES, Home
from tests.support.openapi import Description
from tests.support.sandbox_requests import control


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The journal of a sandbox to which the whole sample was submitted."""
    path: Path = tmp_path_factory.mktemp("home")
    (path / "payments.csv").write_bytes((SAMPLES / "payments.csv").read_bytes())
    with running(Options(port=0)) as url:
        Home(path, origin=url).json("submit", "payments.csv")
        yield journal_of(url)


def journal_of(url: str) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    while page := control(url, "GET", f"journal?after={requests[-1]['number'] if requests else 0}")["requests"]:
        requests += page
    return requests


def test_every_request_keeps_to_the_description(sent: list[dict[str, Any]]) -> None:
    """Path, query and body of each of the sample's requests are as described (account numbers masked)."""
    description = Description()
    assert sum(request["operation"] == "payment" for request in sent) > 900
    problems = {
        problem
        for request in sent
        for problem in description.request_problems(request["method"], request["path"], request["body"])
    }
    assert problems == set()


def test_the_sample_uses_every_node(sent: list[dict[str, Any]]) -> None:
    """One-time and recurring payments, one and several addresses: the test above has something to look at."""
    bodies = [request["body"] for request in sent if request["operation"] == "payment"]
    assert any("recurring" in body for body in bodies)
    assert any("emails" in body["billing"] for body in bodies)
    assert any("billingEmail" in body["billing"] for body in bodies)


def test_no_payment_is_refused_for_its_form_or_made_twice(sent: list[dict[str, Any]]) -> None:
    """The sandbox checks every field by itself; only what was told to wait arrives a second time."""
    assert {request["http_status"] for request in sent} <= {200, 429, None}
    again = [request for request in sent if request["operation"] == "payment" and request["times"] > 1]
    assert all(request["fault"] in ("busy", None) for request in again)
    made = [request["payment"] for request in sent if request["payment"] is not None]
    assert len(made) == len(set(made))
