"""Many nights on one ledger: `python -m tests.campaign.nights [--nights N] [--rows N]`.

Each night, a day later by the program's clock, one file comes in. Of twenty nights twelve bring a mishap: payments that
get no answer or never arrive, a kill in the middle, a gateway or an inbox that is missing, a full disk, a file with
wrong totals, with bad and old rows, above the limit of a day, twice, or none. One file is due on the next day. What is
in doubt stays so for three nights before a person settles it. After every call, and every morning, exit code, summary,
results, metrics and `health` are compared with a book that is kept in plain Python from what the gateway logged. The
ledger is backed up each week and purged each month.

Over all nights processor time, memory and bytes per row must stay flat, and the ledger must open in 0.3 seconds. Calls
run in forks of this process, which has the program loaded: their figures leave out its start. Ends with 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from batchpay.ledger.open import open_ledger
from batchpay.settings import LedgerSettings
from tests.campaign.book import amount_of, cents_of
from tests.campaign.house import DAY_S, WORKERS, House, Wrong, expect
from tests.model import clock
from tests.model.command import wait_for_fork
from tests.support.command import small_file

OPENING_S_MAX = 0.3
GROWTH_MAX = 1.5
"""How much more the last tenth of the nights may take than the first."""
PERIOD = 20
NIGHTS_IN_DOUBT = 3
_WEEKS_TEN = 70
_DISK_BYTES = 40_000
"""No file grows larger in a call whose disk is full: the ledger can be read, and nothing can be registered."""


@dataclass(frozen=True)
class Night:
    """What one nightly call took."""

    cpu_s: float
    memory_mib: float
    """Beyond what the campaign's own process held when it forked: its book grows with every payment."""
    bytes_a_row: float
    opening_s: float


def plain(house: House) -> None:
    """One file comes in and is paid."""
    house.upload()
    house.register()
    house.submit(0)


def lost(house: House) -> None:
    """Two payments never arrive at the gateway: their connections are closed by something on the way."""
    house.oracle.plan(lost=[7, 13])
    plain(house)


def dropped(house: House) -> None:
    """Two payments are made, and no answer comes."""
    house.oracle.plan(none=[7, 13])
    plain(house)


def wrong_totals(house: House) -> None:
    """Its number of rows is not what its sender says, and is refused; then it comes with the right number."""
    house.upload(said=house.rows + 1)
    house.submit(4, registered=False)
    plain(house)


def stopped(house: House) -> None:
    """The run ends halfway; the next call continues it."""
    house.upload()
    house.register()
    house.submit(6, "--limit", str(house.rows // 2))
    house.submit(0)


def again(house: House) -> None:
    """The same content comes again under another name."""
    plain(house)
    house.upload(name="again.csv")
    house.submit(0)


def no_gateway(house: House) -> None:
    """The gateway is not there; an hour later it is."""
    house.stop_gateway()
    house.upload()
    done = house.submission()
    house.start_gateway()
    house.register()
    house.check_call(done, 6)
    house.submit(0)


def no_inbox(house: House) -> None:
    """Someone renamed the inbox."""
    aside = house.inbox.rename(house.inbox.with_name("renamed"))
    house.submit(5, registered=False)
    aside.rename(house.inbox)
    plain(house)


def killed(house: House) -> None:
    """The process is killed while every worker waits for an answer: these rows are in doubt, and no others."""
    house.oracle.plan(held_from=house.rows // 2)
    house.upload()
    process, call = house.start_submission()
    while sum(entry["answer"] == "held" for entry in house.oracle.entries(house.book.read_bytes)) < WORKERS:
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    done, _ = wait_for_fork(process, call)
    expect("kill", done.code, -signal.SIGKILL)
    house.oracle.plan()
    house.register()
    house.submit(0)


def no_file(house: House) -> None:
    """Nothing comes in."""
    house.submit(0, registered=False)


def full_disk(house: House) -> None:
    """There is no room to register the file; then there is."""
    house.upload()
    house.submit(5, registered=False, prepare=_fill_disk)
    house.register()
    house.submit(0)


def _fill_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_DISK_BYTES, _DISK_BYTES))


def bad_and_old_rows(house: House) -> None:
    """One row can't be read, and one was paid ten weeks ago: its names are purged, and it is still recognized."""
    file = house.upload()
    paid = 1 + max(0, house.night - _WEEKS_TEN) * house.rows
    old = small_file(house.home.path / "old.csv", 1, first=paid).read_text("utf-8").splitlines()[1]
    bad = old.replace(f"P-{paid},", f"bad-{house.night},").replace(f"INV-{paid},{paid}.25", f"bad-{house.night},twelve")
    file.write_text(f"{file.read_text('utf-8')}{old}\n{bad}\n", "utf-8")
    house.say_rows(file, house.rows + 2)
    house.register((2, cents_of(paid)))
    house.submit(3)


def above_a_limit(house: House) -> None:
    """The night's payments exceed what a day may be sent, and are refused whole; then the limit is raised."""
    house.upload()
    total_cents = sum(cents_of(number) for number in range(house.first, house.first + house.rows))
    house.submit(4, *house.settings("limits", max_per_day=amount_of(total_cents - 1)), registered=False)
    house.register()
    house.submit(0, *house.settings("limits", max_per_day=amount_of(total_cents)))


def for_tomorrow(house: House) -> None:
    """The file is due on the next day: it waits, and nothing calls that a problem."""
    house.upload()
    house.register()
    day = clock.now(datetime.UTC).date() + datetime.timedelta(days=1)
    house.submit(0, "--pay-on", day.isoformat(), *house.settings("policy", zone="UTC"))


def due(house: House) -> None:
    """What was due today is sent first; then a file comes in."""
    if house.night:
        house.send_due()
    plain(house)


MISHAPS = {
    0: due, 1: lost, 3: wrong_totals, 5: dropped, 7: stopped, 9: again, 10: above_a_limit, 11: no_gateway, 13: no_inbox,
    15: killed, 16: no_file, 17: full_disk, 18: bad_and_old_rows, 19: for_tomorrow,
}  # fmt: skip
"""What happens in a night, by its position in a period."""


def live_through(house: House) -> Night | None:
    """Live through a night; return what its call took, unless it had a mishap."""
    mishap = MISHAPS.get(house.night % PERIOD)
    try:
        house.settle(house.night - NIGHTS_IN_DOUBT)
        (mishap or plain)(house)
        usage = house.usage
        house.check_morning()
    except Wrong as error:
        raise Wrong(f"night {house.night} ({mishap.__name__ if mishap else 'plain'}): {error}") from None
    if mishap is not None or usage is None:
        return None
    ledger = house.home.path / ".local" / "state" / "batchpay" / "ledger.db"
    rows = sum(len(batch.numbers) for batch in house.book.batches.values())
    began = time.perf_counter()
    with closing(open_ledger(LedgerSettings(url=str(ledger), key_file=str(key_of(house.home.path))), read_only=True)):
        opening_s = time.perf_counter() - began
    memory_mib = usage.ru_maxrss / 1024 - house.forked_at_mib
    return Night(usage.ru_utime + usage.ru_stime, memory_mib, ledger.stat().st_size / rows, opening_s)


def key_of(home: Path) -> Path:
    """Find the ledger's key."""
    (key,) = (home / ".config").rglob("*.key")
    return key


def report(name: str, nights: list[Night], problems: list[str]) -> None:
    """Print the first tenth next to the last, and record what grew."""
    tenth = max(1, len(nights) // 10)
    first, last = nights[:tenth], nights[-tenth:]
    for label in ("cpu_s", "memory_mib", "bytes_a_row", "opening_s"):
        before, after = (statistics.median(getattr(one, label) for one in part) for part in (first, last))
        print(f"  {name}: {label:<12} {before:10.3f} -> {after:10.3f}", flush=True)
        if label != "opening_s" and after > before * GROWTH_MAX:
            problems.append(f"{label} grew from {before:.3f} to {after:.3f}")
    if max(one.opening_s for one in last) > OPENING_S_MAX:
        problems.append(f"opening takes {max(one.opening_s for one in last):.3f} s")


def campaign(nights: int, rows: int) -> list[str]:
    """Live through the nights, and as many more as it takes to settle everything; return what was wrong."""
    problems: list[str] = []
    clock.offset_s = DAY_S
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, House(Path(folder), rows) as house:
        try:
            lived = [live_through(house) for _ in range(nights)]
            for _ in range(NIGHTS_IN_DOUBT):
                house.settle(house.night - NIGHTS_IN_DOUBT)
                no_file(house)
                house.check_morning()
            checked = house.call("ledger", "check")
            expect("ledger check", (checked.code, checked.out), (0, "the ledger is in order\n"))
        except Wrong as error:
            return [str(error)]
        problems += house.book.paid_wrongly()
        taken_s = time.monotonic() - began
        print(f"{nights} nights of {rows} rows in {taken_s:.0f} s: every report was right", flush=True)
        if nights >= PERIOD:
            report(f"{nights} nights of {rows} rows", [one for one in lived if one is not None], problems)
    return problems


def main() -> int:
    """Run both lengths, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int)
    parser.add_argument("--rows", type=int, default=50)
    options = parser.parse_args()
    clock.load_program()
    plans = [(options.nights, options.rows)] if options.nights else [(365, 50), (30, 5_000)]
    problems = [problem for nights, rows in plans for problem in campaign(nights, rows)]
    for problem in problems:
        print(f"  WRONG {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
