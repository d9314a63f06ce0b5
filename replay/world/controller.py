"""The protocol of the cluster's control loops: controllers, kubelets, and tools such as a drain.

A controller follows the API objects and changes them through the parts of the cluster that keep
them: `Cluster` for objects, `PodLifecycle` for pods, `Journal` for notes and logs. The
ControllerManager (controllers/controller_manager.py) lists and runs it:

- `put`, `remove` and `read` pass on the records of a trace, as a user's requests reach an API
  server: objects of the kinds that it `keeps` or `watches`, and other records that it `reads`.
- `reconcile` runs after that, once in each round, with the objects that have changed. It looks at
  these only, so that a round costs what has changed in it and not what there is.
- Future work is planned on the timeline, under an ActionKind of its own, and runs in `act`. That is
  its only clock. An idle action does not keep a replay running.
- `settle` runs when an instant has no more events to send.

Its state is what its class annotates, as data (part.py): a test finds a controller that keeps
something in another attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.world.api.cluster import Changed
from replay.world.api.pod_record import PodRecord
from replay.world.state import WorldPart
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import meta_pb2, object_pb2
from reprieve.trace.v1beta1 import trace_pb2

NEVER_NS = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a replay: its time and that of its start, ns.

    is_finished: nothing was left to happen. is_cut: the recorded window ended, so that what had not
    ended yet is no finding.
    """

    at_ns: int
    start_ns: int
    is_finished: bool
    is_cut: bool


class Controller(WorldPart):
    """One control loop; what a controller does not need it inherits, and that does nothing.

    keeps: kinds of Kubernetes objects whose versions of the trace it stores. watches: further kinds
    that it receives; others store them. reads: kinds of other records of the trace. actions: kinds
    of planned actions, each of one controller only.
    """

    keeps: ClassVar[frozenset[str]] = frozenset()
    watches: ClassVar[frozenset[str]] = frozenset()
    reads: ClassVar[frozenset[str]] = frozenset()
    actions: ClassVar[frozenset[ActionKind]] = frozenset()

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Follow a user's new version of an object. Raises FieldError for an invalid one."""

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Follow a user's deletion of an object; one that does not exist is accepted."""

    def read(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Take a record of the trace that is not an object."""

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out a planned action."""

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Look at what has changed since the last round, and act on it."""

    def settle(self, _now_ns: int) -> bool:
        """Apply changes deferred to the end of an instant's rounds; return whether there were any.

        Its effects make further rounds of the same instant.
        """
        return False

    def concerns(self, _pod: PodRecord) -> bool:
        """Return whether the controller may act on a pod that is bound, starts or ends.

        Look-ahead foresees only pods that concern no controller.
        """
        return False

    def wakeup_ns(self, _now_ns: int, _ended: int) -> int:
        """Return when the controller would act if that many more pods ended; NEVER_NS: never."""
        return NEVER_NS

    def conclude(self, ending: Ending) -> None:
        """Note what people should know of the state in which the replay ended."""
