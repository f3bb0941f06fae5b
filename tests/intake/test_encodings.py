"""Text that is not UTF-8: the encoding is proposed by what its names would be, and a person names it.

It said: use --encoding, for instance cp1252. A Macintosh's René was paid as RenŽ.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from tests.support.payment_files import DATA, csv_text, line, read, write

WESTERN = ("René Müller", "José Peña", "Zoë Ångström", "FRANÇOIS GÉRÔME", "Íñigo Núñez", "Søren Møller")
CENTRAL = ("Łukasz Wałęsa", "Jiří Dvořák", "Żaneta Świątek")
CYRILLIC = ("Анна Иванова", "Пётр Смирнов")
REFUSED = r"line 5 is not UTF-8; in {} its names read .*{}.*\(use --encoding {}, or another\)$"


def of(names: tuple[str, ...], encoding: str) -> bytes:
    """A payment file with these people, after three rows that are plain."""
    people = (line(billingFirstName=one.split()[0], billingLastName=one.split()[1]) for one in names)
    return csv_text(3).encode() + "".join(people).encode(encoding)


@pytest.mark.parametrize(("encoding", "names"), [
    ("cp1252", WESTERN), ("cp850", WESTERN), ("mac-roman", WESTERN), ("cp1250", CENTRAL), ("cp1251", CYRILLIC),
    ("cp850", ("René Müller",)), ("mac-roman", ("Zoë Brown",)), ("cp1252", ("Peter Müller", "12 Rue de l’Hôtel")),
])  # fmt: skip
def test_the_encoding_that_makes_names_is_proposed(tmp_path: Path, encoding: str, names: tuple[str, ...]) -> None:
    """The best is first, with names as they would read; --encoding with that name reads the file."""
    path = write(tmp_path, of(names, encoding))
    first = next(word for name in names for word in name.split() if not word.isascii())
    with pytest.raises(FileRefused, match=REFUSED.format(encoding, first, encoding)):
        read(path)
    assert read(path, encoding=encoding)["billingLastName"].to_list()[3:] == [name.split()[1] for name in names]


def test_where_two_encodings_make_names_both_are_shown(tmp_path: Path) -> None:
    """One letter is not enough to know: a person who knows the payee chooses."""
    with pytest.raises(FileRefused, match=r"in mac-roman its names read Peña.*\(use --encoding") as refused:
        read(write(tmp_path, of(("Ana Peña",), "mac-roman")))
    assert "in cp850 its names read Peûa" in str(refused.value)


def test_no_digit_is_shown(tmp_path: Path) -> None:
    """A cell with a strange byte may be an account number."""
    content = csv_text(3) + line(achAccountNumber="0012345678é", billingLastName="Müller")
    with pytest.raises(FileRefused) as refused:
        read(write(tmp_path, content.encode("cp1252")))
    assert "Müller" in str(refused.value)
    assert "12345" not in str(refused.value)
    assert "5678" not in str(refused.value)


@pytest.mark.parametrize(("content", "told"), [
    (of(WESTERN, "utf-8") + line(billingLastName="Müller").encode("cp1252"), "line 11 is not UTF-8: other lines are,"),
    (csv_text(3).encode() + line(billingLastName="M\0ller").encode().replace(b"\0", b"\xb0\xb1"), "no encoding that"),
])  # fmt: skip
def test_where_no_encoding_is_right_none_is_proposed(tmp_path: Path, content: bytes, told: str) -> None:
    """A file that was put together of two, or that is no text, must be exported anew."""
    with pytest.raises(FileRefused, match=told) as refused:
        read(write(tmp_path, content))
    assert "--encoding" not in str(refused.value)


def test_a_header_in_another_encoding(tmp_path: Path) -> None:
    """The same where the first line is not UTF-8, so that not even the columns are known."""
    with pytest.raises(
        FileRefused, match=r"line 1 is not UTF-8; in cp1252 its names read Empfänger.*\(use --encoding cp1252"
    ):
        read(write(tmp_path, csv_text(2).replace("gatewayId", "Empfänger", 1).encode("cp1252")))


@pytest.mark.skipif(not (DATA / "field").is_dir(), reason="the field's files are not here")
@pytest.mark.parametrize(("name", "encoding", "shown"), [
    ("e_cp850.csv", "cp850", "René Müller, José Peña, Zoë Brown"), ("L5_sap.csv", "cp1252", "Fälligkeit"),
])  # fmt: skip
def test_files_of_the_field(name: str, encoding: str, shown: str) -> None:
    """CASES.md: the encoding is proposed with a sample of the names."""
    with pytest.raises(FileRefused, match=rf"in {encoding} its names read .*{shown}.*\(use --encoding {encoding},"):
        read(str(DATA / "field" / name))
