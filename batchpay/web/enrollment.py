"""Enrolling: by a link that is good once, a person chooses a password and sets up an authenticator; both on the page.

The link's token stands in the fragment of its address, which browsers send to nobody: a script puts it into the form.
Whoever has the link can enroll. So a role that acts on money counts only once another person has confirmed, on the
page, who enrolled: someone with the role approve, or anybody else while no such person was ever confirmed. An
administrator can, on the command line.
"""

from __future__ import annotations

from contextlib import closing

import segno
from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from markupsafe import Markup

from batchpay.errors import WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import ON_THE_WEB, Actor
from batchpay.web import people
from batchpay.web.acts import NOT_NOW, Refusal
from batchpay.web.people import PROVES, TOTP_PLACE, Person
from batchpay.web.sign_in import current_person, let_in, note_failure, prove_again
from batchpay.web.site import Site, refusal, site
from batchpay.web.spool import Row, WebStore

blueprint = Blueprint("enrollment", __name__)

LINK_S = 24 * 3600
PASSWORD_MIN, PASSWORD_MAX = 12, 256
OVER = "This link was used already, is older than a day, or was replaced. Ask your batchpay administrator for another."
NO_SUCH = "Nobody waits for your confirmation by that name: they enrolled anew, or another person confirmed it."


def invited(store: WebStore, token: str) -> Row | None:
    """Return the person whom a link lets enroll, and how; None if it is over."""
    return store.one(
        "SELECT user.*, with_code, secret, invitation.confirmed_by AS stays FROM invitation"
        " JOIN user ON user.name = person WHERE mark = ? AND invitation.made_at > ? AND NOT is_off",
        people.mark_of(token), store.clock() - LINK_S,
    )  # fmt: skip


def enroll(store: WebStore, ledger: Ledger, token: str, password: str, code: str = "", address: str = "") -> Row:
    """Spend a link: the person signs in with this password from now on; return them.

    A blank password is for those whom a proxy signs in. `ledger` is open to write. Raises WrongUse if the link is over,
    or the code is not of the authenticator that its page showed last.
    """
    secret_hash = people.hashed(password) if password else ""
    with store.write() as db:
        found = invited(store, token)
        if found is None:
            raise WrongUse(OVER)
        name, step = found["name"], 0
        if found["with_code"]:
            secret = ledger.unseal(found["secret"], TOTP_PLACE.format(name)) if found["secret"] else b""
            step = people.step_of(secret, code, store.clock(), 0) or 0
            if not secret or not step:
                raise WrongUse("That code is incorrect. Scan the picture on this page and type the code of now.")
            db.execute("UPDATE user SET totp = ?, totp_used = ? WHERE name = ?", (found["secret"], step, name))
        db.execute(
            "UPDATE user SET hash = ?, enrolled_at = ?, confirmed_by = ? WHERE name = ?",
            (secret_hash, store.clock(), found["stays"], name),
        )
        db.execute("DELETE FROM session WHERE person = ?", (name,))
        db.execute("DELETE FROM invitation WHERE person = ?", (name,))
        done = "changed how they sign in" if found["stays"] else "enrolled"
        ledger.note_person(str(Actor(name, address or "page", ON_THE_WEB)), done, name)
        again = store.one("SELECT * FROM user WHERE name = ?", name)
    assert again is not None
    return again


def confirm(store: WebStore, ledger: Ledger, by: Person, name: str, enrolled_at: float) -> None:
    """Confirm that it was this person who enrolled at that time; raises WrongUse if there is nothing to confirm."""
    with store.write() as db:
        if not any(one["name"] == name and one["enrolled_at"] == enrolled_at for one in _unconfirmed(store, by)):
            raise WrongUse(NO_SUCH)
        people.record_confirmation(store, db, ledger, by.name, str(by.actor()), name)


def _unconfirmed(store: WebStore, by: Person) -> list[Row]:
    """Return who enrolled and waits to be confirmed by this person."""
    everybody = store.all("SELECT * FROM user WHERE NOT is_off AND enrolled_at IS NOT NULL ORDER BY shown")
    sure = {one["name"] for one in everybody if one["confirmed_by"] is not None and "approve" in one["roles"].split()}
    # A maker who caught the link of the only approver, enrolling anew, must not be the one who confirms it.
    ever = store.all("SELECT roles FROM user WHERE confirmed_at IS NOT NULL")
    if not sure and not any("approve" in one["roles"].split() for one in ever):
        sure = {one["name"] for one in everybody}
    return [
        one
        for one in everybody
        if one["confirmed_by"] is None
        and any(role in PROVES for role in one["roles"].split())
        and by.name in sure - {one["name"]}
    ]


def to_confirm(here: Site, person: Person) -> list[Row]:
    """Return whose enrollment this person could confirm now."""
    return _unconfirmed(here.store, person)


@blueprint.get("/enroll")
def page() -> ResponseReturnValue:
    """Take the link: the script of the page puts its token into the form and sends that."""
    return render_template("enroll.html", found=None, wrong=None, token="")


@blueprint.post("/enroll")
def enroll_by_form() -> ResponseReturnValue:
    """Show what is to be chosen and set up; with a password, enroll by it, and sign in."""
    here, token = site(), request.form.get("token", "").strip().rpartition("#")[2][:200]
    found = invited(here.store, token)
    if found is None:
        note_failure(here, "tried a link to enroll by that is over", None)
        return refusal(Refusal(OVER, 403))
    by_proxy = here.access.proxy_header is not None
    if by_proxy and current_person().name != found["name"]:
        abort(403)
    if "password" not in request.form and "code" not in request.form:
        return _show(here, found, token)
    password, wrong = request.form.get("password", ""), None
    if not by_proxy:
        wrong = _refused_password(password, request.form.get("again", ""))
    try:
        if wrong is None:
            address, code = request.remote_addr or "", "".join(request.form.get("code", "").split())[:6]
            with closing(open_ledger(here.settings.ledger)) as ledger:
                found = enroll(here.store, ledger, token, "" if by_proxy else password, code, address)
            how = f"the proxy's {here.access.proxy_header}" if by_proxy else "a link to enroll by"
            return let_in(here, found, how, "/")
    except WrongUse as error:
        wrong = str(error)
    return _show(here, found, token, wrong)


def _refused_password(password: str, again: str) -> str | None:
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        return f"A password has at least {PASSWORD_MIN} characters: a few words that nobody knows are a good one."
    return None if password == again else "The two passwords differ. Type the same one twice."


def _show(here: Site, found: Row, token: str, wrong: str | None = None) -> ResponseReturnValue:
    """Show the form, with a new secret each time: whoever opened the link before knows another one."""
    secret = picture = None
    if found["with_code"]:
        secret = people.new_secret()
        with here.store.write() as db:
            sealed = here.ledger().seal(secret, TOTP_PLACE.format(found["name"]))
            db.execute("UPDATE invitation SET secret = ? WHERE mark = ?", (sealed, people.mark_of(token)))
        code = segno.make(people.secret_address(secret, found["name"]), micro=False)
        picture = Markup(code.svg_inline(scale=4, light="#fff"))  # noqa: S704 - made here from letters and digits
    shown = people.secret_shown(secret) if secret else None
    answer = render_template(
        "enroll.html", found=found, wrong=wrong, token=token, picture=picture, secret=shown, least=PASSWORD_MIN
    )
    return answer, 400 if wrong else 200


@blueprint.get("/you")
def you() -> ResponseReturnValue:
    """Show a person how they sign in, and whose enrollment they can confirm."""
    return _you()


def _you(wrong: str | None = None, code: int = 200) -> ResponseReturnValue:
    here, person = site(), current_person()
    return render_template("you.html", waiting=to_confirm(here, person), wrong=wrong), code


@blueprint.post("/you/change")
def change() -> ResponseReturnValue:
    """Let a person choose a new password, and set up a new authenticator if they want one; by the present ones."""
    here, person = site(), current_person()
    if (wrong := prove_again()) is not None:
        return _you(wrong, 401)
    with here.store.write() as db:
        (confirmed_by,) = db.execute("SELECT confirmed_by FROM user WHERE name = ?", (person.name,)).fetchone()
        with_code = request.form.get("with_code") == "yes"
        token = people.new_link(here.store, db, person.name, confirmed_by, with_code=with_code)
    found = invited(here.store, token)
    if found is None:
        abort(NOT_NOW)
    return _show(here, found, token)


@blueprint.post("/you/confirm")
def confirm_by_form() -> ResponseReturnValue:
    """Confirm, with password and code, that it was this person who enrolled."""
    here, person = site(), current_person()
    if (wrong := prove_again()) is not None:
        return _you(wrong, 401)
    name, enrolled_at = request.form.get("who", ""), request.form.get("enrolled_at", 0.0, float)
    try:
        with closing(open_ledger(here.settings.ledger)) as ledger:
            confirm(here.store, ledger, person, name, enrolled_at)
    except WrongUse as error:
        return _you(str(error), NOT_NOW)
    return redirect(url_for("enrollment.you"), 303)
