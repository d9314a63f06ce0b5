"""Drains nodes or lets them fail at a given time: `--drain` and `--fail`.

Both become records of the trace, the last ones at their time. A drain works as in kubectl
(replay/world/controllers/drains.py), except that it evicts pods without a controller and pods with
emptyDir volumes unless `force=false` or `delete-emptydir-data=false` is given. Upgrades of managed
node pools do the same. The run notes the pods for which kubectl requires these options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from replay.durations import duration_ns
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import closest
from replay.overrides.nodes import nodes_named
from reprieve.trace.v1beta1 import trace_pb2

_PART = re.compile(r"(?:[^,()]|\([^()]*\))+")
_ORDERS = {
    "name": trace_pb2.DRAIN_ORDER_UNSPECIFIED,
    "least-used": trace_pb2.DRAIN_ORDER_LEAST_USED,
    "youngest": trace_pb2.DRAIN_ORDER_YOUNGEST,
}
_DRAIN_OPTIONS = (
    *("at", "order", "parallel", "uncordon-after", "force", "delete-emptydir-data"),
    "ignore-daemonsets",
)
_FAIL_OPTIONS = ("at", "for")
_PARALLEL_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """A drain or failure of nodes, `at_ns` after the start of the trace.

    option: the option's text, such as "--drain pool=old,at=10m". target: node names or a selector.
    until_ns: the end, since the start of the trace; None: it has no end.
    """

    option: str
    target: str
    at_ns: int = 0
    until_ns: int | None = None

    def may_be_over(self, at_ns: int) -> bool:
        """Return whether the event may have ended before `at_ns`, when another one begins."""
        return self.until_ns is not None and self.until_ns < at_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest(NodeEvent):
    """A `--drain`; `drain` has no node names yet."""

    drain: trace_pb2.Drain

    def may_be_over(self, at_ns: int) -> bool:
        """Return whether the nodes may have been uncordoned before `at_ns`."""
        return self.drain.HasField("uncordon_delay_duration_ns") and self.at_ns < at_ns


def parse_drain(text: str) -> DrainRequest:
    """Return the drain of "NODE|SELECTOR[,OPTION=VALUE...]". Raises OverrideError."""
    option = f"--drain {text}"
    target, given = split_options(option, text, _DRAIN_OPTIONS)
    drain = trace_pb2.Drain()
    order = given.get("order", "name")
    if order not in _ORDERS:
        raise OverrideError(f"{option}: order={order}: write one of {', '.join(_ORDERS)}")
    drain.order = _ORDERS[order]
    if "parallel" in given:
        drain.parallel = _number(option, given["parallel"])
    if "uncordon-after" in given:
        drain.uncordon_delay_duration_ns = _duration(
            option, "uncordon-after", given["uncordon-after"]
        )
    drain.refuse_unmanaged = not _flag(option, given, "force")
    drain.refuse_empty_dir = not _flag(option, given, "delete-emptydir-data")
    if not _flag(option, given, "ignore-daemonsets"):
        raise OverrideError(
            f"{option}: without ignore-daemonsets kubectl drains no node that has a DaemonSet's pod"
        )
    return DrainRequest(option=option, target=target, at_ns=_at(option, given), drain=drain)


def parse_fail(text: str) -> NodeEvent:
    """Return the failure of "NODE|SELECTOR[,at=TIME][,for=TIME]". Raises OverrideError."""
    option = f"--fail {text}"
    target, given = split_options(option, text, _FAIL_OPTIONS)
    at_ns = _at(option, given)
    until_ns = at_ns + _duration(option, "for", given["for"]) if "for" in given else None
    return NodeEvent(option=option, target=target, at_ns=at_ns, until_ns=until_ns)


def node_records(
    drains: Sequence[DrainRequest], failures: Sequence[NodeEvent], inventory: TraceInventory
) -> Iterator[trace_pb2.Record]:
    """Yield the records of drains and failures. Raises OverrideError, before the first one.

    Two drains, or two failures, of one node at the same time are refused.
    """
    start_ns = inventory.start_ns or 0
    drained = [(drain, _nodes(drain, inventory)) for drain in drains]
    failing = [(failure, _nodes(failure, inventory)) for failure in failures]
    _refuse_overlaps(drained)
    _refuse_overlaps(failing)
    for request, names in drained:
        action = trace_pb2.NodeAction(type=trace_pb2.NODE_ACTION_TYPE_DRAIN, drain=request.drain)
        action.drain.node_names.extend(names)
        yield trace_pb2.Record(time_ns=start_ns + request.at_ns, node_action=action)
    for failure, names in failing:
        times = [(failure.at_ns, trace_pb2.NODE_ACTION_TYPE_FAIL)]
        if failure.until_ns is not None:
            times.append((failure.until_ns, trace_pb2.NODE_ACTION_TYPE_RECOVER))
        for at_ns, type_ in times:
            for name in names:
                action = trace_pb2.NodeAction(node_name=name, type=type_)
                yield trace_pb2.Record(time_ns=start_ns + at_ns, node_action=action)


def at_time(option: str, text: str) -> tuple[str, int]:
    """Return the text before ",at=TIME", and TIME since the start of the trace; 0 without it.

    Raises OverrideError.
    """
    target, given = split_options(f"{option} {text}", text, ("at",))
    return (target, _at(f"{option} {text}", given)) if given else (text, 0)


def refuse_late(option: str, at_ns: int, inventory: TraceInventory, until_ns: int | None) -> None:
    """Raise OverrideError for a time, ns since the start, after the end of the replay."""
    if until_ns is not None and at_ns > until_ns:
        raise OverrideError(f"{option} is after the time of --until: nothing of it is replayed")
    if inventory.end_ns and (inventory.start_ns or 0) + at_ns > inventory.end_ns:
        raise OverrideError(f"{option} is after the end of the recorded window")


def split_options(option: str, text: str, names: Sequence[str]) -> tuple[str, Mapping[str, str]]:
    """Return the text before the options, and the options; "x" is "x=true"."""
    target: list[str] = []
    given: dict[str, str] = {}
    for part in _PART.findall(text):
        name, equals, value = part.strip().partition("=")
        if name in names:
            if name in given:
                raise OverrideError(f"{option}: {name} is given twice")
            given[name] = value if equals else "true"
        elif given:
            raise _unknown(option, name, names)
        else:
            target.append(part)
    if not target:
        raise OverrideError(f"{option}: write a node's name or a label selector first")
    return ",".join(target), given


def refuse_misspelt(
    option: str, target: str, names: Sequence[str], existing: Collection[str] = ()
) -> None:
    """Raise OverrideError if a part of a target after the first part is a misspelt option.

    Call this if the target matches no node, because a label's key may look like an option.
    `existing` has the names and label keys of nodes. A part that is not in `existing` counts as an
    option if it resembles one, or if the first part is in `existing`, because a selector cannot
    follow a node's name.
    """
    first, *rest = (part.strip() for part in _PART.findall(target))
    for part in rest:
        name = re.split("[=!]", part, maxsplit=1)[0].strip()
        if name and name not in existing and (first in existing or closest(name, names)):
            raise _unknown(option, name, names)


def _unknown(option: str, name: str, names: Sequence[str]) -> OverrideError:
    hint, known = closest(name, names), ", ".join(names)
    return OverrideError(f"{option}: {name!r} is not an option{hint}; options: {known}")


def _at(option: str, given: Mapping[str, str]) -> int:
    return _duration(option, "at", given["at"]) if "at" in given else 0


def _duration(option: str, name: str, text: str) -> int:
    try:
        return duration_ns(text)
    except ValueError:
        problem = f"{name}={text} is not a duration; write {name}=90s or {name}=1h30m"
        raise OverrideError(f"{option}: {problem}") from None


def _number(option: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _PARALLEL_MAX:
        raise OverrideError(f"{option}: parallel={text}: write a number of 1 to {_PARALLEL_MAX:,}")
    return int(text)


def _flag(option: str, given: Mapping[str, str], name: str) -> bool:
    """Return a flag, True if it is left out."""
    value = given.get(name, "true")
    if value not in ("true", "false"):
        raise OverrideError(f"{option}: {name}={value}: write true or false")
    return value == "true"


def _nodes(event: NodeEvent, inventory: TraceInventory) -> list[str]:
    try:
        return nodes_named(event.option, event.target, inventory)
    except NoEffectError:
        labels = inventory.node_labels
        existing = {*labels, *(key for label in labels.values() for key in label)}
        names = _DRAIN_OPTIONS if isinstance(event, DrainRequest) else _FAIL_OPTIONS
        refuse_misspelt(event.option, event.target, names, existing)
        raise


def _refuse_overlaps(events: Iterable[tuple[NodeEvent, list[str]]]) -> None:
    last: dict[str, NodeEvent] = {}
    for event, names in sorted(events, key=lambda event: event[0].at_ns):
        for name in names:
            before = last.get(name)
            if before is not None and not before.may_be_over(event.at_ns):
                raise OverrideError(
                    f"node {name} is in {before.option} and in {event.option}: the first of them "
                    "is not over when the other begins"
                )
            last[name] = event
