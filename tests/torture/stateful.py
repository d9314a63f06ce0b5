"""Sequences of almost valid requests: what a client may do with its sessions, in any order.

    python -m tests.torture.stateful --count 50000 --seed 1

Each episode has a few sessions of one service, and small numbers of pods and nodes that come, are
bound, patched, fail, end and come again. Its rules create, send, answer, patch, repeat, save,
restore, look and delete; a share of the messages and of the saved states is mutated. No response
may be INTERNAL or UNKNOWN, none may break its session or take 10 s, a creation that is refused
leaves no session at any service, and neither does an episode. A failure prints the command that
repeats its episode alone.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import click
import grpc
import orjson
import zstandard

from replay.conform.contract import eviction as eviction_messages
from replay.conform.contract.autoscaler import small_cloud as autoscaler_messages
from replay.conform.contract.scheduler.small_cluster import budget, gone, node, pod
from replay.results.run.decision_log import one_by_one
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as autoscaler_service
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.eviction.v1beta1 import eviction_service_pb2 as eviction_service
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as queue_service
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_service
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.client import channel as channel_to
from tests.torture.messages import (
    DEADLINE_S,
    FoundError,
    described,
    in_time,
    methods_of,
    served_here,
)
from tests.torture.random_messages import mutate

EPISODE = 50
"""Requests of an episode."""
PODS, NODES = tuple("abcdefgh"), ("n1", "n2", "n3")
SESSIONS_MAX = 3
_WRONG = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}
_BROKEN = "broke half-way"
_NEXT = re.compile(r"(\d+) comes next")
_STAGES = (
    scheduler_pb2.REFUSAL_STAGE_BIND,
    scheduler_pb2.REFUSAL_STAGE_NOMINATE,
    scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM,
)
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_PLUGINS = ("NodeResourcesFit", "NodeAffinity", "TaintToleration", "InterPodAffinity", "x")
_EVENTS = (
    "NodeAdd",
    "NodeUpdate",
    "AssignedPodDelete",
    "PodDelete",
    "PvcAdd",
    "UnschedulableTimeout",
)


class Refused(Exception):  # noqa: N818 - the expected end of a request
    """A request that the service has refused."""


class Client:
    """Calls one service by its methods' names, and judges how a call ends."""

    def __init__(self, channel: Any, service: str, codes: Counter[str]) -> None:
        self._channel = channel
        self._methods = {method.name: method for method in methods_of(service)}
        self._codes = codes

    def call(self, name: str, *requests: Any) -> list[Any]:
        """Return the responses. Raises Refused, and FoundError for what no request may cause."""
        data = [request.SerializeToString() for request in requests]
        try:
            with in_time(name, DEADLINE_S):
                answers = self._methods[name].call(self._channel, data, {})
        except grpc.RpcError as error:
            text = described(error)
            code = text.partition(":")[0]
            self._codes[code] += 1
            if code in _WRONG or _BROKEN in text:
                raise FoundError(f"{name}: {text}") from error
            raise Refused(text) from None
        self._codes["OK"] += 1
        return answers


class Play:
    """One session as its client sees it: its name, the next number, the time, the last request.

    A service's class makes configurations and requests, and learns from responses.
    """

    service = ""
    method = ""
    streaming = ""

    def __init__(self, client: Client, random: Random) -> None:
        self.client = client
        self.random = random
        self.name = ""
        self.sequence = 0
        self.at_ns = 0
        self.last: Any = None
        self.mutates = 0.15

    def create(self) -> None:
        """Open the session. Raises Refused."""
        request = self.creation()
        if self.random.random() < 0.3:
            mutate(self.random, request)
        self.name = self.client.call("CreateSession", request)[0].session_id

    def send(self) -> None:
        """Send the next request, or some in a stream."""
        count = self.random.choice((1, 1, 1, 3))
        requests = []
        for number in range(count):
            request = self.request()
            if self.random.random() < self.mutates:
                mutate(self.random, request)
            request.stamp.session_id = self.name
            request.stamp.sequence = self.sequence + 1 + number
            requests.append(request)
        try:
            if count == 1 and self.random.random() < 0.5:
                answers = self.client.call(self.method, *requests)
            else:
                answers = self.client.call(self.streaming, *requests)
        except Refused as refusal:
            # The first requests of a stream may have been carried out.
            expected = _NEXT.search(str(refusal))
            self.sequence = int(expected[1]) - 1 if expected else self.sequence
            raise
        self.sequence += count
        self.last = requests[-1]
        for answer in answers:
            self.learn(answer)

    def repeat(self) -> None:
        """Send the last request again."""
        if self.last is not None:
            self.client.call(self.method, self.last)

    def look(self) -> None:
        """Read the state."""
        stamp = session_pb2.Stamp(session_id=self.name)
        self.client.call("GetState", session_pb2.GetStateRequest(stamp=stamp))

    def saved(self) -> list[Any]:
        """Return a checkpoint."""
        stamp = session_pb2.Stamp(session_id=self.name)
        return self.client.call(
            "CheckpointSession", session_pb2.CheckpointSessionRequest(stamp=stamp)
        )

    def restore(self, chunks: list[Any]) -> None:
        """Open the session with a saved state. Raises Refused."""
        self.name = self.client.call("RestoreSession", *chunks)[0].session_id

    def delete(self) -> None:
        """End the session."""
        self.client.call("DeleteSession", session_pb2.DeleteSessionRequest(session_id=self.name))

    def creation(self) -> Any:
        """Return a request for a session."""
        raise NotImplementedError

    def request(self) -> Any:
        """Return the next request without its stamp."""
        raise NotImplementedError

    def learn(self, answer: Any) -> None:
        """Take what a response says."""

    def later(self) -> int:
        """Return the time after a moment."""
        self.at_ns += self.random.choice((0, 1, SECOND_NS, 10 * SECOND_NS, 400 * SECOND_NS))
        return self.at_ns


class SchedulerPlay(Play):
    """A world that carries out some outcomes, refuses others, and lets pods end."""

    service, method, streaming = "scheduler", "RunRound", "StreamingRunRound"

    def __init__(self, client: Client, random: Random) -> None:
        super().__init__(client, random)
        self._unanswered: list[scheduler_pb2.Outcome] = []
        self._hosts: dict[str, str] = {}
        self._bound: list[str] = []
        # An orderly world carries out what is decided, so that the queue is often empty.
        self._disorder = random.choice((0.02, 0.3))
        self.mutates = 0.15 if self._disorder > 0.1 else 0.0

    def creation(self) -> Any:
        """Return a request of any rules, with small batches too."""
        config = scheduler_pb2.SchedulerConfig(
            rules=self.random.choice(("", "v1.34", "v1.16")),
            batch_size=self.random.choice((None, 1, 2)),
            disable_preemption=self.random.random() < 0.1,
        )
        return scheduler_service.CreateSessionRequest(config=config)

    def request(self) -> Any:
        """Return a round of events and answers."""
        random = self.random
        round_ = scheduler_pb2.Round(events_only=random.random() < 0.1)
        round_.answers.extend(self._answers())
        events = self._effects()
        events += [self._event() for _ in range(random.choice((0, 1, 2, 4)))]
        before_ns, round_.time_ns = self.at_ns, self.later()
        times_ns = sorted(random.choice((before_ns, round_.time_ns)) for _ in events)
        for event, at_ns in zip(events, times_ns, strict=True):
            event.time_ns = at_ns
        for answer in round_.answers:
            if random.random() < 0.9:
                answer.time_ns = before_ns
        round_.events.extend(events)
        if random.random() < 0.1:
            round_.max_pods = random.choice((1, 2))
        request = scheduler_service.RunRoundRequest(round=round_)
        while random.random() < 0.15:
            foreseen = request.window.add()
            foreseen.round.time_ns = self.later()
            event = self._event()
            event.time_ns = self.at_ns
            foreseen.round.events.append(event)
        return request

    def learn(self, answer: Any) -> None:
        """Keep what is to be answered."""
        for outcomes in answer.rounds:
            for outcome in one_by_one(outcomes):
                self._unanswered.append(outcome)
                if outcome.HasField("bind"):
                    self._hosts[outcome.pop.uid] = outcome.bind.node_name
                    self._bound.append(outcome.pop.uid.removeprefix("uid-"))

    def look(self) -> None:
        """Read the state, or every verdict about a pod."""
        if self.random.random() < 0.5:
            super().look()
            return
        request = scheduler_service.EvaluatePodRequest()
        request.stamp.session_id = self.name
        request.pod.uid = f"uid-{self.random.choice(PODS)}"
        self.client.call("EvaluatePod", request)

    def _answers(self) -> list[scheduler_pb2.Answer]:
        random, answers = self.random, []
        for outcome in self._unanswered:
            if random.random() < self._disorder:  # answered only by what becomes of the pod
                continue
            answer = scheduler_pb2.Answer(pop=outcome.pop)
            if random.random() < self._disorder:
                answer.refused, answer.message = random.choice(_STAGES), "refused"
                victims = outcome.unschedulable.preemption.victims
                if victims:
                    answer.victim.CopyFrom(random.choice(victims).pod)
            answers.append(answer)
        self._unanswered.clear()
        return answers

    def _effects(self) -> list[scheduler_pb2.Event]:
        """Carry out bindings: the pods run, and some end at once."""
        effects: list[scheduler_pb2.Event] = []
        for name in self._bound:
            if self.random.random() < self._disorder:
                continue
            bound = scheduler_pb2.Event(patch=scheduler_pb2.PodPatch(pod=gone(name).remove))
            bound.patch.node_name = self._hosts.get(f"uid-{name}") or "n1"
            effects.append(bound)
            if self.random.random() < 0.5:
                status = pod_pb2.PodStatus(phase=self.random.choice(_PHASES))
                ended = scheduler_pb2.PodPatch(pod=gone(name).remove, status=status)
                effects.append(scheduler_pb2.Event(patch=ended))
            if self.random.random() < 0.3:
                effects.append(gone(name))
        self._bound.clear()
        return effects

    def _event(self) -> scheduler_pb2.Event:
        random = self.random
        name, on = random.choice(PODS), random.choice(NODES)
        match random.randrange(12):
            case 0 | 1:
                made = node(on, random.choice((1, 4, 64)), taint=random.choice(("", "", "t")))
            case 2 | 3 | 4:
                made = _random_pod(random, name)
            case 5 | 6 | 7:
                return self._patch(name)
            case 8:
                made = gone(name)
            case 9:
                made = gone(on, "Node")
            case 10:
                made = random.choice((budget(name, 1), budget(name, 0)))
            case _:
                made = scheduler_pb2.Event()
                made.tick.SetInParent()
        if made.HasField("add") and random.random() < 0.3:
            return scheduler_pb2.Event(update=made.add)
        return made

    def _patch(self, name: str) -> scheduler_pb2.Event:
        """Return a pod's binding, start, end or termination, as was decided or otherwise."""
        random = self.random
        event = scheduler_pb2.Event()
        patch = event.patch
        patch.pod.CopyFrom(gone(name).remove)
        kind = random.randrange(4)
        if kind == 0:
            patch.node_name = self._hosts.get(f"uid-{name}", random.choice(NODES))
        if kind == 1:
            patch.deletion_time_ns = self.at_ns + random.choice((0, 30 * SECOND_NS))
        if kind > 1:
            patch.status.phase = random.choice(_PHASES)
            if random.random() < 0.3:
                patch.status.conditions.add(
                    type="PodScheduled", status="False", reason="Unschedulable"
                )
            if random.random() < 0.3:
                patch.status.nominated_node_name = random.choice((*NODES, ""))
        return event


def _random_pod(random: Random, name: str) -> scheduler_pb2.Event:
    """Return the event by which a pod comes: pending, or on a node, perhaps at its end."""
    on = random.choice(("", "", "", *NODES))
    made = pod(name, random.choice((1, 1, 2, 8)), random.choice((0, 0, 10, 2_000_000_000)), on=on)
    put = made.add.pod
    put.metadata.labels["app"] = random.choice(PODS[:2])
    if random.random() < 0.1:
        put.status.phase = random.choice(_PHASES)
    if random.random() < 0.1:
        put.spec.scheduling_gates.add(name="g")
    if random.random() < 0.1:
        put.spec.preemption_policy = "Never"
    if random.random() < 0.15:
        away = put.spec.affinity.pod_anti_affinity
        terms = away.required_during_scheduling_ignored_during_execution
        terms.add(topology_key="kubernetes.io/hostname").label_selector.match_labels["app"] = "a"
    if random.random() < 0.1:
        spread = put.spec.topology_spread_constraints.add(max_skew=1)
        spread.topology_key = "kubernetes.io/hostname"
        spread.when_unsatisfiable = random.choice(("DoNotSchedule", "ScheduleAnyway"))
        spread.label_selector.match_labels["app"] = "a"
    return made


class QueuePlay(Play):
    """A scheduler that pops pods, returns some, forgets others."""

    service, method, streaming = "queue", "Apply", "StreamingApply"

    def __init__(self, client: Client, random: Random) -> None:
        super().__init__(client, random)
        self._shown: list[Any] = []
        self._popped: list[Any] = []

    def creation(self) -> Any:
        """Return a request of any rules."""
        config = queue_pb2.QueueConfig(rules=self.random.choice(("", "v1.34", "v1.20", "v1.16")))
        return queue_service.CreateSessionRequest(config=config)

    def request(self) -> Any:
        """Return some operations."""
        random = self.random
        operations = [self._operation() for _ in range(random.choice((0, 1, 2, 6)))]
        return queue_service.ApplyRequest(operations=operations, heads=random.choice((0, 1, 8)))

    def learn(self, answer: Any) -> None:
        """Keep the heads that were shown, and the pops."""
        self._shown = list(answer.heads)
        self._popped += [
            result.popped.pop for result in answer.results if result.HasField("popped")
        ]

    def _pop_id(self, pops: list[Any]) -> session_pb2.PopId:
        if pops and self.random.random() < 0.9:
            pop: session_pb2.PopId = self.random.choice(pops)
            return pop
        return session_pb2.PopId(uid=f"uid-{self.random.choice(PODS)}", cycle=1)

    def _operation(self) -> queue_pb2.Operation:
        made = queue_pb2.Operation(time_ns=self.later())
        self.random.choice((self._put_pods, self._put_pods, self._put_pops, self._put_others))(made)
        return made

    def _put_pods(self, made: queue_pb2.Operation) -> None:
        """Let a pending pod come, change or go."""
        random, name = self.random, self.random.choice(PODS)
        put = _random_pod(random, name).add.pod
        match random.randrange(6):
            case 0 | 1 | 2:
                made.add.pod.CopyFrom(put)
                made.add.gates.extend(random.choice(([], [], ["g"])))
            case 3 | 4:
                made.update.pod.CopyFrom(put)
                if random.random() < 0.6:
                    made.update.old_pod.CopyFrom(_random_pod(random, name).add.pod)
            case _:
                made.delete_pod.CopyFrom(gone(name).remove)

    def _put_pops(self, made: queue_pb2.Operation) -> None:
        """Pop a pod, commit what was shown, or end a pop."""
        random, shown = self.random, [head.pop for head in self._shown]
        match random.randrange(6):
            case 0:
                made.pop.SetInParent()
            case 1 | 2:
                made.commit_pop.pop.CopyFrom(self._pop_id(shown))
                self._popped += shown
            case 3:
                failed = made.add_unschedulable
                failed.pop.CopyFrom(self._pop_id(self._popped))
                failed.failure.CopyFrom(_random_failure(random))
                if random.random() < 0.5:
                    failed.pod.CopyFrom(_random_pod(random, failed.pop.uid[4:]).add.pod)
            case 4:
                committed = made.commit_unschedulable
                committed.uids.extend(pop.uid for pop in shown[:3])
                committed.first_cycle = shown[0].cycle if shown else 1
                committed.failures.add().CopyFrom(_random_failure(random))
                committed.failure_indexes.extend(0 for _ in shown[:3])
            case _:
                made.done.CopyFrom(self._pop_id(self._popped))

    def _put_others(self, made: queue_pb2.Operation) -> None:
        """Let something happen to the cluster, to a nomination, or to the time."""
        random, ref = self.random, gone(self.random.choice(PODS)).remove
        match random.randrange(6):
            case 0 | 1:
                made.move.event.label = random.choice(_EVENTS)
                if random.random() < 0.5:
                    made.move.event.new_object.CopyFrom(node(random.choice(NODES), 4).add)
            case 2:
                put = _random_pod(random, random.choice(PODS)).add.pod
                made.assigned_pod_add.pod.CopyFrom(put)
                made.assigned_pod_add.pod.spec.node_name = "n1"
            case 3:
                made.nominate.pod.CopyFrom(ref)
                if node_name := random.choice((*NODES, "")):
                    made.nominate.node_name = node_name
            case 4:
                made.activate.pods.add().CopyFrom(ref)
            case _:
                kind = random.choice(("flush_backoff", "flush_leftover", "delete_nomination"))
                getattr(made, kind).SetInParent()
                if kind == "delete_nomination":
                    made.delete_nomination.CopyFrom(ref)


def _random_failure(random: Random) -> queue_pb2.Failure:
    count = random.choice((0, 1, 2))
    return queue_pb2.Failure(unschedulable_plugins=random.sample(_PLUGINS, count))


class EvictionPlay(Play):
    """Nodes that are stepped, configured, removed, and asked to admit pods."""

    service, method, streaming = "eviction", "Apply", "StreamingApply"

    def creation(self) -> Any:
        """Return a request with thresholds of memory and disk."""
        return eviction_service.CreateSessionRequest(config=self._config())

    def request(self) -> Any:
        """Return some operations."""
        count = self.random.choice((1, 1, 2, 5))
        return eviction_service.ApplyRequest(operations=[self._operation() for _ in range(count)])

    def _config(self) -> eviction_pb2.EvictionConfig:
        random = self.random
        config = eviction_pb2.EvictionConfig(
            rules=random.choice(("", "v1.32", "v1.16")),
            hard={"memory.available": random.choice(("1Gi", "10%", "100Mi", "default"))},
            pressure_transition_duration_ns=random.choice((0, SECOND_NS)),
        )
        if random.random() < 0.3:
            config.soft["nodefs.available"] = random.choice(("10Gi", "20%"))
            config.soft_grace["nodefs.available"] = random.choice(("10s", "1m0s"))
        return config

    def _operation(self) -> eviction_service.Operation:
        random, on = self.random, self.random.choice(NODES)
        match random.randrange(8):
            case 0:
                return eviction_service.Operation(remove_node=on)
            case 1:
                configure = eviction_service.Configure(node_name=on, config=self._config())
                return eviction_service.Operation(configure=configure)
            case 2:
                admit = eviction_service.Admit(node_name=on, pod=pod_pb2.Pod())
                admit.pod.CopyFrom(eviction_messages.pod(random.choice(PODS), 1))
                return eviction_service.Operation(admit=admit)
            case 3:
                resume = eviction_service.Resume(node_name=on)
                resume.observations.CopyFrom(eviction_messages.seen(self.at_ns / SECOND_NS, 4))
                return eviction_service.Operation(resume=resume)
        available = random.choice((0.05, 0.5, 2, 4))
        more = random.choice(({}, {"disk_gi": 5}, {"pods": [], "active_uids": ["uid-within"]}))
        made = eviction_messages.step(self.later() / SECOND_NS, available, on, **more)
        if random.random() < 0.1:
            made.step.ClearField("observations")
            made.step.summary_failed = True
        return made


class AutoscalerPlay(Play):
    """Groups, nodes and pods that come, change and go; calls are carried out or refused."""

    service, method, streaming = "autoscaler", "Apply", "StreamingApply"

    def __init__(self, client: Client, random: Random) -> None:
        super().__init__(client, random)
        self._is_started = self._has_more = False
        self._call: Any = None

    def creation(self) -> Any:
        """Return a request with short times."""
        random = self.random
        flags = {
            "scale_down_unneeded_time": random.choice(("0s", "20s")),
            "scale_down_delay_after_add": random.choice(("0s", "1m")),
            "max_node_provision_time": random.choice(("10s", "15m")),
            "expander": random.choice(("least-waste", "random", "price,most-pods")),
            "balance_similar_node_groups": random.choice(("true", "false")),
            "enforce_node_group_min_size": random.choice(("true", "false")),
        }
        return autoscaler_messages.create(**flags)

    def request(self) -> Any:
        """Return some changes, and mostly the step that is due."""
        random = self.random
        changes = [self._change() for _ in range(random.choice((0, 1, 3, 8)))]
        request = autoscaler_service.ApplyRequest(changes=changes)
        if random.random() < 0.9:
            request.step.CopyFrom(self._step())
        return request

    def learn(self, answer: Any) -> None:
        """Note what waits, and that the session has started."""
        self._is_started = True
        self._has_more = answer.more
        self._call = answer.call if answer.HasField("call") else None

    def restore(self, chunks: list[Any]) -> None:
        """Go on with a saved state, in which no step is under way."""
        super().restore(chunks)
        self._is_started, self._call, self._has_more = True, None, False

    def _step(self) -> autoscaler_service.Step:
        random = self.random
        if self._call is not None:
            refused, gone = random.choice(((False, False), (True, False), (True, True)))
            step = autoscaler_messages.outcome(0, is_refused=refused, is_gone=gone)
            step.time_ns = self.at_ns
            return step
        step = autoscaler_service.Step(time_ns=self.later())
        if self._has_more:
            step.next_part.SetInParent()
        elif not self._is_started or random.random() < 0.05:
            step.start.SetInParent()
        elif random.random() < 0.7:
            step.scan.SetInParent()
        else:
            step.background_work.SetInParent()
        return step

    def _change(self) -> autoscaler_service.Change:
        random = self.random
        name, node = random.choice(PODS), random.choice(NODES)
        match random.randrange(8):
            case 0 | 1:
                made = autoscaler_messages.group(random.choice("gh"), random.choice((2, 4)))
                made.min_size, made.target_size = random.choice((0, 1)), random.randrange(4)
                for number, provider_id in enumerate(NODES[: made.target_size]):
                    made.instances.add(provider_id=provider_id, state=1 + number % 3)
                return autoscaler_messages.change(made)
            case 2:
                return autoscaler_service.Change(removed_node_group=random.choice("gh"))
            case 3 | 4:
                labels = {"group": random.choice("gh")}
                return autoscaler_messages.change(autoscaler_messages.node(node, 4, labels=labels))
            case 5:
                kind, key = random.choice((("Pod", name), ("Node", node)))
                return autoscaler_messages.removed(kind, key)
        on = random.choice(("", "", node))
        made_pod = autoscaler_messages.pod(
            name, random.choice((0.5, 1, 3)), on, is_bare=random.random() < 0.2
        )
        return autoscaler_messages.change(made_pod)


PLAYS: dict[str, type[Play]] = {
    play.service: play for play in (SchedulerPlay, QueuePlay, EvictionPlay, AutoscalerPlay)
}


def changed_state(chunks: list[Any], change: Callable[[Any], None]) -> list[Any]:
    """Return a checkpoint whose state `change` has changed, as loaded from JSON."""
    data = b"".join(chunk.data for chunk in chunks)
    state = orjson.loads(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    change(state)
    packed = zstandard.ZstdCompressor().compress(orjson.dumps(state))
    return [session_pb2.CheckpointChunk(info=chunks[0].info, data=packed)]


def _mutate_state(random: Random, state: Any) -> None:
    for _ in range(random.choice((1, 1, 2))):
        _mutate_value(random, state)


_VALUES: tuple[Any, ...] = (
    *(None, 0, 1, -1, 7, 2**62, -(2**63), True),
    *("", "default", "100Mi", "uid-a", "n1", [], {}),
)


def _mutate_value(random: Random, plain: Any) -> None:
    """Change one value somewhere within `plain`, a list or an object."""
    while True:
        places = list(plain) if isinstance(plain, dict) else range(len(plain))
        if not places:
            return
        place = random.choice(places)
        inner = plain[place]
        if isinstance(inner, list | dict) and inner and random.random() < 0.9:
            plain = inner
            continue
        match random.randrange(5):
            case 0:
                del plain[place]
            case 1 if isinstance(plain, list):
                plain.append(inner)
            case 2 if isinstance(inner, str) and inner:
                plain[place] = random.choice((inner + "x", inner[:-1], inner.upper()))
            case _:
                plain[place] = random.choice(_VALUES)
        return


class Episode:
    """Some sessions of a service, and the rules that use them."""

    def __init__(
        self, kind: type[Play], client: Client, random: Random, sessions: Callable[[], int]
    ) -> None:
        self._kind = kind
        self._client = client
        self._random = random
        self._sessions = sessions
        self._plays: list[Play] = []
        self._restored: set[str] = set()

    def run(self) -> None:
        """Apply rules. Raises FoundError."""
        for _ in range(EPISODE):
            if not self._plays:
                self._open(lambda play: play.create())
            else:
                self._apply_rule(self._random.choice(self._plays))
        for play in self._plays:
            play.delete()
        if self._sessions():
            raise FoundError(f"{self._sessions()} sessions are left")

    def _apply_rule(self, play: Play) -> None:
        kind = self._random.random()
        try:
            if kind < 0.75:
                play.send()
            elif kind < 0.80:
                play.repeat()
            elif kind < 0.85:
                play.look()
            elif kind < 0.93:
                self._restore(play)
            elif kind < 0.97 and len(self._plays) < SESSIONS_MAX:
                self._open(lambda made: made.create())
            else:
                play.delete()
                self._plays.remove(play)
        except Refused:
            pass

    def _restore(self, play: Play) -> None:
        chunks = play.saved()
        if self._random.random() < 0.5:
            # What was restored of a state that nobody saved is not used further.
            mutated = changed_state(chunks, partial(_mutate_state, self._random))
            made = self._open(lambda made: made.restore(mutated))
            if made is not None:
                self._plays.remove(made)
                made.delete()
        elif len(self._plays) < SESSIONS_MAX:
            made = self._open(lambda made: made.restore(chunks))
            if made is not None:
                made.at_ns = play.at_ns

    def _open(self, how: Callable[[Play], None]) -> Play | None:
        """Open a session; one that is refused must leave nothing."""
        before = self._sessions()
        play = self._kind(self._client, self._random)
        try:
            how(play)
        except Refused:
            if self._sessions() != before:
                raise FoundError("a refused session has left sessions behind") from None
            return None
        self._plays.append(play)
        return play


def play(
    services: list[str], episodes: range, seed: int, show: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """Run episodes, in turn over the services; return the counts of status codes.

    Raises FoundError with the command that repeats the episode.
    """
    codes: Counter[str] = Counter()
    began_s = time.monotonic()
    for count, number in enumerate(episodes):
        name = services[number % len(services)]
        random = Random(f"{seed}:{name}:{number}")  # noqa: S311 - it is to be repeated
        # Services of their own: what one episode leaves disturbs no other.
        with served_here() as (addresses, sessions):
            channel = channel_to(addresses[name])
            try:
                Episode(PLAYS[name], Client(channel, name, codes), random, sessions).run()
            except FoundError as error:
                raise FoundError(
                    f"{name}, episode {number} of seed {seed}: {error}\nrepeat it with: python -m "
                    f"tests.torture.stateful --seed {seed} --episode {number}"
                    + "".join(f" --service {service}" for service in services)
                ) from error
            finally:
                channel.close()
        if count % 100 == 99:
            rate = codes.total() / (time.monotonic() - began_s)
            show(f"{codes.total():,} requests, {rate:.0f}/s")
    return codes


@click.command()
@click.option("--count", default=10_000, show_default=True, help="Number of requests.")
@click.option("--seed", default=1, show_default=True)
@click.option("--service", "services", multiple=True, type=click.Choice(list(PLAYS)))
@click.option("--episode", type=int, help="Run this episode alone.")
@click.option("--go-on", is_flag=True, help="Go on with the next episode after a failure.")
def main(
    count: int, seed: int, services: tuple[str, ...], episode: int | None, go_on: bool
) -> None:
    """Use sessions until something happens that no request may cause."""
    names = list(services or PLAYS)
    episodes = range(-(-count // EPISODE)) if episode is None else range(episode, episode + 1)
    failures: list[str] = []
    codes: Counter[str] = Counter()
    for number in episodes:
        try:
            codes += play(names, range(number, number + 1), seed)
        except FoundError as error:
            if not go_on:
                raise click.ClickException(str(error)) from error
            failures.append(str(error))
            click.echo(error, err=True)
    click.echo(f"{codes.total():,} requests: {dict(codes)}; {len(failures)} episodes failed")
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
