"""An explanation for people: tables and sentences that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.markup import escape

from replay.explain.eviction_table import print_eviction
from replay.explain.explanation import Explanation, Node, RefusedNodes
from replay.explain.layout import counted, new_table, print_table
from replay.explain.preemption_table import print_preemption
from replay.results import durations


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


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False)
