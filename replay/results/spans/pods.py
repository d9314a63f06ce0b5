"""A trace for each pod, in simulated time by default: its waits, its scheduling cycles, its end.

    Pod                        from its creation to its end
    ├── queue.wait             from its creation or its last attempt to a scheduling cycle
    ├── schedulingCycle        what the cycle decided; takes no simulated time
    ├── preemption             victims, linked to their traces
    │   └── Terminating        a victim, from its preemption to its end
    ├── bindingCycle
    ├── Running
    ├── oomKill                a container of it is killed
    └── eviction

If a controller's pod replaces a preempted or evicted pod, its trace is linked to the span of that
preemption or eviction; if pods are sampled, the link may lead to another pod of the controller. The
wall times of a cycle's steps are attributes of its span. All times come from the replay; the other
attributes of a cycle's span come from the scheduler's outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from replay.results.run.decision_log import CYCLE
from replay.results.spans.clocks import Moments, VirtualClock
from replay.world.api.pod_record import controller_uid
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.fields import time_ns
from services.telemetry.span import Attribute, Sampling, Span, SpanContext, SpanSink, TraceIds

_WALL_NS = "reprieve.wall_ns"
_OUTLIVES = "outlives the run"


@dataclass(slots=True, kw_only=True)
class _PodTrace:
    ids: TraceIds
    root: SpanContext
    start_ns: int
    attributes: dict[str, Attribute]
    owner_uid: str
    links: list[SpanContext]
    waits_since_ns: int
    running_ns: int | None = None
    node_name: str = ""
    preemption: SpanContext | None = None
    ended: bool = False


@dataclass(slots=True, kw_only=True)
class _Victim:
    """A pod that terminates, as a part of its preemptor's trace."""

    preemptor: _PodTrace
    parent: SpanContext
    start_ns: int
    attributes: dict[str, Attribute]
    links: list[SpanContext]


@dataclass(slots=True, kw_only=True)
class PodSpansState:
    """Traces of pods that have not ended, victims that terminate, and the clock's moments.

    Traces and victims are keyed by the pod's UID, displaced pods by their owner's UID.
    """

    traces: dict[str, _PodTrace] = field(default_factory=dict)
    victims: dict[str, _Victim] = field(default_factory=dict)
    disrupted: dict[str, deque[SpanContext]] = field(default_factory=dict)
    moments: Moments | None = None


class PodSpans:
    """Makes the spans of sampled pods and passes each to `sink` when it ends.

    `clock` converts simulated time into the spans' times. `state` is the state saved by the run
    that is continued.
    """

    def __init__(
        self,
        sink: SpanSink,
        sampling: Sampling,
        seed: int,
        clock: VirtualClock | None = None,
        state: PodSpansState | None = None,
    ) -> None:
        state = state or PodSpansState()
        self._sink = sink
        self._clock = clock or VirtualClock()
        self._clock.moments = state.moments or self._clock.moments
        self._sampling = sampling
        self._seed = seed
        self._traces = state.traces
        self._victims = state.victims
        self._disrupted = state.disrupted

    def state(self) -> PodSpansState:
        """Return the state to continue from; save it before the next event changes it."""
        return PodSpansState(
            traces=self._traces,
            victims=self._victims,
            disrupted=self._disrupted,
            moments=self._clock.moments,
        )

    def created(self, now_ns: int, pod: pod_pb2.Pod) -> None:
        """Begin a pod's trace, if it is sampled."""
        self._clock.reached(now_ns)
        meta = pod.metadata
        ids = self._sampling.pick(self._seed, meta.uid)
        if ids is None:
            if self._disrupted:
                self._replaced_span(controller_uid(meta))
            return
        owner_uid = controller_uid(meta)
        replaced = self._replaced_span(owner_uid)
        trace = _PodTrace(
            ids=ids,
            root=SpanContext(ids.trace_id, ids.next_span_id()),
            start_ns=min(now_ns, time_ns(meta.creation_timestamp) or now_ns),
            attributes={
                "k8s.namespace.name": meta.namespace,
                "k8s.pod.name": meta.name,
                "k8s.pod.uid": meta.uid,
                "reprieve.priority": pod.spec.priority,
            },
            owner_uid=owner_uid,
            links=[replaced] if replaced else [],
            waits_since_ns=now_ns,
            node_name=pod.spec.node_name,
        )
        if pod.status.phase == "Running":
            started_ns = time_ns(pod.status.start_time)
            trace.running_ns = min(now_ns, started_ns or now_ns)
        self._traces[meta.uid] = trace

    def outcome(self, outcome: scheduler_pb2.Outcome, within: SpanContext | None = None) -> None:
        """End the waits of popped pods, and their scheduling cycles.

        A cycle is linked to `within`, the span of the exchange that returned the outcome.
        """
        at_ns = outcome.time_ns
        self._clock.reached(at_ns)
        links = (within,) if within is not None else ()
        if outcome.HasField("refusals"):
            self._refusals(at_ns, outcome.refusals, links)
            return
        trace = self._traces.get(outcome.pop.uid)
        if trace is not None:
            self._wait(trace, at_ns, outcome.attempts)
            attributes, error = _cycle(outcome)
            self._child(trace, CYCLE, at_ns, at_ns, attributes, links=links, error=error)

    def _refusals(
        self, at_ns: int, refusals: scheduler_pb2.Refusals, links: Sequence[SpanContext]
    ) -> None:
        verdicts = [_refusal(verdict) for verdict in refusals.verdicts]
        steps: list[dict[str, Attribute]] = [{} for _ in refusals.uids]
        for step in refusals.steps:
            for place, wall_ns in zip(step.attempt_indexes, step.wall_duration_ns, strict=True):
                steps[place][f"{_WALL_NS}.{step.name}"] = wall_ns
        for uid, place, attempts, wall_ns, walls_ns in zip(
            refusals.uids,
            refusals.verdict_indexes,
            refusals.attempts,
            refusals.wall_duration_ns,
            steps,
            strict=True,
        ):
            trace = self._traces.get(uid)
            if trace is not None:
                self._wait(trace, at_ns, attempts)
                attributes = {
                    "reprieve.attempt": attempts,
                    **verdicts[place],
                    f"{_WALL_NS}.{CYCLE}": wall_ns,
                    **walls_ns,
                }
                self._child(trace, CYCLE, at_ns, at_ns, attributes, links=links)

    def _wait(self, trace: _PodTrace, at_ns: int, attempts: int) -> None:
        """End a pod's wait at `at_ns`; unless this attempt binds the pod, the next wait begins."""
        waited: dict[str, Attribute] = {"reprieve.attempt": attempts}
        self._child(trace, "queue.wait", min(trace.waits_since_ns, at_ns), at_ns, waited)
        trace.waits_since_ns = at_ns

    def reached(self, at_ns: int) -> None:
        """Note that the replay reached a simulated time."""
        self._clock.reached(at_ns)

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Add a decision to the trace of its pod."""
        self._clock.reached(decision.time_ns)
        observed = decision.observed
        trace = self._traces.get(observed.object.uid)
        at_ns = decision.time_ns
        kind = observed.WhichOneof("observed")
        if kind == "preempted" and decision.refused:
            return
        if kind == "preempted" or self._victims:
            self._follow_victim(kind, at_ns, observed, trace)
        if trace is None:
            return
        match kind:
            case "scheduled":
                self._bound(at_ns, trace, observed.scheduled, decision.refused)
            case "nominated":
                self._nominated(at_ns, trace, observed.nominated, decision.refused)
            case "preempted":
                self._preempted(trace, observed.preempted)
            case "evicted":
                self._evicted(at_ns, trace, observed.evicted)
            case "oom_killed":
                self._oom_killed(at_ns, trace, observed.oom_killed)
            case "started":
                trace.running_ns = at_ns
            case "finished":
                self._end(at_ns, trace, _ending(observed.finished))
            case "removed":
                self._end(at_ns, trace, observed.removed.cause)
                del self._traces[observed.object.uid]

    def close(self, now_ns: int) -> None:
        """End the spans of pods that still exist at the run's last moment."""
        self._clock.reached(now_ns)
        for uid in [*self._victims]:
            self._terminated(now_ns, uid, "")
        for trace in self._traces.values():
            self._end(now_ns, trace, "")
        self._traces.clear()

    def _bound(
        self, at_ns: int, trace: _PodTrace, scheduled: trace_pb2.Scheduled, refused: str
    ) -> None:
        node: dict[str, Attribute] = {"k8s.node.name": scheduled.node_name}
        self._child(trace, "bindingCycle", at_ns, at_ns, node, error=refused)
        if refused:
            trace.waits_since_ns = at_ns
        else:
            trace.node_name = scheduled.node_name

    def _nominated(
        self, at_ns: int, trace: _PodTrace, nominated: trace_pb2.Nominated, refused: str
    ) -> None:
        if not nominated.node_name or nominated.expected:
            return
        victims = [self._traces.get(victim.uid) for victim in nominated.victims]
        attributes: dict[str, Attribute] = {
            "k8s.node.name": nominated.node_name,
            "reprieve.decided_by": nominated.decided_by,
            "reprieve.candidates": nominated.candidates,
            "reprieve.budget_violations": nominated.budget_violations,
            "reprieve.victims": [
                f"{victim.namespace}/{victim.name}" for victim in nominated.victims
            ],
        }
        links = [victim.root for victim in victims if victim is not None]
        trace.preemption = self._child(
            trace, "preemption", at_ns, at_ns, attributes, links=links, error=refused
        )

    def _follow_victim(
        self, kind: str | None, at_ns: int, observed: trace_pb2.Observed, trace: _PodTrace | None
    ) -> None:
        """Begin or end a victim's span in its preemptor's trace; `trace` is the victim's trace."""
        victim = observed.object
        if kind == "preempted":
            preemptor = self._traces.get(observed.preempted.by.uid)
            if preemptor is not None:
                self._victims[victim.uid] = _Victim(
                    preemptor=preemptor,
                    parent=preemptor.preemption or preemptor.root,
                    start_ns=at_ns,
                    attributes={
                        "k8s.namespace.name": victim.namespace,
                        "k8s.pod.name": victim.name,
                        "k8s.pod.uid": victim.uid,
                        "k8s.node.name": observed.preempted.node_name,
                    },
                    links=[trace.root] if trace is not None else [],
                )
        elif kind in ("finished", "removed") and victim.uid in self._victims:
            is_removed = kind == "removed"
            end = observed.removed.cause if is_removed else _ending(observed.finished)
            self._terminated(at_ns, victim.uid, end)

    def _terminated(self, at_ns: int, uid: str, end: str) -> None:
        """End a victim's span; `end` is "" if the victim still exists at the run's end."""
        victim = self._victims.pop(uid)
        victim.attributes["reprieve.end"] = end or _OUTLIVES
        self._child(
            victim.preemptor,
            "Terminating",
            victim.start_ns,
            at_ns,
            victim.attributes,
            links=victim.links,
            parent=victim.parent,
        )

    def _preempted(self, trace: _PodTrace, preempted: trace_pb2.Preempted) -> None:
        """Note the preemptor; the pod's replacement is linked to the root of its trace."""
        trace.attributes["reprieve.preempted_by"] = f"{preempted.by.namespace}/{preempted.by.name}"
        preemptor = self._traces.get(preempted.by.uid)
        if preemptor is not None:
            trace.links.append(preemptor.root)
        self._await_replacement(trace, trace.root)

    def _evicted(self, at_ns: int, trace: _PodTrace, evicted: trace_pb2.Evicted) -> None:
        attributes: dict[str, Attribute] = {
            "k8s.node.name": evicted.node_name,
            "reprieve.signal": evicted.signal,
            "reprieve.message": evicted.message,
        }
        span = self._child(trace, "eviction", at_ns, at_ns, attributes)
        self._await_replacement(trace, span)

    def _oom_killed(self, at_ns: int, trace: _PodTrace, killed: trace_pb2.OomKilled) -> None:
        attributes: dict[str, Attribute] = {
            "k8s.node.name": killed.node_name,
            "k8s.container.name": killed.container,
            "reprieve.limit_of": killed.limit_of,
            "reprieve.limit_bytes": killed.limit_bytes,
            "reprieve.usage_bytes": killed.usage_bytes,
        }
        self._child(trace, "oomKill", at_ns, at_ns, attributes)

    def _end(self, at_ns: int, trace: _PodTrace, end: str) -> None:
        """End a pod's trace once; `end` is "" if the pod still exists at the run's end."""
        if trace.ended:
            return
        trace.ended = True
        if trace.running_ns is not None:
            node: dict[str, Attribute] = {"k8s.node.name": trace.node_name}
            self._child(trace, "Running", trace.running_ns, at_ns, node)
        trace.attributes["reprieve.end"] = end or _OUTLIVES
        start_ns, end_ns = self._clock.time_ns(trace.start_ns), self._clock.time_ns(at_ns)
        self._sink.end(Span("Pod", trace.root, "", start_ns, end_ns, trace.attributes, trace.links))

    def _child(
        self,
        trace: _PodTrace,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: dict[str, Attribute],
        *,
        links: Sequence[SpanContext] = (),
        error: str = "",
        parent: SpanContext | None = None,
    ) -> SpanContext:
        """End a span below `parent`, which is the trace's root by default."""
        ids, parent = trace.ids, parent or trace.root
        context = SpanContext(ids.trace_id, ids.next_span_id())
        began_ns = self._clock.time_ns(start_ns)
        ended_ns = began_ns if end_ns == start_ns else self._clock.time_ns(end_ns)
        self._sink.end(
            Span(name, context, parent.span_id, began_ns, ended_ns, attributes, links, error)
        )
        return context

    def _await_replacement(self, trace: _PodTrace, span: SpanContext) -> None:
        if trace.owner_uid:
            self._disrupted.setdefault(trace.owner_uid, deque()).append(span)

    def _replaced_span(self, owner_uid: str) -> SpanContext | None:
        """Return the span of the owner's earliest displaced pod without a replacement."""
        lost = self._disrupted.get(owner_uid)
        if not lost:
            return None
        span = lost.popleft()
        if not lost:
            del self._disrupted[owner_uid]
        return span


def _ending(finished: trace_pb2.Finished) -> str:
    return finished.reason or finished.phase


def _refusal(verdict: scheduler_pb2.Unschedulable) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "reprieve.outcome": "unschedulable",
        "reprieve.message": verdict.message,
        "reprieve.plugins": list(verdict.unschedulable_plugins),
    }
    if verdict.preemption_message:
        attributes["reprieve.preemption_message"] = verdict.preemption_message
    return attributes


def _cycle(outcome: scheduler_pb2.Outcome) -> tuple[dict[str, Attribute], str]:
    """Return a scheduling cycle's attributes, and its error; "" if there was none."""
    attributes: dict[str, Attribute] = {"reprieve.attempt": outcome.attempts}
    error = ""
    match outcome.WhichOneof("decision"):
        case "bind":
            bind = outcome.bind
            attributes["reprieve.outcome"] = "bound"
            attributes["k8s.node.name"] = bind.node_name
            attributes["reprieve.feasible_nodes"] = bind.feasible_nodes
            attributes["reprieve.tied_nodes"] = bind.tied_nodes
        case "unschedulable":
            attributes |= _refusal(outcome.unschedulable)
        case "failure":
            attributes["reprieve.outcome"] = "error"
            error = outcome.failure.message
    for phase in outcome.phases:
        attributes[f"{_WALL_NS}.{phase.name}"] = phase.wall_duration_ns
    return attributes, error
