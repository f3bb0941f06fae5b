"""The same six layouts on the page: the same questions, answered there, and the same payments."""

from __future__ import annotations

from typing import Any

import pytest

from batchpay.web import spool
from tests.support.layouts import LAYOUTS, Layout
from tests.web.house import House
from tests.web.test_check_page import send


def answered(layout: Layout, house: House, file_id: str) -> int:
    """Answer everything that the page asks; return how many questions it had."""
    count = 0
    for _ in range(4):
        proposal = spool.unseal_json(house.site.ledger(), file_id, "proposal", house.file(file_id)["proposal"])
        answers: Any = {}
        for one in proposal["questions"]:
            wanted = layout.answers.get(one["about"], "")
            fitting = [choice for choice in one["choices"] if wanted and choice.startswith(wanted)]
            if fitting or (one["typed"] and wanted):
                answers[f"answer.{one['about']}: {one['question']}"] = fitting[0] if fitting else wanted
        if not answers:
            assert not [one for one in proposal["questions"] if one["needed"]]
            assert proposal["totals"], "what is agreed to is shown in totals"
            return count
        count += len(answers)
        house.post("maria", f"/files/{file_id}/map", **answers)
        house.work()
    raise AssertionError("the page goes on asking")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_paid_by_answers_on_the_page(house: House, name: str) -> None:
    """No map is typed, and the page asks no more than the command does."""
    layout = LAYOUTS[name]
    file_id = send(house, layout.make().encode(layout.encoding), "theirs.csv")
    if layout.encoding != "utf-8":
        house.post("maria", f"/files/{file_id}/check", encoding=layout.encoding)
        house.work()
    assert answered(layout, house, file_id) <= layout.questions
    house.post("maria", f"/files/{file_id}/map", agreed="yes")
    house.work()
    page = house.page("daniel", f"/files/{file_id}/check")
    if layout.left_out:
        assert f"the map leaves out {layout.left_out} row" in page
    house.post("maria", f"/files/{file_id}/ask", partial="yes")
    house.approve(file_id)
    house.work()
    assert sum(house.arrived.values()) == layout.paid
