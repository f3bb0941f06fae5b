"""What must be on the disk before a byte leaves: the order of system calls, and power cuts on a disk of its own."""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

from tests.campaign.trial import Bench, Findings, accepted, finish_and_check, run_traced
from tests.support.command import Home

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: the file system stops immediately; with flag 2 not even its journal is written out."""
_NO_LOG_FLUSH = 2
_DISK_BYTES = 48 * 1024 * 1024


def sending_after_sync(made: Bench) -> Findings:
    """Watch the system calls of a run with one worker: no payment leaves while a write of the ledger is not synced."""
    home = made.home()
    home.extra["BATCHPAY_WORKERS"] = "1"
    trace = home.path / "trace"
    calls = "trace=pwrite64,fdatasync,fsync,sendto"
    done = run_traced(home, ["-y", "-s", "40", "-o", str(trace), "-e", calls], "resume")
    found = Findings(trials=1)
    if done.returncode != 0:
        found.wrong.append(f"order of calls: the run ended with {done.returncode}: {done.stderr.strip()}")
    synced = True
    for line in trace.read_text("utf-8", "replace").splitlines():
        if "pwrite64(" in line and "ledger.db-wal" in line:
            synced = False
        elif re.search(r"(fdatasync|fsync)(\(\d+<[^>]*ledger\.db-wal.*= 0| resumed>.*= 0)", line):
            synced = True
        elif "sendto(" in line and "POST /v2/api/payment" in line:
            found.fired += 1
            if not synced:
                found.wrong.append("order of calls: a payment left before the ledger was synced")
                break
    return found


def can_cut_power() -> bool:
    """Return whether this machine lets us mount a disk image (as root it usually does)."""
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None and Path("/dev/loop-control").exists()


def power_cut(made: Bench, seed: int) -> Findings:
    """Cut the power of the disk that holds the ledger in the middle of a run, and continue after the restart."""
    disk, mount = made.folder / f"disk-{seed}.img", made.folder / f"disk-{seed}"
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(disk)], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop", str(disk), str(mount)], check=True)
    try:
        shutil.copytree(made.template, mount / "home", symlinks=True)
        home = accepted(made.home_at(mount / "home"))
        subprocess.run(["sync", "-f", str(mount)], check=True)
        since = made.oracle.log.stat().st_size
        _cut_after(made, home, mount, since, random.Random(seed).randrange(1, 9))
        subprocess.run(["umount", str(mount)], check=True)
        subprocess.run(["mount", "-o", "loop", str(disk), str(mount)], check=True)
        found = finish_and_check(made, home, since, f"power cut (seed {seed})", ("resume",))
        found.fired = 1
        return found
    finally:
        subprocess.run(["umount", str(mount)], check=False, capture_output=True)
        disk.unlink()


def _cut_after(made: Bench, home: Home, mount: Path, since: int, payments: int) -> None:
    """Let some payments arrive, stop the run where it is, cut the power, and end the run."""
    with home.start("resume") as process:
        made.oracle.gets(payments, process, since)
        process.send_signal(signal.SIGSTOP)
        descriptor = os.open(mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(descriptor)
        process.kill()
