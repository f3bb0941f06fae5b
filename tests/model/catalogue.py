"""Every action of a walk, and how often it is done."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model import (
    actions,
    approvals,
    between,
    controls,
    days,
    disasters,
    four_eyes,
    meanwhile,
    purging,
    returning,
)
from tests.model.actions import Action


@dataclass(frozen=True, slots=True)
class Weighed:
    """An action and its weight among the others."""

    act: Action
    weight: int


ACTIONS: dict[str, Weighed] = {
    "make": Weighed(actions.make, 5),
    "alter": Weighed(actions.alter, 8),
    "save_as_workbook": Weighed(actions.save_as_workbook, 1),
    "correct_in_place": Weighed(actions.correct_in_place, 2),
    "correct_rejects": Weighed(actions.correct_rejects, 2),
    "submit": Weighed(actions.submit, 16),
    "look_and_submit": Weighed(actions.look_and_submit, 6),
    "set_limit": Weighed(actions.set_limit, 3),
    "days_pass": Weighed(actions.days_pass, 5),
    "answers": Weighed(actions.answers, 4),
    "other_gateway": Weighed(actions.other_gateway, 2),
    "kill": Weighed(actions.kill, 2),
    "resume": Weighed(actions.resume, 4),
    "rules_change": Weighed(actions.rules_change, 3),
    "resolve": Weighed(actions.resolve, 3),
    "set_policy": Weighed(approvals.set_policy, 1),
    "plan": Weighed(approvals.plan, 4),
    "split": Weighed(four_eyes.split, 2),
    "lower": Weighed(four_eyes.lower, 2),
    "switch_off": Weighed(four_eyes.switch_off, 1),
    "back_up": Weighed(disasters.back_up, 1),
    "bring_back": Weighed(disasters.bring_back, 1),
    "go_on_after_a_restore": Weighed(disasters.go_on_after_a_restore, 2),
    "lose_witness": Weighed(disasters.lose_witness, 1),
    "accept": Weighed(disasters.accept, 3),
    "settle_window": Weighed(disasters.settle_window, 2),
    "clone": Weighed(disasters.clone, 1),
    "copy": Weighed(disasters.copy, 1),
    "set_back": Weighed(disasters.set_back, 1),
    "edit_by_hand": Weighed(disasters.edit_by_hand, 1),
    "second_ledger": Weighed(disasters.second_ledger, 1),
    "clock_back": Weighed(disasters.clock_back, 1),
    "clock_ahead": Weighed(disasters.clock_ahead, 2),
    "replace_file": Weighed(meanwhile.replace_file, 3),
    "at_once": Weighed(meanwhile.at_once, 3),
    "release_race": Weighed(meanwhile.release_race, 2),
    "midnight": Weighed(meanwhile.midnight, 1),
    "other_environment": Weighed(disasters.other_environment, 1),
    "purge": Weighed(purging.purge, 1),
    "look_around": Weighed(disasters.look_around, 1),
    "archive": Weighed(meanwhile.archive, 1),
    "reconcile": Weighed(meanwhile.reconcile, 2),
    "one_in_another": Weighed(between.one_in_another, 4),
    "restored_in_use": Weighed(between.restored_in_use, 2),
    "let_through_elsewhere": Weighed(between.let_through_elsewhere, 2),
    "put_back_unapproved": Weighed(between.put_back_unapproved, 1),
    "gateway_moved": Weighed(between.gateway_moved, 1),
    "other_environment_first": Weighed(between.other_environment_first, 1),
    "old_papers": Weighed(between.old_papers, 2),
    "between_restores": Weighed(between.between_restores, 1),
    "twice_in_file": Weighed(actions.twice_in_file, 1),
    "other_company": Weighed(between.other_company, 1),
    "schedule": Weighed(days.schedule, 4),
    "submit_for_a_day": Weighed(days.submit_for_a_day, 2),
    "due": Weighed(days.due, 4),
    "fortnight": Weighed(days.fortnight, 2),
    "cancel": Weighed(days.cancel, 2),
    "held": Weighed(controls.held, 2),
    "numbered": Weighed(controls.numbered, 1),
    "day_limit": Weighed(days.day_limit, 2),
    "limit_reached": Weighed(days.limit_reached, 2),
    "come_back": Weighed(returning.come_back, 3),
    "undo": Weighed(returning.undo, 2),
}
