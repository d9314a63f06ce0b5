"""What a user may choose about an import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

OPENB_PRIORITIES: Mapping[str, int] = {"Guaranteed": 1000, "LS": 1000, "Burstable": 100, "BE": 0}
SECOND_NS = 1_000_000_000
_NOT_SHOWN = frozenset({"source", "licence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of a recording: `since_start_ns` after its beginning, or `at_ns` since 1970.

    `text` is how it was written.
    """

    text: str
    since_start_ns: int | None = None
    at_ns: int = 0

    def __str__(self) -> str:
        """Return it as it was written."""
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of all importers; each reads those that concern it.

    `source` and `licence` go into the header. `every_ns` spaces the workloads of manifests and the
    pods of a performance test; 0: all come at once; None: as the format has it. `scheduler_names`
    are those whose pods the replay schedules; pods of any other scheduler occupy the nodes that
    they were recorded on.

    OpenB: `openb_priorities` is the priority of each qos (the data set has none), `openb_timed`
    uses its times instead of letting all pods come at once, `openb_gpu` makes GPUs extended
    resources instead of leaving them out, `openb_jobs` makes each pod a Job's, so that a pod that
    is preempted comes again.

    scheduler_perf: `workload` is TESTCASE/WORKLOAD, or TESTCASE alone where `params` give what the
    test case asks for; `params` stand above the workload's own; `wait_ns` is the simulated time
    that waiting for pods takes.

    Traces without nodes: `made_nodes` are made, each with `node_amounts` (quantities by resource),
    or the nodes of another trace, `nodes_from`, are taken.
    Traces in shares of a machine: 1.0 stands for `unit_cpu_milli` and `unit_memory_bytes`;
    `allocatable_percent` of a node's capacity can be requested. `machine` is the machine type that
    a trace of several is read for.

    Manifests: `now_ns` is the time at which they begin, ns since 1970; None: the latest time of
    something that has happened to one of the objects.

    Recordings that keep states: up to `follow_until` what was recorded stands, decisions too, and
    the trace begins there.
    """

    source: str = ""
    licence: str = ""
    every_ns: int | None = None
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    openb_priorities: Mapping[str, int] = field(default_factory=lambda: dict(OPENB_PRIORITIES))
    openb_timed: bool = False
    openb_gpu: bool = True
    openb_jobs: bool = False
    workload: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    wait_ns: int = 10 * SECOND_NS
    made_nodes: int = 0
    nodes_from: Path | None = None
    node_amounts: Mapping[str, str] = field(default_factory=dict)
    unit_cpu_milli: int = 64_000
    unit_memory_bytes: int = 256 << 30
    allocatable_percent: int = 100
    machine: str = ""
    now_ns: int | None = None
    follow_until: Moment | None = None

    def as_text(self) -> dict[str, str]:
        """Return the options that differ from the defaults, for a header."""
        default = ImportOptions()
        return {
            each.name: str(value)
            for each in fields(self)
            if each.name not in _NOT_SHOWN
            and (value := getattr(self, each.name)) != getattr(default, each.name)
        }
