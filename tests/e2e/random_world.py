"""A small world that plays at random: rounds of every kind of change, after what was decided."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from replay.kube.kinds import to_object
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS

ZONES = ("a", "b", "c")
APPS = ("web", "db", "job")
_VERSIONS = {"PodDisruptionBudget": "policy/v1", "StorageClass": "storage.k8s.io/v1"}


def forget_times(outcomes: scheduler_pb2.RoundOutcomes) -> None:
    """Take out what the wall clock measured."""
    del outcomes.phases[:]
    for outcome in outcomes.outcomes:
        del outcome.phases[:]
        if outcome.HasField("refusals"):
            del outcome.refusals.wall_duration_ns[:]
            del outcome.refusals.steps[:]


class RandomWorld:
    """Rounds made from a seed; answers go back at once, late, or as refusals.

    `pods_at_once` come together.
    """

    def __init__(self, seed: int, pods_at_once: int = 1) -> None:
        self._pods_at_once = pods_at_once
        self._random = random.Random(seed)  # noqa: S311 - a world to test in, no secret
        self._now_s = 0
        self._made = 0
        self._nodes: list[str] = []
        self._pending: dict[str, dict[str, Any]] = {}
        self._placed: list[str] = []
        self._doomed: list[str] = []
        self._unanswered: list[scheduler_pb2.Outcome] = []
        self._refused: dict[str, None] = {}

    def rounds(self, count: int) -> Iterator[scheduler_pb2.Round]:
        """Yield rounds; `decided` takes the outcomes of each before the next is made."""
        yield self._round(list(self._first()))
        for _ in range(count):
            self._now_s += self._random.choice((0, 1, 7, 31))
            answers: list[scheduler_pb2.Answer] = []
            events: list[scheduler_pb2.Event] = []
            if self._random.random() < 0.7:
                answers, events = self._answered()
            for _ in range(self._random.randrange(4)):
                events += self._happening()
            if self._random.random() < 0.5:
                self._now_s += -self._now_s % 30
                tick = scheduler_pb2.Event()
                tick.tick.SetInParent()
                events.append(tick)
            round_ = self._round(events)
            round_.answers.extend(answers)
            most = self._random.choice((0, 0, 1, 2))
            if most:
                round_.max_pods = most
            yield round_

    def decided(self, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Take what the scheduler decided."""
        for outcome in outcomes.outcomes:
            if outcome.HasField("refusals"):
                self._refused.update(dict.fromkeys(outcome.refusals.uids))
            else:
                self._unanswered.append(outcome)

    def _first(self) -> Iterator[scheduler_pb2.Event]:
        for name in ("n0", "n1", "n2", "n3", "n4"):
            yield self._node(name)
        yield _put("Namespace", {"name": "d"})
        service = {"selector": {"app": "web"}}
        yield _put("Service", {"namespace": "d", "name": "web"}, spec=service)
        yield self._budget()
        yield _put(
            "StorageClass",
            {"name": "late"},
            provisioner="p",
            volumeBindingMode="WaitForFirstConsumer",
        )

    def _happening(self) -> list[scheduler_pb2.Event]:
        happens = self._random.choice(
            (self._pods, self._pods, self._pods, self._end, self._end, self._some_node, self._other)
        )
        return happens()

    def _pods(self) -> list[scheduler_pb2.Event]:
        return [event for _ in range(self._pods_at_once) for event in self._pod()]

    def _pod(self) -> list[scheduler_pb2.Event]:
        self._made += 1
        name, choose = f"p{self._made}", self._random.random
        requests = {"cpu": self._random.choice(("400m", "1", "1900m")), "memory": "1Gi"}
        if choose() < 0.1:
            requests["example.com/card"] = "1"
        spec: dict[str, Any] = {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "priority": self._random.choice((0, 0, 5, 10)),
        }
        app = self._random.choice(APPS)
        selector = {"labelSelector": {"matchLabels": {"app": app}}}
        if choose() < 0.25:
            term = {**selector, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        if choose() < 0.25:
            when = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**selector, **when}]
        if choose() < 0.1:
            spec["schedulingGates"] = [{"name": "wait"}]
        claims: list[scheduler_pb2.Event] = []
        if choose() < 0.15:
            claims = [self._claim(name)]
            claim = {"persistentVolumeClaim": {"claimName": name}}
            spec["volumes"] = [{"name": "v", **claim}]
        meta = {"namespace": "d", "name": name, "uid": name, "labels": {"app": app}}
        self._pending[name] = {"metadata": meta, "spec": spec}
        return [*claims, _put("Pod", meta, spec=spec)]

    def _claim(self, name: str) -> scheduler_pb2.Event:
        spec = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        return _put("PersistentVolumeClaim", {"namespace": "d", "name": name}, spec=spec)

    def _end(self) -> list[scheduler_pb2.Event]:
        gone = self._doomed or self._placed
        if not gone:
            return []
        return [_delete("Pod", gone.pop(self._random.randrange(len(gone))), namespace="d")]

    def _some_node(self) -> list[scheduler_pb2.Event]:
        if self._random.random() < 0.4 and len(self._nodes) > 2:
            name = self._nodes.pop(self._random.randrange(len(self._nodes)))
            return [_delete("Node", name)]
        return [self._node(f"n{self._random.randrange(7)}")]

    def _other(self) -> list[scheduler_pb2.Event]:
        gated = [pod for pod in self._pending.values() if pod["spec"].get("schedulingGates")]
        if gated:
            gated[0]["spec"].pop("schedulingGates")
            return [_put("Pod", gated[0]["metadata"], spec=gated[0]["spec"])]
        return [self._budget()]

    def _node(self, name: str) -> scheduler_pb2.Event:
        labels = {"kubernetes.io/hostname": name, "zone": self._random.choice(ZONES)}
        labels["topology.kubernetes.io/zone"] = labels["zone"]
        capacity = {"cpu": self._random.choice(("2", "4")), "memory": "8Gi", "pods": "9"}
        if self._random.random() < 0.3:
            capacity["example.com/card"] = "1"
        if name not in self._nodes:
            self._nodes.append(name)
        meta = {"name": name, "labels": labels}
        return _put("Node", meta, status={"allocatable": capacity, "capacity": capacity})

    def _budget(self) -> scheduler_pb2.Event:
        spec = {"selector": {"matchLabels": {"app": "db"}}, "minAvailable": 1}
        allowed = {"disruptionsAllowed": self._random.randrange(2)}
        meta = {"namespace": "d", "name": "db"}
        return _put("PodDisruptionBudget", meta, spec=spec, status=allowed)

    def _answered(self) -> tuple[list[scheduler_pb2.Answer], list[scheduler_pb2.Event]]:
        """Answer what was decided, and tell what came of it."""
        answers: list[scheduler_pb2.Answer] = []
        events: list[scheduler_pb2.Event] = []
        for outcome in self._unanswered:
            answer = scheduler_pb2.Answer(pop=outcome.pop)
            applied = self._random.random() < 0.85
            if outcome.HasField("bind"):
                if applied and outcome.bind.node_name in self._nodes:
                    events.append(self._bound(outcome))
                else:
                    answer.refused = scheduler_pb2.REFUSAL_STAGE_BIND
            elif outcome.unschedulable.HasField("preemption"):
                victims = outcome.unschedulable.preemption.victims
                if applied:
                    events += [self._terminating(victim.pod.uid) for victim in victims]
                else:
                    answer.refused = scheduler_pb2.REFUSAL_STAGE_NOMINATE
            answers.append(answer)
        self._unanswered = []
        events += [self._unscheduled(uid) for uid in self._refused if uid in self._pending]
        self._refused = {}
        return answers, events

    def _unscheduled(self, uid: str) -> scheduler_pb2.Event:
        event = scheduler_pb2.Event()
        event.patch.pod.uid = uid
        message = f"refused at {self._now_s} s"
        event.patch.status.conditions.add(type="PodScheduled", status="False", message=message)
        return event

    def _bound(self, outcome: scheduler_pb2.Outcome) -> scheduler_pb2.Event:
        event = scheduler_pb2.Event()
        event.patch.pod.uid = outcome.pop.uid
        event.patch.node_name = outcome.bind.node_name
        self._pending.pop(outcome.pop.uid, None)
        self._placed.append(outcome.pop.uid)
        return event

    def _terminating(self, uid: str) -> scheduler_pb2.Event:
        if uid in self._placed:
            self._placed.remove(uid)
            self._doomed.append(uid)
        event = scheduler_pb2.Event()
        event.patch.pod.uid = uid
        event.patch.deletion_time_ns = self._now_s * SECOND_NS
        return event

    def _round(self, events: list[scheduler_pb2.Event]) -> scheduler_pb2.Round:
        at_ns = self._now_s * SECOND_NS
        for event in events:
            event.time_ns = at_ns
        return scheduler_pb2.Round(time_ns=at_ns, events=events)


def _put(kind: str, meta: dict[str, Any], **rest: Any) -> scheduler_pb2.Event:
    text = {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, "metadata": meta, **rest}
    return scheduler_pb2.Event(add=to_object(text))


def _delete(kind: str, name: str, namespace: str = "") -> scheduler_pb2.Event:
    event = scheduler_pb2.Event()
    event.remove.kind, event.remove.namespace, event.remove.name = kind, namespace, name
    return event
