"""Exchanges the code of functions that are loaded, so that a change is tried without loading the program anew."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def exchange(file: str, before: str, after: str) -> bool:
    """Give every function of a module its changed code; False where the change is not one of a function's body."""
    codes = list(_codes(compile(before, file, "exec")))
    others = list(_codes(compile(after, file, "exec")))
    if [(one.co_qualname, one.co_freevars) for one in codes] != [(one.co_qualname, one.co_freevars) for one in others]:
        return False
    pairs = list(zip(codes, others, strict=True))
    if any(not _is_function(old) and _own(old) != _own(new) for old, new in pairs):
        return False  # runs once, when the module is loaded
    gc.unfreeze()  # of what is frozen, as the tests do with all that they loaded, nothing would be found
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename == file]
    changed = {(old.co_qualname, old.co_firstlineno): new for old, new in pairs if _is_function(old)}
    found = {(one.__code__.co_qualname, one.__code__.co_firstlineno) for one in functions}
    different = {(old.co_qualname, old.co_firstlineno) for old, new in pairs if _is_function(old) and old != new}
    if not different <= found <= changed.keys():
        return False  # not loaded, or made by another function while it was loaded
    for one in functions:
        one.__code__ = changed[one.__code__.co_qualname, one.__code__.co_firstlineno]
    return True


def exchange_texts(file: str, after: str) -> bool:
    """Give a module's own names, and those who took them from it, the texts that its changed source makes of them."""
    module = next((one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == file), None)
    if module is None:
        return False
    changed: dict[str, object] = {"__name__": module.__name__, "__file__": file, "__package__": module.__package__}
    exec(compile(after, file, "exec"), changed)  # noqa: S102 - the program's own source
    for name, new in changed.items():
        old = vars(module).get(name)
        if isinstance(new, str) and isinstance(old, str) and new != old:
            for other in list(sys.modules.values()):
                if isinstance(other, ModuleType) and vars(other).get(name) is old:
                    setattr(other, name, new)
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A module's blocks: itself, its classes, and all functions that are not made by others."""
    yield code
    for one in () if _is_function(code) else code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a block does itself, without the functions that it makes."""
    return code.co_code, code.co_names, [one for one in code.co_consts if not isinstance(one, CodeType)]
