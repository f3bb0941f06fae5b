"""Downloads: whatever a payment file is called, what is made of it comes under its name."""

from __future__ import annotations

import pytest
from werkzeug.http import parse_options_header

from tests.web.house import ROWS, WRONG, House


@pytest.mark.parametrize("stem", [
    "Payroll – week 48 ’final’", "Gehälter 🐟 für Zoë", "工资单 第四十八周", "Ж" * 200, "x" * 200, "a 'b'; c = 50 %",
], ids=["dash and apostrophe", "emoji", "CJK", "200 letters of two bytes", "200 letters", "quotes"])  # fmt: skip
def test_what_is_made_of_a_file_of_any_name_is_downloaded(house: House, stem: str) -> None:
    """An en dash and a curly apostrophe, as word processors write them, were an internal error at every download."""
    file_id = house.upload(*ROWS, WRONG, name=f"{stem}.csv")
    house.post("maria", f"/files/{file_id}/ask", partial="yes")
    house.approve(file_id)
    house.work()
    batch, kept = house.file(file_id)["batch"], house.file(file_id)["name"].removesuffix(".csv")
    assert stem.endswith(kept)
    for path, name in (
        (f"/files/{file_id}/marked", f"{kept}.to-correct.csv"),
        (f"/batches/{batch}/results", f"{kept}.results.xlsx"),
        (f"/batches/{batch}/results?as=csv", f"{kept}.results.csv"),
        (f"/batches/{batch}/report", f"{kept}.report.html"),
    ):
        given = house.get("maria", path)
        header = given.headers["Content-Disposition"]
        assert header.encode("latin-1"), "what a server can write"
        kind, options = parse_options_header(header)
        assert (kind, options["filename"]) == ("attachment", name)
        assert given.data
    assert not list(house.site.home.rglob("*results*")), "made in memory, and kept nowhere"
    assert f"downloaded the results of {batch}" in house.page("lee", "/audit")
