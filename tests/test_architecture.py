"""The layout that README and CONTRIBUTING describe, held against the imports as they stand."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FLOW = (
    "version",
    "errors",  # what stops a command, and its exit code
    "payment",  # states, directions, cents
    "outcome",  # what an attempt proved
    "text",  # how values are shown
    "settings",  # what may stand in a settings file
    "writing",  # files that appear whole or not at all
    "schemas",  # the rules of a row
    "summary",  # rows and cents by state, which add up
    "intake",  # 1 a file becomes chunks of text
    "validation",  # 2 every rule of every row
    "approval",  # 3 what would move, and who agreed to it
    "registration",  # 4 request bodies
    "ledger",  # 5 the durable record
    "gateway",  # 6 the other side
    "sending",  # 7 attempts, at the gateway's pace
    "reports",  # 8 results and pages
    "reconciliation",  # 9 against what the bank says
    "returns",  # 10 what came back later
    "operations",  # inbox, archive, logs, metrics
    "workflows",  # one function a use case: the only entrance
    "sandbox",  # the gateway on loopback
    "web",  # the page for finance people
    "cli",  # parse, ask, print, exit
    "library",  # the functions of `import batchpay`
    "__main__",
)
"""The rooms in the order in which data passes them. A room imports only rooms that stand before it."""

ANYWHERE = (
    "batchpay.ledger.columns",
    "batchpay.ledger.contract",
    "batchpay.ledger.days",
    "batchpay.ledger.facts",
    "batchpay.ledger.paths",
    "batchpay.ledger.records",
)
"""The ledger's contract names no database: rooms before the ledger speak to it by these alone."""

LEDGER_DOORS = (*ANYWHERE, "batchpay.ledger.open")
"""All that other rooms, and their tests, may know of the ledger: which database holds it is its own affair."""

OF_ONE_KIND = ("batchpay.ledger.sqlite", "batchpay.ledger.postgres", "tests.support.postgres")
"""What a test imports that speaks of a ledger in a file, or of one in a database, alone."""

RIGHT_HALF = ("ledger", "gateway", "sending")
"""What sends imports neither polars nor pandera."""

ONLY_IN: dict[str, set[str]] = {
    "requests": {"gateway"},
    "httptools": {"gateway"},
    "tenacity": {"sending", "gateway"},
    "pandera": {"schemas", "validation"},
    "segno": {"web"},
    "sqlite3": {"ledger", "sandbox", "web", "cli"},  # cli: its version
    "flask": {"sandbox", "web"},
    "waitress": {"sandbox", "web"},
    "click": {"cli", "library"},
    "cryptography": {"ledger"},
    "psycopg": {"ledger"},  # ledger/postgres alone: see ADD_ONS
}
"""Libraries, and the only parts that may import them."""

ADD_ONS = {
    "batchpay.ledger.postgres": {"ledger/open.py"},
    "batchpay.web": {"cli/web.py"},
    "batchpay.sandbox": {"cli/sandbox.py"},
}
"""What the core runs without, and the only files that import it, where it is called for: each is an extra."""
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 75


@cache
def sources() -> list[Path]:
    return sorted(
        path for folder in ("batchpay", "schemas") for path in (ROOT / folder).rglob("*.py") if not linked(path)
    )


def linked(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents)


def room_of(path: Path) -> str:
    """Name the room that a file stands in: its folder, or the module itself."""
    relative = path.relative_to(ROOT)
    return relative.parts[0 if relative.parts[0] == "schemas" else 1].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("batchpay", *parts) if parts[0] == "schemas" else parts).removesuffix(".__init__")


def imported_by(path: Path) -> set[str]:
    return facts_of(path)[0]


@cache
def facts_of(path: Path) -> tuple[set[str], dict[str, int]]:
    """Parse a file once: what it imports, and the length of each of its functions."""
    tree = tree_of(path)
    lines = {
        f"{node.name} in line {node.lineno}": node.end_lineno - node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    return imported_names(tree), lines


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported_names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_imports_point_one_way() -> None:
    """A room imports only rooms before it in the flow, and heavy libraries stay where they belong."""
    for path in sources():
        room = room_of(path)
        names = imported_by(path)
        ours = {name for name in names if name.startswith("batchpay.") and not name.startswith(ANYWHERE)}
        rooms = {name.split(".")[1] for name in ours} & set(FLOW) - {room}
        if room != "__init__":
            late = rooms - set(FLOW[: FLOW.index(room)])
            assert not late, f"{path}: {room} stands before {late} in the flow"
        for library, parts in ONLY_IN.items():
            if any(name == library or name.startswith(f"{library}.") for name in names):
                assert room in parts, f"{path}: {library} belongs to {parts}"


def test_no_two_files_need_each_other() -> None:
    """Imports, those inside functions too, form no circle."""
    names = {module_of(path): imported_by(path) for path in sources()}
    needs = {module: {other for other in names if other in imported} - {module} for module, imported in names.items()}
    while needs:
        free = {module for module, needed in needs.items() if not needed & needs.keys()}
        assert free, f"a circle among {sorted(needs)}"
        needs = {module: needed for module, needed in needs.items() if module not in free}


def test_the_sandbox_knows_nothing_of_the_client() -> None:
    """The sandbox shares no code with gateway/ or schemas/, so that one mistake can't agree with itself."""
    for path in sources():
        if room_of(path) == "sandbox":
            names = imported_by(path)
            assert not any(name.startswith(("batchpay.gateway", "batchpay.schemas")) for name in names), path


def test_the_ledger_has_one_door() -> None:
    """No other room, and no test but the ledger's own, imports what is behind `open_ledger`."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.parent != ROOT / "tests" / "ledger"]
    for path in [*sources(), *tests]:
        if not path.is_relative_to(ROOT / "batchpay" / "ledger"):
            names = imported_by(path)
            behind = {name for name in names if name.startswith("batchpay.ledger.")}
            assert not {name for name in behind if not name.startswith(LEDGER_DOORS)}, path


def test_sql_stands_together_by_name() -> None:
    """What a second database must do can be read in one place."""
    folder = ROOT / "batchpay" / "ledger"
    statement = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE FROM|CREATE)\b")
    for path in set(folder.rglob("*.py")):
        if path.name not in ("statements.py", "fact_statements.py"):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    assert not statement.match(node.value), f"{path.name}:{node.lineno}"


def test_a_test_of_one_kind_of_ledger_says_why() -> None:
    """Whatever a ledger promises is tested in a file and in a database, or a marker says what only one of them has."""
    found = list((ROOT / "tests" / "ledger").glob("test_*.py"))
    assert len(found) > 20
    for path in found:
        tree = tree_of(path)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        of_one = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OF_ONE_KIND)
            for name in node.names
        }
        of_file = [
            mark
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
            for mark in ledgers_in([node.value])
        ]
        for test in functions.values():
            taken, used = closure_of(test, functions)
            marks = ledgers_in(test.decorator_list, tree) or of_file
            is_of_one = len(marks[0].args) == 1 if marks else "ledger_factory" not in taken and used & of_one
            if test.name.startswith("test_") and is_of_one:
                assert marks, f"{path.name}: {test.name} runs on one kind of ledger: @pytest.mark.ledgers(..., why=...)"
                assert [one.arg for one in marks[0].keywords] == ["why"], f"{path.name}: {test.name} does not say why"


def closure_of(test: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> tuple[set[str], set[str]]:
    """Collect the fixtures that a test takes, also through those of its file, and every name that these use."""
    taken, used, open_ones = set[str](), set[str](), [test]
    while open_ones:
        one = open_ones.pop()
        names = {argument.arg for argument in one.args.args} - taken
        taken |= names | ({"ledger_factory"} if "ledger" in names else set())
        used |= names | {node.id for part in one.body for node in ast.walk(part) if isinstance(node, ast.Name)}
        open_ones += [functions[name] for name in names if name in functions]
    return taken, used


def ledgers_in(expressions: list[ast.expr], tree: ast.Module | None = None) -> list[ast.Call]:
    """Find `pytest.mark.ledgers(...)`, written out or as a name of its file."""
    named = {
        target.id: node.value
        for node in (tree.body if tree else ())
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    written = [named.get(one.id, one) if isinstance(one, ast.Name) else one for one in expressions]
    return [
        one
        for one in written
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "ledgers"
    ]


def test_the_core_runs_without_its_add_ons() -> None:
    """PostgreSQL, the page and the sandbox are extras: few files import them, and only where they are called for."""
    for path in sources():
        for add_on, doors in ADD_ONS.items():
            name = path.relative_to(ROOT / "batchpay").as_posix() if path.is_relative_to(ROOT / "batchpay") else ""
            if not module_of(path).startswith(add_on) and any(one.startswith(add_on) for one in imported_by(path)):
                assert name in doors, f"{path} imports {add_on}"
                body = [node for node in without_types(tree_of(path)).body if not isinstance(node, ast.FunctionDef)]
                at_once = imported_names(ast.Module(body, []))
                assert not {one for one in at_once if one.startswith(add_on)}, path
    commands = (ROOT / "batchpay" / "cli" / "commands.py").read_text("utf-8")
    assert commands.count('"batchpay.cli.web"') == commands.count('"batchpay.cli.sandbox"') == 1


def test_the_right_half_is_light() -> None:
    """What sends payments imports neither polars nor pandera: it starts fast and can't be killed by them."""
    for path in sources():
        if room_of(path) in RIGHT_HALF:
            names = {name.split(".")[0] for name in imported_by(path)}
            assert not names & {"polars", "pandera"}, path


def test_files_and_functions_stay_short() -> None:
    """A file fits on a few screens and a function on one."""
    for path in sources():
        assert len(path.read_text("utf-8").splitlines()) <= FILE_LINES_MAX, path
        assert {name for name, lines in facts_of(path)[1].items() if lines >= FUNCTION_LINES_MAX} == set(), path


PLAIN_WORDS = {"errors", "payment", "text", "settings", "summary", "version", "writing", "workflows"}
"""The rooms that commands may import: the use cases, words without decisions, and what a path may be written as."""

BESIDE_THE_WORKFLOWS: dict[str, set[str]] = {
    "gateway.py": {"gateway", "schemas"},  # accounts are not payments
    "operations.py": {"operations"},  # log, metrics and ping surround a call: they are its process' affair
    "sandbox.py": {"sandbox"},  # the sandbox is another program, which shares nothing with the client
    "web.py": {"web", "operations"},  # the page is another entrance, which stands on the workflows; it has its own log
}
"""Commands that reach a room directly, and why."""


def test_commands_enter_by_the_workflows() -> None:
    """cli/ parses, asks, prints and exits: what is decided about money is decided in workflows/.

    Names for the type checker decide nothing.
    """
    assert len(BESIDE_THE_WORKFLOWS) <= 5
    for path in (ROOT / "batchpay" / "cli").glob("*.py"):
        names = imported_names(without_types(tree_of(path)))
        ours = {name for name in names if name.startswith("batchpay.") and not name.startswith(ANYWHERE)}
        rooms = {name.split(".")[1] for name in ours} & set(FLOW) - {"cli"}
        assert rooms - PLAIN_WORDS == BESIDE_THE_WORKFLOWS.get(path.name, set()), path


def without_types(tree: ast.Module) -> ast.Module:
    """Leave out what is imported under `if TYPE_CHECKING`."""
    return ast.Module(
        [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")], []
    )


def test_a_workflow_leaves_the_process_alone() -> None:
    """Workflows serve a page for finance people as well: they print nothing, ask nothing, and touch no signal."""
    forbidden = {"click", "signal", "sys", "pwd", "getpass"}
    acts = {"print", "input", "sched_setaffinity", "getlogin", "getuid", "getpwuid", "umask", "chdir"}
    for path in (ROOT / "batchpay" / "workflows").glob("*.py"):
        tree = tree_of(path)
        assert not {name.split(".")[0] for name in imported_by(path)} & forbidden, path
        called = {
            node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        assert not called & acts, path


def test_every_package_ships() -> None:
    """Each folder with Python in it stands in the list of packages, so that the wheel has all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("batchpay", *relative.parts) if relative.parts[0] == "schemas" else relative.parts)
        for relative in {path.parent.relative_to(ROOT) for path in sources()}
    }
    assert found <= listed


def test_few_modules_lie_loose() -> None:
    """Beside the rooms stand only the words that all of them share."""
    loose = {path.stem for path in (ROOT / "batchpay").glob("*.py")} - {"__init__", "__main__"}
    assert loose == {"errors", "library", "outcome", "payment", "settings", "summary", "text", "version"}
