"""An autoscaler that keeps every rule of docs/write-an-autoscaler.md, or all but one.

It counts cores, and reads taints and node selectors, which is what the checks use. A step is a list
of things to do, by the names of methods: what is left when a call waits is there for its outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as messages
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.session.v1beta1 import session_pb2
from services.rpc.parts import MESSAGE_BYTES_MAX, split
from tests.conformance_mutants.autoscaler_rules import Breach
from tests.conformance_mutants.small_sessions import (
    VERSION,
    RefusedError,
    SmallSessions,
    bad_field,
    refusing,
)

SECOND_NS = 10**9
TAINT = "ToBeDeletedByClusterAutoscaler"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DURATIONS = {
    "scale-down-unneeded-time": 600,
    "scale-down-delay-after-add": 600,
    "initial-node-group-backoff-duration": 300,
    "max-node-provision-time": 900,
    "max-pod-eviction-time": 120,
    "node-delete-delay-after-taint": 5,
}
"""Flags and their defaults, s."""
OTHERS = {"expander", "max-bulk-soft-taint-count"}
FULL = "max node group size reached"
Todo = tuple[str, Any]


@dataclass(slots=True)
class Place:
    """A node with room for pods, real or to come."""

    node: node_pb2.Node
    free: int


@dataclass(slots=True)
class Option:
    """A group that may grow: the pods that it would help, and by how many nodes."""

    group: messages.NodeGroup
    pods: list[pod_pb2.Pod]
    count: int


@dataclass(slots=True)
class Deletion:
    """A node's deletion: when it goes on, and the pods that were evicted."""

    due_ns: int
    evicted: set[str] = field(default_factory=set)
    is_evicting: bool = False


class Leaked(list[pb.Change]):
    """Changes of refused requests, which outlive the copy that a refused batch is applied to."""

    def __deepcopy__(self, memo: object) -> Leaked:
        return self


class SmallAutoscaler:
    """One session; `broken` is the rule that it breaks."""

    def __init__(self, config: messages.AutoscalerConfig, broken: Breach | None) -> None:
        self._broken = broken
        self.flags = dict(config.flags)
        self.groups: dict[str, messages.NodeGroup] = {}
        self.nodes: dict[str, node_pb2.Node] = {}
        self.pods: dict[str, pod_pb2.Pod] = {}
        self.daemons: dict[str, int] = {}
        self.budgets: dict[str, Any] = {}
        self.backoffs: dict[str, tuple[int, str]] = {}
        self.requests: dict[str, tuple[int, int, int]] = {}
        self.unneeded: dict[str, int] = {}
        self.deletions: dict[str, Deletion] = {}
        self.results: dict[str, str] = {}
        self.scaled_up_ns = -3600 * SECOND_NS
        self.now_ns: int | None = None
        self.step = ""
        self.todo: list[Todo] = []
        self.call: messages.Call | None = None
        self.after: Todo = ("", ())
        self.report = messages.ScanReport()
        self.parts: list[messages.ScanReport] = []
        self.leaked = Leaked()

    def breaks(self, *breaches: Breach) -> bool:
        """Return whether one of these rules is broken."""
        return self._broken in breaches

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Apply a batch and its step."""
        for change in self.leaked:
            self._change(change)
        try:
            self._check(request)
        except RefusedError:
            if self.breaks(Breach.KEEPS_REFUSED):
                self.leaked.extend(request.changes[:1])
            raise
        for change in request.changes:
            self._change(change)
        return self._take(request.step) if request.HasField("step") else self._answer(None)

    def _check(self, request: pb.ApplyRequest) -> None:
        for index, change in enumerate(request.changes):
            if path := self._malformed(change):
                raise bad_field(f"changes[{index}].{path}")
        if not request.HasField("step"):
            return
        case = request.step.WhichOneof("kind")
        if case is None:
            raise bad_field("step.kind")
        allowed = {
            "start": self.now_ns is None or self.breaks(Breach.STARTS_AGAIN),
            "scan": self.now_ns is not None or self.breaks(Breach.SCANS_BEFORE_START),
            "background_work": self.now_ns is not None,
            "outcome": self.call is not None or self.breaks(Breach.TAKES_ANY_OUTCOME),
            "next_part": bool(self.parts) or self.breaks(Breach.TAKES_ANY_PART),
        }
        is_due = case == "outcome" or self.call is None or self.breaks(Breach.STEPS_MEANWHILE)
        if not (allowed[case] and is_due and (case == "next_part" or not self.parts)):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
        if self.now_ns is not None and request.step.time_ns < self.now_ns:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS")

    def _malformed(self, change: pb.Change) -> str:
        """Return the path of a change's first bad field, "" if none."""
        match change.WhichOneof("kind"):
            case None:
                return "kind"
            case "removed_node_group" if not change.removed_node_group:
                return "removed_node_group"
            case "removed_object":
                gone = change.removed_object
                if not gone.name:
                    return "removed_object.name"
                is_known = gone.name in self.pods or gone.name in self.nodes
                return (
                    "removed_object" if self.breaks(Breach.REFUSES_UNKNOWN) and not is_known else ""
                )
            case "node_group":
                group = change.node_group
                if not group.name:
                    return "node_group.name"
                for index, instance in enumerate(group.instances):
                    if not instance.state:
                        return f"node_group.instances[{index}].state"
                if set(group.options) - set(DURATIONS) and not self.breaks(Breach.TAKES_ANY_OPTION):
                    return "node_group.options"
        return ""

    def _change(self, change: pb.Change) -> None:
        match change.WhichOneof("kind"):
            case "node_group":
                group = messages.NodeGroup()
                group.CopyFrom(change.node_group)
                if self.breaks(Breach.KEEPS_LIMITS) and group.name in self.groups:
                    group.max_size = self.groups[group.name].max_size
                self.groups[group.name] = group
            case "removed_node_group" if not self.breaks(Breach.KEEPS_GROUPS):
                self.groups.pop(change.removed_node_group, None)
            case "removed_object":
                self._remove(change.removed_object)
            case "object":
                self._put(change.object)

    def _remove(self, gone: pb.RemovedObject) -> None:
        if gone.object_kind == "Node":
            self.nodes.pop(gone.name, None)
        elif gone.object_kind == "Pod":
            pod = self.pods.get(gone.name)
            if pod is not None and not (self.breaks(Breach.KEEPS_PODS) and not pod.spec.node_name):
                del self.pods[gone.name]

    def _put(self, changed: Any) -> None:
        case = changed.WhichOneof("object")
        name = getattr(changed, case).metadata.name
        match case:
            case "node":
                self.nodes[name] = changed.node
            case "pod":
                self.pods[name] = changed.pod
            case "daemon_set":
                self.daemons[name] = cores(changed.daemon_set.spec.template.spec)
            case "pod_disruption_budget":
                self.budgets[name] = changed.pod_disruption_budget

    # Steps.

    def _take(self, step: pb.Step) -> pb.ApplyResponse:
        self.now_ns = step.time_ns
        case = str(step.WhichOneof("kind"))
        if case == "next_part":
            return self._answer(self.parts.pop(0) if self.parts else messages.ScanReport())
        if case == "outcome":
            name, data = self.after
            self.call = None
            if name:
                getattr(self, name)(step.outcome, *data)
        else:
            self.step, self.report = case, messages.ScanReport(scale_down="NotTried")
            self.todo = []
            if case == "scan":
                self.todo = [("_give_up", ()), ("_grow", ()), ("_shrink", ())]
            elif case == "background_work":
                self.todo = [("_go_on", (name,)) for name in self._due()]
        return self._proceed()

    def _proceed(self) -> pb.ApplyResponse:
        while self.todo:
            name, data = self.todo.pop(0)
            call, *after = getattr(self, name)(*data) or (None,)
            if call is not None:
                self.call, self.after = call, (after[0], tuple(after[1:])) if after else ("", ())
                return pb.ApplyResponse(call=call)
        if self.step != "scan":
            report = messages.ScanReport(scale_down="NotTried")
            return self._answer(report if self.breaks(Breach.REPORTS_ITS_START) else None)
        if self.breaks(Breach.HAS_NO_REPORT):
            return self._answer(None)
        self._finish()
        whole = self.report
        if self.breaks(Breach.CUTS_REPORTS) and whole.ByteSize() > MESSAGE_BYTES_MAX:
            del whole.pods_to_help[100:]
            del whole.scale_up.remaining[100:]
        if self.breaks(Breach.SENDS_LONG_REPORTS):
            return self._answer(whole)
        for part in split(whole):
            part.scale_down = whole.scale_down
            if part.HasField("scale_up"):
                part.scale_up.result = whole.scale_up.result
            self.parts.append(part)
        return self._answer(self.parts.pop(0))

    def _answer(self, report: messages.ScanReport | None) -> pb.ApplyResponse:
        answer = pb.ApplyResponse(report=report, more=bool(self.parts))
        dues = [deletion.due_ns for deletion in self.deletions.values()]
        if dues and self.call is None:
            answer.next_due_time_ns = min(dues)
        if self.breaks(Breach.LEAVES_OUT_SCANS):
            answer.next_scan_time_ns = self._now() + 60 * SECOND_NS
        return answer

    def _finish(self) -> None:
        report, now_ns = self.report, self._now()
        if not self.breaks(Breach.NAMES_NO_RESULT):
            report.delete_results.update(self.results)
        self.results = {}
        report.backoff.update(
            {name: code for name, (until_ns, code) in self.backoffs.items() if until_ns >= now_ns}
        )
        if not self.breaks(Breach.HAS_NO_UPCOMING):
            report.upcoming.update(
                {name: count for name, count in self._upcoming().items() if count}
            )

    def _now(self) -> int:
        assert self.now_ns is not None
        return self.now_ns

    def _flag_ns(self, name: str, group: messages.NodeGroup | None = None) -> int:
        options = {} if group is None or self.breaks(Breach.IGNORES_OPTIONS) else group.options
        text = options.get(name) or self.flags.get(name, f"{DURATIONS[name]}s")
        return seconds(text) * SECOND_NS

    # Growing.

    def _give_up(self) -> None:
        for name, (_, expected_ns, count) in list(self.requests.items()):
            if not self._upcoming().get(name):
                del self.requests[name]
            elif expected_ns < self._now() and not self.breaks(Breach.WAITS_FOREVER):
                del self.requests[name]
                if not self.breaks(Breach.FORGETS_OVERDUE):
                    self._back_off(name, "timeout")
                if not self.breaks(Breach.KEEPS_TARGET):
                    self.todo.insert(0, ("_delete_overdue", (name, count)))

    def _delete_overdue(self, name: str, count: int) -> tuple[Any, ...]:
        created = [
            it.provider_id
            for it in self.groups[name].instances
            if it.state == messages.INSTANCE_STATE_CREATING
        ]
        request = messages.DeleteNodes(group=name, provider_ids=created[:count], force=True)
        return (messages.Call(delete_nodes=request),)

    def _back_off(self, name: str, code: str) -> None:
        length_ns = self._flag_ns("initial-node-group-backoff-duration")
        if self.breaks(Breach.NEVER_BACKS_OFF):
            length_ns = -1
        if self.breaks(Breach.BACKS_OFF_FOREVER):
            length_ns = 10**6 * SECOND_NS
        self.backoffs[name] = self._now() + length_ns, code

    def _upcoming(self) -> dict[str, int]:
        return {
            name: self.groups[name].target_size - len(self._nodes_of(name))
            for name in self.requests
            if name in self.groups and self.backoffs.get(name, (0, ""))[0] < self._now()
        }

    def _nodes_of(self, group: str) -> list[str]:
        instances = {it.provider_id for it in self.groups[group].instances}
        return [name for name, node in self.nodes.items() if node.spec.provider_id in instances]

    def _places(self, without: str = "") -> list[Place]:
        """Return the nodes that are there or to come, with their room."""
        places = [
            Place(node, cores(node) - sum(cores(pod.spec) for pod in self._pods_on(name)))
            for name, node in sorted(self.nodes.items())
            if name != without and name not in self.deletions
        ]
        if not self.breaks(Breach.FORGETS_UPCOMING):
            for name, count in self._upcoming().items():
                places += [self._new(self.groups[name]) for _ in range(count)]
        return places

    def _new(self, group: messages.NodeGroup) -> Place:
        daemons = 0 if self.breaks(Breach.IGNORES_DAEMONS) else sum(self.daemons.values())
        return Place(group.template, cores(group.template) - daemons)

    def _pods_on(self, node: str) -> list[pod_pb2.Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == node]

    def _fits(self, pod: pod_pb2.Pod, place: Place) -> bool:
        labels = place.node.metadata.labels
        is_chosen = all(labels.get(k) == v for k, v in pod.spec.node_selector.items())
        tolerated = {it.key for it in pod.spec.tolerations}
        is_tolerant = {taint.key for taint in place.node.spec.taints} <= tolerated
        has_room = cores(pod.spec) <= place.free
        return (
            (is_chosen or self.breaks(Breach.IGNORES_SELECTORS))
            and (is_tolerant or self.breaks(Breach.IGNORES_TAINTS))
            and (has_room or self.breaks(Breach.IGNORES_SIZE))
        )

    def _place(self, pod: pod_pb2.Pod, places: Sequence[Place]) -> bool:
        for place in places:
            if self._fits(pod, place):
                place.free -= cores(pod.spec)
                return True
        return False

    def _waiting(self) -> list[pod_pb2.Pod]:
        return [
            pod
            for _, pod in sorted(self.pods.items())
            if not pod.spec.node_name
            and (
                any(it.reason == "Unschedulable" for it in pod.status.conditions)
                or self.breaks(Breach.HELPS_UNTRIED)
            )
        ]

    def _grow(self) -> tuple[Any, ...] | None:
        places = [] if self.breaks(Breach.IGNORES_ROOM) else self._places()
        pods = [pod for pod in self._waiting() if not self._place(pod, places)]
        scale_up = self.report.scale_up
        self.report.pods_to_help.extend(map(key, pods))
        scale_up.result = "NotNeeded"
        if self.breaks(Breach.GROWS_ALWAYS) and self.groups and not pods:
            name = min(self.groups)
            return (messages.Call(increase_size=messages.IncreaseSize(group=name, delta=1)),)
        if not pods or self.breaks(Breach.NEVER_GROWS):
            return None
        options, skipped, rejected = self._options(pods)
        if not options:
            self._report_no_help(pods, skipped, rejected)
            return None
        best = self._best(options)
        name, size = best.group.name, best.group.target_size
        call = messages.Call(increase_size=messages.IncreaseSize(group=name, delta=best.count))
        return call, "_grown", name, size, best.count, [key(pod) for pod in best.pods]

    def _options(
        self, pods: list[pod_pb2.Pod]
    ) -> tuple[list[Option], list[str], dict[str, set[str]]]:
        """Return the groups that help, those not asked, and by pod those that it does not fit."""
        options, skipped, rejected = list[Option](), list[str](), dict[str, set[str]]()
        is_stopped = self.breaks(Breach.STOPS_ALL) and self.backoffs
        for name, group in sorted(self.groups.items()):
            room = group.max_size - group.target_size
            if self.breaks(Breach.EXCEEDS_MAXIMUM):
                room = 100
            if room <= 0 or self.backoffs.get(name, (-1, ""))[0] >= self._now() or is_stopped:
                skipped.append(name)
                continue
            fitting = [pod for pod in pods if self._fits(pod, self._new(group))]
            for pod in pods:
                if pod not in fitting:
                    rejected.setdefault(pod.metadata.name, set()).add(name)
            if fitting:
                options.append(self._estimated(group, fitting, room))
        return options, skipped, rejected

    def _estimated(self, group: messages.NodeGroup, pods: list[pod_pb2.Pod], room: int) -> Option:
        if self.breaks(Breach.NODE_FOR_EACH):
            return Option(group, pods, min(len(pods), room))
        if not self.breaks(Breach.IN_ORDER_OF_NAMES):
            pods = sorted(pods, key=lambda pod: -cores(pod.spec))
        made, helped = list[Place](), list[pod_pb2.Pod]()
        # In order of names only the last node is tried, or first fit would find the optimum, too.
        for pod in pods:
            tried = made[-1:] if self.breaks(Breach.IN_ORDER_OF_NAMES) else made
            if not self._place(pod, tried):
                if len(made) == room:
                    continue
                made.append(self._new(group))
                self._place(pod, made[-1:])
            helped.append(pod)
        return Option(group, helped, 1 if self.breaks(Breach.ONE_NODE) else len(made))

    def _best(self, options: list[Option]) -> Option:
        expander = self.flags.get("expander", "least-waste")
        if self.breaks(Breach.CHOOSES_FIRST):
            return options[0]
        if expander == "least-nodes" and not self.breaks(Breach.IGNORES_NODES):
            return min(options, key=lambda it: it.count)
        if expander == "most-pods" and not self.breaks(Breach.IGNORES_PODS):
            return max(options, key=lambda it: len(it.pods))
        if self.breaks(Breach.WASTES):
            return max(options, key=lambda it: cores(it.group.template))
        if expander == "most-pods":
            return options[0]

        def waste(option: Option) -> float:
            whole = option.count * cores(option.group.template)
            return (whole - sum(cores(pod.spec) for pod in option.pods)) / whole

        return min(options, key=waste)

    def _grown(self, done: pb.Outcome, name: str, size: int, count: int, pods: list[str]) -> None:
        scale_up = self.report.scale_up
        if done.refused:
            self._back_off(name, "cloudProviderError")
            scale_up.result = "Error"
            scale_up.failed_groups.append(name)
            if self.breaks(Breach.HIDES_REFUSALS):
                scale_up.result = "Successful"
            return
        now_ns = self._now()
        expected_ns = now_ns + self._flag_ns("max-node-provision-time")
        since_ns, _, before = self.requests.get(name, (now_ns, 0, 0))
        self.requests[name] = since_ns, expected_ns, before + count
        self.scaled_up_ns = now_ns
        scale_up.result = "Grown" if self.breaks(Breach.HAS_OTHER_RESULTS) else "Successful"
        from_size = size + count if self.breaks(Breach.NAMES_NO_SIZES) else size
        scale_up.groups.add(group=name, from_size=from_size, to_size=size + count)
        if not self.breaks(Breach.NAMES_NO_TRIGGER):
            scale_up.triggered.extend(pods)

    def _report_no_help(
        self, pods: list[pod_pb2.Pod], skipped: list[str], rejected: dict[str, set[str]]
    ) -> None:
        scale_up = self.report.scale_up
        if not self.breaks(Breach.REPORTS_NO_HELP_AS_NONE):
            scale_up.result = "NoOptionsAvailable"
        for pod in pods:
            remaining = scale_up.remaining.add(pod=key(pod))
            if not self.breaks(Breach.NAMES_NO_REJECTED):
                remaining.rejected_groups.extend(sorted(rejected.get(pod.metadata.name, ())))
            for name in () if self.breaks(Breach.NAMES_NO_SKIPPED) else skipped:
                reason = "in backoff" if name in self.backoffs else FULL
                remaining.skipped_groups.add(group=name, reasons=[reason])

    # Shrinking.

    def _shrink(self) -> None:
        """Find the nodes that are not needed, and begin with the deletion of those that may go."""
        now_ns, report = self._now(), self.report
        delay_ns = self._flag_ns("scale-down-delay-after-add")
        in_cooldown = (
            self.scaled_up_ns + delay_ns > now_ns or report.scale_up.result == "Successful"
        )
        if self.breaks(Breach.IGNORES_COOLDOWN):
            in_cooldown = False
        since = self.unneeded
        unneeded = list(self._unneeded())
        if self.breaks(Breach.KEEPS_TIME):
            unneeded = [*since, *(name for name in unneeded if name not in since)]
        if in_cooldown and self.breaks(Breach.STOPS_TIME):
            unneeded = []
        self.unneeded = {name: since.get(name, now_ns) for name in unneeded}
        if not self.breaks(Breach.NAMES_NO_UNNEEDED):
            for name, since_ns in sorted(self.unneeded.items()):
                report.unneeded.add(node_name=name, since_time_ns=since_ns)
        report.scale_down = "InCooldown" if in_cooldown else "NoNodeDeleted"
        for name in (
            () if in_cooldown or self.breaks(Breach.NEVER_DELETES) else sorted(self.unneeded)
        ):
            if self._may_go(name):
                report.scale_down = "NodeDeleteStarted"
                report.deletions.add(node_name=name, drained=bool(self._pods_on(name)))
                self.todo.append(("_mark", (name,)))

    def _unneeded(self) -> Iterator[str]:
        """Yield the nodes that are not needed; report why others are."""
        for name in sorted(self.nodes, key=lambda name: (len(self._pods_on(name)), name)):
            group = self._group_of(name)
            if name in self.deletions or group is None:
                continue
            if group.target_size <= group.min_size and not self.breaks(Breach.IGNORES_MINIMUM):
                continue
            reason, blocking, why = self._why_needed(name)
            if not reason:
                yield name
            elif not self.breaks(Breach.NAMES_NO_REASON):
                if self.breaks(Breach.NAMES_NO_POD):
                    blocking = "default/other" if blocking else ""
                self.report.unremovable.add(
                    node_name=name, reason=reason, blocking_pod=blocking, blocking_reason=why
                )

    def _why_needed(self, name: str) -> tuple[str, str, str]:
        pods = self._pods_on(name)
        share = sum(cores(pod.spec) for pod in pods) / cores(self.nodes[name])
        if share > 0.5 and not self.breaks(Breach.IGNORES_UTILIZATION):
            return "NotUnderutilized", "", ""
        for pod in pods:
            if why := self._why_blocking(pod):
                return "BlockedByPod", key(pod), why
        if self.breaks(Breach.NEVER_DRAINS) and pods:
            return "BlockedByPod", key(pods[0]), "NeverDrained"
        places = self._places(without=name)
        have_places = all(self._place(pod, places) for pod in pods)
        if not (have_places or self.breaks(Breach.IGNORES_PLACES, Breach.IGNORES_UTILIZATION)):
            return "NoPlaceToMovePods", "", ""
        return "", "", ""

    def _why_blocking(self, pod: pod_pb2.Pod) -> str:
        if not pod.metadata.owner_references and not self.breaks(Breach.IGNORES_CONTROLLERS):
            return "NotReplicated"
        is_unsafe = pod.metadata.annotations.get(SAFE) == "false"
        if is_unsafe and not self.breaks(Breach.IGNORES_ANNOTATIONS):
            return "NotSafeToEvictAnnotation"
        labels = pod.metadata.labels
        for budget in () if self.breaks(Breach.IGNORES_BUDGETS) else self.budgets.values():
            is_its = all(labels.get(k) == v for k, v in budget.spec.selector.match_labels.items())
            if is_its and budget.status.disruptions_allowed < 1:
                return "NotEnoughPdb"
        return ""

    def _may_go(self, name: str) -> bool:
        group = self._group_of(name)
        assert group is not None
        time_ns = self._flag_ns("scale-down-unneeded-time", group)
        if self.unneeded[name] + time_ns >= self._now() and not self.breaks(Breach.DELETES_EARLY):
            self.report.unremovable.add(node_name=name, reason="NotUnneededLongEnough")
            return False
        going = [it for it in self.deletions if self._group_of(it) is group]
        going += [data[0] for what, data in self.todo if what == "_mark"]
        if group.target_size - len(going) <= group.min_size and not self.breaks(
            Breach.IGNORES_MINIMUM
        ):
            self.report.unremovable.add(node_name=name, reason="NodeGroupMinSizeReached")
            return False
        return True

    def _group_of(self, node: str) -> messages.NodeGroup | None:
        provider_id = self.nodes[node].spec.provider_id if node in self.nodes else ""
        for group in self.groups.values():
            if any(it.provider_id == provider_id for it in group.instances):
                return group
        return None

    def _mark(self, name: str) -> tuple[Any, ...] | None:
        if self.breaks(Breach.HAS_NO_TAINT):
            self._marked(pb.Outcome(), name)
            return None
        request = messages.MarkNode(node_name=name, cordon=True)
        request.taint.key, request.taint.effect = TAINT, "NoSchedule"
        return messages.Call(mark_node=request), "_marked", name

    def _marked(self, done: pb.Outcome, name: str) -> None:
        if done.refused:
            return
        delay_ns = self._flag_ns("node-delete-delay-after-taint")
        self.deletions[name] = Deletion(self._now() + delay_ns)
        self.unneeded.pop(name, None)
        if self.breaks(Breach.HAS_NO_DELAY):
            self.todo.append(("_go_on", (name,)))

    def _due(self) -> list[str]:
        now_ns = self._now()
        return [name for name, deletion in self.deletions.items() if deletion.due_ns <= now_ns]

    def _go_on(self, name: str) -> tuple[Any, ...] | None:
        """Go on with a deletion: evict the pods, look whether they are gone, delete the node."""
        deletion = self.deletions[name]
        pods = [pod.metadata.name for pod in self._pods_on(name)]
        unasked = [pod for pod in pods if pod not in deletion.evicted]
        if unasked:
            deletion.due_ns = self._now() + 10 * SECOND_NS
            evict = messages.EvictPod(namespace="default", name=unasked[0])
            return messages.Call(evict_pod=evict), "_evicted", name, unasked[0]
        if pods and not self.breaks(Breach.DELETES_WITH_PODS):
            deletion.due_ns = self._now() + 5 * SECOND_NS
            return None
        group = self._group_of(name)
        if group is None:
            del self.deletions[name]
            return None
        ids = [self.nodes[name].spec.provider_id]
        delete = messages.DeleteNodes(group=group.name, provider_ids=ids)
        return messages.Call(delete_nodes=delete), "_deleted", name

    def _evicted(self, done: pb.Outcome, name: str, pod: str) -> None:
        if not done.refused or done.gone:
            self.deletions[name].evicted.add(pod)
            self.todo.insert(0, ("_go_on", (name,)))
        elif self.breaks(Breach.NEVER_RETRIES):
            self.deletions[name].due_ns += 10**6 * SECOND_NS

    def _deleted(self, _done: pb.Outcome, name: str) -> None:
        del self.deletions[name]
        self.results[name] = "ok"

    # Reads.

    def state(self) -> pb.GetStateResponse:
        """Return what is kept."""
        if self.now_ns is None:
            return pb.GetStateResponse()
        answer = pb.GetStateResponse(time_ns=self.now_ns)
        if self.call is not None and not self.breaks(Breach.STATE_HAS_NO_CALL):
            answer.call.CopyFrom(self.call)
        for name in sorted({*self.requests, *self.backoffs}):
            state = answer.groups.add(group=name)
            if name in self.requests and not self.breaks(Breach.STATE_HAS_NO_REQUESTS):
                state.requested_time_ns, state.expected_time_ns, count = self.requests[name]
                state.requested_nodes = count
            if name in self.backoffs and not self.breaks(Breach.STATE_HAS_NO_BACKOFF):
                state.backoff_until_time_ns, state.backoff_code = self.backoffs[name]
        for name in sorted({*self.unneeded, *self.deletions}):
            node = answer.nodes.add(node_name=name)
            if name in self.unneeded and not self.breaks(Breach.STATE_HAS_NO_NODES):
                node.unneeded_since_time_ns = self.unneeded[name]
            if name in self.deletions and not self.breaks(Breach.STATE_HAS_NO_DELETIONS):
                node.deletion = messages.DELETION_STAGE_WAITING
                node.deletion_due_time_ns = self.deletions[name].due_ns
        return answer


def cores(of: Any) -> int:
    """Return a node's cores, or those that a pod's spec requests, in thousandths."""
    if isinstance(of, node_pb2.Node):
        return milli(of.status.allocatable.get("cpu") or of.status.capacity["cpu"])
    return sum(milli(it.resources.requests.get("cpu", "0")) for it in of.containers)


def milli(text: str) -> int:
    """Read a number of cores."""
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def seconds(text: str) -> int:
    """Read a duration, 0 for one that cannot be read."""
    match = re.fullmatch(r"(\d+)s", text)
    return int(match[1]) if match else 0


def key(pod: pod_pb2.Pod) -> str:
    """Return namespace/name."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


class SmallAutoscalerService(SmallSessions, autoscaler_service_pb2_grpc.AutoscalerServiceServicer):
    """Serves every RPC; `broken` is the rule that it breaks."""

    service = "autoscaler"
    create_type, apply_type = pb.CreateSessionRequest, pb.ApplyRequest

    def __init__(self, broken: Breach | None = None) -> None:
        super().__init__()
        self._broken = broken

    def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Open a session, unless a flag is wrong."""
        with refusing(context):
            for name, text in request.config.flags.items():
                is_known = name in DURATIONS or name in OTHERS
                is_readable = name not in DURATIONS or re.fullmatch(r"\d+s", text)
                if not (
                    (is_known or self._broken is Breach.TAKES_ANY_FLAG)
                    and (is_readable or self._broken is Breach.TAKES_ANY_VALUE)
                ):
                    raise bad_field("config.flags")
        return super().CreateSession(request, context)

    def new_core(self, request: pb.CreateSessionRequest) -> SmallAutoscaler:
        """Return the autoscaler of a new session."""
        return SmallAutoscaler(request.config, self._broken)

    def opened(self, name: str, core: Any) -> pb.Session:
        """Return a session."""
        del core
        return pb.Session(session_id=name, version=VERSION, resumable=True)

    def CheckpointSession(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[session_pb2.CheckpointChunk]:
        """Save a session between steps."""
        with refusing(context):
            core: Any = self.session(request.stamp).core
            if core.call is not None and self._broken is not Breach.SAVES_MEANWHILE:
                raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
        yield from super().CheckpointSession(request, context)
