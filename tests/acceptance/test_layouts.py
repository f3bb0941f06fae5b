"""Six layouts of other programs, paid by answering questions only: nothing is typed into a map, no cell is edited."""

from __future__ import annotations

import pytest

from batchpay.intake.maps.loading import load_mapping
from tests.support.answers import answer_map
from tests.support.command import Home
from tests.support.layouts import FIELD, LAYOUTS, five_columns


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("whose", ["made here", "of others"])
def test_a_layout_is_paid_by_answering_only(sandbox_home: Home, name: str, whose: str) -> None:
    """Each took answers in a map by hand, or could not be paid, or was paid wrong."""
    layout = LAYOUTS[name]
    if whose == "made here":
        text = layout.make().encode(layout.encoding)
    elif layout.like is None or not (FIELD / layout.like).exists():
        pytest.skip("there is no such file here")
    else:
        text = (FIELD / layout.like).read_bytes()
    (sandbox_home.path / "theirs.csv").write_bytes(text)
    mapped = answer_map(sandbox_home, layout.answers, "theirs.csv", "--write", "m.toml", *layout.options)
    assert mapped.exit_code == 0, mapped.output
    assert len(mapped.asked) <= layout.questions, mapped.asked
    assert "all rows examined, by direction, currency, status and day:" in mapped.output
    assert " ".join(("then: batchpay validate theirs.csv --map m.toml", *layout.options)) in mapped.output
    load_mapping(str(sandbox_home.path / "m.toml"))
    sent = sandbox_home.json("submit", "theirs.csv", "--map", "m.toml", *layout.options)
    assert sent["rows"] == sent["accepted"] + sent["rejected"] + sent["left_out"]["rows"], sent
    if whose == "made here":
        found = (sent["accepted"], sent["left_out"]["rows"], sent["rejected"])
        assert found == (layout.paid, layout.left_out, layout.rejected)
        if layout.cents is not None:
            assert sent["amount"]["accepted"] == f"{layout.cents // 100}.{layout.cents % 100:02d}"
    elif layout.like_paid[0]:
        rows, cents = layout.like_paid
        assert sent["accepted"] == rows
        assert not cents or sent["amount"]["accepted"] == f"{cents // 100}.{cents % 100:02d}"


def test_a_file_without_a_header_is_told_which_words_to_add(home: Home) -> None:
    """Nothing of its first payment is printed, and with the words that are proposed the file is read."""
    (home.path / "five.csv").write_text(five_columns(header=""), "utf-8")
    refused = home.run("map", "five.csv")
    words = "Name, Routing Number, Account Number, Account Type, Amount"
    assert refused.returncode == 4
    assert refused.stderr.strip().endswith(f"for instance {words}")
    assert "Berg" not in refused.stderr
    (home.path / "five.csv").write_text(five_columns(header=words.replace(", ", ",")), "utf-8")
    mapped = answer_map(home, LAYOUTS["five columns"].answers, "five.csv", "--write", "m.toml")
    assert (mapped.exit_code, len(mapped.asked)) == (0, 6)
