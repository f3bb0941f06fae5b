"""Proof that the walk notices: each defect that was once found is put back, one at a time, and a walk must find it.

`python -m tests.model.sabotages [NAME...] [--walks 200]` makes each change in a copy of the package, walks at random
until something is found, and reports after how many walks. `make test` takes the shortest walk that shows each, with
the program as it is. A text that is no longer there is an error: then the sabotage must be rewritten for the present
code.
"""

# ruff: noqa: E501 (texts of the program as they stand)

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.broken_program import ROOT, Change, broken


@dataclass(frozen=True)
class Defect:
    """One defect: where it belongs among the project's decisions, and the change that brings it back."""

    name: str
    steps: str
    """The shortest walk that shows it."""
    changes: tuple[Change, ...]
    on_postgres: bool = False
    """Whether it shows only in a database."""


DEFECTS = (
    Defect(
        "C a row that the policy holds is sent", "held:0:0:0",
        (("workflows/holding.py", "            if row not in self._free\n", "            if row in self._free\n"),),
    ),
    Defect(
        "C a held row is released without being named", "held:0:0:1",
        (("workflows/holding.py", "RELEASED_BY_NAME | names)", "RELEASED_BY_NAME)"),
         ("workflows/holding.py", "rejected.by_name if rejected is not None", "set(rejected.rows) if rejected is not None")),
    ),
    Defect(
        "C whoever registered a held row releases it", "held:0:0:0",
        (("workflows/submit.py", "and self._policy.asks and not approvals:", "and self._policy.asks and approvals:"),),
    ),
    Defect(
        "E a gap in a series waits for nobody", "numbered:0:0:0",
        (("ledger/records.py", "return latest + 1 if number > latest + 1 else None", "return None"),),
    ),
    Defect(
        "E a number is used for two contents", "numbered:0:0:0",
        (("ledger/records.py", "return name if other != digest else None", "return None"),),
    ),
    Defect(
        "A1 a re-run releases rejected rows", "make:1:1:5 submit:0:0:0 submit:0:3:0",
        (("workflows/file_check.py", 'rejected.failures(held if checked.released else right["_row"])',
          "rejected.failures(held)"),
         ("workflows/submit.py", "        if releases:\n", "        if checked.releasable.totals.rows:\n"),
         ("workflows/submit.py", '            self._decisions.reason or "",\n',
          '            self._decisions.reason or "the rules changed",\n')),
    ),
    Defect(
        "A1 a release does not look for what was registered meanwhile", "release_race:1:1:0",
        (("ledger/sqlite/batch_writer.py", "news = _registered_since(transaction, seen)",
          "news = _registered_since(transaction, transaction.registrations())"),),
    ),
    Defect(
        "A1 released rows are compared within the usual days only", "release_race:0:1:0",
        (("workflows/rejected_earlier.py", "return days + max(0, (now - self.since).days + 1)", "return days"),),
    ),
    Defect(
        "A2 pending rows that fail today's rules are sent", "rules_change:1:1:4",
        (("workflows/held_back.py", "            if failed:\n", "            if failed and not failed:\n"),),
    ),
    Defect(
        "A2 resume does not hold back", "make:1:1:4 submit:0:6:0 set_limit:0:0:0 resume:0:0:0",
        (("workflows/held_back.py", "    return any_of(looks)\n", "    return None\n"),),
    ),
    Defect(
        "A2 resume goes on with a stale batch", "make:1:0:0 submit:0:6:0 days_pass:3:0:0 resume:0:1:0",
        (("workflows/held_back.py", "untouched_days(ledger, batch.batch) < stale_days",
          "untouched_days(ledger, batch.batch) >= 0"),),
    ),
    Defect(
        "A2 a run over midnight sends what was to start the day before", "midnight:0:3:0",
        (("workflows/held_back.py", "return time.time() >= self._ends_s", "return False"),),
    ),
    Defect(
        "A3 what is registered is not compared with what was checked", "make:1:1:0 replace_file:0:1:0",
        (("intake/table_rows.py", " and first[place : place + 1] != [digest]:", " and not digest:"),
         ("intake/table_rows.py", "len(self._content.digests) != len(self._digests)", "not self._digests")),
    ),
    Defect(
        "A4 identifiers are compared letter by letter", "make:1:2:0 submit:0:0:0 alter:0:4:1 submit:0:0:0",
        (("text.py", 'unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())',
          "text"),),
    ),
    Defect(
        "A4 invisible characters are taken in identifiers", "make:1:2:0 alter:0:6:1 submit:0:0:0",
        (("schemas/forms.py", 'UNSEEN = rf"\\p{{Cf}}\\p{{Default_Ignorable_Code_Point}}', 'UNSEEN = rf"'),),
    ),
    Defect(
        "A4 a bill with an invoice number is a duplicate for days only",
        "make:1:2:0 submit:0:0:0 days_pass:3:0:0 alter:0:5:1 submit:0:0:0",
        (("ledger/sqlite/statements.py", "WHEN wanted.invoiced AND NOT (wanted.named AND found.named) THEN TRUE",
          "WHEN wanted.row IS NULL THEN TRUE"),),
    ),
    Defect(
        "A4 --allow-duplicates lifts paymentIds", "make:1:0:0 submit:0:0:0 alter:0:5:1 submit:0:4:0",
        (("workflows/earlier_payments.py", "\n        if one.same is SamePayment.PAYMENT_ID:",
          "\n        if one.same is SamePayment.PAYMENT_ID and not rules.allows_repeated_bills:"),),
    ),
    Defect(
        "A5 a rehearsal makes live rows duplicates",
        "make:1:1:0 submit:0:0:0 other_gateway:0:0:0 alter:0:5:1 submit:0:0:0",
        (("ledger/sqlite/statements.py", ' AND batch.environment = ?"\nCOMPARED', ' AND ? IS NOT NULL"\nCOMPARED'),
         ("workflows/file_check.py",
          "ledger is not None and ledger.batch_count(context.environment) > (checked.known is not None)",
          "ledger is not None")),
    ),
    Defect(
        "B6 a plan can be used again", "set_policy:1:0:0 make:1:0:0 plan:0:30:1",
        (("workflows/approve.py", "    if used_for is not None:\n        plan.verify_content",
          "    if used_for is not None and not used_for:\n        plan.verify_content"),
         ("ledger/decisions.py", "    if known is not None:\n        raise", '    if known == "":\n        raise'),
         ("workflows/approve.py", "    plan.verify(proposal, ledger)\n", "")),
    ),
    Defect(
        "B6 a plan is not compared with what would be sent", "set_policy:1:0:0 make:1:0:0 plan:0:20:1",
        (("workflows/approve.py", "    plan.verify(proposal, ledger)\n", ""),),
    ),
    Defect(
        "B7 a submission does not ask for approvals", "set_policy:1:0:0 make:1:0:0 plan:0:0:0",
        (("approval/approvals.py", "        if missing > 0:\n            others",
          "        if missing > 9:\n            others"),
         ("ledger/day_limits.py", "    if maker.below_cents is not None:\n", "    if maker.below_cents is not None and not adds:\n")),
    ),
    Defect(
        "B7 whoever prepared a plan may approve it", "set_policy:1:0:0 make:1:0:0 plan:0:0:4",
        (("approval/approvals.py", "        if person == person_key(prepared_by):\n", "        if not person:\n"),
         ("approval/approvals.py", "        if may_be_one(approver, prepared_by):\n", "        if not person:\n")),
    ),
    Defect(
        "F5 files of one person count one by one", "split:0:0:0",
        (("ledger/days.py", "return name not in self.exempt and (", "return name in self.exempt and ("),),
    ),
    Defect(
        "F5 files of one person count one by one in a database", "split:0:0:0",
        (("ledger/postgres/statements.py", "AND e.at >= %(since)s AND", "AND e.at < %(since)s AND"),),
        on_postgres=True,
    ),
    Defect(
        "F5 files of one call count one by one", "split:0:0:1",
        (("ledger/sqlite/statements.py", "AND event.at >= :since AND",
          "AND event.at BETWEEN :since AND :since + 86340000 AND"),),
    ),
    Defect(
        "F5 --again under the limit needs nobody", "split:0:0:2",
        (("workflows/approve.py", "0, over_limit=over, of_maker=of)",
          "0, over_limit=over, of_maker=None if proposal.again else of)"),
         ("ledger/new_batch.py", "require_alone(transaction, self._check, self.totals)",
          "({} if self._new.again_reason else require_alone(transaction, self._check, self.totals))")),
    ),
    Defect(
        "F5 a variable turns four eyes off", "lower:0:0:0",
        (("workflows/policy.py", "_strictest([whole, file, variables, direct])",
          "_strictest([whole, file, direct]) | {**variables}"),),
    ),
    Defect(
        "F5 the settings file turns four eyes off", "lower:0:0:1",
        (("workflows/policy.py", "_strictest([whole, file, variables, direct])",
          "_strictest([whole, variables, direct]) | {one: file[one] for one in file if one in NONE}"),),
    ),
    Defect(
        "F5 one person lowers the policy", "lower:0:0:2",
        (("workflows/policy.py", "if raised == _strictest([wanted]) or not asked:", "if raised:"),),
    ),
    Defect(
        "F5 whoever asked to lower the policy approves it", "lower:0:0:2",
        (("workflows/policy.py", "            policy.require_other(actor, given, lowering.who)\n", ""),),
    ),
    Defect(
        "F5 a lowering takes effect too soon", "lower:0:0:2",
        (("workflows/policy.py", "LOWERED_AFTER = timedelta(hours=72)", "LOWERED_AFTER = timedelta(hours=48)"),),
    ),
    Defect(
        "F5 a lowering that was refused takes effect", "lower:0:1:2",
        (("workflows/policy.py", "                return recorded or NONE, None\n", "                return dict(lowering.to), None\n"),),
    ),
    Defect(
        "F5 an approval counts of somebody who is switched off", "switch_off:0:0:0",
        (("approval/approvals.py", " and not is_off(approval.who, off)", ""),
         ("ledger/decisions.py", "    if off & {sign_off.prepared_by", "    if off - off & {sign_off.prepared_by")),
    ),
    Defect(
        "B8 another row's reference settles a row in doubt", "make:1:0:0 submit:0:0:0 reconcile:0:4:0",
        (("reconciliation/matching.py", "if wanted else ():\n        if is_masked",
          "if not wanted else ():\n        if is_masked"),),
    ),
    Defect(
        "B8 last month's line settles a row in doubt", "reconcile:0:1:0",
        (("reconciliation/matching.py", "return line.on is not None and self.since is not None and (",
          "return line.on is None and self.since is not None and ("),),
    ),
    Defect(
        "B8 last month's line settles a row in doubt of a restored ledger",
        "make:1:2:0 submit:0:6:0 back_up:0:0:0 submit:0:0:0 bring_back:0:0:0 accept:0:0:0 settle_window:0:0:0 reconcile:0:1:0",
        (("reconciliation/matching.py", "since=day or (registered if row.state in _DOUBTS else None),", "since=day,"),),
    ),
    Defect(
        "B8 the refusal of an earlier attempt settles the last one", "reconcile:0:5:0",
        (("reconciliation/verdicts.py",
          "        if len(refusals) < row.attempts + row.may_lack_last_attempt(matching.restored_at):\n",
          "        if not refusals:\n"),),
    ),
    Defect(
        "B8 one payment that is listed twice settles two rows", "reconcile:1:6:0",
        (("reconciliation/verdicts.py", "    if line.is_shared:\n", "    if line.is_shared and line.is_ahead:\n"),),
    ),
    Defect(
        "B8 a line of the other direction settles a row in doubt", "reconcile:0:7:0",
        (("reconciliation/statement.py", 'payment.direction = direction_in(" ".join(kinds))',
          "payment.direction = None"),),
    ),
    Defect(
        "B8 a returned payment counts as paid", "reconcile:0:2:0",
        (("reconciliation/statement.py", "came_back=mapping.says_it_came_back(status),", "came_back=False,"),
         ("schemas/tables/words.csv", "outcome,returned,return\n", "outcome,accepted,return\n"),
         ("schemas/tables/words.csv", "outcome,returned,returned\n", "outcome,accepted,returned\n")),
    ),
    Defect(
        "B9 success and error at once is success", "make:1:0:0 answers:3:1:0 submit:0:0:0",
        (("gateway/profile.py", "        elif (word in self.accepted and _holds(members, self.error)) or (",
          "        elif (word is None) or ("),
         ("gateway/profile.py", "        elif nodes and (state is _ACCEPTED or",
          "        elif nodes and (state is None or")),
    ),
    Defect(
        "B9 one reference proves two rows", "make:1:1:0 answers:7:0:0 submit:0:0:0",
        (("ledger/mover.py", "        if outcome.state is State.ACCEPTED and (where, other)",
          "        if outcome.state is None and (where, other)"),),
    ),
    Defect(
        "C10 a clone on another machine sends", "make:1:0:0 submit:0:6:0 clone:0:0:0",
        (("ledger/sqlite/restoring.py", 'another machine" if record.machine not in (None, machine) else ""',
          'another machine" if record.machine == "" else ""'),),
    ),
    Defect(
        "C10 a copy of the file on the same machine sends", "make:1:0:0 submit:0:6:0 copy:0:0:0",
        (("ledger/sqlite/restoring.py", "if not what and record.place not in (None, store.where):",
          "if not what and record.place == '':"),),
    ),
    Defect(
        "C10 a copy of the database on the same server sends", "make:1:0:0 submit:0:6:0 copy:0:0:0",
        (("ledger/postgres/restoring.py", "    return _elsewhere(store, known)\n", "    return None\n"),),
        on_postgres=True,
    ),
    Defect(
        "C11 a restored ledger registers new content", "go_on_after_a_restore:0:1:0",
        (("ledger/decisions.py", "    if lost is not None:\n        raise", "    if lost == 0:\n        raise"),),
    ),
    Defect(
        "C11 results that show more than the ledger are no alarm", "set_back:1:1:0",
        (("workflows/run.py", "        if told := told_more(ledger, batch.batch, path):", "        if told := '':"),),
    ),
    Defect(
        "C11 results of a row that was being sent are no alarm", "set_back:1:1:1",
        (("reports/results.py", "_SENT = (State.IN_DOUBT, State.SENDING)", "_SENT = (State.IN_DOUBT,)"),),
    ),
    Defect(
        "C11 results of an unknown batch are no alarm", "make:1:0:0 submit:0:0:0 second_ledger:0:0:0",
        (("workflows/check.py", "        if batch not in known:", "        if batch in set() - known:"),),
    ),
    Defect(
        "A5 one gateway is test and live at will", "make:1:0:0 submit:0:0:0 other_environment:0:0:0",
        (("workflows/check.py", "    if latest.environment is not environment:",
          "    if latest.environment is None:"),),
    ),
    Defect(
        "C12 a ledger that was edited by hand sends", "make:1:0:0 submit:0:6:0 edit_by_hand:0:0:0",
        (("workflows/run.py", "told := told_more(ledger, batch.batch, path)", "told := ''"),
         ("ledger/sqlite/ledger.py", "        check_batch(self.store, number)\n", ""),
         ("ledger/sqlite/audit.py", "        problems = check(store)\n", "        problems = []\n")),
    ),
    Defect(
        "C14 a purge forgets which bills were paid",
        "make:1:2:0 submit:0:0:0 days_pass:2:0:0 purge:0:0:0 alter:0:5:1 submit:0:0:0",
        (("ledger/event_chain.py", "    if missing:\n", "    if missing < 0:\n"),  # the check would find it
         ("ledger/sqlite/audit.py", "    if missing > 0:\n", "    if missing > 9:\n"),  # and so would this
         ("ledger/sqlite/retention.py", "        transaction.execute(sql.ERASE_DETAILS, (batch,))\n",
          "        transaction.execute(sql.ERASE_DETAILS, (batch,))\n"
          '        transaction.execute("DELETE FROM fingerprint WHERE id >> 32 = ?", (batch,))\n')),
    ),
    Defect(
        "C14 a purge erases what waits to be sent", "make:1:2:0 submit:0:6:0 days_pass:2:0:0 purge:0:0:0",
        (("ledger/retention.py", "    if open_rows:\n        return", "    if not store:\n        return"),
         ("ledger/retention.py", "        if open_rows or last >=", "        if last >=")),
    ),
    Defect(
        "C14 a purge leaves a database's messages", "make:1:2:0 submit:0:0:0 days_pass:2:0:0 purge:0:0:0",
        (("ledger/postgres/moves.py", "    row = attempt = erased = 0\n", "    return 0\n"),),
        on_postgres=True,
    ),
    Defect(
        "C13 a clock behind the ledger sends", "make:1:0:0 clock_back:0:0:0",
        (("ledger/machine.py", "    if opened_after_s >= -CLOCK_BEHIND_MAX.total_seconds():",
          "    if opened_after_s >= -1e12:"),),
    ),
    Defect(
        "C13 a clock that goes ahead pays a bill again", "make:1:0:0 submit:0:0:0 alter:0:1:0 clock_ahead:1:0:0",
        (("ledger/stored.py", "self.store.now_ms() - self.store.ahead_ms", "self.store.now_ms()"),),
    ),
    Defect(
        "C13 a machine sends whose clock is not the server's", "make:1:0:0 clock_ahead:1:0:0",
        (("ledger/machine.py", "- self.took_ms / 2 > CLOCKS_APART_MAX_S * 1000:", "< 0:"),),
        on_postgres=True,
    ),
    Defect(
        "A0 doubt elsewhere is quiet", "make:1:0:0 answers:0:1:0 submit:0:0:0 make:1:0:0 submit:0:0:0",
        (("summary.py", "        if self.of(State.IN_DOUBT).rows or self.in_doubt_elsewhere:",
          "        if self.of(State.IN_DOUBT).rows:"),
         ("cli/each_file.py", "    if doubts:\n", "    if not doubts:\n")),
    ),
    Defect(
        "D14 the archive takes whatever stands at the path", "make:1:0:0 replace_file:0:3:1",
        (("operations/archive.py", "        if not _is(source, read.payments):\n            return None\n", ""),
         ("operations/archive.py",
          "        if FileIdentity.of(os.fstat(descriptor)) != identity:\n            raise _AnotherFile\n",
          "")),
    ),
    Defect(
        "D14 results of one batch replace another's", "make:1:0:3 submit:0:0:0 correct_in_place:0:0:0 submit:0:0:0",
        (("writing/atomic.py", "or may_replace(pending.target, number)", "or True"),),
    ),
    Defect(
        "D17 control characters of names reach the terminal", "make:1:0:0 look_around:0:0:0",
        (("text.py", "    if not text.isprintable():\n", "    if not text:\n"),),
    ),
    Defect(
        "E18 a ledger that was restored while it was open is written to", "restored_in_use:0:1:0",
        (("ledger/sqlite/store.py", "        if self._last is None and before != ",
          "        if before is None and before != "),),
    ),
    Defect(
        "E18 of two commands under way in a restored ledger the second one hides that it was restored",
        "restored_in_use:1:0:0",
        (("ledger/sqlite/store.py", "        if self._last is None and before != ",
          "        if before is None and before != "),
         ("ledger/sqlite/ledger.py", "        check_batch(self.store, number)\n",
          "        from batchpay.ledger.sqlite import restoring\n\n        if found := restoring.differences(self.store):\n            raise found[0]\n        check_batch(self.store, number)\n")),
    ),
    Defect(
        "E18 a database that was restored while it was open is written to", "restored_in_use:0:1:0",
        (("ledger/postgres/opening.py", "                store.begun = lambda: restoring.begin_whole(store)\n", ""),
         ("ledger/postgres/opening.py", "        store.follow = lambda: restoring.follow(store)\n", "")),
        on_postgres=True,
    ),
    Defect(
        "E18 only a run's start looks whether a database was restored while it was open", "restored_in_use:2:0:0",
        (("ledger/postgres/opening.py", "                store.begun = lambda: restoring.begin_whole(store)\n", ""),
         ("ledger/postgres/opening.py", "        store.follow = lambda: restoring.follow(store)\n", ""),
         ("ledger/postgres/ledger.py", "        audit.check_batch(self.store, number)\n",
          "        from batchpay.ledger.postgres import restoring\n\n"
          "        restoring.require_whole(self.store)\n"
          "        audit.check_batch(self.store, number)\n")),
        on_postgres=True,
    ),
    Defect(
        "E19 resume pays a gateway that has moved at the address that its batch had before it was held",
        "gateway_moved:0:0:0",
        (("workflows/run.py",
          "            found = ledger.find(found.batch)  # until it was held, others may have changed it\n",
          ""),),
    ),
    Defect(
        "E19 resume looks for what was let through elsewhere before it holds its batch", "let_through_elsewhere:0:0:2",
        (("workflows/run.py", "        with ledger.lock(found.digest):\n",
          "        before = fails_today(ledger, found, settings)\n        with ledger.lock(found.digest):\n"),
         ("workflows/run.py", "            fails = fails_today(ledger, found, settings)\n",
          "            fails = before\n")),
    ),
    Defect(
        "E19 what was let through elsewhere while a known file was checked is sent as well",
        "let_through_elsewhere:0:0:0",
        (("workflows/submit.py", " and repeated(ledger, known):", " and not known:"),),
    ),
    Defect(
        "E19 one gateway is test and live for two calls that begin together", "other_environment_first:0:0:0",
        (("workflows/submit.py", "        refuse_other_environment(ledger, settings)  # its first batch",
          "        # its first batch"),),
    ),
    Defect(
        "E20 what a restored ledger knows of a row in doubt is taken for its last attempt", "old_papers:0:0:0",
        (("ledger/records.py",
          "return self.reason == RESTORED_REASON or bool(restored_at and self.sent_at and self.sent_at <= restored_at)",
          "return False"),),
    ),
    Defect(
        "E20 after a restore a refusal settles a row that was in doubt before the backup", "old_papers:0:1:0",
        (("reconciliation/verdicts.py", "row.attempts + row.may_lack_last_attempt(matching.restored_at)",
          "row.attempts + row.may_lack_last_attempt(None)"),),
    ),
    Defect(
        "E20 a sheet from before a restore decides about a row that was in doubt before the backup", "old_papers:0:1:1",
        (("reconciliation/resolution.py", "row.may_lack_last_attempt(restored_at)",
          "row.may_lack_last_attempt(None)"),),
    ),
    Defect(
        "E20 a sheet of one restore decides after the next one of the same backup", "between_restores:0:0:1",
        (("reconciliation/resolution.py", "        restored_at=restored_at if sent is None else None,\n",
          "        restored_at=None,\n"),),
    ),
    Defect(
        "E21 a release pays a bill that another row of its own file has paid", "twice_in_file:0:1:1",
        (("workflows/file_check.py", "found.compare_with_own(rejected, frame, rules, context.environment)", "pass"),),
    ),
    Defect(
        "E22 what is left of a batch is paid from the account of another company", "other_company:0:0:0",
        (("workflows/move_gateway.py", "    if _has_begun(batch) and ", "    if False and "),),
    ),
    Defect(
        "F1 a run sends a row before its day", "schedule:0:1:0 submit:0:0:0",
        (("ledger/sqlite/statements.py", '_IS_DUE = "(pay_on IS NULL OR pay_on <= ?)"',
          '_IS_DUE = "(pay_on IS NULL OR pay_on <= ? + 99)"'),
         ("ledger/payload.py", "days.get(row, 0) > self._day]", "days.get(row, 0) > self._day + 99]")),
    ),
    Defect(
        "F2 a machine that was off on the day forgets it", "schedule:0:1:0 submit:0:0:0 days_pass:2:0:0 due:0:0:0",
        (("workflows/run.py", "any(day <= batch.today for day in batch.by_day)",
          "any(day == batch.today for day in batch.by_day)"),),
    ),
    Defect(
        "F3 cancelled rows are sent by the next call", "make:1:0:0 submit:0:6:0 cancel:0:0:0 submit:0:0:0",
        (("ledger/decisions.py", "cancelled = len(mover.reject(wanted, CANCELLED))", "cancelled = len(wanted)"),),
    ),
    Defect(
        "F4 a day is sent more than its limit", "limit_reached:0:0:1",
        (("ledger/days.py", "            if not over:\n", "            if over or not over:\n"),),
    ),
    Defect(
        "G1 a return that a person withdrew is recorded again", "make:1:0:0 submit:0:0:0 come_back:1:0:0 undo:0:1:0",
        (("ledger/stored_facts.py", "            for mark in _marks(fact, fact.is_recurring, withdrawn=fact.withdrawn)\n",
          "            if not fact.withdrawn\n            for mark in _marks(fact, fact.is_recurring, withdrawn=False)\n"),
         ("workflows/returns.py", "        _let_withdrawals_stand(ledger, environment, matches)\n", "")),
    ),
    Defect(
        "G2 a return that nobody has seen lets its payment be made again",
        "make:1:0:0 submit:0:0:0 come_back:0:1:0 alter:0:0:0 submit:0:0:0",
        (("ledger/stored_facts.py", '        if not one["unattended"] or one["confirmed"] is not None\n', ""),),
    ),
    Defect(
        "G3 a purge erases what came back", "make:1:0:0 submit:0:0:0 come_back:1:0:0 days_pass:3:0:0 purge:0:0:0",
        (("ledger/fact_statements.py", 'self.erase = f"UPDATE {fact} SET corrected = NULL WHERE',
          'self.erase = f"DELETE FROM {fact} WHERE'),),
    ),
    Defect(
        "G4 a return that was withdrawn still counts", "make:1:0:0 submit:0:0:0 come_back:1:0:0 undo:0:1:0",
        (("ledger/sqlite/statements.py", 'RETURNED = "fact WHERE kind = 1 AND recurring = 0 AND withdrawn IS NULL"',
          'RETURNED = "fact WHERE kind = 1 AND recurring = 0"'),),
    ),
    Defect(
        "G4 a return that was withdrawn still counts in a database",
        "make:1:0:0 submit:0:0:0 come_back:1:0:0 undo:0:1:0",
        (("ledger/postgres/0002.sql", "WHERE f.kind = 1 AND f.recurring = 0 AND f.withdrawn IS NULL;",
          "WHERE f.kind = 1 AND f.recurring = 0;"),),
        on_postgres=True,
    ),
    Defect(
        "G5 the return of a row in doubt is recorded as of an accepted one",
        "make:1:0:0 answers:0:1:0 submit:0:0:0 come_back:1:0:0",
        (("returns/matching.py", "ReturnVerdict.RECORDED if each.state is State.ACCEPTED else ReturnVerdict.IN_DOUBT",
          "ReturnVerdict.RECORDED"),
         ("ledger/stored_facts.py", "payment.state is not State.ACCEPTED", "payment.state is State.REJECTED")),
    ),
)  # fmt: skip


def walk_over(defect: Defect, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Walk over a broken program."""
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        program = broken(defect.name, defect.changes, Path(folder) / "program")
        (program / "tests").symlink_to(ROOT / "tests")
        return subprocess.run(
            [sys.executable, "-m", "tests.model", *arguments, *(["--postgres"] if defect.on_postgres else [])],
            cwd=program,  # where Python looks first
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def shown(defect: Defect) -> str | None:
    """Take the shortest walk: return what it finds, or None."""
    done = walk_over(defect, ["--steps", defect.steps])
    return done.stdout.splitlines()[0] if done.returncode else None


def walks_until_found(defect: Defect, walks: int, seed: int) -> tuple[int, str] | None:
    """Walk at random: return after how many walks something was found, and what; None if nothing was."""
    done = walk_over(defect, ["--walks", str(walks), "--seed", str(seed), "--most", "1", "--no-shrink"])
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, flags=re.MULTILINE)
    if found is None and done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return (int(found[1]) - seed + 1, found[2]) if found else None


def main() -> int:
    """Put each defect back and walk; return 1 if one was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--walks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shortest", action="store_true", help="only take the shortest walk that shows each")
    options = parser.parse_args()
    missed = 0
    if not options.shortest:
        print(f"walks from seed {options.seed}, at most {options.walks} each", flush=True)
    for defect in DEFECTS:
        if options.names and not defect.name.startswith(tuple(options.names)):
            continue
        if options.shortest:
            what = shown(defect)
            missed += what is None
            print(f"{defect.name}: {what or 'NOT FOUND'}", flush=True)
            continue
        found = walks_until_found(defect, options.walks, options.seed)
        missed += found is None
        print(f"{defect.name}: " + (f"walk {found[0]}: {found[1]}" if found else "NOT FOUND"), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
