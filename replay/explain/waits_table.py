"""Prints what pods waited for: every part for one pod, the longest waits for several pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from replay.explain.waits import DELETIONS, ROOM, PodWait, PodWaits, WaitPart
from replay.results.durations import simulated
from replay.results.summary.table import escape, print_rows, right_aligned
from services.kube.quantity import Format, Quantity
from services.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from services.terminal import counted

_NANO_PER_MILLI = 1_000_000


def print_waits(waits: PodWaits, console: Console, top: int) -> None:
    """Print some pods' waits, at most `top` parts or pods, and the total time by cause."""
    if len(waits.pods) == 1:
        _print_pod(waits.pods[0], waits.start_ns, console, top)
        _print_moves(waits.pods[0], waits.start_ns, console)
        _print_near(waits, console)
        _print_changes(waits, console)
    else:
        _print_pods(waits, console, top)
    total_ns = max(1, waits.length_ns)
    print_rows(
        console,
        ("WAITED FOR", *right_aligned("TIME", "SHARE")),
        waits.totals(),
        lambda total: (escape(total[0]), simulated(total[1]), f"{100 * total[1] / total_ns:.1f} %"),
    )


def _print_pod(pod: PodWait, start_ns: int, console: Console, top: int) -> None:
    head = f"[bold]{escape(pod.key)}[/] waited {simulated(pod.length_ns)} for a node"
    begins, ends = simulated(pod.from_ns - start_ns), simulated(pod.until_ns - start_ns)
    if pod.node:
        end = f"until it was bound to [bold]{escape(pod.node)}[/]"
    else:
        end = "and still waits at the run's end" if pod.lasts else "until its end"
    console.print(f"{head}, from {begins} to {ends}, {end}", highlight=False)
    backed_off = ("OF IT BACKOFF",) if any(part.backoff_ns for part in pod.parts) else ()
    print_rows(
        console,
        (*right_aligned("FROM", "FOR", *backed_off), *("ATTEMPTS", "WAITED FOR", "FIRST FOUND")),
        pod.parts,
        lambda part: (
            simulated(part.from_ns - start_ns),
            simulated(part.length_ns),
            *(simulated(part.backoff_ns) for _ in backed_off),
            _numbers(part.attempts),
            escape(part.cause),
            escape(_found(part)),
        ),
        top,
    )


def _print_moves(pod: PodWait, start_ns: int, console: Console) -> None:
    print_rows(
        console,
        ("MOVED BY", *right_aligned("TIMES", "FIRST", "LAST")),
        pod.moves(),
        lambda moves: (
            escape(moves.event),
            f"{moves.times:,}",
            simulated(moves.first_ns - start_ns),
            simulated(moves.last_ns - start_ns),
        ),
    )


def _print_near(waits: PodWaits, console: Console) -> None:
    if not waits.near:
        return
    at = simulated(waits.near_ns - waits.start_ns)
    console.print(f"\nNodes that lacked least at {at}, and who held what was missing:")
    print_rows(
        console,
        ("NODE", "LACKED", "HELD BY"),
        waits.near,
        lambda near: (
            escape(near.node),
            amounts_text(near.lacks),
            escape("; ".join(f"{holder} ({amounts_text(held)})" for holder, held in near.holders)),
        ),
    )


def _print_pods(waits: PodWaits, console: Console, top: int) -> None:
    pods = sorted(waits.pods, key=lambda pod: (-pod.length_ns, pod.from_ns, pod.uid))
    waited = [pod for pod in pods if pod.length_ns]
    console.print(
        f"[bold]{escape(waits.named)}[/]: {counted(len(waited), 'pod')} of {len(pods):,} waited "
        f"{simulated(waits.length_ns)} in all for a node",
        highlight=False,
    )
    print_rows(
        console,
        ("POD", *right_aligned("FROM", "FOR"), "UNTIL", "WAITED MOST FOR"),
        waited,
        lambda pod: (
            escape(pod.key),
            simulated(pod.from_ns - waits.start_ns),
            simulated(pod.length_ns),
            escape(pod.node or ("-" if pod.lasts else "its end")),
            escape(pod.totals()[0][0]),
        ),
        top,
    )


def _print_changes(waits: PodWaits, console: Console) -> None:
    if not waits.changes:
        return
    (pod,) = waits.pods
    console.print(f"\nAfter the last failed attempt, on {escape(pod.node)}:", highlight=False)
    print_rows(
        console,
        (*right_aligned("AT"), "CHANGE"),
        waits.changes,
        lambda change: (simulated(change.at_ns - waits.start_ns), escape(change.sentence)),
    )


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return amounts by resource as Kubernetes writes them, such as "1500m cpu, 2Gi memory"."""
    return ", ".join(f"{_amount(name, amount)} {name}" for name, amount in amounts.items())


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return str(Quantity(amount * _NANO_PER_MILLI))
    form = Format.BINARY_SI if name in {MEMORY, EPHEMERAL_STORAGE} else Format.DECIMAL_SI
    return str(Quantity.from_value(amount, form))


def _numbers(attempts: Sequence[int]) -> str:
    if not attempts:
        return "-"
    first, last = attempts[0], attempts[-1]
    return str(first) if first == last else f"{first}-{last}"


def _found(part: WaitPart) -> str:
    """Return the details of a part as a text: the first attempt's reasons with their nodes."""
    if part.cause in {ROOM, DELETIONS}:
        ((node, victims),) = part.details
        return f"{counted(victims, 'victim')} on {node}"
    return ", ".join(f"{nodes:,} {reason}" if nodes else reason for reason, nodes in part.details)
