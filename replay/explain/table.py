"""Prints an explanation as tables and sentences of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.table import Table

from replay.explain.explanation import (
    EvictionReason,
    NodeCandidate,
    PodExplanation,
    PreemptionReason,
    RefusedNodes,
    RejectionReason,
    ScoredNode,
)
from replay.results import durations
from replay.results.summary.table import escape
from services.kube.quantity import Format, Quantity
from services.terminal import counted

_LEFT_ALIGNED = frozenset(
    {
        *("NODE", "PLUGIN", "REASON", "EXAMPLES", "POD", "ROLE", "BUDGET"),
        *("REQUEST", "EACH OF THEM"),
    }
)
_COUNTED = ("inodesFree", "pid.")
"""Signals whose names contain one of these count objects, not bytes."""
_NAMES = 3
_DECIDED_BY = {
    "only-candidate": "only candidate",
    "0-no-victims": "no victims needed",
    "1-pdb-violations": "fewest disruption budget violations",
    "2-highest-priority": "lowest highest priority among the victims",
    "3-sum-priorities": "smallest sum of the victims' priorities",
    "4-num-victims": "fewest victims",
    "5-latest-start": "latest start of its most important victims",
    "6-tie": "tie-break",
}


def print_explanation(explanation: PodExplanation, console: Console) -> None:
    """Print an explanation."""
    _print_head(explanation, console)
    _print_best(explanation, console)
    _print_runner_up(explanation, console)
    _print_refused(explanation, console)
    _print_devices(explanation, console)
    if explanation.preemption is not None:
        print_preemption(explanation.preemption, explanation.pod, console)
    _print_waiting(explanation, console)
    if explanation.eviction is not None:
        print_eviction(explanation.eviction, explanation.pod, explanation.start_ns, console)
    if explanation.rejection is not None:
        print_rejection(explanation.rejection, explanation.start_ns, console)
    _print_afterwards(explanation, console)
    for note in explanation.notes:
        _print(console, escape(f"Note: {note}."))


def _print_head(explanation: PodExplanation, console: Console) -> None:
    at, node = durations.simulated(explanation.offset_ns), escape(explanation.node)
    if explanation.decision == "came bound":
        _print(
            console,
            f"[bold]{escape(explanation.pod)}[/] was created with node [bold]{node}[/] at {at}",
        )
        return
    tried = (
        f"attempt {explanation.attempt} of {explanation.attempts}"
        if explanation.attempt
        else "not tried yet"
    )
    _print(console, f"[bold]{escape(explanation.pod)}[/] at {at}: {tried}")
    decision = {
        "scheduled": f"scheduled to [bold]{node}[/]",
        "nominated": f"no node fits; nominated for [bold]{node}[/] by preemption",
        "unschedulable": "no node fits",
        "failed": "the attempt failed",
        "not tried": "no attempt until then; verdicts at that time",
    }[explanation.decision]
    how = f" ({_how(explanation)})" if explanation.decision == "scheduled" else ""
    nodes = counted(explanation.nodes, "node")
    _print(console, f"{decision}{how}; it fits {explanation.feasible_nodes:,} of {nodes}")
    if explanation.message:
        _print(console, escape(explanation.message))
    if explanation.gates:
        _print(console, f"scheduling gates: {escape(', '.join(explanation.gates))}")
    if explanation.refused_binding:
        _print(console, f"the binding was refused: {escape(explanation.refused_binding)}")


def _how(explanation: PodExplanation) -> str:
    match explanation.fast_path:
        case "nominatedNode":
            return "its nominated node, tried first"
        case "singleFeasibleNode":
            return "the only one, so nodes are not scored"
    if explanation.best and not explanation.best[0].scores:
        return f"one of {explanation.tied_nodes:,} nodes without scores"
    if explanation.tied_nodes > 1:
        return f"one of {explanation.tied_nodes:,} with the best score, chosen by tie-break"
    return "the best score"


def _print_best(explanation: PodExplanation, console: Console) -> None:
    if not explanation.best or not explanation.best[0].scores:
        return
    shown = len(explanation.best)
    title = (
        f"Scores of the best {shown:,} nodes" if shown < explanation.feasible_nodes else "Scores"
    )
    table = new_table("NODE", "PLUGIN", "RAW", "0-100", "WEIGHT", "POINTS")
    for node in explanation.best:
        for row in _score_rows(node, explanation.weights):
            table.add_row(*row)
    print_table(title, table, console)
    skipped = [plugin for plugin in explanation.skipped_scores if plugin in explanation.weights]
    if skipped:
        _print(console, f"skipped score plugins: {escape(', '.join(skipped))}")


def _score_rows(node: ScoredNode, weights: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    yield escape(node.name), "[bold]total[/]", "", "", "", f"[bold]{node.total:,}[/]"
    for plugin, score in node.scores.items():
        weight = weights.get(plugin, 0)
        numbers = (score.raw, score.normalized, weight, score.weighted)
        yield "", escape(plugin), *(f"{number:,}" for number in numbers)


def _print_runner_up(explanation: PodExplanation, console: Console) -> None:
    second = explanation.runner_up
    if second is None:
        return
    name = escape(second.name)
    if explanation.fast_path:
        _print(console, f"runner-up: {name} with {second.total:,}, if nodes had been scored")
        return
    if not second.lost_by:
        _print(console, f"runner-up: {name} with the same {second.total:,}; the tie-break decided")
        return
    why = ", ".join(
        f"{plugin} {-points:+,}"
        for plugin, points in sorted(second.lost_by_plugin.items(), key=lambda item: -abs(item[1]))
    )
    _print(console, f"runner-up: {name} with {second.total:,}, {second.lost_by:,} less ({why})")


def _print_refused(explanation: PodExplanation, console: Console) -> None:
    if not explanation.refused:
        return
    more = explanation.refused_groups - len(explanation.refused)
    title = "Refused by" + (f" ({counted(more, 'group')} more)" if more else "")
    _print_groups(explanation.refused, title, console)


def _print_devices(explanation: PodExplanation, console: Console) -> None:
    if not explanation.devices:
        return
    table = new_table("NODE", "REQUEST", "WANTED", "DEVICES", "EACH OF THEM", "EXAMPLES")
    holders: dict[str, None] = {}
    for found in explanation.devices:
        wanted = f"{found.wanted:,}" if found.wanted else "all"
        cells = [escape(found.node), escape(found.request), wanted]
        if not found.reasons:
            table.add_row(*cells, "0", "the node reaches no device", "")
        for reason in found.reasons:
            names = ", ".join(reason.devices[:2]) + (", ..." if reason.count > 2 else "")
            table.add_row(*cells, f"{reason.count:,}", escape(reason.why), escape(names))
            cells = ["", "", ""]
            holders.update(dict.fromkeys(reason.holders))
    print_table("Devices", table, console)
    if holders:
        more = f" and {len(holders) - _NAMES:,} more" if len(holders) > _NAMES else ""
        named = ", ".join(list(holders)[:_NAMES])
        _print(console, f"in use by: {escape(named)}{more}")


def _print_groups(groups: Iterable[RefusedNodes], title: str, console: Console) -> None:
    table = new_table("PLUGIN", "REASON", "NODES", "EXAMPLES")
    for group in groups:
        table.add_row(
            escape(group.plugin or "-") + (" (PreFilter)" if group.by_pre_filter else ""),
            escape("; ".join(group.reasons))
            + (" [dim](preemption cannot help)[/]" if group.code.endswith("Unresolvable") else ""),
            f"{group.count:,}",
            escape(", ".join(group.nodes[:2]) + (", ..." if group.count > 2 else "")),
        )
    print_table(title, table, console)


def _print_waiting(explanation: PodExplanation, console: Console) -> None:
    waiting = explanation.waiting
    if waiting is None:
        return
    at = durations.simulated(waiting.at_ns - explanation.start_ns)
    since = durations.simulated(waiting.since_ns - explanation.start_ns)
    attempts = counted(waiting.attempts, "attempt")
    place = f"{waiting.sub_queue}, after {attempts}; added or last failed at {since}"
    _print(console, f"\n[bold]At {at} it waits[/] in {escape(place)}")
    if waiting.until_ns is not None:
        until = durations.simulated(waiting.until_ns - explanation.start_ns)
        _print(console, f"backoff expires at {until}")
    if waiting.gates:
        _print(console, f"gated by: {escape(', '.join(waiting.gates))}")
    if waiting.leftover_ns is not None:
        leftover = durations.simulated(waiting.leftover_ns - explanation.start_ns)
        _print(console, f"without an event, it is tried again after {leftover}")
    if waiting.plugins:
        _print(console, f"refused by: {escape(', '.join(waiting.plugins))}")
    for plugin, events in waiting.events.items():
        of = f"for {escape(plugin)}" if plugin else "for any plugin"
        _print(console, f"events that can move it, {of}: {escape(', '.join(events))}")
    if waiting.fits_now:
        _print(console, f"at that time it fits on {counted(waiting.fits_now, 'node')}")


def _print_afterwards(explanation: PodExplanation, console: Console) -> None:
    if explanation.afterwards:
        console.print()
    for later in explanation.afterwards:
        at = durations.simulated(later.at_ns - explanation.start_ns)
        _print(console, f"later, at {at}: {escape(later.what)}")


def _print(console: Console, text: str | Table) -> None:
    console.print(text, highlight=False)


def new_table(*columns: str) -> Table:
    """Return a table without lines; texts are left-aligned, numbers right-aligned."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        if column in _LEFT_ALIGNED:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right")
    return table


def print_table(title: str, table: Table, console: Console) -> None:
    """Print a title in bold, then the table."""
    _print(console, f"\n[bold]{title}[/]")
    _print(console, table)


def print_rejection(rejection: RejectionReason, start_ns: int, console: Console) -> None:
    """Print why a kubelet did not admit a pod, and which pod replaces it."""
    at = durations.simulated(rejection.at_ns - start_ns)
    node, reason = escape(rejection.node), escape(rejection.reason)
    _print(console, f"\n[bold]Rejected at {at}[/] by the kubelet of [bold]{node}[/]: {reason}")
    _print(console, escape(rejection.message))
    _print(
        console, escape(f"the pod has failed for good, and {_what_follows(rejection, start_ns)}")
    )


def _what_follows(rejection: RejectionReason, start_ns: int) -> str:
    if not rejection.owner:
        return "nothing replaces it: no controller made it"
    if rejection.replaced_ns is None:
        return f"the run has no later pod of {rejection.owner}"
    at = durations.simulated(rejection.replaced_ns - start_ns)
    return f"the next pod of {rejection.owner} is {rejection.replacement}, made at {at}"


def print_eviction(eviction: EvictionReason, pod: str, start_ns: int, console: Console) -> None:
    """Print why a kubelet evicted `pod`, with the ranking."""
    at = durations.simulated(eviction.at_ns - start_ns)
    grace_s = eviction.grace_period_s
    grace = "" if grace_s is None else f", with a grace period of {grace_s} s"
    node = escape(eviction.node)
    _print(console, f"\n[bold]Evicted at {at}[/] on [bold]{node}[/]{grace}")
    _print(console, escape(eviction.message.strip()))
    if not eviction.signal:
        _print(console, "a limit on local storage was exceeded; no threshold was met")
        return
    if eviction.threshold:
        _print(console, f"threshold: {escape(_threshold(eviction.threshold))}")
    if eviction.available is not None and eviction.capacity is not None:
        available = _amount(eviction.available, eviction.signal)
        capacity = _amount(eviction.capacity, eviction.signal)
        _print(console, f"observed: {available} available of {capacity}")
    if eviction.rank:
        pods = counted(eviction.ranked_pods, "pod")
        _print(console, f"rank: {eviction.rank:,} of {pods} on the node")
    _print_ranking(eviction, pod, console)


def _print_ranking(eviction: EvictionReason, pod: str, console: Console) -> None:
    if not eviction.ranking:
        return
    shown = len(eviction.ranking)
    whole = shown == eviction.ranked_pods
    first = "Ranking, first to be evicted first" if whole else f"The first {shown:,} of the ranking"
    table = new_table("RANK", "POD", "PRIORITY", "USED", "REQUEST", "EXCEEDED")
    for number, place in enumerate(eviction.ranking, 1):
        name = f"[bold]{escape(place.pod)}[/]" if place.pod == pod else escape(place.pod)
        exceeds = "yes" if place.exceeds_request else "no"
        used = "unknown" if place.usage is None else _amount(place.usage, eviction.signal)
        request = _amount(place.request, eviction.signal)
        table.add_row(f"{number:,}", name, f"{place.priority:,}", used, request, exceeds)
    print_table(first, table, console)


def _amount(amount: int, signal: str) -> str:
    if any(part in signal for part in _COUNTED):
        return f"{amount:,}"
    return str(Quantity.from_value(amount, Format.BINARY_SI))


def _threshold(text: str) -> str:
    """Format a threshold of the log, "<signal><<value> grace=.. min_reclaim=..", for users."""
    condition, *parts = text.split(" ")
    settings = dict(part.split("=", 1) for part in parts)
    grace = settings.get("grace", "0s")
    kind = "hard" if grace == "0s" else f"soft, after {grace}"
    reclaim = settings.get("min_reclaim", "")
    return f"{condition} ({kind}{f', minimum reclaim {reclaim}' if reclaim else ''})"


def print_preemption(preemption: PreemptionReason, pod: str, console: Console) -> None:
    """Print the candidates for preemption by `pod`, and the victims on the picked one."""
    console.print()
    if preemption.disabled:
        _print(console, "Preemption is disabled")
        return
    if preemption.ineligible:
        console.print(f"Preemption: the pod is not eligible: {escape(preemption.ineligible)}")
        return
    _print(console, _summary(preemption))
    if preemption.candidates:
        _print_candidates(preemption, console)
        _print_picked(preemption.candidates[0], pod, console)
    for group in preemption.no_candidates:
        reasons = escape("; ".join(group.reasons))
        names = escape(", ".join(group.nodes[:_NAMES]) + (", ..." if group.count > _NAMES else ""))
        _print(console, f"not a candidate, {counted(group.count, 'node')} ({names}): {reasons}")


def _summary(preemption: PreemptionReason) -> str:
    on_how_many = (
        f"[bold]Preemption[/]: it might help on "
        f"{counted(preemption.potential_nodes, 'node')}; "
        f"{counted(preemption.candidate_count, 'candidate')}"
    )
    if not preemption.picked:
        return on_how_many
    why = _DECIDED_BY.get(preemption.decided_by, preemption.decided_by)
    tied = f" ({counted(preemption.tied, 'node')})" if preemption.tied else ""
    return f"{on_how_many}\n[bold]{escape(preemption.picked)}[/] is picked: {escape(why)}{tied}"


def _print_candidates(preemption: PreemptionReason, console: Console) -> None:
    shown = len(preemption.candidates)
    best = f"Best {shown:,} candidates" if shown < preemption.candidate_count else "Candidates"
    table = new_table("NODE", "VICTIMS", "VIOLATIONS", "HIGHEST PRIORITY", "REPRIEVED")
    for candidate in preemption.candidates:
        table.add_row(
            escape(candidate.node),
            f"{len(candidate.victims):,}",
            f"{candidate.budget_violations:,}",
            f"{candidate.highest_priority}" if candidate.victims else "-",
            f"{len(candidate.reprieved):,}",
        )
    print_table(best, table, console)


def _print_picked(picked: NodeCandidate, pod: str, console: Console) -> None:
    table = new_table("ROLE", "POD", "PRIORITY", "BUDGET")
    for victim in picked.victims:
        budget = "violated" if victim.violates_budget else "-"
        table.add_row("victim", escape(victim.pod), f"{victim.priority}", budget)
    for name in picked.reprieved:
        table.add_row("reprieved", escape(name), "", "")
    print_table(f"On {escape(picked.node)}", table, console)
    if picked.reprieved:
        _print(
            console,
            "Reprieved pods were put back one by one (those whose deletion violates a budget "
            f"first, then the most important first): {escape(pod)} fits beside them, but not "
            "beside the victims.",
        )
