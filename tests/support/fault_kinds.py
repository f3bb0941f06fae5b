"""The kinds of fault that a gateway, its network or its answers can show, each with the right judgment.

`FAULTS` maps a name to a `Fault`. Every kind is run once by tests/sending/test_faults.py; a campaign can run them in
other phases of a run, by arming and disarming the server.
"""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from batchpay.payment import State
from tests.support.fault_server import Act, Conversation, Fault, answer, success

PENDING, ACCEPTED, DECLINED, IN_DOUBT = (
    frozenset({state}) for state in (State.PENDING, State.ACCEPTED, State.DECLINED, State.IN_DOUBT)
)
OK = b'{"status":"success","transaction_id":"T-1"}'
FAULTS: dict[str, Fault] = {}


def _write(data: bytes) -> Act:
    return lambda conversation: conversation.write(data)


def _write_then(data: bytes, then: Act) -> Act:
    def act(conversation: Conversation) -> None:
        conversation.write(data)
        then(conversation)

    return act


def _write_and_end(data: bytes) -> Act:
    return _write_then(data, lambda conversation: conversation.socket.close())


def _write_and_hang(data: bytes) -> Act:
    return _write_then(data, lambda conversation: conversation.hang())


def _drip(data: bytes) -> Act:
    return lambda conversation: conversation.drip(data)


def _for_ever(data: bytes, first: bytes = b"") -> Act:
    def act(conversation: Conversation) -> None:
        conversation.write(first)
        while not conversation.server.closing.is_set():
            conversation.write(data)

    return act


def _add(name: str, on_request: Act, states: frozenset[State] = IN_DOUBT, stop: bool | None = False) -> None:
    assert name not in FAULTS
    FAULTS[name] = Fault(states, on_request=on_request, stop=stop)


# No connection

FAULTS["refused"] = Fault(PENDING, address="refused", stop=False, reaches=False)
FAULTS["unknown_name"] = Fault(PENDING, address="unknown_name", stop=False, reaches=False)
FAULTS["full_backlog"] = Fault(PENDING, address="full_backlog", stop=False, reaches=False)


# TLS

for _kind in ("expired", "wrong_host", "unknown_authority"):
    FAULTS[f"tls_{_kind}"] = Fault(PENDING, tls=_kind, stop=True, reaches=False)


def _take_hello(conversation: Conversation) -> None:
    conversation.socket.recv(65_536)


def _hello_then(data: bytes) -> Act:
    def act(conversation: Conversation) -> None:
        _take_hello(conversation)
        conversation.write(data)
        conversation.hang()

    return act


def _hello_then_reset(conversation: Conversation) -> None:
    _take_hello(conversation)
    conversation.reset()


def _tls(name: str, on_connect: Act) -> None:
    FAULTS[name] = Fault(PENDING, on_connect=on_connect, tls="good", stop=False, reaches=False)


_tls("tls_speaks_plain_http", _hello_then(answer("400 Bad Request", b"")))
_tls("tls_garbage_in_handshake", _hello_then(bytes(range(256))))
_tls("tls_closes_in_handshake", _take_hello)
_tls("tls_resets_in_handshake", _hello_then_reset)
_tls("tls_hangs_in_handshake", lambda conversation: conversation.hang())
_tls("tls_alert_in_handshake", _hello_then(b"\x15\x03\x03\x00\x02\x02\x28"))
FAULTS["tls_wants_client_certificate"] = Fault(PENDING | IN_DOUBT, tls="client_certificate", stop=False, lasts=True)
FAULTS["tls_good"] = Fault(ACCEPTED, on_request=_write(success()), tls="good", stop=False)
FAULTS["tls_garbage_after_request"] = Fault(
    IN_DOUBT, on_request=lambda conversation: conversation.write_under_tls(b"garbage" * 9), tls="good", stop=False
)


def _tls_cut_answer(conversation: Conversation) -> None:
    conversation.write(success()[:-9])
    conversation.write_under_tls(b"\x17\x03\x03\x00\x20" + bytes(32))


def _tls_end_unannounced(conversation: Conversation) -> None:
    conversation.write(success()[:-9])
    os.close(conversation.socket.detach())


FAULTS["tls_garbage_in_answer"] = Fault(IN_DOUBT, on_request=_tls_cut_answer, tls="good", stop=False)
FAULTS["tls_end_unannounced_in_answer"] = Fault(IN_DOUBT, on_request=_tls_end_unannounced, tls="good", stop=False)


# Before and while the request comes

FAULTS["closes_at_once"] = Fault(PENDING | IN_DOUBT, on_connect=lambda conversation: None, stop=False)
FAULTS["resets_at_once"] = Fault(PENDING | IN_DOUBT, on_connect=lambda conversation: conversation.reset(), stop=False)
FAULTS["answers_before_it_is_asked"] = Fault(
    PENDING | IN_DOUBT,
    on_connect=_write_and_end(answer("200 OK", b'{"status":"success","invoiceNumber":"someone-elses"}')),
    stop=False,
)


def _never_read(conversation: Conversation) -> None:
    conversation.server.closing.wait()


FAULTS["never_reads"] = Fault(IN_DOUBT, on_connect=_never_read, stop=False)


def _reset_in_request(conversation: Conversation) -> None:
    conversation.read_some(40)
    conversation.reset()


def _close_in_request(conversation: Conversation) -> None:
    conversation.read_some(40)


FAULTS["resets_in_request"] = Fault(IN_DOUBT, on_connect=_reset_in_request, stop=False)
FAULTS["closes_in_request"] = Fault(IN_DOUBT, on_connect=_close_in_request, stop=False)


# After the request

_add("closes_after_request", lambda conversation: conversation.socket.close())
_add("resets_after_request", lambda conversation: conversation.reset())
_add("hangs_after_request", lambda conversation: conversation.hang())


# The answer cut, slow or endless

_add("cut_in_status_line", _write_and_end(b"HTTP/1.1 20"))
_add("status_line_alone", _write_and_end(b"HTTP/1.1 200 OK\r\n"))
_add("cut_in_headers", _write_and_end(success()[:30]))
_add("cut_after_headers", _write_and_end(success()[: -len(OK)]))
_add("cut_in_body", _write_and_end(success()[:-1]))
_add("reset_in_body", _write_then(success()[:-1], lambda conversation: conversation.reset()))
_add("hangs_in_status_line", _write_and_hang(b"HTTP/1.1 20"))
_add("hangs_in_headers", _write_and_hang(success()[:30]))
_add("hangs_in_body", _write_and_hang(success()[:-1]))
_add("drips_status_line", _drip(b"HTTP/1.1 200 OK\r\n" * 3))
_add("drips_headers", _drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 200))
_add("drips_body", _write_then(success()[: -len(OK)], _drip(OK)))
_add("endless_header_line", _for_ever(b"x" * 4096, b"HTTP/1.1 200 OK\r\nX-Long: "))
_add("endless_headers", _for_ever(b"X-Many: x\r\n" * 400, b"HTTP/1.1 200 OK\r\n"))
_add(
    "endless_chunks",
    _for_ever(b"400\r\n" + b"x" * 1024 + b"\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
)
_add("endless_chunk_extension", _for_ever(b"x" * 4096, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;"))
_add("endless_trailers", _for_ever(b"X-T: x\r\n" * 400, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"))
_add("endless_body", _for_ever(b"x" * 65_536, b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"))
_add("body_beyond_cap", _write(answer("200 OK", OK + b" " * 70_000)))
_add("body_without_length", _write_and_end(b"HTTP/1.1 200 OK\r\n\r\n" + OK))
_add("body_by_http_1_0_without_length", _write_and_end(b"HTTP/1.0 200 OK\r\n\r\n" + OK))


# The answer's framing


def _framed(name: str, headers: str, body: bytes = OK, states: frozenset[State] = IN_DOUBT) -> None:
    write = _write if states == ACCEPTED else _write_and_end
    _add(name, write(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode() + body), states)


_length = f"Content-Length: {len(OK)}"
_chunk = b"%x\r\n%b\r\n" % (len(OK), OK)
_framed("two_equal_lengths", f"{_length}\r\n{_length}")
_framed("two_lengths", f"{_length}\r\nContent-Length: 5")
_framed("two_lengths_in_one", f"{_length}, {len(OK)}")
_framed("length_and_chunks", f"{_length}\r\nTransfer-Encoding: chunked", _chunk + b"0\r\n\r\n")
_framed("negative_length", "Content-Length: -1")
_framed("signed_length", f"Content-Length: +{len(OK)}")
_framed("length_of_letters", "Content-Length: many")
_framed("chunks_good", "Transfer-Encoding: chunked", _chunk + b"0\r\n\r\n", ACCEPTED)
_framed("chunks_with_trailer", "Transfer-Encoding: chunked", _chunk + b"0\r\nRetry-After: 9\r\n\r\n", ACCEPTED)
_framed("chunks_without_end", "Transfer-Encoding: chunked", _chunk)
_framed("chunk_cut", "Transfer-Encoding: chunked", _chunk[:-9])
_framed("chunk_size_no_number", "Transfer-Encoding: chunked", b"zz\r\n" + OK + b"\r\n0\r\n\r\n")
_framed("chunk_longer_than_said", "Transfer-Encoding: chunked", b"5\r\n" + OK + b"\r\n0\r\n\r\n")
_framed("coding_unknown", "Transfer-Encoding: gzip, chunked", _chunk + b"0\r\n\r\n")
_framed("blank_before_colon", f"Content-Length : {len(OK)}")
_framed("folded_header", f"X-Folded: a\r\n b\r\n{_length}", OK, ACCEPTED | IN_DOUBT)
_framed("nul_in_header", f"X-Nul: a\0b\r\n{_length}")
_add("bare_line_feeds", _write_and_end(success().replace(b"\r\n", b"\n")))
_add("http_2_version", _write_and_end(success().replace(b"HTTP/1.1", b"HTTP/2.0")))
_add("http_0_9", _write_and_end(OK))
_add("another_protocol", _write_and_end(b"SSH-2.0-OpenSSH_9.2\r\n"))
_add("binary_garbage", _write_and_end(bytes(range(256)) * 4))
_add("packed_bomb", _write(answer("200 OK", gzip.compress(bytes(20_000_000)), "Content-Encoding: gzip")))
_add("packed_with_brotli", _write(answer("200 OK", OK, "Content-Encoding: br")))


# Interim answers, and more than one

_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
_add("interim_100", _write(b"HTTP/1.1 100 Continue\r\n\r\n" + success()), ACCEPTED)
_add("interim_103", _write(_HINTS + success()), ACCEPTED)
_add(
    "interim_103_then_later",
    _write_then(_HINTS, lambda conversation: conversation.drip(success(), 0.001)),
    ACCEPTED,
)
_add("interim_alone_then_close", _write_and_end(_HINTS))
_add("interim_alone_then_hang", _write_and_hang(_HINTS))
_add("interim_storm", _for_ever(_HINTS * 50))
# Its body was kept, and an empty answer after it was the payment's `success`.
_add("interim_with_body", _write(answer("150 Wait", OK) + answer("200 OK", b"")))
_add("interim_below_100", _write(answer("099 Odd", OK) + answer("200 OK", b"")))
_add("switches_protocol", _write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"))
_add("two_answers_at_once", _write(success() + success("T-2")))
_add("answer_then_empty_answer", _write(success() + answer("200 OK", b"")))
_add("answer_then_interim", _write(success() + _HINTS))
_add("garbage_after_answer", _write(success() + b"garbage"))
_add("connection_close", _write_and_end(success("T-1", "Connection: close")), ACCEPTED)


# Every class of status


def _statuses(states: frozenset[State], stop: bool, *statuses: int) -> None:
    for status in statuses:
        _add(f"status_{status}", _write(answer(f"{status} Some Words", b'{"message":"no"}')), states, stop)


_statuses(DECLINED, False, 400, 402, 410, 413, 422)
_statuses(DECLINED, True, 404, 405, 415)
_statuses(PENDING, True, 401, 403)
_statuses(IN_DOUBT, True, 300, 305)
_statuses(
    IN_DOUBT, False, 406, 407, 408, 409, 411, 412, 414, 416, 417, 418, 421, 423, 424, 425, 426, 428, 431, 451, 499
)
_statuses(IN_DOUBT, False, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 522, 524, 527, 599, 600, 999)
_statuses(IN_DOUBT, False, 206, 226)
_add("status_304", _write(b"HTTP/1.1 304 Not Modified\r\n\r\n"), IN_DOUBT, True)
_add("status_204", _write(b"HTTP/1.1 204 No Content\r\n\r\n"))
_add("status_201_success", _write(success().replace(b"200 OK", b"201 Created")), ACCEPTED)
_add("status_202_without_word", _write(answer("202 Accepted", b"{}")))
_add("status_400_cut", _write_and_end(answer("400 Bad", b'{"message":"no"}')[:-1]))
_add("status_400_saying_success", _write(answer("400 Bad", OK)))
_add("status_401_cut", _write_and_end(answer("401 No", b'{"message":"no"}')[:-1]))

for _status in (301, 302, 303, 307, 308):
    # The second origin is a port that the test listens on: not one byte may arrive there.
    _add(
        f"redirect_{_status}",
        lambda conversation, _status=_status: conversation.write(  # type: ignore[misc]
            answer(f"{_status} Moved", b"", f"Location: http://127.0.0.1:{conversation.server.second_port}/other")
        ),
        IN_DOUBT,
        True,
    )
_add("redirect_to_itself", _write(answer("307 Moved", b"", "Location: /v2/api/payment.json")), IN_DOUBT, True)
_add("redirect_broken", _write(answer("302 Moved", b"", "Location: http://[::1:99999999/\xff")), IN_DOUBT, True)


# Too many requests, and Retry-After in every form

_DATE = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
RETRY_AFTER = {
    "absent": None,
    "seconds": "2",
    "zero": "0",
    "date": _DATE,
    "past_date": "Sun, 06 Nov 1994 08:49:37 GMT",
    "old_date_form": "Sunday, 06-Nov-94 08:49:37 GMT",
    "huge": "999999999999",
    "endless": "9" * 5000,
    "negative": "-5",
    "fraction": "0.5",
    "words": "soon",
    "empty": "",
    "two": "5, 10",
    "arabic_digits": "\u0665",
}
for _name, _value in RETRY_AFTER.items():
    _headers = [] if _value is None else [f"Retry-After: {_value}".encode().decode("latin-1")]
    _add(f"status_429_{_name}", _write(answer("429 Slow Down", b"{}", *_headers)), PENDING)
_add("status_503_retry_after", _write(answer("503 Busy", b"", "Retry-After: 1")))


# 2xx, and a body that proves nothing


def _body(name: str, body: bytes, states: frozenset[State] = IN_DOUBT) -> None:
    _add(f"body_{name}", _write(answer("200 OK", body, "Content-Type: application/json")), states)


_body("empty", b"")
_body("blank", b" \r\n ")
_body("html", b"<html><body>status: success</body></html>")
_body("text", b"success")
_body("number", b"1")
_body("text_in_json", b'"success"')
_body("null", b"null")
_body("list", b'[{"status":"success"}]')
_body("no_status", b'{"transaction_id":"T-1"}')
_body("status_null", b'{"status":null}')
_body("status_true", b'{"status":true}')
_body("status_list", b'{"status":["success"]}')
_body("status_unknown", b'{"status":"queued"}')
_body("status_other_case", b'{"status":"SUCCESS"}')
_body("status_with_blank", b'{"status":"success "}')
_body("status_deeper", b'{"answer":{"status":"success"}}')
_body("status_twice", b'{"status":"success","status":"failed"}')
_body("status_twice_escaped", b'{"status":"success","stat\\u0075s":"failed"}')
_body("key_twice_deep", b'{"status":"success","a":[{"b":1,"b":2}]}')
_body("nan", b'{"status":"success","fee":NaN}')
_body("infinity", b'{"status":"success","fee":-Infinity}')
_body("number_beyond_float", b'{"status":"success","fee":1e400}')
_body("number_of_5000_digits", b'{"status":"success","fee":' + b"9" * 5000 + b"}")
_body("deep", b'{"status":"success","a":' + b"[" * 40 + b"]" * 40 + b"}")
_body("very_deep", b'{"status":"success","a":' + b"[" * 30_000 + b"]" * 30_000 + b"}")
_body("byte_order_mark", b"\xef\xbb\xbf" + OK)
_body("utf_16", OK.decode().encode("utf-16"))
_body("latin_1", '{"status":"success","message":"é"}'.encode("latin-1"))
_body("half_a_character", b'{"status":"success","message":"\\ud83d"}')
_body("trailing_data", OK + b"x")
_body("two_objects", OK + OK)
_body("cut_within_its_length", OK[:-1])
_body("single_quotes", b"{'status':'success'}")
_body("comment", b'{"status":"success"/*x*/}')
_body("trailing_comma", b'{"status":"success",}')
_body("raw_control_character", b'{"status":"success","message":"a\nb"}')
_body("another_invoice", b'{"status":"success","invoiceNumber":"someone-elses"}')
_body("code_404_inside", json.dumps({"status": "success", "successMessage": {"response_code": 404}}).encode(), ACCEPTED)
for _word in ("error", "fail", "failed", "failure", "declined"):
    _body(f"status_{_word}", json.dumps({"status": _word, "message": "R01"}).encode(), DECLINED)
