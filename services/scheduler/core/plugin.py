"""What a plugin is: the extension points, as classes to derive from.

A plugin has a name and takes part at each point whose class it derives from. Filters and scores
work on rows of the snapshot at once. What they say must follow from the pod's *key*, the data
made of it, and, by `scope`, either the node object alone or the pods on the node as well; so a
column of verdicts is kept for each key, and only rows that changed are computed again.

A filter answers codes: 0 fits, anything else is turned into a Status when someone asks.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/interface.go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.preemption.outcome import CannotHelp, Nominate
from services.scheduler.core.preemption.pick import TieBreak
from services.scheduler.core.preemption.view import FailedCycle
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status

D = TypeVar("D")


class Scope(Enum):
    """What a verdict follows from, beside the pod: the node, or also the pods on it."""

    NODE = "node"
    PODS = "pods"


class Normalization(Enum):
    """How raw scores become 0 to 100 over the feasible nodes.

    NONE: they are on that scale. HIGHEST: the highest becomes 100. REVERSE: it becomes 0.
    Upstream's NormalizeScore is a hook; here it is this closed set, so that one compiled kernel
    scales and adds all scores of a cycle. A plugin that needs another rule adds it here, to the
    kernel and to its plain twin.
    """

    NONE = 0
    HIGHEST = 1
    REVERSE = 2


class Plugin:
    """A named part of a profile."""

    name: ClassVar[str]


class PreEnqueuePlugin(Plugin, ABC):
    """Decides whether a pod may enter activeQ."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why the pod must wait outside, None where it need not."""


class QueueSortPlugin(Plugin, ABC):
    """Orders activeQ."""

    @abstractmethod
    def sort_key(self, pod: Pod, queued_ns: int) -> tuple[int, int]:
        """Return the key by which pods sort, the least first; `queued_ns` is the queue time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFiltered(Generic[D]):
    """What a plugin made of the pod: data for its filter, or a refusal of the whole pod.

    `node_names` are the only nodes that may fit; None leaves all.
    """

    data: D
    refusal: Status | None = None
    node_names: frozenset[str] | None = None


class FilterPlugin(Plugin, ABC, Generic[D]):
    """PreFilter and Filter. Derive a method `filter` too where rows can be done at once."""

    scope: ClassVar[Scope]

    @abstractmethod
    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return what the verdicts follow from; None where there is nothing to filter (Skip)."""

    @abstractmethod
    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[D]:
        """Read the pod once for all nodes; called once a key."""

    @abstractmethod
    def filter_node(self, data: D, view: NodeView) -> int:
        """Return the code of one node as `view` shows it."""

    @abstractmethod
    def filter_status(self, data: D, code: int) -> Status:
        """Return the status that a code other than 0 stands for."""

    def filter(self, data: D, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Write the codes of `rows` into `codes`, int64[nodes]; dead rows do not matter."""
        for row in rows.tolist():
            if snapshot.columns.alive[row]:
                codes[row] = self.filter_node(data, NodeView.of(snapshot, row))


class PostFilterPlugin(Plugin, ABC):
    """Takes over where no node fits; the preemptor is one."""

    @abstractmethod
    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nominate | CannotHelp:
        """Return how room is made for `pod`, or why that cannot help; nothing is changed.

        `tie_break` settles what the plugin's own order leaves open.
        """


class ScorePlugin(Plugin, ABC, Generic[D]):
    """PreScore, Score and NormalizeScore."""

    scope: ClassVar[Scope]
    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return what the scores follow from; None where there is nothing to score (Skip)."""

    @abstractmethod
    def pre_score(self, pod: Pod, snapshot: Snapshot) -> D:
        """Read the pod once for all nodes; called once a key."""

    @abstractmethod
    def score(self, data: D, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the raw scores of `rows` into `scores`, int64[nodes]; dead rows do not matter."""

    def score_epoch(self, snapshot: Snapshot) -> int:  # noqa: ARG002 - for those that need it
        """Return a number that changes whenever the scores of all rows may have changed."""
        return 0


class PodColumnsPlugin(Plugin, ABC):
    """Owns columns that follow the pods on nodes (`Columns.owned`), however those got there.

    The snapshot calls it for each pod that it begins or ceases to count: assumed or assigned,
    once; a confirmed binding is not a new pod. What is counted may follow from the pod's spec,
    namespace, labels and deletion, which are the same when it comes and when it goes. All
    profiles share the columns, so one instance of each name is told.
    """

    @abstractmethod
    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count a pod that is on the node of `row` from now on."""

    @abstractmethod
    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Take it out again."""


class ReservePlugin(Plugin, ABC):
    """Takes what a pod needs when it is assumed, and gives it back when it is not bound.

    Neither is called for pods that come bound or that go after their binding: a column that
    follows from the pods on a node is a PodColumnsPlugin's, and was changed before Reserve.
    """

    @abstractmethod
    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Take what the pod needs on a node; None where that succeeded."""

    @abstractmethod
    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Give it back; called for every plugin of the point, and more than once does no harm."""


class PermitPlugin(Plugin, ABC):
    """Has the last word before a binding."""

    @abstractmethod
    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Return None to go on, WAIT to hold the pod, or a refusal."""


class PreBindPlugin(Plugin, ABC):
    """Prepares what a binding needs."""

    @abstractmethod
    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:
        """Return None where the pod may be bound."""


class BindPlugin(Plugin, ABC):
    """Binds; the first that does not skip ends the point."""

    @abstractmethod
    def bind(self, pod: Pod, node_name: str) -> Status:
        """Return SUCCESS to have the edge bind the pod, SKIP to leave it to the next."""


class PostBindPlugin(Plugin, ABC):
    """Is told of a binding."""

    @abstractmethod
    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Clean up."""


AnyFilter = FilterPlugin[Any]
AnyScore = ScorePlugin[Any]
