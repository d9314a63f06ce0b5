"""A kubelet's eviction, for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from replay.explain.explanation import Eviction, RankedPod
from replay.explain.layout import counted, new_table, print_table
from replay.results import durations
from services.kube.quantity import Format, Quantity

_COUNTED = ("inodesFree", "pid.")
"""Signals that count things, and not bytes."""


def print_eviction(found: Eviction, pod: str, start_ns: int, console: Console) -> None:
    """Print why `pod` had to go, and which pods stood before and after it."""
    at = durations.simulated(found.at_ns - start_ns)
    given_s = found.grace_period_s
    grace = "" if given_s is None else f", with a grace period of {given_s} s"
    node = escape(found.node)
    console.print(f"\n[bold]Evicted at {at}[/] on [bold]{node}[/]{grace}", highlight=False)
    console.print(escape(found.message.strip()), highlight=False)
    if not found.signal:
        console.print("a limit on local storage was exceeded, no threshold met", highlight=False)
        return
    if found.threshold:
        console.print(f"threshold: {escape(_threshold(found.threshold))}", highlight=False)
    if found.available is not None and found.capacity is not None:
        available = _amount(found.available, found.signal)
        capacity = _amount(found.capacity, found.signal)
        console.print(f"observed: {available} available of {capacity}", highlight=False)
    if found.rank:
        pods = counted(found.ranked_pods, "pod")
        console.print(f"rank: {found.rank:,} of {pods} on the node", highlight=False)
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
        used, request = _used(place, found.signal), _amount(place.request, found.signal)
        table.add_row(f"{number:,}", name, f"{place.priority:,}", used, request, exceeds)
    print_table(first, table, console)


def _used(place: RankedPod, signal: str) -> str:
    return "unknown" if place.usage is None else _amount(place.usage, signal)


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
