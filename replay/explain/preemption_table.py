"""What preemption found, for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from replay.explain.explanation import Candidate, Preemption
from replay.explain.layout import counted, new_table, print_table

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


def print_preemption(found: Preemption, pod: str, console: Console) -> None:
    """Print who could make room for `pod`, and who may stay."""
    console.print()
    if found.disabled:
        console.print("Preemption is switched off", highlight=False)
        return
    if found.ineligible:
        console.print(f"Preemption: the pod may not preempt: {escape(found.ineligible)}")
        return
    console.print(_summary(found), highlight=False)
    if found.candidates:
        _print_candidates(found, console)
        _print_picked(found.candidates[0], pod, console)
    for each in found.no_candidates:
        reasons = escape("; ".join(each.reasons))
        names = escape(", ".join(each.nodes[:_NAMES]) + (", .." if each.count > _NAMES else ""))
        console.print(
            f"no candidate, {counted(each.count, 'node')} ({names}): {reasons}", highlight=False
        )


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
        console.print(
            f"Who is reprieved was put back in turn (first those whose budget is spent, then the "
            f"most important first), and {escape(pod)} still fits beside them; beside a victim "
            f"it would not.",
            highlight=False,
        )
