"""Codes of an authenticator, against the vectors of RFC 6238."""

from __future__ import annotations

import pytest

from batchpay.web import people

SECRET = b"12345678901234567890"


@pytest.mark.parametrize(
    ("at", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_the_vectors_of_the_rfc(at: int, code: str) -> None:
    assert people.code_at(SECRET, at // people.STEP_S, digits=8) == code
    assert people.code_at(SECRET, at // people.STEP_S) == code[2:]


def test_a_step_counts_once_and_only_near_its_time() -> None:
    """The code before and the one after are taken, for clocks that differ; none that was used, and none older."""
    now, step = 3_000_000.0, 100_000
    codes = {near: people.code_at(SECRET, step + near) for near in (-2, -1, 0, 1, 2)}
    assert [people.step_of(SECRET, codes[near], now, 0) for near in codes] == [None, step - 1, step, step + 1, None]
    assert people.step_of(SECRET, codes[0], now, step) is None
    assert people.step_of(SECRET, codes[-1], now, step) is None
    assert people.step_of(SECRET, codes[1], now, step) == step + 1


def test_a_secret_is_shown_to_be_typed_and_to_be_linked() -> None:
    assert people.secret_shown(SECRET).replace(" ", "") == "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    assert people.secret_address(SECRET, "maria").startswith("otpauth://totp/batchpay%3Amaria?secret=GEZDGNBV")
