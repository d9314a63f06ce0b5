"""Computes the backoff of a node group after failed scale-ups.

A first failure backs the group off for the initial duration. A failure after the end of a backoff
doubles the duration up to a maximum; one during it, such as a second instance that could not be
created, starts the same duration again. A success changes nothing: only time without failures does,
after which the group is forgotten. The end itself still belongs to the backoff.

Source: kubernetes/autoscaler 1.36 utils/backoff/exponential_backoff.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.autoscaler.core.now import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedOff:
    """A group's last failure: how long it backs off, until when, and the failure's code."""

    duration_ns: int
    until_ns: int
    failed_ns: int
    error_code: str


@dataclass(slots=True, kw_only=True)
class GroupBackoff:
    """The failures of groups that are not forgotten yet, by group."""

    initial_ns: int
    duration_ns_max: int
    reset_ns: int
    failures: dict[str, BackedOff] = field(default_factory=dict)

    def back_off(self, group: str, error_code: str, now_ns: int) -> None:
        """Register a failure of the group's scale-up."""
        duration_ns = self.initial_ns
        last = self.failures.get(group)
        if last is not None:
            duration_ns = last.duration_ns
            if last.until_ns < now_ns:
                duration_ns = min(2 * duration_ns, self.duration_ns_max)
        self.failures[group] = BackedOff(
            duration_ns=duration_ns,
            until_ns=now_ns + duration_ns,
            failed_ns=now_ns,
            error_code=error_code,
        )

    def active(self, group: str, now: Now) -> BackedOff | None:
        """Return the backoff that the group is in, or None."""
        last = self.failures.get(group)
        return None if last is None or now.is_after(last.until_ns) else last

    def forget_old(self, now: Now) -> None:
        """Forget groups whose last failure is longer ago than the reset timeout."""
        for group, last in list(self.failures.items()):
            if now.is_after(last.failed_ns + self.reset_ns):
                del self.failures[group]
