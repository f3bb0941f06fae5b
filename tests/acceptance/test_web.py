"""The page as a service: real server, real children, a gateway that counts; killed at its worst moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle
from tests.support.page import Browser, added, child_of, serving, until

PAYMENTS, WORKERS, HELD_FROM = 60, 4, 15


def kill_child(home: Home) -> None:
    child = child_of(home)
    assert child is not None
    os.kill(child, signal.SIGKILL)


def test_no_payment_is_made_twice_whatever_is_killed(home: Home, oracle: Oracle) -> None:
    """Child killed while sending, then server and child: the rest is sent, rows under way are in doubt, none twice.

    The gateway holds its answers from a certain payment on, so that the kills come while payments are under way.
    """
    home.origin = oracle.origin
    home.extra = {"BATCHPAY_WORKERS": str(WORKERS)}
    secret = {name: added(home, name, role) for name, role in (("maria", "prepare"), ("daniel", "approve"))}
    pay = small_file(home.path / "pay.csv", PAYMENTS)
    with serving(home) as (server, url):
        maria, daniel = (Browser(url, name, password) for name, password in secret.items())
        file = maria.upload(pay)
        maria.checked(file)
        maria.request_approval(file)
        oracle.plan(held_from=HELD_FROM)
        daniel.approve(file)
        until(lambda: len(oracle.entries()) == HELD_FROM - 1 + WORKERS)
        oracle.plan(held_from=HELD_FROM)
        kill_child(home)  # the server starts another one, which continues
        until(lambda: len(oracle.entries()) == 2 * (HELD_FROM - 1 + WORKERS))
        server.kill()
        server.wait()
        kill_child(home)
    oracle.plan()
    with serving(home) as (_, url):  # another server starts what the dead one wanted
        daniel = Browser(url, "daniel", secret["daniel"])
        until(lambda: "The run ended. " in daniel.get(f"{file}/run"))
        page = daniel.get(f"{file}/run")
    assert set(oracle.received().values()) == {1}
    assert len(oracle.received()) == PAYMENTS
    (batch,) = home.json("status")["batches"]
    assert (batch["accepted"], batch["in_doubt"]) == (PAYMENTS - 2 * WORKERS, 2 * WORKERS)
    assert f"{2 * WORKERS} payments are in doubt" in " ".join(page.split())
    assert home.run("ledger", "check").returncode == 0


def test_the_demo_shows_the_page_with_its_people(home: Home) -> None:
    """One command, no credentials: sandbox, made-up files, three people who can sign in; Ctrl-C ends all of it."""
    command = home.command("web", "--demo", "--listen", "127.0.0.1:0")
    environment = {name: value for name, value in home.environment.items() if not name.startswith("BATCHPAY_")}
    with subprocess.Popen(command, env=environment, cwd=home.path, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends everything" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        (url,) = re.findall(r"Open (\S+) in a browser", said)
        passwords = dict(re.findall(r"^  (\w+) +(\w+-\w{8})", said, re.MULTILINE))
        assert list(passwords) == ["maria", "daniel", "nina"]
        assert "Check a payment file" in Browser(url, "maria", passwords["maria"]).get("/")
        assert (home.path / "demo-web" / "bank-export.csv").exists()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
