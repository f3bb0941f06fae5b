"""Files of banks that are no payment file: recognized by their content, refused by their name.

Plain Python: the first bytes of every file go through here. Nothing of such a file is ever quoted.
"""

from __future__ import annotations

import re

from batchpay.errors import FileRefused

HEAD_BYTES = 4096
"""So many first bytes are enough to recognize any kind of file: an ACH file has forty records in them."""
_RECORD = 94
_ACH = re.compile(
    r"""1\d\d[ \d]\d{9}.{10}\d{6}.{4}[A-Z\d]094  # a file's header; 094 is the length of records
    |6[2-5]\d{10}[^,;|\t"]{17}\d{10}              # a payment: kind, routing number, account, cents""",
    re.VERBOSE,
)
_ISO_20022 = re.compile(r"<.*?xsd:((?:pain|camt)\.\d{3})\b", re.DOTALL)
_BAI2 = re.compile(r"01,[^,\n]*,[^,\n]*,\d{6},\d{0,4},[^\n]*\n\s*02,")
_MT940 = re.compile(r":60[FM]:[CD]\d{6}[A-Z]{3}\d")

_KINDS = {
    "ach": "an ACH file (NACHA), which a bank carries out as it is; export its payments {as_table}",
    "pain": "a file of payment orders for a bank ({message}); export its payments {as_table}",
    "statement": "an account statement ({message}), which lists what was paid; name a file of payments {as_table}",
}
_AS_TABLE = "as CSV, XLSX or Parquet"


def refuse_bank_file(name: str, text: str) -> None:
    """Raise FileRefused where a file that begins with this text is a bank's: an ACH file, payment orders, a statement.

    ACH files are found without their header records too, under other lines, and all records in one line.
    """
    text = text[:HEAD_BYTES].lstrip(" \t\r\n\ufeff")
    lines = [line.lstrip(' "') for line in re.split("[\r\n]+", text)]
    kind, message = "statement", ""
    if found := _ISO_20022.match(text):
        message = found[1]
        kind = "pain" if message.startswith("pain") else kind
    elif _BAI2.match(text):
        message = "BAI2"
    elif text.startswith(("{1:", ":")) and _MT940.search(text):
        message = "MT940"
    elif any(_ACH.match(line, at) for line in lines for at in range(0, len(line), _RECORD)):
        kind = "ach"
    else:
        return
    raise FileRefused(f"{name}: is {_KINDS[kind].format(message=message, as_table=_AS_TABLE)}")
