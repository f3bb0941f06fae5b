"""From upload to results, by the page alone: what people see at each step, and what the gateway received."""

from __future__ import annotations

from tests.web.house import ROWS, WRONG, House, words_of


def test_the_whole_story(house: House) -> None:
    """Maria uploads, checks and asks; Daniel approves; each payment goes once, and everybody sees the same sums."""
    file_id = house.upload(*ROWS, WRONG)
    page = words_of(house.get("maria", f"/files/{file_id}/check"))
    assert "60.75 3 rows" in page
    house.post("maria", f"/files/{file_id}/ask", 400)
    house.post("maria", f"/files/{file_id}/ask", partial="yes", note="Week 47")
    asked = words_of(house.get("daniel", f"/files/{file_id}/approve"))
    assert "60.75 in 3 payments" in asked
    assert "Week 47" in asked
    assert "Approve and send 60.75" in asked
    house.approve(file_id)
    assert house.file(file_id)["state"] == "approved"
    assert not house.arrived
    house.work()
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1}
    assert house.file(file_id)["state"] == "done"
    ended = words_of(house.get("lee", f"/files/{file_id}/run"))
    assert "60.75 accepted of 60.75" in ended
    assert "Finished. Every payment was answered." in ended
    (used,) = house.events("plan used")
    assert [one["who"] for one in used["approvals"]] == ["daniel (web)"]
