"""Judges a workload over a run: the times below a number of pods, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from replay.results.durations import simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The periods in which a workload had too few pods.

    times: the number of periods. total_ns: their total length. longest_from_ns, longest_ns: the
    beginning of the longest period, since the Unix epoch, and its length. lasts: whether the last
    period continues at the run's end.
    """

    times: int = 0
    total_ns: int = 0
    longest_from_ns: int = 0
    longest_ns: int = 0
    lasts: bool = False

    def text(self, start_ns: int) -> str:
        """Return a text such as "from 12m4s for 5m"; the time is relative to the run's start."""
        if not self.times:
            return ""
        if not self.total_ns:
            return "at the end"
        since, lasted = simulated(self.longest_from_ns - start_ns), simulated(self.longest_ns)
        text = f"from {since} for {lasted}"
        if self.times > 1:
            return f"{self.times:,} times, longest {text}"
        return f"{text}, to the end" if self.lasts else text


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """The verdict about a workload over a run.

    priority: the priority that admission gives its pods. desired, pods, ready: numbers of pods at
    the run's end; `pods` counts pods that exist and do not terminate. refused: pods that admission
    refused. least_ready, least_desired: the numbers at the first moment when most pods were
    missing. below: the periods with fewer ready pods than desired. below_budget: the periods in
    which a disruption budget (one of `budgets`) also had too few healthy pods.
    """

    kind: str
    namespace: str
    name: str
    priority_class: str = ""
    priority: int = 0
    desired: int
    pods: int
    ready: int
    least_ready: int
    least_desired: int
    refused: int = 0
    below: Shortfall = Shortfall()
    below_budget: Shortfall = Shortfall()
    budgets: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the workload's name, such as "StatefulSet shop/kafka"."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not ready at the run's end."""
        return max(0, self.desired - self.ready)

    @property
    def not_created(self) -> int:
        """Return how many desired pods do not exist at the end because admission refused them."""
        return max(0, self.desired - self.pods) if self.refused else 0

    @property
    def was_whole(self) -> bool:
        """Return whether the workload never had fewer ready pods than desired."""
        return not (self.below.times or self.unavailable)

    def sentence(self, start_ns: int) -> str:
        """Return a text such as "2 of 3, below its budget from 12m4s for 5m"."""
        text = f"{self.ready:,} of {self.desired:,}"
        if self.below_budget.times:
            return f"{text}, below its budget {self.below_budget.text(start_ns)}"
        if self.below.times:
            return f"{text}, below desired {self.below.text(start_ns)}"
        return text


def worst_first(verdicts: Iterable[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """Sort verdicts: below a budget at the end first, then by missing pods, periods and name."""
    return sorted(
        verdicts,
        key=lambda verdict: (
            not verdict.below_budget.lasts,
            -verdict.unavailable,
            -verdict.below_budget.total_ns,
            -verdict.below.total_ns,
            verdict.namespace,
            verdict.name,
            verdict.kind,
        ),
    )


@dataclass(frozen=True, slots=True)
class Numbers:
    """Pods of a workload at one moment; `pods` exist and do not terminate."""

    desired: int
    pods: int
    ready: int

    @property
    def missing(self) -> int:
        """Return how many desired pods are not ready."""
        return max(0, self.desired - self.ready)


@dataclass(slots=True)
class Spells:
    """The periods in which a condition held.

    since_ns: the beginning of the period that continues; None if the condition does not hold.
    """

    since_ns: int | None = None
    times: int = 0
    total_ns: int = 0
    longest_from_ns: int = 0
    longest_ns: int = 0

    def note(self, now_ns: int, *, holds: bool) -> None:
        """Begin or end a period: `holds` is whether the condition holds from `now_ns` on."""
        if holds and self.since_ns is None:
            self.since_ns = now_ns
        elif not holds and self.since_ns is not None:
            self._add(self.since_ns, now_ns)
            self.since_ns = None

    def drop(self) -> None:
        """Forget the period that continues."""
        self.since_ns = None

    def _add(self, since_ns: int, now_ns: int) -> None:
        lasted_ns = now_ns - since_ns
        self.times += 1
        self.total_ns += lasted_ns
        if self.times == 1 or lasted_ns > self.longest_ns:
            self.longest_from_ns, self.longest_ns = since_ns, lasted_ns

    def shortfall(self, end_ns: int) -> Shortfall:
        """Return the periods up to `end_ns`, including the one that continues."""
        whole = replace(self, since_ns=None)
        if self.since_ns is not None:
            whole._add(self.since_ns, max(end_ns, self.since_ns))
        return Shortfall(
            times=whole.times,
            total_ns=whole.total_ns,
            longest_from_ns=whole.longest_from_ns,
            longest_ns=whole.longest_ns,
            lasts=self.since_ns is not None,
        )


@dataclass(slots=True)
class History:
    """The history of a workload.

    starts: whether it began without ready pods and has not had all desired pods ready yet; None
    before it is first judged. least: the numbers when most pods were missing.
    """

    starts: bool | None = None
    least: Numbers | None = None
    below: Spells = field(default_factory=Spells)
    below_budget: Spells = field(default_factory=Spells)
    budgets: dict[str, None] = field(default_factory=dict)
