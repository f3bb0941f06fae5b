"""What people do one thing after another: a walk begins with one of these and continues at random.

A story is written as steps: `name:a:b:c`. A number that is not given, or is `*`, is left to chance; `1|4` is one of the
two, `edit|clone` one of two actions, and a step that ends with `?` is left out half of the time. A story says how work
proceeds, not what goes wrong in it: the numbers are fixed only where it would be a different story without them.
"""

from __future__ import annotations

import random

NUMBERS = 60
"""Each number of a step is below this."""

STORIES: dict[str, int] = {
    "make submit": 16,
    # the same payments under other names, on the same day or when weeks have passed
    "make:*:0|2|3:* submit:*:0 days_pass? alter:*:3|4|6:* submit:0:0|3": 6,
    "make:*:1|2|3:0|1 submit:*:0 days_pass:2|3|4 alter:*:1|2|5:* submit:0:0|3": 7,
    "make:*:0|2|3:0|1 submit:*:0 alter submit:*:4|9": 5,
    "make other_gateway? submit:*:0 other_gateway alter submit:0:0": 3,
    # invalid rows are corrected, here or in the rejects, and released or paid from another file
    "make:*:*:2|3|5 submit:*:0 correct_in_place submit": 4,
    "make:*:*:2|3|5 submit:*:0 set_limit? submit:*:0|3": 5,
    "make:*:0|1|2:5 submit:*:0 correct_rejects submit:*:0 days_pass:3|4 submit:2:8": 6,
    "days_pass? release_race": 4,
    # a part is sent, time passes or a rule changes, and the rest is sent
    "make submit:*:6 days_pass:2|3|4 resume|submit": 4,
    "make submit:*:6 days_pass:3|4 resume": 5,
    "make:*:*:4 submit:*:6 set_limit:0 resume|submit": 3,
    "rules_change": 4,
    "make kill days_pass? resume|submit": 2,
    # a file is edited or another command runs while it is being checked
    "make replace_file:*:0|1|2|3:*": 9,
    "make at_once": 3,
    # someone else approves, or does not
    "set_policy make plan": 7,
    "make plan": 6,
    # the gateway gives unusual answers, and a person finds out what became of the payments
    "answers make submit:*:0 submit|resume|resolve": 3,
    "answers:0|1|3|5 make submit:*:0 make submit:*:0": 5,
    "answers:3 make submit:*:0": 4,
    "make? submit? reconcile": 9,
    # the ledger, its machine and its settings are not what they were
    "make submit:*:6 clone|copy": 4,
    "make submit:*:0|6 second_ledger": 4,
    "make submit:*:6 edit_by_hand": 5,
    "make submit:*:0|6 alter:*:1|2 clock_ahead submit": 4,
    "make clock_back": 3,
    "make submit:*:0 other_environment": 2,
    "make submit? look_around": 5,
    "make submit:*:0|6 back_up make? submit bring_back accept? submit|resume": 3,
    "go_on_after_a_restore settle_window? submit": 3,
    "make submit:*:6 back_up submit:*:0 bring_back accept settle_window reconcile": 2,
    # what is long finished is erased, and remains known
    "make:*:*:0|3 submit:*:0|6 days_pass:2|3|4 purge alter? submit": 5,
}
"""Each story and how often it occurs among the others."""

IN_BETWEEN: dict[str, int] = {
    "make submit:*:0|6 back_up? submit? one_in_another submit?": 5,
    "restored_in_use accept? submit|resume": 5,
    "let_through_elsewhere": 4,
    "put_back_unapproved": 2,
    "gateway_moved submit?": 2,
    "other_environment_first": 2,
    "old_papers": 5,
    "between_restores": 2,
    "twice_in_file": 2,
    "other_company submit?": 2,
}
"""Those in which what was looked at is not what is acted on: a restore, a payment, a decision, another address, another
reading of the same file.

They follow the others, whose walks stay as they were.
"""

DAYS: dict[str, int] = {
    "fortnight": 6,
    "schedule submit:0:0|6 days_pass:0|1|2|3 due|resume|submit due?": 7,
    "schedule submit:0:0 cancel submit:0:0|7": 4,
    "schedule submit:0:0 days_pass:1|2 alter submit:0:0|4": 4,
    "schedule submit:0:0 kill? back_up? days_pass:1|2|3 due": 3,
    "make submit_for_a_day days_pass? submit|due|cancel|submit_for_a_day": 5,
    "make submit:*:6 cancel submit|resume": 3,
    "limit_reached days_pass? submit|resume|due": 5,
    "day_limit:1 make submit:0:0 make submit:0:0": 4,
    "make submit:*:6 day_limit:1 answers? resume|submit resolve?": 4,
}
"""Those of days on which payments are due, and of what one day may be sent. They follow the others as well."""

RETURNS: dict[str, int] = {
    "make:*:0 submit:*:0 come_back undo? alter:*:1|2|3 submit:0:0": 5,
    "make:*:0 submit:*:0 come_back days_pass:2|3|4 purge come_back undo?": 3,
    "make:*:0 answers:0 submit:*:0 come_back resolve come_back": 3,
    "make:*:0 submit:*:0 back_up? come_back other_gateway? bring_back? accept? come_back": 3,
}
"""Those in which payments come back. They follow the others as well."""

FOUR_EYES: dict[str, int] = {
    "make? submit? split": 4,
    "make? submit? lower": 4,
    "make? submit? switch_off": 2,
}
"""Those of one person who would rather need no other."""

Numbered = tuple[str, int, int, int]


def _shuffled(stories: dict[str, int]) -> list[str]:
    found = [story for story, often in stories.items() for _ in range(often)]
    random.Random(1).shuffle(found)
    return found


_IN_TURN = _shuffled(STORIES) + _shuffled(IN_BETWEEN) + _shuffled(DAYS) + _shuffled(RETURNS) + _shuffled(FOUR_EYES)


def told(seed: int, dice: random.Random) -> list[Numbered]:
    """Return the story of a walk: its steps, every number decided. Walks in a row use each as often as stated."""
    steps = []
    for word in _IN_TURN[seed % len(_IN_TURN)].split():
        if word.endswith("?") and dice.randrange(2):
            continue
        name, *numbers = word.removesuffix("?").split(":")
        held = [*numbers, *(3 - len(numbers)) * ["*"]]
        a, b, c = (dice.randrange(NUMBERS) if one == "*" else int(dice.choice(one.split("|"))) for one in held)
        steps.append((dice.choice(name.split("|")), a, b, c))
    return steps


def one_of_each() -> list[int]:
    """Return a seed of each story: the first."""
    return sorted(map(_IN_TURN.index, set(_IN_TURN)))
