"""The time of a scan, which notes until when what it was asked has the same answer.

A scan reads the time only by comparing it. So with the same cluster, and nothing of its own
changed, a later scan comes to the same as long as each comparison does: up to `until_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass

FOR_EVER_NS = 1 << 63
"""Later than any instant."""


@dataclass(slots=True)
class Now:
    """The instant `ns`; all results read from it stay the same until `until_ns`."""

    ns: int
    until_ns: int = FOR_EVER_NS

    def is_after(self, time_ns: int) -> bool:
        """Return whether that time has passed."""
        if self.ns > time_ns:
            return True
        self.hold_until(time_ns)
        return False

    def is_before(self, time_ns: int) -> bool:
        """Return whether that time has not come yet."""
        if self.ns >= time_ns:
            return False
        self.hold_until(time_ns - 1)
        return True

    def hold_until(self, time_ns: int) -> None:
        """Note that a result is valid up to that time, and may differ after it."""
        self.until_ns = min(self.until_ns, time_ns)

    def read(self) -> int:
        """Return the instant as part of a result, which is then valid at no other one."""
        self.until_ns = self.ns
        return self.ns
