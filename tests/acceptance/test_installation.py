"""The installation pages, each command in order, as root on a machine of which only a private view is changed.

A mount namespace of its own gives the commands empty /opt, /srv, /var/lib and /var/log and a copy of /etc, so that
users, folders, settings and units are created as the pages say and are gone afterward. Anything that would reach the
machine's own systemd or cron is left out; units and crontab lines are checked and run by hand instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.command import small_file

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REACHES_THE_MACHINE = ("systemctl", "journalctl", "crontab")
OPTIONAL_TOOLS = ("systemd-analyze", "promtool", "logrotate")
INSTALLED = "umask 022\nwheel=$(ls batchpay-*-py3-none-any.whl)\n"
PAGES = ("install-systemd.md", "install-cron.md")
SCHEDULE = "## 5. Schedule"
SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACE = ("unshare", "--mount", "--propagation", "private")

VIEW = """
set -eu
umask 022
mount -t tmpfs none /opt
mkdir /opt/python /opt/etc
mount --bind {base} /opt/python
cp -a /etc/. /opt/etc/
mount --bind /opt/etc /etc
for folder in /srv /var/lib /var/log /usr/local/sbin; do mount -t tmpfs none $folder; done
version=batchpay-9.9
mkdir -p /opt/$version/bin
cat >/opt/$version/bin/batchpay <<'END'
#!/bin/sh
LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH={path} exec /opt/python/bin/{python} -P -m batchpay "$@"
END
chmod 0755 /opt/$version/bin/batchpay
ln -sfn $version /opt/batchpay
umask 077
"""
"""Replaces the first block, which would download: the tester's own packages, run by any user. The first block has its
own umask; the others work with root's, whatever it is."""


def can_have_a_view() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "runuser", "useradd", "groupadd", "shred"))
    return os.geteuid() == 0 and tools and not subprocess.run([*NAMESPACE, "true"], check=False).returncode


needs_a_view = pytest.mark.skipif(not can_have_a_view(), reason="needs root, mount namespaces, useradd and runuser")


def left_out(line: str) -> bool:
    words = line.split()
    missing = [tool for tool in OPTIONAL_TOOLS if not shutil.which(tool, path=SEARCH_PATH)]
    return bool({*REACHES_THE_MACHINE, *missing} & set(words))


def blocks_of(page: str, section: str = "") -> list[str]:
    """Return the commands of a page, or of a section, block by block."""
    text = (DOCS / page).read_text("utf-8")
    assert section in text
    return BLOCK.findall(text.partition(section)[2].partition("\n## ")[0] if section else text)


def commands(page: str, origin: str, also: list[str]) -> str:
    """Return the commands of a page in order, and other ones, with the sandbox as the gateway."""
    blocks = blocks_of(page)
    assert blocks[0].startswith(INSTALLED)
    text = "".join(blocks[1:] + also).replace("https://gateway.example.com", origin).replace("your-id", "sandbox")
    return "".join(f"{line}\n" for line in text.splitlines() if not left_out(line))


def in_view(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    values = {
        "base": sys.base_prefix,
        "path": f"{ROOT}:{sysconfig.get_path('purelib')}",
        "python": f"python{sys.version_info.major}.{sys.version_info.minor}",
    }
    return subprocess.run(
        [*NAMESPACE, "sh", "-c", VIEW.format(**values) + script],
        cwd=folder,
        env={"PATH": SEARCH_PATH, "HOME": "/root", "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def bare_machine(folder: Path) -> None:
    shutil.copytree(DOCS, folder / "docs")
    (folder / "api-key").write_text("sandbox-key\n")
    small_file(folder / "payments.csv", 3)
    folder.chmod(0o700)  # like root's home: the service's user can't even read the folder where the commands are run


UPLOAD = """
useradd --no-create-home --groups payments-in clerk
printf 'rows = 3\\n' >/srv/payments/inbox/payments.csv.control.toml
chmod 0644 /srv/payments/inbox/payments.csv.control.toml
chown clerk:batchpay /srv/payments/inbox/payments.csv
"""
"""The control file says immediately that the upload is complete; without one it takes a minute."""

INBOX = """
printf 'x\\n' >/opt/mine && chmod 0644 /opt/mine
runuser -u clerk -- install -m 0640 /opt/mine /srv/payments/inbox/clerk.part
if runuser -u clerk -- ls /srv/payments/inbox; then echo "WRONG: a clerk can list the inbox"; fi
install -m 0640 -o batchpay -g batchpay /opt/mine /srv/payments/inbox/other.part
if runuser -u clerk -- cat /srv/payments/inbox/other.part; then echo "WRONG: a clerk can read another's file"; fi
if runuser -u clerk -- rm -f /srv/payments/inbox/other.part; then echo "WRONG: a clerk can remove it"; fi
runuser -u batchpay -- cat /srv/payments/inbox/clerk.part
if runuser -u clerk -- cat /etc/batchpay/api-key; then echo "WRONG: a clerk can read the key"; fi
if runuser -u clerk -- ls /var/lib/batchpay/ledger; then echo "WRONG: a clerk can see the ledger"; fi
echo "inbox: $(ls /srv/payments/inbox | tr '\\n' ' ') done: $(ls /srv/payments/done | tr '\\n' ' ')"
if /opt/batchpay/bin/batchpay status --config /etc/batchpay/batchpay.toml; then echo "WRONG: root may"; fi
"""


def page_with_upload(page: str, origin: str, also: list[str]) -> str:
    text = commands(page, origin, also)
    upload = "mv /srv/payments/inbox/payments.csv.part /srv/payments/inbox/payments.csv\n"
    assert upload in text
    return text.replace(upload, upload + UPLOAD)


@needs_a_view
def test_the_pages_work_from_a_bare_machine(tmp_path: Path, sandbox_origin: str) -> None:
    """Each command succeeds in order; a file is paid and archived; a clerk can't see others' files, key or ledger.

    The pages differ in the schedule: the commands of both are run.
    """
    bare_machine(tmp_path)
    script = page_with_upload(PAGES[0], sandbox_origin, also=blocks_of(PAGES[1], SCHEDULE))
    done = in_view(tmp_path, "set -x\n" + script + "set +x\n" + INBOX + "".join(map(by_schedule, PAGES)))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WRONG" not in done.stdout, done.stdout
    assert "  accepted  3  " in done.stdout
    assert "inbox: clerk.part other.part  done: payments.csv payments.csv.control.toml " in done.stdout, done.stdout
    assert "health metric: batchpay_health_exit_code 0" in done.stdout, done.stdout[-1500:] + done.stderr[-1500:]
    assert not (tmp_path / "api-key").exists()


def by_schedule(page: str) -> str:
    """Return what the schedule runs, as the service's user in a nearly empty environment."""
    if page == "install-cron.md":
        lines = (DOCS / "examples" / "crontab").read_text("utf-8").splitlines()
        calls = [line.split(" ", 5)[5] for line in lines if line[:1] in "*0123456789"]
    else:
        calls = []
        for name in ("batchpay", "batchpay-backup", "batchpay-health"):
            unit = (DOCS / "examples" / f"{name}.service").read_text("utf-8")
            (call,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
            calls.append(f"BATCHPAY_API_KEY_FILE=/etc/batchpay/api-key HOME=/var/lib/batchpay {call}")
    assert len(calls) == 3
    run = "".join(f"runuser -u batchpay -- env -i /bin/sh -c {_quoted(call)}\n" for call in calls)
    return (
        "rm -f /srv/payments/inbox/*.part\n" + run + 'echo "health metric: $(cat /var/lib/batchpay/metrics/*health*)"\n'
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_both_pages_say_the_same_where_they_can() -> None:
    """Only the introduction and the schedule differ between the two pages."""
    parts = [re.split(r"^## ", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE)[1:] for page in PAGES]
    assert [one for one, other in zip(*parts, strict=True) if one != other] == [parts[0][4]]
    assert f"## {parts[0][4]}".startswith(SCHEDULE)
