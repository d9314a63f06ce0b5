"""An explanation for people: tables and sentences that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replay.explain.explanation import (
    Candidate,
    Eviction,
    Explanation,
    Node,
    Preemption,
    RefusedNodes,
)
from replay.results import durations
from services.kube.quantity import Format, Quantity

_WORDS = frozenset({"NODE", "PLUGIN", "REASON", "SUCH AS", "POD", "LOT", "BUDGET"})
_COUNTED = ("inodesFree", "pid.")
"""Signals that count things, and not bytes."""
_NAMES = 3
_DECIDED_BY = {
    "only-candidate": "it is the only candidate",
    "0-no-victims": "it needs no victims",
    "1-pdb-violations": "fewest violated disruption budgets",
    "2-highest-priority": "lowest highest priority among the victims",
    "3-sum-priorities": "smallest sum of the victims' priorities",
    "4-num-victims": "fewest victims",
    "5-latest-start": "latest start of its most important victims",
    "6-tie": "the tie-break among equals",
}


def print_explanation(found: Explanation, console: Console) -> None:
    """Print all that was found."""
    _print_head(found, console)
    _print_best(found, console)
    _print_runner_up(found, console)
    _print_refused(found, console)
    if found.preemption is not None:
        print_preemption(found.preemption, found.pod, console)
    _print_waiting(found, console)
    if found.eviction is not None:
        print_eviction(found.eviction, found.pod, found.start_ns, console)
    _print_afterwards(found, console)
    for note in found.notes:
        _say(console, f"Note: {note}.")


def _print_head(found: Explanation, console: Console) -> None:
    at = durations.simulated(found.offset_ns)
    if found.decision == "came bound":
        node = escape(found.node)
        _say(console, f"[bold]{escape(found.pod)}[/] came bound to [bold]{node}[/] at {at}")
        return
    tried = f"attempt {found.attempt} of {found.attempts}" if found.attempt else "not tried yet"
    _say(console, f"[bold]{escape(found.pod)}[/] at {at}: {tried}")
    said = {
        "scheduled": f"scheduled to [bold]{escape(found.node)}[/]",
        "nominated": f"no node fits; nominated to [bold]{escape(found.node)}[/], where it preempts",
        "unschedulable": "no node fits",
        "failed": "the attempt failed",
        "not tried": "no attempt until then; the verdicts are as things stand",
    }[found.decision]
    how = f" ({_how(found)})" if found.decision == "scheduled" else ""
    _say(
        console,
        f"{said}{how}; it fits {found.feasible_nodes:,} of {counted(found.nodes, 'node')}",
    )
    if found.message:
        _say(console, escape(found.message))
    if found.gates:
        _say(console, f"its scheduling gates hold it back: {escape(', '.join(found.gates))}")
    if found.refused_binding:
        _say(console, f"the binding was refused: {escape(found.refused_binding)}")


def _how(found: Explanation) -> str:
    match found.fast_path:
        case "nominatedNode":
            return "its nominated node, tried before any other"
        case "singleFeasibleNode":
            return "the only one, so that no score is asked"
    if found.best and not found.best[0].scores:
        return f"one of {found.tied_nodes:,}, none of which is scored"
    if found.tied_nodes > 1:
        return f"one of {found.tied_nodes:,} with the best score, by the tie-break"
    return "the best score"


def _print_best(found: Explanation, console: Console) -> None:
    if not found.best or not found.best[0].scores:
        return
    shown = len(found.best)
    title = f"Scores of the best {shown:,} nodes" if shown < found.feasible_nodes else "Scores"
    table = new_table("NODE", "PLUGIN", "RAW", "0-100", "WEIGHT", "POINTS")
    for node in found.best:
        for row in _score_rows(node, found.weights):
            table.add_row(*row)
    print_table(title, table, console)
    skipped = [each for each in found.skipped_scores if each in found.weights]
    if skipped:
        _say(console, f"nothing to score: {escape(', '.join(skipped))}")


def _score_rows(node: Node, weights: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    yield escape(node.name), "[bold]total[/]", "", "", "", f"[bold]{node.total:,}[/]"
    for plugin, score in node.scores.items():
        weight = weights.get(plugin, 0)
        numbers = (score.raw, score.normalized, weight, score.weighted)
        yield "", escape(plugin), *(f"{number:,}" for number in numbers)


def _print_runner_up(found: Explanation, console: Console) -> None:
    second = found.runner_up
    if second is None:
        return
    name = escape(second.name)
    if found.fast_path:
        _say(console, f"runner-up: {name} with {second.total:,}, had scores been asked")
        return
    if not second.lost_by:
        _say(console, f"runner-up: {name} with the same {second.total:,}; the tie-break decided")
        return
    why = ", ".join(
        f"{plugin} {-points:+,}"
        for plugin, points in sorted(second.lost_by_plugin.items(), key=lambda each: -abs(each[1]))
    )
    _say(console, f"runner-up: {name} with {second.total:,}, {second.lost_by:,} less ({why})")


def _print_refused(found: Explanation, console: Console) -> None:
    if not found.refused:
        return
    more = found.refused_groups - len(found.refused)
    title = "Refused first by" + (f" ({counted(more, 'group')} more)" if more else "")
    _print_groups(found.refused, title, console)


def _print_groups(groups: Iterable[RefusedNodes], title: str, console: Console) -> None:
    table = new_table("PLUGIN", "REASON", "NODES", "SUCH AS")
    for each in groups:
        table.add_row(
            escape(each.plugin or "-") + (" (PreFilter)" if each.by_pre_filter else ""),
            escape("; ".join(each.reasons))
            + (" [dim](no preemption helps)[/]" if each.code.endswith("Unresolvable") else ""),
            f"{each.count:,}",
            escape(", ".join(each.nodes[:2]) + (", .." if each.count > 2 else "")),
        )
    print_table(title, table, console)


def _print_waiting(found: Explanation, console: Console) -> None:
    waiting = found.waiting
    if waiting is None:
        return
    at = durations.simulated(waiting.at_ns - found.start_ns)
    since = durations.simulated(waiting.since_ns - found.start_ns)
    place = f"{waiting.sub_queue} since {since}, after {counted(waiting.attempts, 'attempt')}"
    _say(console, f"\n[bold]At {at} it waits[/] in {escape(place)}")
    if waiting.until_ns is not None:
        until = durations.simulated(waiting.until_ns - found.start_ns)
        _say(console, f"until its backoff ends at {until}")
    if waiting.gates:
        _say(console, f"until its gates are gone: {escape(', '.join(waiting.gates))}")
    if waiting.leftover_ns is not None:
        leftover = durations.simulated(waiting.leftover_ns - found.start_ns)
        _say(console, f"without an event it is tried again after {leftover}")
    if waiting.plugins:
        _say(console, f"refused by: {escape(', '.join(waiting.plugins))}")
    for plugin, events in waiting.events.items():
        of = f"for {escape(plugin)}" if plugin else "whoever refused it"
        _say(console, f"what may move it, {of}: {escape(', '.join(events))}")
    if waiting.fits_now:
        _say(console, f"as things stand then, it would fit on {counted(waiting.fits_now, 'node')}")


def _print_afterwards(found: Explanation, console: Console) -> None:
    if found.afterwards:
        console.print()
    for each in found.afterwards:
        at = durations.simulated(each.at_ns - found.start_ns)
        _say(console, f"later, at {at}: {escape(each.what)}")


def _say(console: Console, text: str | Table) -> None:
    console.print(text, highlight=False)


def new_table(*columns: str) -> Table:
    """Return a table without lines; words stand to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        if column in _WORDS:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right")
    return table


def print_table(title: str, table: Table, console: Console) -> None:
    """Print a table under its title."""
    _say(console, f"\n[bold]{title}[/]")
    _say(console, table)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 node" or "2,000 nodes"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_eviction(found: Eviction, pod: str, start_ns: int, console: Console) -> None:
    """Print why `pod` had to go, and which pods stood before and after it."""
    at = durations.simulated(found.at_ns - start_ns)
    given_s = found.grace_period_s
    grace = "" if given_s is None else f", with a grace period of {given_s} s"
    node = escape(found.node)
    _say(console, f"\n[bold]Evicted at {at}[/] on [bold]{node}[/]{grace}")
    _say(console, escape(found.message.strip()))
    if not found.signal:
        _say(console, "a limit on local storage was exceeded, no threshold met")
        return
    if found.threshold:
        _say(console, f"threshold: {escape(_threshold(found.threshold))}")
    if found.available is not None and found.capacity is not None:
        available = _amount(found.available, found.signal)
        capacity = _amount(found.capacity, found.signal)
        _say(console, f"observed: {available} available of {capacity}")
    if found.rank:
        pods = counted(found.ranked_pods, "pod")
        _say(console, f"rank: {found.rank:,} of {pods} on the node")
    _print_ranking(found, pod, console)


def _print_ranking(found: Eviction, pod: str, console: Console) -> None:
    if not found.ranking:
        return
    shown = len(found.ranking)
    whole = shown == found.ranked_pods
    first = "Ranking, first to go first" if whole else f"The first {shown:,} of the ranking"
    table = new_table("RANK", "POD", "PRIORITY", "USED", "REQUEST", "EXCEEDS IT")
    for number, place in enumerate(found.ranking, 1):
        name = f"[bold]{escape(place.pod)}[/]" if place.pod == pod else escape(place.pod)
        exceeds = "yes" if place.exceeds_request else "no"
        used = "unknown" if place.usage is None else _amount(place.usage, found.signal)
        request = _amount(place.request, found.signal)
        table.add_row(f"{number:,}", name, f"{place.priority:,}", used, request, exceeds)
    print_table(first, table, console)


def _amount(amount: int, signal: str) -> str:
    if any(part in signal for part in _COUNTED):
        return f"{amount:,}"
    return str(Quantity.from_value(amount, Format.BINARY_SI))


def _threshold(text: str) -> str:
    """Return a threshold in words, from its parts "<signal><<value> grace=.. min_reclaim=.."."""
    condition, *parts = text.split(" ")
    said = dict(part.split("=", 1) for part in parts)
    grace = said.get("grace", "0s")
    kind = "hard" if grace == "0s" else f"soft, after {grace}"
    reclaim = said.get("min_reclaim", "")
    return f"{condition} ({kind}{f', to reclaim {reclaim} more' if reclaim else ''})"


def print_preemption(found: Preemption, pod: str, console: Console) -> None:
    """Print who could make room for `pod`, and who may stay."""
    console.print()
    if found.disabled:
        _say(console, "Preemption is switched off")
        return
    if found.ineligible:
        console.print(f"Preemption: the pod may not preempt: {escape(found.ineligible)}")
        return
    _say(console, _summary(found))
    if found.candidates:
        _print_candidates(found, console)
        _print_picked(found.candidates[0], pod, console)
    for each in found.no_candidates:
        reasons = escape("; ".join(each.reasons))
        names = escape(", ".join(each.nodes[:_NAMES]) + (", .." if each.count > _NAMES else ""))
        _say(console, f"no candidate, {counted(each.count, 'node')} ({names}): {reasons}")


def _summary(found: Preemption) -> str:
    found_there = (
        f"[bold]Preemption[/]: deleting pods might help on "
        f"{counted(found.potential_nodes, 'node')}; {counted(found.candidate_count, 'candidate')}"
    )
    if not found.picked:
        return found_there
    why = _DECIDED_BY.get(found.decided_by, found.decided_by)
    tied = f" ({counted(found.tied, 'node')})" if found.tied else ""
    return f"{found_there}\n[bold]{escape(found.picked)}[/] is picked: {escape(why)}{tied}"


def _print_candidates(found: Preemption, console: Console) -> None:
    shown = len(found.candidates)
    best = f"The best {shown:,} candidates" if shown < found.candidate_count else "Candidates"
    table = new_table("NODE", "VICTIMS", "VIOLATIONS", "HIGHEST PRIORITY", "REPRIEVED")
    for each in found.candidates:
        table.add_row(
            escape(each.node),
            f"{len(each.victims):,}",
            f"{each.budget_violations:,}",
            f"{each.highest_priority}" if each.victims else "-",
            f"{len(each.reprieved):,}",
        )
    print_table(best, table, console)


def _print_picked(picked: Candidate, pod: str, console: Console) -> None:
    table = new_table("LOT", "POD", "PRIORITY", "BUDGET")
    for victim in picked.victims:
        budget = "violated" if victim.violates_budget else "-"
        table.add_row("victim", escape(victim.pod), f"{victim.priority}", budget)
    for name in picked.reprieved:
        table.add_row("reprieved", escape(name), "", "")
    print_table(f"On {escape(picked.node)}", table, console)
    if picked.reprieved:
        _say(
            console,
            f"Who is reprieved was put back in turn (first those whose budget is spent, then the "
            f"most important first), and {escape(pod)} still fits beside them; beside a victim "
            f"it would not.",
        )
