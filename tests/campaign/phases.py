"""Every kind of network fault at the first, a middle and the last row of a run, and while the run is being stopped."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import trustme

from batchpay.gateway.payments import PaymentsClient
from batchpay.gateway.transport import BeforeFirstByte
from batchpay.ledger.contract import Ledger
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.sender import Attempts, Pay, Sender
from batchpay.settings import SubmitSettings
from tests.campaign.trial import Findings
from tests.support.fault_client import CREDENTIALS, body, settings_for, write_bundle
from tests.support.fault_kinds import FAULTS
from tests.support.fault_server import FaultServer
from tests.support.ledger_factory import Planned, add_batch, ledger_in

ROWS = 5
PHASES = {"first": 1, "middle": 3, "last": 5, "at the end": 3}
TIMEOUT_S = 0.4
_SETTINGS = SubmitSettings(rate="20000", workers=1, attempts_max=2, wait_s_max=0.01)


class _Payer:
    """Pays through a real client; the fault strikes at one row only."""

    def __init__(self, client: PaymentsClient, server: FaultServer, struck: int, stop: StopRequest | None) -> None:
        self._client = client
        self._server = server
        self._mark_failed = struck
        self._stop = stop
        self.count = 0
        self.slowest_s = 0.0

    def pay(self, text: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        """Send one payment; if a stop is requested, it comes just before the first byte of the struck row."""
        self.count += 1
        strikes = self.count == self._mark_failed
        self._server.armed = strikes or self._server.fault.lasts

        def before() -> float | None:
            allowed_until = before_first_byte()
            if strikes and self._stop is not None:
                self._stop.ask("stopped by a test")
            return allowed_until

        began = time.monotonic()
        outcome = self._client.pay(body(str(text, "ascii")), before)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        return outcome


def every_fault_in_every_phase(names: list[str] | None = None) -> Iterator[Findings]:
    """Run each kind of fault in each phase, on a ledger of its own."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(authority, Path(folder))
        for name in names or FAULTS:
            for phase, row in PHASES.items():
                place = Path(folder) / f"{name}-{row}-{phase.replace(' ', '-')}"
                with ledger_in(place) as ledger, FaultServer(FAULTS[name], authority) as server:
                    yield _trial(ledger, server, bundle, f"{name}, {phase}", row, stopping=phase == "at the end")


def _trial(ledger: Ledger, server: FaultServer, bundle: str, story: str, row: int, *, stopping: bool) -> Findings:
    name = add_batch(ledger, [Planned(number, State.PENDING) for number in range(1, ROWS + 1)])
    stop = StopRequest()
    settings = settings_for(server, timeout=TIMEOUT_S, connect_timeout=TIMEOUT_S, ca_bundle=bundle)
    with closing(PaymentsClient(settings, CREDENTIALS)) as client, ledger.lock(ledger.find(name).digest):
        payer = _Payer(client, server, row, stop if stopping else None)
        run = ledger.start(name, "campaign")
        attempts = Attempts(_SETTINGS, stop)
        pay = _numbered(payer)
        sender = Sender(run, pay, Throttle.from_settings(_SETTINGS, stop), attempts, _SETTINGS, stop)
        sender.send_all(Limits())
        run.finish(stop.reason)
    server.closing.set()
    found = Findings(trials=1, fired=int(payer.count >= row))
    states = {one.row: one.state for one in ledger.rows(name)}
    found.in_doubt = found.in_doubt_most = sum(state is State.IN_DOUBT for state in states.values())
    for number, state in states.items():
        arrived = server.bodies[str(number)]
        if arrived > 1 and not _was_refused_first(server, number, row):
            found.wrong.append(f"{story}: row {number} arrived {arrived} times")
        if arrived and state is State.PENDING and not _was_refused_first(server, number, row):
            found.wrong.append(f"{story}: row {number} arrived and is called pending")
        if not arrived and state is State.ACCEPTED:
            found.wrong.append(f"{story}: row {number} is called accepted and never arrived")
        if state is State.SENDING:
            found.wrong.append(f"{story}: row {number} is left in sending")
    if payer.slowest_s > TIMEOUT_S + 0.5:
        found.wrong.append(f"{story}: an exchange took {payer.slowest_s:.2f} s")
    return found


def _numbered(payer: _Payer) -> Pay:
    """Give each body the number of its row, by which the server counts it."""
    lock = threading.Lock()

    def pay(text: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        with lock:
            number = text.decode().rsplit(":", 1)[1].strip(" }")
            return payer.pay(number.encode("ascii"), before_first_byte)

    return pay


def _was_refused_first(server: FaultServer, number: int, row: int) -> bool:
    """Return whether a row that arrived may have been told 'not applied' (429, 401, 403), so that it may be resent."""
    return number >= row and State.PENDING in server.fault.states
