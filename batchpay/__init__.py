"""batchpay: check a file of bank payments, send it through an ACH gateway, never pay twice, lose nothing.

Five functions do from Python what the commands of their names do (`check` is `validate`); docs/python.md has examples.
They are loaded when one is first used: each command imports this package as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchpay.version import __version__ as __version__

if TYPE_CHECKING:
    from batchpay.library import check, results, resume, status, submit

__all__ = ["check", "results", "resume", "status", "submit"]


def __getattr__(name: str) -> Any:
    """Load the functions when one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'batchpay' has no attribute {name!r}")
    import batchpay.library

    return getattr(batchpay.library, name)
