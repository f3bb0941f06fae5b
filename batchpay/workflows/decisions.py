"""What a person decided in a command: it counts for this one call only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a person decided in this call, and why; no file and no variable can request it."""

    again: bool = False
    """Pay the same content once more."""
    release: bool = False
    """Send rows of this batch that were rejected earlier and are valid now."""
    paid_elsewhere_checked: bool = False
    """A person has checked: neither another ledger nor the other environment paid this file, despite the signs."""
    reason: str | None = None

    @property
    def again_reason(self) -> str | None:
        """Return why the same content is paid once more, or None if it is not."""
        return self.reason if self.again else None
