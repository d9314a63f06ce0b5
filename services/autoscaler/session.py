"""An autoscaler's session: its changes, and its steps with the calls that they wait for.

A batch is decoded as a whole, and its step is checked, before anything is changed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from reprieve.kube.v1beta1 import object_pb2
from services.autoscaler.codec.messages import (
    call_to_message,
    group_from_message,
    options_from_message,
    outcome_from_message,
    report_parts,
)
from services.autoscaler.codec.objects import object_from_message
from services.autoscaler.core.autoscaler import Autoscaler, Gone
from services.autoscaler.core.calls import Call, Outcome
from services.autoscaler.core.cluster import ClusterObject
from services.autoscaler.core.groups import NodeGroup
from services.autoscaler.core.reports import ScanReport
from services.rpc.errors import FieldError, PreconditionError
from services.rpc.kube.spec import PodSpecInterner
from services.rpc.required import PROBLEM
from services.rpc.session import TIME_NS_MAX


class Decoded(NamedTuple):
    """A change as a value, None for an object that is not read, and its message."""

    value: ClusterObject | NodeGroup | Gone | None
    message: service_pb.Change


class AutoscalerSession:
    """One autoscaler; `config` is its message, `at_ns` the time of its last step.

    `under_way` is the step that waits for a call's outcome, which is `call`; both are None if none
    does. `parts` are those of the last scan's report that were not sent yet. `objects`, by kind and
    key, and `groups` are what the caller has sent and the core has.
    """

    def __init__(self, config: pb.AutoscalerConfig) -> None:
        """Make one without a cluster. Raises FieldError."""
        self.config = config
        self.options, context = options_from_message(config)
        self.core = Autoscaler(self.options, self._choose, context)
        self.interner = PodSpecInterner()
        self.objects: dict[tuple[str, str], object_pb2.KubernetesObject] = {}
        self.groups: dict[str, pb.NodeGroup] = {}
        self.is_started = False
        self.at_ns = 0
        self.under_way: Generator[Call, Outcome, ScanReport | None] | None = None
        self.call: Call | None = None
        self.parts: deque[pb.ScanReport] = deque()

    @property
    def object_count(self) -> int:
        """Return how many objects the session holds, nodes that are still to come included."""
        cluster = self.core.cluster
        nodes = sum(max(len(it.instances), it.target) for it in self.core.cloud.groups())
        return len(cluster.by_name) + len(cluster.by_key) + nodes

    def most_added(self, changes: Sequence[service_pb.Change]) -> int:
        """Return how many objects changes add at most: a scan simulates the nodes of a target."""
        groups = (change.node_group for change in changes if change.HasField("node_group"))
        nodes = sum(max(len(group.instances), group.target_size) for group in groups)
        return len(changes) + nodes

    def decode(self, changes: Sequence[service_pb.Change]) -> list[Decoded]:
        """Return changes as values. Raises FieldError."""
        return [
            Decoded(self._decoded(change, f"changes[{index}]"), change)
            for index, change in enumerate(changes)
        ]

    def check(self, step: service_pb.Step) -> None:
        """Raise FieldError or PreconditionError for a step that cannot be taken now."""
        case = step.WhichOneof("kind")
        if case is None:
            raise FieldError("step.kind", "is required")
        if step.time_ns < -TIME_NS_MAX:
            problem = f"{step.time_ns} ns is before any time: use at least -2^62 ns"
            raise FieldError("step.time_ns", problem)
        self._check_answered(case)
        if (case == "start") == self.is_started:
            raise PreconditionError(
                "the autoscaler has started already" if self.is_started else "start comes first"
            )

    def _check_answered(self, case: str) -> None:
        """Raise PreconditionError unless the step is what the last answer asks for, if anything."""
        waits = self.under_way is not None
        if (case == "outcome") != waits:
            text = "a call waits for its outcome" if waits else "no call waits for an outcome"
            raise PreconditionError(text)
        if (case == "next_part") != bool(self.parts):
            text = "the report has more parts" if self.parts else "no report has more parts"
            raise PreconditionError(text)

    def check_between_steps(self) -> None:
        """Raise PreconditionError while a call waits or a report has more parts."""
        if self.under_way is not None:
            raise PreconditionError("a call waits for its outcome")
        if self.parts:
            raise PreconditionError("the report has more parts")

    def apply(self, changes: Iterable[Decoded]) -> None:
        """Take over changes."""
        for change in changes:
            match change.value:
                case None:
                    continue
                case NodeGroup(name=name):
                    self.groups[name] = change.message.node_group
                case Gone(kind="NodeGroup", key=name):
                    self.groups.pop(name, None)
                case Gone(kind=kind, key=key):
                    self.objects.pop((kind, key), None)
                case _:
                    self.objects[_identity(change.message.object)] = change.message.object
            self.core.apply(change.value)

    def put_again(
        self, objects: Iterable[object_pb2.KubernetesObject], groups: Iterable[pb.NodeGroup]
    ) -> None:
        """Apply what another session had. Raises FieldError."""
        changes = [
            *(service_pb.Change(object=message) for message in objects),
            *(service_pb.Change(node_group=message) for message in groups),
        ]
        self.apply(self.decode(changes))

    def take(self, step: service_pb.Step) -> service_pb.ApplyResponse:
        """Take a step that was checked, up to its end or to its next call."""
        self.at_ns = step.time_ns
        outcome: Outcome | None = None
        match step.WhichOneof("kind"):
            case "start":
                self.core.start(step.time_ns)
                self.is_started = True
                return self._answer(None)
            case "background_work":
                self.under_way = self.core.act(step.time_ns)
            case "scan":
                self.under_way = self.core.scan(step.time_ns)
            case "next_part":
                return self._answer(None)
            case _:
                outcome = outcome_from_message(step.outcome)
        assert self.under_way is not None, "an outcome is for a step"  # noqa: S101 - an invariant
        try:
            self.call = next(self.under_way) if outcome is None else self.under_way.send(outcome)
        except StopIteration as end:
            self.under_way = self.call = None
            return self._answer(end.value)
        return service_pb.ApplyResponse(call=call_to_message(self.call))

    def answer(self) -> service_pb.ApplyResponse:
        """Return the answer to changes without a step."""
        if self.under_way is not None:
            return service_pb.ApplyResponse()
        return service_pb.ApplyResponse(
            next_due_time_ns=self.core.next_due_ns(),
            more=bool(self.parts),
            next_scan_time_ns=self._next_scan_ns(),
        )

    def _answer(self, report: ScanReport | None) -> service_pb.ApplyResponse:
        """Return the answer to a step that has ended, with the next part of a report, if any."""
        if report is not None:
            self.parts.extend(report_parts(report))
        return service_pb.ApplyResponse(
            report=self.parts.popleft() if self.parts else None,
            more=bool(self.parts),
            next_due_time_ns=self.core.next_due_ns(),
            next_scan_time_ns=self._next_scan_ns(),
        )

    def _next_scan_ns(self) -> int | None:
        """Return the time from which a scan may have another result, None: at the next scan."""
        same_until_ns = self.core.same_until_ns
        if self.parts or same_until_ns is None or same_until_ns <= self.at_ns:
            return None
        return min(same_until_ns + 1, TIME_NS_MAX)

    def _decoded(
        self, change: service_pb.Change, field: str
    ) -> ClusterObject | NodeGroup | Gone | None:
        match change.WhichOneof("kind"):
            case "object":
                return object_from_message(change.object, self.interner, field=f"{field}.object")
            case "removed_object":
                gone = change.removed_object
                key = f"{gone.namespace}/{gone.name}" if gone.namespace else gone.name
                return Gone(kind=gone.object_kind, key=key)
            case "node_group":
                defaults = self.options.group_defaults
                return group_from_message(change.node_group, defaults, field=f"{field}.node_group")
            case "removed_node_group":
                if not change.removed_node_group:
                    raise FieldError(f"{field}.removed_node_group", PROBLEM)
                return Gone(kind="NodeGroup", key=change.removed_node_group)
            case _:
                raise FieldError(f"{field}.kind", "is required")

    def _choose(self, names: Sequence[str]) -> str:
        """Return one of several equally good groups: the first, or by a hash with the seed."""
        if not self.config.HasField("seed"):
            return names[0]
        return min(names, key=self._rank)

    def _rank(self, name: str) -> tuple[bytes, str]:
        text = f"{self.config.seed}\0{self.at_ns}\0{name}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest(), name


def _identity(message: object_pb2.KubernetesObject) -> tuple[str, str]:
    """Return an object's kind and key, as a change that removes it has them."""
    made = getattr(message, str(message.WhichOneof("object")))
    meta = made.metadata
    key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return made.DESCRIPTOR.name, key
