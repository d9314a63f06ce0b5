"""What a synthetic workload is to look like."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """Counts, times (ns) and shares of a workload with four tiers of priority.

    `pods` counts the replicas of `deployments` and, for the rest, bare pods. Pods arrive within
    `window_ns`; a bare pod runs for `service_ns` on average. `budgets` counts disruption budgets.
    A share `leaky_percent` of the shapes uses more memory than it requests once it has run a while.
    """

    seed: int = 1
    nodes: int = 100
    pods: int = 2000
    deployments: int = 24
    budgets: int = 48
    window_ns: int = 600 * SECOND_NS
    service_ns: int = 240 * SECOND_NS
    zones: int = 3
    leaky_percent: int = 10

    def as_text(self) -> dict[str, str]:
        """Return the options for a header."""
        return {name: str(getattr(self, name)) for name in self.__dataclass_fields__}
