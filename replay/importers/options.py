"""What a user may choose about an import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OPENB_PRIORITIES: Mapping[str, int] = {"Guaranteed": 1000, "LS": 1000, "Burstable": 100, "BE": 0}
_SHOWN = ("every_ns", "scheduler_names", "openb_priorities", "openb_timed", "openb_gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of all importers; each reads those that concern it.

    `source` and `licence` go into the header. `every_ns` spaces the workloads of manifests; 0: all
    come at the beginning. `scheduler_names` are those whose pods the replay schedules; pods of any
    other scheduler occupy the nodes that they were recorded on. `openb_priorities` is the priority
    of each qos (the data set has none), `openb_timed` uses its times instead of letting all pods
    come at once, `openb_gpu` makes GPUs extended resources instead of leaving them out.
    """

    source: str = ""
    licence: str = ""
    every_ns: int = 0
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    openb_priorities: Mapping[str, int] = field(default_factory=lambda: dict(OPENB_PRIORITIES))
    openb_timed: bool = False
    openb_gpu: bool = True

    def as_text(self) -> dict[str, str]:
        """Return the options that differ from the defaults, for a header."""
        default = ImportOptions()
        return {
            name: str(value)
            for name in _SHOWN
            if (value := getattr(self, name)) != getattr(default, name)
        }
