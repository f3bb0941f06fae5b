"""What a person decided in a call: it counts for this call alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a person decided in this very call, and why; no file and no variable can ask for it."""

    again: bool = False
    """Pay the same content once more."""
    release: bool = False
    """Send rows of this batch that were rejected earlier and are right now."""
    paid_elsewhere_checked: bool = False
    """A person has looked: neither another ledger nor the other environment paid this file, whatever speaks for it."""
    reason: str | None = None

    @property
    def again_reason(self) -> str | None:
        """Why the same content is paid once more, or None where it is not."""
        return self.reason if self.again else None
