"""The comparison of two runs: the first decision that differs and why, pods, figures, inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.trace.observed import kind_in_logs
from replay.whatif.ci import code, figure_name, figure_text, markdown_table, plain
from replay.whatif.comparison import (
    EFFECTS,
    FigureChange,
    PodGroup,
    RunComparison,
    WaitStatistics,
    compare,
)
from replay.whatif.decisions import sentence_of
from replay.whatif.divergence import ComparedRun, Divergence, divergence_reasons, first_divergence
from replay.whatif.effects import Effect, changes_cluster, first_effect
from replay.whatif.facts import RunFacts, read_facts
from replay.whatif.notes import compared_notes
from replay.whatif.policy import policy_differences
from replay.whatif.window import RunTime, common_length_ns, time_of
from reprieve.trace.v1beta1 import trace_pb2
from services.terminal import counted

GROUPS_SHOWN = 12
REASONS_SHOWN = 5
NOTES_SHOWN = 12
WORKLOADS_SHOWN = 10
CLASSES_SHOWN = 12
_PODS_NAMED = 3
_FAULTS = {
    "invalid_placements": "Invalid placements",
    "invalid_preemptions": "Invalid preemptions",
    "refusals": "Refused decisions",
}
"""Figures of what a scheduler must not do, and their names in a headline."""
WAIT_COLUMNS = ("WAITS", "STILL", "MEAN", "P50", "P95", "MAX")
"""The columns of the waits of a class in a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of a comparison; `reasons` are sentences.

    not_judged: why a run could decide no eviction, by "A" and "B"; a run that could is absent.
    times: of both runs. policy_differences: in which the policies of the runs differ.
    """

    run_a: RunDirectory
    run_b: RunDirectory
    facts_a: RunFacts
    facts_b: RunFacts
    divergence: Divergence | None
    effect: Effect | None
    reasons: tuple[str, ...]
    comparison: RunComparison
    not_judged: Mapping[str, str]
    times: tuple[RunTime, RunTime]
    policy_differences: tuple[str, ...]

    def divergence_lines(self) -> list[str]:
        """Return the headline: a line for the moment and one for each run.

        It is of the first effect where the cluster itself was changed, and otherwise of the first
        decisions that differ.
        """
        if self.effect is not None:
            return [self.effect.moment, f"A {self.effect.text_a}", f"B {self.effect.text_b}"]
        return self._decision_lines()

    def first_decision_lines(self) -> Iterator[str]:
        """Yield the first decisions that differ as a sentence, where the headline is an effect."""
        if self.effect is not None and self.divergence is not None:
            moment, a, b = self._decision_lines()
            at = moment.removeprefix("Runs diverge ").removesuffix(":")
            yield f"The first different decision, {at}: {a}, and {b}."

    def _decision_lines(self) -> list[str]:
        divergence = self.divergence
        if divergence is None:
            return ["All decisions are identical."]
        sides = (("A", divergence.a, self.facts_a), ("B", divergence.b, self.facts_b))
        at_ns = min(side.time_ns - facts.start_ns for _, side, facts in sides if side is not None)
        after = counted(divergence.same, "identical decision")
        lines = [f"Runs diverge at {simulated(at_ns)}, after {after}:"]
        for name, decision, facts in sides:
            if decision is None:
                lines.append(f"{name} has no further decision")
                continue
            later_ns = decision.time_ns - facts.start_ns
            when = f" at {simulated(later_ns)}" if later_ns > at_ns else ""
            lines.append(f"{name} {sentence_of(decision)}{when}")
        return lines

    def not_judged_lines(self) -> Iterator[str]:
        """Yield a sentence for each reason for which a run could decide no eviction."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self.not_judged.items():
            by_reason.setdefault(why, []).append(name)
        for why, names in by_reason.items():
            yield f"Eviction was not judged in {' and '.join(names)}: {why}."

    def notes(self) -> Iterator[str]:
        """Yield sentences that say how far the runs can be compared, the gravest first."""
        yield from fault_lines(self.comparison.figures)
        yield from self._input_lines()
        if self.policy_differences:
            differ = ", ".join(self.policy_differences)
            yield f"Placements differ by design ({differ}): no pod counts as moved."
        yield from self.not_judged_lines()
        yield from self._end_lines()
        comparison = self.comparison
        for name, keys in (("A", comparison.only_in_a), ("B", comparison.only_in_b)):
            if keys:
                more = len(keys) - _PODS_NAMED
                rest = f" and {more:,} more" if more > 0 else ""
                yield f"Only {name} has {', '.join(keys[:_PODS_NAMED])}{rest}."

    def _input_lines(self) -> Iterator[str]:
        manifests = self.run_a.manifest(), self.run_b.manifest()
        digests = [[trace.sha256 for trace in manifest.traces] for manifest in manifests]
        if digests[0] != digests[1]:
            yield "A and B replay different traces: figures may be of different pods."
        elif self.times[0].start_ns != self.times[1].start_ns:
            yield "A and B begin at different times of the trace: times are since each beginning."

    def _end_lines(self) -> Iterator[str]:
        """Yield a sentence where the runs end at different times."""
        lengths = [time.length_ns for time in self.times]
        if lengths[0] == lengths[1]:
            return
        ends = "A ends at {} and B at {}".format(*map(simulated, lengths))
        until_ns = self.facts_a.length_ns
        earlier = "A" if lengths[0] < lengths[1] else "B"
        stays = f", and {earlier} stays as it ended" if until_ns == max(lengths) else ""
        yield f"{ends}: all figures are of the time until {simulated(until_ns)}{stays}."

    def to_mapping(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        first = self.divergence
        divergence = None
        if first is not None:
            divergence = {
                "same": first.same,
                "a": _decision(first.a, self.facts_a),
                "b": _decision(first.b, self.facts_b),
                "effect": self.effect.to_mapping() if self.effect is not None else None,
                "flipped_by": list(self.reasons),
            }
        return {
            "a": str(self.run_a.path),
            "b": str(self.run_b.path),
            "compared_ns": self.facts_a.length_ns,
            "policy_differences": list(self.policy_differences),
            "only_in_a": list(self.comparison.only_in_a),
            "only_in_b": list(self.comparison.only_in_b),
            "eviction_not_judged": {name.lower(): why for name, why in self.not_judged.items()},
            "divergence": divergence,
            **self.comparison.to_mapping(),
            "notes": [note._asdict() for note in compared_notes(self.run_a, self.run_b)],
        }

    def to_markdown(self) -> str:
        """Return the comparison as Markdown: the divergence, affected pods, changed figures."""
        moment, *decisions = self.divergence_lines()
        lines = [plain(moment), *(f"- {plain(decision)}" for decision in decisions)]
        lines += [f"- {plain(reason)}" for reason in self.reasons[:REASONS_SHOWN]]
        lines += [f"- {plain(line)}" for line in self.first_decision_lines()]
        lines += ["", *(f"{plain(note)}\n" for note in self.notes())]
        changed = [group for group in self.comparison.groups if group.counts]
        if changed:
            columns = ("Priority class", "Namespace", "Effect in B", "Pods")
            rows = [_group_cells(group) for group in changed[:GROUPS_SHOWN]]
            lines += [markdown_table(columns, rows, numbers=1)]
            more = len(changed) - GROUPS_SHOWN
            lines += [f"and {more:,} more groups of pods\n"] if more > 0 else []
        else:
            lines += ["No pod was affected.\n"]
        workloads = self.comparison.workloads
        if workloads:
            cells = [
                (code(workload.key), plain(workload.text_a), plain(workload.text_b))
                for workload in workloads[:WORKLOADS_SHOWN]
            ]
            lines += [markdown_table(("Workload", "Ready in A", "Ready in B"), cells)]
            more = len(workloads) - WORKLOADS_SHOWN
            lines += [f"and {counted(more, 'more workload')}\n"] if more > 0 else []
        waits = [of_class for of_class in self.comparison.waits if of_class.is_changed]
        if waits:
            heads = ("Priority class", "Run", *(name.capitalize() for name in WAIT_COLUMNS))
            by_run = [
                (code(of_class.name), name, *wait_cells(side))
                for of_class in waits[:CLASSES_SHOWN]
                for name, side in (("A", of_class.a), ("B", of_class.b))
            ]
            lines += [markdown_table(heads, by_run, numbers=len(WAIT_COLUMNS))]
            more = len(waits) - CLASSES_SHOWN
            lines += [f"and {more:,} more of them\n"] if more > 0 else []
        figures = [figure for figure in self.comparison.figures if figure.is_changed]
        if figures:
            rows = [tuple(map(plain, figure_cells(figure))) for figure in figures]
            lines += [markdown_table(("Figure", "A", "B", "Change", ""), rows, numbers=4)]
        same = len(self.comparison.figures) - len(figures)
        lines += [f"{counted(same, 'figure')} identical.\n"] if same else []
        lines += self._notes_as_markdown()
        return "\n".join(lines).strip() + "\n"

    def _notes_as_markdown(self) -> list[str]:
        notes = list(compared_notes(self.run_a, self.run_b))
        if not notes:
            return []
        rows = [(plain(note.text), f"{note.a:,}", f"{note.b:,}") for note in notes[:NOTES_SHOWN]]
        lines = [markdown_table(("Note", "A", "B"), rows, numbers=2)]
        more = len(notes) - NOTES_SHOWN
        return [*lines, f"and {more:,} more notes"] if more > 0 else lines


def _group_cells(group: PodGroup) -> tuple[str, ...]:
    name = group.priority_class or "-"
    effects = "<br>".join(plain(effect) for effect in group_effects(group))
    return code(name), code(group.namespace), effects, f"{group.pods:,}"


def group_effects(group: PodGroup, *, named: bool = False) -> Iterator[str]:
    """Yield the effects on a group's pods, such as "3 moved"; with examples where `named`."""
    for kind in EFFECTS:
        count = group.counts.get(kind)
        if not count:
            continue
        total = f", {simulated(group.totals_ns[kind])} in total" if kind in group.totals_ns else ""
        names = f": {', '.join(group.samples[kind])}" if named else ""
        yield f"{count:,} {kind}{total}{names}"


def figure_cells(figure: FigureChange) -> tuple[str, str, str, str, str]:
    """Return a figure's name with its unit, its value in A and in B, and the change, also in %."""
    share = "" if figure.share is None or not figure.change else f"{100 * figure.share:+,.1f} %"
    change = "-" if figure.change is None else f"{figure.change:+,.5g}" if figure.change else "0"
    return figure_name(figure.name), figure_text(figure.a), figure_text(figure.b), change, share


def fault_lines(figures: Iterable[FigureChange]) -> Iterator[str]:
    """Yield a headline for each figure of what a scheduler must not do, where a run has some."""
    for figure in figures:
        if figure.name in _FAULTS and (figure.a or figure.b):
            counts = f"{figure.a or 0:,.0f} in A and {figure.b or 0:,.0f} in B"
            yield f"{_FAULTS[figure.name]}: {counts}; a run with them looks better than it is."


def wait_cells(waits: WaitStatistics) -> tuple[str, ...]:
    """Return the waits of a class in a run, in the order of WAIT_COLUMNS."""
    times = (waits.mean_ns, waits.p50_ns, waits.p95_ns, waits.max_ns)
    shown = ("-" if time is None else simulated(time) for time in times)
    return f"{waits.waits:,}", f"{waits.still_waiting:,}", *shown


def compare_runs(run_a: RunDirectory, run_b: RunDirectory, *, explains: bool) -> Compared:
    """Compare two runs; `explains` replays them to find why they diverge.

    Raises RunError if a run cannot be read, and BackendError if the services that explain
    cannot be started.
    """
    times = time_of(run_a), time_of(run_b)
    length_ns = common_length_ns(*times)
    facts_a, facts_b = read_facts(run_a, length_ns), read_facts(run_b, length_ns)
    # Both are judged by the same pods: preemption makes controllers create more of some.
    facts_a.occupancy.pods = facts_b.occupancy.pods = (
        facts_a.occupancy.pods + facts_b.occupancy.pods
    )
    policies = tuple(policy_differences(run_a.manifest(), run_b.manifest()))
    divergence = first_divergence(run_a, run_b)
    reasons: Sequence[str] = ()
    effect = None
    if divergence is not None:
        a = ComparedRun(name="A", run=run_a, facts=facts_a, decision=divergence.a)
        b = ComparedRun(name="B", run=run_b, facts=facts_b, decision=divergence.b)
        if changes_cluster(a, b):
            effect = first_effect(a, b, explains=explains)
        if effect is not None:
            reasons = effect.reasons
        elif explains:
            reasons = divergence_reasons(divergence, a, b)
    return Compared(
        run_a=run_a,
        run_b=run_b,
        facts_a=facts_a,
        facts_b=facts_b,
        divergence=divergence,
        effect=effect,
        reasons=tuple(reasons),
        comparison=compare(facts_a, facts_b, one_policy=not policies),
        times=times,
        policy_differences=policies,
        not_judged={
            name: why
            for name, run in (("A", run_a), ("B", run_b))
            if (why := run.eviction_not_judged())
        },
    )


def _decision(decision: trace_pb2.Decision | None, facts: RunFacts) -> dict[str, Any] | None:
    if decision is None:
        return None
    named = decision.observed.object
    return {
        "sequence": decision.sequence,
        "offset_ns": decision.time_ns - facts.start_ns,
        "decision": kind_in_logs(decision.observed),
        "object": f"{named.namespace}/{named.name}".lstrip("/"),
        "text": sentence_of(decision),
    }
