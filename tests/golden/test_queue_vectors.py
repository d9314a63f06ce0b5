"""The queue's core against scripts recorded from upstream's PriorityQueue.

Result and state are compared after every operation. Where upstream leaves the order of
equal entries open, both sides are put into one order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from replay.conform.vectors.queue_scripts import difference_of, refusing_plugins, summary
from replay.conform.vectors.vectors import RECORDED
from services.framework.cluster_event import (
    ObjectEvent,
    PendingPod,
    QueueingHintFn,
    Registration,
    event_of,
)
from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector, Operator, Requirement
from services.kube.time import MILLISECOND_NS
from services.queue.core.backoff import BackoffLimits, NameBackoff, attempt_backoff_ns
from services.queue.core.queued_pod import (
    AffinityTerm,
    AssignedPod,
    Failure,
    InFlightPod,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import AlreadyPresent, QueueClosed, Requeued, SubQueue, WouldBlock
from services.queue.core.rules.versions import V1_16, V1_20, V1_34, QueueConfig, QueueVersion
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.vectors import read_vectors

BACKOFF_TICK_NS = 1_000_000_000
NOT_IN_DIGEST = {
    "v1.16": {"rv", "generation", "nominated", "cond_reason"},
    "v1.20": {"rv", "generation", "nominated", "cond_reason"},
    "v1.34": {"rv", "generation", "nominated", "cond_reason", "finalizers"},
}

Json = Mapping[str, Any]


def never(_pod: PendingPod, _happening: ObjectEvent) -> bool:
    """Skip every event."""
    return False


def own_ok(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Queue on the pod's own update that says ok."""
    new = object_event.new
    return isinstance(new, QueuedPod) and new.uid == pod.uid and new.labels.get("ok") == "yes"


def own(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Queue on the pod's own update."""
    return isinstance(object_event.new, QueuedPod) and object_event.new.uid == pod.uid


def registered(plugin: str, *labels: str, hint: QueueingHintFn | None = None) -> list[Registration]:
    """Return a plugin's registrations."""
    return [Registration(plugin=plugin, event=event_of(label), hint=hint) for label in labels]


REGISTRATIONS = tuple(
    registered("AnyPlugin", "NodeAdd", "NodeTaintChange", "NodeAllocatableChange", "PvAdd", "Pod")
    + registered("NodeAddPlugin", "NodeAdd")
    + registered("PvPlugin", "PvAdd")
    + registered("InterPodAffinity", "Pod")
    + registered("SkipPlugin", "NodeAdd", "NodeTaintChange", hint=never)
    + registered("ErrPlugin", "NodeAdd")
    + registered("SelfPlugin", "PodUpdate", hint=own_ok)
    + registered("SchedulingGates", "PodSchedulingGatesEliminated", hint=own)
)
"""What the recorder's plugins registered for; a hint that fails counts as one that queues."""


@pytest.mark.parametrize(
    ("mode", "scripts"), [(V1_34, 279), (V1_20, 237), (V1_16, 189)], ids=["v1.34", "v1.20", "v1.16"]
)
def test_every_recorded_script_gives_upstreams_results_and_states(
    mode: QueueVersion, scripts: int
) -> None:
    """Each operation of each script answers and leaves what upstream's did."""
    vectors = list(load(mode))
    differences = [text for vector in vectors if (text := first_difference(mode, vector))]
    assert not differences, f"{len(differences)} of {len(vectors)}:\n" + "\n".join(differences[:5])
    assert len(vectors) == scripts


@pytest.mark.parametrize("mode", [V1_34, V1_20, V1_16], ids=lambda mode: mode.name)
def test_a_queue_restored_before_each_operation_behaves_the_same(mode: QueueVersion) -> None:
    """A checkpoint between any two operations of any script changes nothing."""
    differences = [text for v in load(mode) if (text := first_difference(mode, v, restored=True))]
    assert not differences, "\n".join(differences[:5])


@pytest.mark.parametrize(
    ("mode", "nominated"),
    [(V1_34, {"": ["default/a"]}), (V1_20, {}), (V1_16, {})],
    ids=["v1.34", "v1.20", "v1.16"],
)
def test_a_script_that_nominates_without_a_node(
    mode: QueueVersion, nominated: dict[str, list[str]]
) -> None:
    """v1.34's ModeOverride takes the empty name as a node's; the older versions return before that.

    The recorded scripts always name a node. Sources: kubernetes v1.34 backend/queue/nominator.go,
    addNominatedPodUnlocked; v1.20 internal/queue/scheduling_queue.go, nominatedPodMap.add.
    """
    run = ScriptRun(mode, {"initial_backoff_ms": 1000, "max_backoff_ms": 10000})
    for op in (
        {"op": "add", "at_ms": 0, "pod": {"name": "a"}},
        {"op": "nominate", "at_ms": 1, "key": "default/a", "node": "n1"},
        {"op": "nominate", "at_ms": 2, "key": "default/a", "node": ""},
    ):
        run.apply(op)
    assert run.state()["nominated"] == nominated


def load(mode: QueueVersion) -> Iterator[Json]:
    """Yield the mode's vectors."""
    yield from read_vectors(RECORDED / f"queue-{mode.name}.jsonl.gz")


def first_difference(mode: QueueVersion, vector: Json, *, restored: bool = False) -> str:
    """Run a script and tell where it first differs from upstream, "" for nowhere."""
    run = ScriptRun(mode, vector["config"])

    def apply(op: Json) -> dict[str, Any]:
        if restored:
            run.queue = SchedulingQueue.restore(run.config, run.queue.snapshot())
        return run.apply(op)

    return difference_of(mode.name, vector, apply, run.state)


@dataclass
class ScriptRun:
    """One script's queue, and what its harness keeps of pods and pops."""

    mode: QueueVersion
    settings: Json
    config: QueueConfig = field(init=False)
    queue: SchedulingQueue = field(init=False)
    pods: dict[str, QueuedPod] = field(default_factory=dict)
    popped: dict[str, list[InFlightPod]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        limits = BackoffLimits(
            initial_ns=self.settings["initial_backoff_ms"] * MILLISECOND_NS,
            max_ns=self.settings["max_backoff_ms"] * MILLISECOND_NS,
        )
        self.config = QueueConfig(
            version=self.mode.name,
            backoff=limits,
            queueing_hints=self.settings.get("hints", True),
            pop_from_backoff_q=self.settings.get("pop_from_backoffq", True),
            registrations=REGISTRATIONS if self.mode is V1_34 else (),
        )
        self.queue = SchedulingQueue(self.config)

    def apply(self, op: Json) -> dict[str, Any]:
        """Do one operation and return its result in the vectors' shape."""
        operation: Callable[[Json, int], dict[str, Any] | None] = getattr(self, f"do_{op['op']}")
        return operation(op, op["at_ms"] * MILLISECOND_NS) or {}

    def do_tick(self, _op: Json, _now_ns: int) -> None:
        """Do nothing."""

    def do_add(self, op: Json, now_ns: int) -> None:
        """Create a pod."""
        self.queue.add(self.remember(op["pod"]), now_ns=now_ns)

    def do_update(self, op: Json, now_ns: int) -> None:
        """Change a pod from its last version."""
        old = None if op.get("old_nil") else self.pods.get(key_of(op["pod"]))
        self.queue.update(old, self.remember(op["pod"]), now_ns=now_ns)

    def do_delete(self, op: Json, now_ns: int) -> None:
        """Delete a pod."""
        self.deleted.add(op["key"])
        self.queue.delete(self.pods[op["key"]].ref, now_ns=now_ns)

    def do_pop(self, _op: Json, now_ns: int) -> dict[str, Any]:
        """Begin a scheduling cycle, which the heads have announced and a commit begins as well."""
        heads = self.queue.heads(1)
        twin = SchedulingQueue.restore(self.config, self.queue.snapshot())
        outcome = self.queue.pop(now_ns=now_ns)
        match outcome:
            case InFlightPod():
                assert heads == [outcome]
                assert twin.commit_pop(outcome.id, now_ns=now_ns) == outcome
                assert twin.snapshot() == self.queue.snapshot()
                key = f"{outcome.pod.namespace}/{outcome.pod.name}"
                self.popped.setdefault(key, []).append(outcome)
                return {
                    "pod": key,
                    "attempts": outcome.attempts,
                    "cycle": outcome.cycle,
                    "initial_ms": outcome.initial_attempt_ns // MILLISECOND_NS,
                    "ts_ms": outcome.timestamp_ns // MILLISECOND_NS,
                }
            case WouldBlock():
                return {"would_block": True}
            case QueueClosed(text=text):
                return {"error": text} if text else {"nil": True}

    def do_add_unschedulable(self, op: Json, now_ns: int) -> dict[str, Any] | None:
        """Fail a cycle."""
        pop_id = self.take_pop(op["key"], op["cycle"])
        outcome = self.queue.add_unschedulable(
            pop_id, now_ns=now_ns, cycle=op["cycle"], failure=failure_of(op)
        )
        if isinstance(outcome, AlreadyPresent):
            return {"error": outcome.text}
        assert isinstance(outcome, Requeued)
        return None

    def do_done(self, op: Json, _now_ns: int) -> None:
        """End a cycle well."""
        self.queue.done(self.take_pop(op["key"], None))

    def do_flush_backoff(self, _op: Json, now_ns: int) -> None:
        """Flush the backoff queue; the wake-up has told whether that moves anything."""
        expects = self.queue.next_wakeup_ns(now_ns)
        moved = self.queue.flush_backoff(now_ns=now_ns)
        assert not moved or (expects is not None and expects - now_ns < BACKOFF_TICK_NS)

    def do_flush_unschedulable(self, _op: Json, now_ns: int) -> None:
        """Flush the leftovers."""
        self.queue.flush_leftover(now_ns=now_ns)

    def do_move_all(self, op: Json, now_ns: int) -> None:
        """Move all pods on an event of the cluster."""
        self.queue.move_all(ObjectEvent.of(op["event"]), now_ns=now_ns)

    def do_assigned_add(self, op: Json, now_ns: int) -> None:
        """Report a new pod with a node."""
        self.queue.assigned_pod_added(assigned_pod(op["pod"]), now_ns=now_ns)

    def do_assigned_update(self, op: Json, now_ns: int) -> None:
        """Report a changed pod with a node."""
        self.queue.assigned_pod_updated(assigned_pod(op["pod"]), now_ns=now_ns)

    def do_activate(self, op: Json, now_ns: int) -> None:
        """Ask for pods at once; upstream's harness looks them up among those that exist."""
        known = [self.pods[key].ref for key in op["keys"] if key in self.pods.keys() - self.deleted]
        self.queue.activate(known, now_ns=now_ns)

    def do_nominate(self, op: Json, _now_ns: int) -> None:
        """Nominate as a preemption does, or as the pod's status says."""
        self.queue.nominate(self.pods[op["key"]].ref, op.get("node", ""))

    def do_nominate_delete(self, op: Json, _now_ns: int) -> None:
        """Drop a nomination."""
        self.queue.delete_nomination(self.pods[op["key"]].uid)

    def do_nominated_for(self, op: Json, _now_ns: int) -> dict[str, Any]:
        """Ask for a node's nominations."""
        return {"pods": ["/".join(ref.key) for ref in self.queue.nominated_for(op["node"])]}

    def do_pending(self, _op: Json, _now_ns: int) -> dict[str, Any]:
        """Ask for the pending pods."""
        sizes = self.queue.sizes()
        parked = sizes[SubQueue.UNSCHEDULABLE] + sizes.get(SubQueue.GATED, 0)
        seen: dict[str, Any] = {
            "pods": sorted("/".join(pod.key) for pod in self.queue.pending()),
            "num_unschedulable": parked,
        }
        if self.mode is V1_34:
            backing_off = sizes[SubQueue.BACKOFF] + sizes[SubQueue.ERROR_BACKOFF]
            seen["summary"] = summary(sizes[SubQueue.ACTIVE], backing_off, parked)
        return seen

    def do_close(self, _op: Json, _now_ns: int) -> None:
        """Close the queue."""
        self.queue.close()

    def remember(self, pod: Json) -> QueuedPod:
        """Build the pod and keep it as the last version of its name."""
        built = queued_pod(pod, self.mode)
        self.pods[key_of(pod)] = built
        self.deleted.discard(key_of(pod))
        return built

    def take_pop(self, key: str, cycle: int | None) -> PopId:
        """Return the key's pop of that cycle, else its oldest in flight."""
        pops = self.popped[key]
        chosen = next((popped for popped in pops if popped.cycle == cycle), pops[0])
        pops.remove(chosen)
        return chosen.id

    def state(self) -> dict[str, Any]:
        """Return the queue's state in the vectors' shape."""
        state = self.queue.snapshot()
        raw: dict[str, Any] = {
            "active": [pod_info_row(pod_info) for pod_info in state.active],
            "backoff": [
                [*pod_info_row(waiting.pod_info), waiting.expiry_ns // MILLISECOND_NS]
                for waiting in state.backoff
            ],
            "unschedulable": [pod_info_row(pod_info) for pod_info in state.unschedulable],
            "nominated": {
                node.node_name: ["/".join(ref.key) for ref in node.pods]
                for node in state.nominations
            },
            "cycle": state.scheduling_cycle,
            "move_request_cycle": state.move_request_cycle,
        }
        if self.mode is V1_34:
            hints = self.config.queueing_hints
            keys = {popped.pod.uid: "/".join(popped.pod_info.key) for popped in state.in_flight}
            raw["unschedulable"] = [
                [*pod_info_row(pod_info), bool(pod_info.gating_plugin), plugins_of(pod_info)]
                for pod_info in state.unschedulable
            ]
            raw["error_backoff"] = [
                [*pod_info_row(waiting.pod_info), waiting.expiry_ns // MILLISECOND_NS]
                for waiting in state.error_backoff
            ]
            raw["in_flight"] = [keys[uid] for uid, _ in state.hint_state.pods] if hints else []
            raw["in_flight_events"] = len(state.hint_state.events)
        if self.mode is V1_16:
            raw["pod_backoff"] = {
                "/".join(backoff.key): self.backoff_row(backoff) for backoff in state.name_backoffs
            }
        return raw

    def backoff_row(self, backoff: NameBackoff) -> list[int]:
        """Return a name's backoff as the vectors write it."""
        expiry_ns = backoff.updated_ns + attempt_backoff_ns(backoff.attempts, self.config.backoff)
        return [backoff.attempts, backoff.updated_ns // MILLISECOND_NS, expiry_ns // MILLISECOND_NS]


def plugins_of(pod_info: QueuedPodInfo) -> list[str]:
    """Return who refused the pod, by name."""
    failure = pod_info.failure or Failure()
    return sorted({*failure.plugins, *failure.pending_plugins})


def failure_of(op: Json) -> Failure:
    """Return why a script's cycle failed."""
    pending = tuple(op.get("pending", ()))
    return Failure(plugins=refusing_plugins(op), pending_plugins=pending, error=bool(op.get("err")))


def pod_info_row(pod_info: QueuedPodInfo) -> list[Any]:
    """Return an entry as the vectors write it."""
    return ["/".join(pod_info.key), pod_info.attempts, pod_info.timestamp_ns // MILLISECOND_NS]


def key_of(pod: Json) -> str:
    """Return the pod's namespace and name."""
    return f"{pod.get('ns', 'default')}/{pod['name']}"


def queued_pod(pod: Json, mode: QueueVersion) -> QueuedPod:
    """Build what the queue knows of a vector's pod."""
    left_out = NOT_IN_DIGEST[mode.name]
    compared = {name: value for name, value in pod.items() if name not in left_out}
    compared["priority"] = pod.get("priority", 0)
    return QueuedPod(
        uid=pod.get("uid", f"uid-{key_of(pod)}"),
        namespace=pod.get("ns", "default"),
        name=pod["name"],
        priority=pod.get("priority", 0),
        nominated_node_name=pod.get("nominated", ""),
        digest=hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).digest(),
        affinity_terms=tuple(
            affinity_term(term, pod.get("ns", "default")) for term in pod.get("affinity", ())
        ),
        gates=("SchedulingGates",) if pod.get("gates") else (),
        labels=pod.get("labels", {}),
        spec=PodSpec(scheduling_gates=tuple(pod.get("gates", ()))),
    )


def affinity_term(term: Json, namespace: str) -> AffinityTerm:
    """Build one required term."""
    requirements = tuple(
        Requirement(key=key, operator=Operator.IN, values=(value,))
        for key, value in term["match_labels"].items()
    )
    return AffinityTerm(
        namespaces=tuple(term.get("namespaces") or (namespace,)),
        selector=LabelSelector(requirements=requirements),
    )


def assigned_pod(pod: Json) -> AssignedPod:
    """Build an assigned pod."""
    return AssignedPod(namespace=pod.get("ns", "default"), labels=pod.get("labels", {}))
