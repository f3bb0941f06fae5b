"""batchpay's check of a payment file with a CSV of rejects: with all rules, or the fifteen shared ones.

Run as `python -m tests.benchmarks.own_validate all|fifteen INPUT REJECTS`; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from batchpay.intake.source import open_source
from batchpay.schemas.catalogue import PAYMENT_ID_DUPLICATE, ROW_DUPLICATE
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.payment import payment_rules
from batchpay.schemas.rule import Rule
from batchpay.validation import compiled_rules
from batchpay.validation.rejects import open_rejects
from batchpay.validation.verdict import check
from tests.benchmarks.data import AS_OF
from tests.benchmarks.rules import SHARED_RULES

SHARED = {rule.name for rule in SHARED_RULES}


def only_the_shared(options: RuleOptions) -> list[Rule]:
    """Leave out all rules but the shared ones that are errors; what leant on a rule left out stands by itself."""
    kept: dict[int, Rule] = {}
    leader: Rule | None = None
    for rule in payment_rules(options):
        if rule.name in SHARED and rule.is_error:
            prerequisites = tuple(kept[id(guard)] for guard in rule.prerequisites if id(guard) in kept)
            shared = rule.screen_shared and id(leader) in kept
            kept[id(rule)] = replace(rule, prerequisites=prerequisites, screen_shared=shared)
        leader = leader if rule.screen_shared else rule
    assert len(kept) == len(SHARED_RULES), "each shared rule is one of batchpay's"
    return list(kept.values())


def main() -> None:
    """Check one file and print what was found and how long it took after the imports."""
    which, path, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    options = RuleOptions(as_of=AS_OF)
    if which == "fifteen":
        options = replace(options, rules_off=frozenset({PAYMENT_ID_DUPLICATE.name, ROW_DUPLICATE.name}))
        vars(compiled_rules)["payment_rules"] = only_the_shared
    started = time.perf_counter()
    with open_source(path) as source:
        rejects = open_rejects(target, source)
        verdict = check(source, options, rejects=rejects)
        rejects.commit()
    elapsed_s = time.perf_counter() - started
    shared = sum(count for name, count in verdict.counts.items() if name in SHARED)
    found = {"rows": verdict.rejected.rows, "failures": sum(verdict.counts.values()), "shared_failures": shared}
    print(json.dumps({"job_s": elapsed_s, "warnings": verdict.warnings, **found}))


if __name__ == "__main__":
    main()
