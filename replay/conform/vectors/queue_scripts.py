"""The recorded scripts of upstream's PriorityQueue as messages, and their comparison.

Result and state are compared after every operation. Where upstream does not define the order of
equal entries, both sides are sorted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import MILLISECOND_NS

Json = Mapping[str, Any]
Argument = Message | str
"""The argument of an operation of the contract."""
_ROWS = {
    queue_pb2.SUB_QUEUE_ACTIVE: "active",
    queue_pb2.SUB_QUEUE_BACKOFF: "backoff",
    queue_pb2.SUB_QUEUE_ERROR_BACKOFF: "error_backoff",
    queue_pb2.SUB_QUEUE_UNSCHEDULABLE: "unschedulable",
    queue_pb2.SUB_QUEUE_GATED: "unschedulable",
}
_WITHOUT_POD = {
    "pop": ("pop", queue_pb2.Pop),
    "flush_backoff": ("flush_backoff", Empty),
    "flush_unschedulable": ("flush_leftover", Empty),
    "close": ("close", Empty),
}
"""Operations of scripts that name no pod, as the contract has them."""
_NEVER_MOVED = -1
_PARKED = {queue_pb2.SUB_QUEUE_UNSCHEDULABLE, queue_pb2.SUB_QUEUE_GATED}
_BACKING_OFF = {queue_pb2.SUB_QUEUE_BACKOFF, queue_pb2.SUB_QUEUE_ERROR_BACKOFF}


def difference_of(
    mode: str,
    vector: Json,
    apply: Callable[[Json], dict[str, Any]],
    state: Callable[[], dict[str, Any] | None],
) -> str:
    """Apply each operation by `apply`; return where result or `state` first differs, "" if none.

    Where `state` returns None, the state after this operation is not compared.
    """
    for step, (op, expected) in enumerate(zip(vector["script"], vector["expected"], strict=True)):
        result = apply(op)
        recorded = expected.get("result", {})
        ties = {name for name in recorded if name.endswith("_tie")}
        observed = state()
        actual = {"result": result, "state": comparable(observed or expected["state"], ties)}
        upstream = {
            "result": {name: recorded[name] for name in recorded if name not in ties},
            "state": comparable(expected["state"], ties),
        }
        if mode == "v1.16":  # recorded from a later version's entries, which differ
            for side in (actual, upstream):
                drop_attempts(side)
        for part, value in upstream.items():
            if actual[part] != value:
                return (
                    f"{vector['id']} step {step} {json.dumps(op)}: {part}\n"
                    f"  upstream {value}\n  here     {actual[part]}"
                )
    return ""


def comparable(state: Json, ties: set[str]) -> dict[str, Any]:
    """Sort entries without an order, and those whose order a marked tie leaves undefined."""
    unique = dict(state)
    unique["unschedulable"] = sorted(state["unschedulable"])
    if "active_tie" in ties:
        unique["active"] = sorted_within(state["active"], lambda row: row[2])
    if "backoff_tie" in ties:
        unique["backoff"] = sorted_within(state["backoff"], lambda row: row[3])
    return unique


def sorted_within(rows: list[Any], order: Callable[[Any], Any]) -> list[Any]:
    """Sort each run of adjacent rows that are equal by `order`."""
    sorted_rows: list[Any] = []
    run: list[Any] = []
    for row in rows:
        if run and order(run[-1]) != order(row):
            sorted_rows += sorted(run)
            run = []
        run.append(row)
    return sorted_rows + sorted(run)


def drop_attempts(side: dict[str, Any]) -> None:
    """Remove the attempts from results and entries."""
    side["result"] = {k: v for k, v in side["result"].items() if k != "attempts"}
    for name in ("active", "backoff", "unschedulable"):
        side["state"][name] = [[row[0], *row[2:]] for row in side["state"][name]]


def summary(active: int, backoff: int, unschedulable: int) -> str:
    """Return upstream's summary of the pending pods."""
    return f"activeQ:{active}; backoffQ:{backoff}; unschedulablePods:{unschedulable}"


HINTED = frozenset({"v1.36", "v1.34"})
"""The versions with queueing hints, gates and an error backoff."""


def refusing_plugins(op: Json) -> tuple[str, ...]:
    """Return the plugins that refused the pod of a script's cycle, by default "AnyPlugin"."""
    plugins = tuple(op.get("plugins", ()))
    if plugins or op.get("pending") or op.get("err"):
        return plugins
    return ("AnyPlugin",)


class QueueOperations(Protocol):
    """A session of the service, by unary calls or by the stream."""

    def apply(self, name: str, argument: Argument, at_ns: int) -> queue_pb2.OperationResult:
        """Apply the contract's operation `name`."""
        ...

    def state(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        ...


class ScriptedQueue:
    """Applies a script's operations to one session; keeps the pods and pops of the script."""

    def __init__(self, client: QueueOperations, mode: str) -> None:
        self._client = client
        self._mode = mode
        self._deleted: set[str] = set()
        self._pods: dict[str, pod_pb2.Pod] = {}
        self._pops: dict[str, list[session_pb2.PopId]] = {}
        self._keys: dict[str, str] = {}

    def apply(self, op: Json) -> dict[str, Any]:
        """Apply one operation and return its result in the vectors' shape."""
        match op["op"]:
            case "tick":
                return {}
            case "activate" if not self._living(op["keys"]):
                return {}
            case "pending":
                return self._pending()
            case "nominated_for":
                nominated = _nominated(self._client.state())
                return {"pods": nominated.get(op["node"], [])}
        name, argument = self._operation(op)
        result = self._client.apply(name, argument, op["at_ms"] * MILLISECOND_NS)
        if result.HasField("popped"):
            pop = result.popped.pop
            self._pops.setdefault(self._keys[pop.uid], []).append(pop)
        return self.seen_result(result)

    def seen_result(self, result: queue_pb2.OperationResult) -> dict[str, Any]:
        """Return a result in the vectors' shape."""
        if result.code == queue_pb2.OUTCOME_CODE_WOULD_BLOCK:
            return {"would_block": True}
        if result.text:
            return {"error": result.text}
        if result.code == queue_pb2.OUTCOME_CODE_CLOSED:
            return {"nil": True}
        if not result.HasField("popped"):
            return {}
        head = result.popped
        return {
            "pod": self._keys[head.pop.uid],
            "attempts": head.attempts,
            "cycle": head.pop.cycle,
            "initial_ms": head.first_enqueued_time_ns // MILLISECOND_NS,
            "ts_ms": head.queued_time_ns // MILLISECOND_NS,
        }

    def promised(self, recorded: Json) -> queue_pb2.OperationResult:
        """Return a pop's recorded result as a message with its pop's identity."""
        if "pod" not in recorded:
            return queue_pb2.OperationResult()
        uid = self._ref(recorded["pod"]).uid
        pop = session_pb2.PopId(uid=uid, cycle=recorded["cycle"])
        return queue_pb2.OperationResult(popped=queue_pb2.Head(pop=pop))

    def state(self) -> dict[str, Any]:
        """Return the queue's state in the vectors' shape."""
        held = self._client.state()
        later = self._mode in HINTED
        names = {name for name in _ROWS.values() if later or name != "error_backoff"}
        rows: dict[str, Any] = {name: [] for name in names}
        for entry in held.entries:
            if entry.sub_queue in _ROWS:
                rows[_ROWS[entry.sub_queue]].append(_row(entry, later=later))
        rows["nominated"] = _nominated(held)
        rows["cycle"] = held.cycle
        moved = held.move_request_cycle if held.HasField("move_request_cycle") else _NEVER_MOVED
        rows["move_request_cycle"] = moved
        if later:
            rows["in_flight"] = [_named(pod) for pod in held.in_flight]
            rows["in_flight_events"] = len(held.in_flight_events)
        if self._mode == "v1.16":
            rows["pod_backoff"] = {
                backoff.key: [
                    backoff.attempts,
                    backoff.updated_time_ns // MILLISECOND_NS,
                    backoff.end_time_ns // MILLISECOND_NS,
                ]
                for backoff in held.pod_backoffs
            }
        return rows

    def _living(self, keys: list[str]) -> list[meta_pb2.ObjectReference]:
        """Return the references of existing pods: upstream's harness has no others."""
        return [self._ref(key) for key in keys if key in self._pods.keys() - self._deleted]

    def _operation(self, op: Json) -> tuple[str, Argument]:
        match op["op"]:
            case "add":
                gates = _gates(op["pod"])
                return "add", queue_pb2.Add(pod=self._remember(op["pod"]), gates=gates)
            case "update":
                known = self._pods.get(_key(op["pod"]))
                old = None if op.get("old_nil") else known
                new = self._remember(op["pod"])
                return "update", queue_pb2.Update(old_pod=old, pod=new, gates=_gates(op["pod"]))
            case "assigned_add":
                return "assigned_pod_add", queue_pb2.AssignedPodAdd(pod=pod_message(op["pod"]))
            case "assigned_update":
                changed = queue_pb2.AssignedPodUpdate(pod=pod_message(op["pod"]))
                return "assigned_pod_update", changed
            case "delete":
                self._deleted.add(op["key"])
                return "delete_pod", self._ref(op["key"])
            case "nominate":
                pod, node = self._ref(op["key"]), op.get("node") or None
                return "nominate", queue_pb2.Nominate(pod=pod, node_name=node)
            case "nominate_delete":
                return "delete_nomination", self._ref(op["key"])
            case "move_all":
                event = queue_pb2.ClusterEvent(label=op["event"])
                return "move", queue_pb2.Move(event=event)
            case "activate":
                return "activate", queue_pb2.Activate(pods=self._living(op["keys"]))
            case "add_unschedulable":
                failure = queue_pb2.Failure(
                    unschedulable_plugins=refusing_plugins(op),
                    pending_plugins=op.get("pending", ()),
                    error=op.get("err", False),
                )
                pop = self._take_pop(op["key"], op["cycle"])
                failed = queue_pb2.AddUnschedulable(pop=pop, failure=failure, cycle=op["cycle"])
                return "add_unschedulable", failed
            case "done":
                return "done", self._take_pop(op["key"], None)
        name, message = _WITHOUT_POD[op["op"]]
        return name, message()

    def _remember(self, plain: Json) -> pod_pb2.Pod:
        pod = self._pods[_key(plain)] = pod_message(plain)
        self._keys[pod.metadata.uid] = _key(plain)
        self._deleted.discard(_key(plain))
        return pod

    def _ref(self, key: str) -> meta_pb2.ObjectReference:
        meta = self._pods[key].metadata
        return meta_pb2.ObjectReference(uid=meta.uid, namespace=meta.namespace, name=meta.name)

    def _take_pop(self, key: str, cycle: int | None) -> session_pb2.PopId:
        """Return the key's pop of that cycle, else its oldest in flight."""
        pops = self._pops[key]
        chosen = next((pop for pop in pops if pop.cycle == cycle), pops[0])
        pops.remove(chosen)
        return chosen

    def _pending(self) -> dict[str, Any]:
        waiting = [entry for entry in self._client.state().entries if entry.sub_queue in _ROWS]
        parked = sum(entry.sub_queue in _PARKED for entry in waiting)
        seen: dict[str, Any] = {
            "pods": sorted(_named(entry.pod) for entry in waiting),
            "num_unschedulable": parked,
        }
        if self._mode in HINTED:
            backing_off = sum(entry.sub_queue in _BACKING_OFF for entry in waiting)
            seen["summary"] = summary(len(waiting) - backing_off - parked, backing_off, parked)
        return seen


def _nominated(state: queue_pb2.QueueState) -> dict[str, list[str]]:
    return {node.node_name: [_named(pod) for pod in node.pods] for node in state.nominations}


def _gates(plain: Json) -> list[str]:
    """Return the PreEnqueue plugins that a scheduler would report for the pod."""
    return ["SchedulingGates"] if plain.get("gates") else []


def pod_message(plain: Json) -> pod_pb2.Pod:
    """Return a script's pod as a Kubernetes object."""
    pod = pod_pb2.Pod()
    meta, spec = pod.metadata, pod.spec
    meta.name, meta.namespace = plain["name"], plain.get("ns", "default")
    meta.uid = plain.get("uid", f"uid-{_key(plain)}")
    meta.resource_version = str(plain.get("rv", ""))
    meta.generation = plain.get("generation", 0)
    meta.labels.update(plain.get("labels") or {})
    meta.annotations.update(plain.get("annotations") or {})
    meta.finalizers.extend(plain.get("finalizers") or ())
    meta.creation_timestamp.FromMilliseconds(plain.get("created_ms", 0))
    spec.priority = plain.get("priority", 0)
    spec.node_name = plain.get("node", "")
    spec.scheduling_gates.extend(pod_pb2.PodSchedulingGate(name=g) for g in plain.get("gates", ()))
    spec.node_selector.update(plain.get("node_selector") or {})
    for name, field in (("affinity", "pod_affinity"), ("anti_affinity", "pod_anti_affinity")):
        for plain_term in plain.get(name) or ():
            affinity = getattr(spec.affinity, field)
            term = affinity.required_during_scheduling_ignored_during_execution.add()
            term.label_selector.match_labels.update(plain_term["match_labels"])
            term.namespaces.extend(plain_term.get("namespaces") or ())
    pod.status.nominated_node_name = plain.get("nominated", "")
    if "cond_reason" in plain:
        pod.status.conditions.add(type="PodScheduled", reason=plain["cond_reason"])
    return pod


def _row(entry: queue_pb2.Entry, *, later: bool) -> list[Any]:
    row = [_named(entry.pod), entry.attempts, entry.queued_time_ns // MILLISECOND_NS]
    if entry.sub_queue in _BACKING_OFF:
        row.append(entry.backoff_end_time_ns // MILLISECOND_NS)
    if entry.sub_queue in _PARKED and later:
        plugins = sorted({*entry.unschedulable_plugins, *entry.pending_plugins})
        row += [entry.sub_queue == queue_pb2.SUB_QUEUE_GATED, plugins]
    return row


def _named(pod: meta_pb2.ObjectReference) -> str:
    return f"{pod.namespace}/{pod.name}"


def _key(plain: Json) -> str:
    return f"{plain.get('ns', 'default')}/{plain['name']}"


def config_message(mode: str, settings: Json) -> queue_pb2.QueueConfig:
    """Return a script's configuration; an initial backoff of 0 is left out."""
    config = queue_pb2.QueueConfig(
        rules=mode,
        initial_backoff_duration_ns=settings["initial_backoff_ms"] * MILLISECOND_NS or None,
        max_backoff_duration_ns=settings["max_backoff_ms"] * MILLISECOND_NS,
    )
    if mode in HINTED:
        config.queueing_hints = settings["hints"]
        config.pop_from_backoff_q = settings["pop_from_backoffq"]
        config.hints.extend(REGISTRATIONS)
    return config


_OWN_OK = queue_pb2.HintCondition(
    own_pod=True, new_labels=meta_pb2.LabelSelector(match_labels={"ok": "yes"})
)
_OWN = queue_pb2.HintCondition(own_pod=True)
_NEVER = queue_pb2.HintCondition(never=True)
_REGISTERED = (
    ("AnyPlugin", ("NodeAdd", "NodeTaintChange", "NodeAllocatableChange", "PvAdd", "Pod"), None),
    ("NodeAddPlugin", ("NodeAdd",), None),
    ("PvPlugin", ("PvAdd",), None),
    ("InterPodAffinity", ("Pod",), None),
    ("SkipPlugin", ("NodeAdd", "NodeTaintChange"), _NEVER),
    ("ErrPlugin", ("NodeAdd",), None),
    ("SelfPlugin", ("PodUpdate",), _OWN_OK),
    ("SchedulingGates", ("PodSchedulingGatesEliminated",), _OWN),
)
REGISTRATIONS = [
    queue_pb2.HintRegistration(plugin=plugin, event=event, only_if=only_if)
    for plugin, events, only_if in _REGISTERED
    for event in events
]
"""The registrations of the recorder's plugins; a hint that fails counts as Queue."""
