"""A map for a file whose columns are not ours: proposed, completed by its person, remembered by header."""

from __future__ import annotations

import json
from typing import Any

from batchpay.intake.maps.draft import Choice, Question
from batchpay.web.reading import options_of
from batchpay.web.task import Task
from batchpay.workflows.map_file import FileToMap, Proposed, propose_map


class Answers:
    """Answers questions as the person did on the page; the others stay open."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given

    def answer(self, question: Question) -> Choice | str | None:
        """See workflows.map_file.Asker."""
        given = self._given.get(key_of(question))
        if question.typed is not None:
            return given or None
        return next((choice for choice in question.choices if choice.text == given), None)


def key_of(question: Question) -> str:
    """Return a question's key, by which its answer is found again."""
    return f"{question.about}: {question.text}"


def find_map(task: Task, path: str) -> tuple[dict[str, Any], bool]:
    """Find or propose a map; return what the file's row keeps of it, and whether the file can be read by it now.

    A map is used once its person has confirmed it, for this file or for an earlier one with the same header.
    """
    options = options_of(task.file)
    file = FileToMap(
        path,
        encoding=options.get("encoding"),
        sheet=options.get("sheet"),
        include_hidden=bool(options.get("include_hidden")),
    )
    proposed = propose_map(file, Answers(options.get("answers", {})), None)
    header = json.dumps([column.name for column in proposed.columns], ensure_ascii=False)
    if options.get("map_agreed") and not proposed.draft.needed:
        with task.store.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO map (header, tables, made_by, made_at) VALUES (?, ?, ?, ?)",
                (header, json.dumps(proposed.draft.tables), task.job["made_by"], task.store.clock()),
            )
        return {"tables": proposed.draft.tables, "made_by": task.job["made_by"]}, True
    known = task.store.one("SELECT * FROM map WHERE header = ?", header)
    if known is not None and not options.get("answers") and not options.get("map_anew"):
        return {"tables": json.loads(known["tables"]), "made_by": known["made_by"], "remembered": True}, True
    return _shown(proposed), False


def _shown(proposed: Proposed) -> dict[str, Any]:
    return {
        "columns": [
            {"name": one.name, "targets": list(one.targets), "why": one.why}
            for one in proposed.columns
            if one.targets or one.why
        ],
        "carried": [one.name for one in proposed.columns if not (one.targets or one.why)],
        "entries": [
            {"line": f"{one.table}: {one.key} = {one.value}", "why": one.why}
            for one in proposed.draft.entries
            if one.table not in ("columns", "split")
        ],
        "questions": [
            {
                "key": key_of(one),
                "about": one.about,
                "text": one.text,
                "choices": [choice.text for choice in one.choices],
                "typed": one.typed is not None,
                "needed": one.is_needed,
            }
            for one in proposed.draft.questions
        ],
        "preview": list(proposed.preview),
        "names": list(dict.fromkeys(name for row in proposed.preview for name in row)),
        "rows": proposed.rows,
    }
