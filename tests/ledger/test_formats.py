"""What a ledger holds is read for years, by later versions too: its formats, held by examples that never change.

Key 00 01 02 … 1f. An example that fails here means that no ledger of an earlier version can be read, or that payments
it knows are not found again: that takes a migration, not another example.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from batchpay.ledger.event_chain import (
    DIRECTION_CODES,
    FIRST_MAC,
    event_mac,
    event_text,
    id_range,
    row_id,
    to_datetime,
    to_ms,
)
from batchpay.ledger.keys import Keys
from batchpay.ledger.open import location
from batchpay.ledger.payload import place_of, unseal_bodies
from batchpay.ledger.spill import Spill, Spilled, read_spill
from batchpay.ledger.states import NEW, STATE_CODES
from batchpay.ledger.witness import Witness, WitnessRecord
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.settings import LedgerSettings

KEYS = Keys(bytes(range(32)))


def test_what_is_made_of_the_key() -> None:
    """Digests find payments and payees again, seals and codes tell what was changed."""
    stream = KEYS.digest_stream("batch")
    stream.update(b"x")
    assert KEYS.key_id == "d802b6d5485471c2"
    assert KEYS.digest("payee", ["Zoë", None], 8) == [bytes.fromhex("027c7919094a8a83"), None]
    assert stream.hexdigest() == "2158e9b0922bcbbda47fca3201bbf1d7f684a0f70e87bfbd9b7f53af95e9b0b6"
    assert KEYS.mac("event", b"a", b"bc").hex() == "191786c83eeea1aa490ec681e0526e4fbad0c30dfdd1a1f9d9501a6e3c4e6444"
    assert KEYS.machine_mark("pc1") == "8615aa17f11283ab"
    assert KEYS.seal_values("attempt", (1, "ë", None)).hex() == "b066aeb7c6226fc468cd3b7f23c36d29"


def test_an_event() -> None:
    """Names are not only English."""
    mac = event_mac(KEYS, FIRST_MAC, (1, 5, None, "created", "Zoë", None, "{}"))
    assert mac.hex() == "62a68efc29abe1413736ea6fcb571528b5c0a52c3c872943b2e274587530096e"
    assert event_text({"file": "Zoë", "run": 1}) == '{"file":"Zoë","run":1}'


def test_a_payload() -> None:
    """The bodies of rows 3 and 5 of chunk 3 of batch 2."""
    sealed = bytes.fromhex(
        "d7d664252e0989a77ad89f76c519f72bc3952d9bfe13deb682af5be3c209dab3739c761d27490c8974ee2e1c13b236359862913e3f8e"
        "a4dff7b0565715bb"
    )
    assert unseal_bodies(KEYS, place_of("bodies", 2, 3), sealed)[0] == {3: b"a", 5: "Zoë".encode()}


def test_numbers_in_tables() -> None:
    """Ids, times, directions and states."""
    assert (row_id(2, 3), id_range(2)) == (8_589_934_595, (8_589_934_592, 12_884_901_888))
    assert to_ms(datetime(2026, 11, 23, 9, 30, 0, 5_999, tzinfo=UTC)) == 1_795_426_200_005
    assert to_datetime(1_795_426_200_005) == datetime(2026, 11, 23, 9, 30, 0, 5_000, tzinfo=UTC)
    assert DIRECTION_CODES == {"DEBIT": 1, "CREDIT": 2}
    assert (NEW, [STATE_CODES[state] for state in STATE_CODES]) == (0, [2, 3, 4, 5, 6, 7])


def test_where_a_ledger_finds_its_witness() -> None:
    """Under another name it would be gone, and every ledger refused."""
    settings = LedgerSettings(url="/srv/pay/ledger.db", key_file="/srv/keys/ledger.key")
    assert location(settings).witness == Path("/srv/keys/ledger-a82dce6d.witness")


def test_the_files_beside_the_ledger(tmp_path: Path) -> None:
    """A witness, and the answers that a run spilled."""
    record = b"batchpay-witness abababab 7 %b feed %b\n" % (
        b"00" * 32,
        b"8fbf861a486d4c802fc0ca86ed2d3da98d1b1aa1b49947fd0a2a62aa9248d0e8",
    )
    path = tmp_path / "witness"
    Witness(path, KEYS).replace(WitnessRecord("ab" * 4, 7, bytes(32), "feed"))
    assert path.read_bytes() == bytes(512) + record.ljust(512, b"\0")
    assert Witness(path, KEYS).read() == WitnessRecord("ab" * 4, 7, bytes(32), "feed")

    outcome = Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved ë", "TX-77"), bytes_sent=900)
    spill = Spill(tmp_path / "spill", KEYS, "abcdef")
    spill.write([Spilled(5, 2, outcome)])
    spill.close()
    (line, *_) = (tmp_path / "spill").read_bytes().split(b"\n")
    text, code = line.rsplit(b" ", 1)
    assert text == b'["abcdef", 5, 2, "accepted", "success", 200, "1", "Approved \\u00eb", "TX-77", 900]'
    assert code.decode() == "92306f3454369d33a66588e0b55931b93e5853276a10d452fc731ec43f79a745"
    assert list(read_spill(tmp_path / "spill", KEYS, "abcdef")) == [Spilled(5, 2, outcome)]
