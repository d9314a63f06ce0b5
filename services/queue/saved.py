"""A session as plain values: what its checkpoint holds.

Rows are lists in the order of the values' fields. Pods are written once each: an entry and a pop
name theirs by its place in the list of pods. Digests are left out, for only an update's own two
versions are compared.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from services.kube.selector import LabelSelector, Operator, Requirement
from services.queue.core.backoff import BackoffLimits, NameBackoff
from services.queue.core.entry import Entry, Failure, Popped
from services.queue.core.mode import V1_16, V1_20
from services.queue.core.nominator import NodeNominations
from services.queue.core.pod import AffinityTerm, PodRef, QueuedPod
from services.queue.core.scheduling_queue import QueueConfig, SchedulingQueue
from services.queue.core.state import BackingOff, QueueState

Plain = dict[str, Any]
Row = list[Any]
_MODES = {mode.name: mode for mode in (V1_20, V1_16)}
_COUNTERS = (
    "mode",
    "now_ns",
    "scheduling_cycle",
    "move_request_cycle",
    "sequence",
    "flushed_backoff_ns",
    "flushed_leftover_ns",
    "closed",
)


@dataclass(slots=True, kw_only=True)
class QueueSession:
    """What a session holds: its rules, its queue, and whether at_ns may be left 0."""

    config: QueueConfig
    queue: SchedulingQueue
    live: bool = False


def session_to_plain(session: QueueSession) -> Plain:
    """Return dicts, lists, strings, integers, booleans and None that stand for the session."""
    state = session.queue.snapshot()
    pods = _Pods()
    return {
        "config": _config_to_plain(session.config),
        "live": session.live,
        "counters": {name: getattr(state, name) for name in _COUNTERS},
        "active": [_entry_to_row(entry, pods) for entry in state.active],
        "backoff": [
            [_entry_to_row(waiting.entry, pods), waiting.expiry_ns] for waiting in state.backoff
        ],
        "unschedulable": [_entry_to_row(entry, pods) for entry in state.unschedulable],
        "in_flight": [[pods.place(popped.pod), *popped[1:]] for popped in state.in_flight],
        "nominations": [
            [node.node_name, [[pod.uid, pod.namespace, pod.name] for pod in node.pods]]
            for node in state.nominations
        ],
        "name_backoffs": [
            [*backoff.key, backoff.attempts, backoff.updated_ns] for backoff in state.name_backoffs
        ],
        "pods": pods.rows,
    }


def session_from_plain(plain: Plain) -> QueueSession:
    """Return the session that `plain` stands for.

    Raises KeyError, IndexError, TypeError or ValueError where `plain` is not what
    session_to_plain returns.
    """
    config = _config_from_plain(plain["config"])
    pods = [_pod_from_row(row) for row in plain["pods"]]
    state = QueueState(
        **plain["counters"],
        active=tuple(_entry_from_row(row, pods) for row in plain["active"]),
        backoff=tuple(
            BackingOff(entry=_entry_from_row(row, pods), expiry_ns=expiry_ns)
            for row, expiry_ns in plain["backoff"]
        ),
        unschedulable=tuple(_entry_from_row(row, pods) for row in plain["unschedulable"]),
        in_flight=tuple(Popped(pods[place], *rest) for place, *rest in plain["in_flight"]),
        nominations=tuple(
            NodeNominations(
                node_name=node_name,
                pods=tuple(
                    PodRef(uid=uid, namespace=namespace, name=name)
                    for uid, namespace, name in nominated
                ),
            )
            for node_name, nominated in plain["nominations"]
        ),
        name_backoffs=tuple(
            NameBackoff(key=(namespace, name), attempts=attempts, updated_ns=updated_ns)
            for namespace, name, attempts, updated_ns in plain["name_backoffs"]
        ),
    )
    if state.mode != config.mode.name:
        raise ValueError(f"the state is of mode {state.mode!r}, the rules {config.mode.name!r}")
    queue = SchedulingQueue.restore(config, state)
    return QueueSession(config=config, queue=queue, live=plain["live"])


class _Pods:
    """The versions of pods that a state holds, each once, in the order they are met."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._place_by_id: dict[int, int] = {}

    def place(self, pod: QueuedPod) -> int:
        """Return the pod's place in `rows`; the state keeps it alive, so its id is its own."""
        place = self._place_by_id.get(id(pod))
        if place is None:
            place = self._place_by_id[id(pod)] = len(self.rows)
            self.rows.append(_pod_to_row(pod))
        return place


def _config_to_plain(config: QueueConfig) -> Plain:
    return {
        "mode": config.mode.name,
        "backoff": asdict(config.backoff),
        "max_unschedulable_ns": config.max_unschedulable_ns,
    }


def _config_from_plain(plain: Plain) -> QueueConfig:
    return QueueConfig(
        mode=_MODES[plain["mode"]],
        backoff=BackoffLimits(**plain["backoff"]),
        max_unschedulable_ns=plain["max_unschedulable_ns"],
    )


def _entry_to_row(entry: Entry, pods: _Pods) -> Row:
    failure = entry.failure
    failed = failure and [failure.plugins, failure.pending_plugins, failure.error]
    return [pods.place(entry.pod), *entry[1:5], failed]


def _entry_from_row(row: Row, pods: list[QueuedPod]) -> Entry:
    place, timestamp_ns, initial_attempt_ns, attempts, sequence, failed = row
    return Entry(
        pod=pods[place],
        timestamp_ns=timestamp_ns,
        initial_attempt_ns=initial_attempt_ns,
        attempts=attempts,
        sequence=sequence,
        failure=failed and _failure_from_row(failed),
    )


def _failure_from_row(row: Row) -> Failure:
    plugins, pending_plugins, error = row
    return Failure(plugins=tuple(plugins), pending_plugins=tuple(pending_plugins), error=error)


def _pod_to_row(pod: QueuedPod) -> Row:
    return [
        pod.uid,
        pod.namespace,
        pod.name,
        pod.priority,
        pod.nominated_node_name,
        pod.sort_key.hex(),
        pod.gates,
        [_term_to_row(term) for term in pod.affinity_terms],
    ]


def _pod_from_row(row: Row) -> QueuedPod:
    uid, namespace, name, priority, nominated_node_name, sort_key, gates, terms = row
    return QueuedPod(
        uid=uid,
        namespace=namespace,
        name=name,
        priority=priority,
        nominated_node_name=nominated_node_name,
        sort_key=bytes.fromhex(sort_key),
        gates=tuple(gates),
        affinity_terms=tuple(_term_from_row(term) for term in terms),
    )


def _term_to_row(term: AffinityTerm) -> Row:
    selector = term.selector
    assert isinstance(selector, LabelSelector)  # noqa: S101 - the codec makes no other
    requirements = [[each.key, each.operator.value, each.values] for each in selector.requirements]
    return [term.namespaces, requirements]


def _term_from_row(row: Row) -> AffinityTerm:
    namespaces, requirements = row
    selector = LabelSelector(
        requirements=tuple(
            Requirement(key=key, operator=Operator(operator), values=tuple(values))
            for key, operator, values in requirements
        )
    )
    return AffinityTerm(namespaces=tuple(namespaces), selector=selector)
