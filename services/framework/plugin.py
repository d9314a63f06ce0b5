"""The extension points of a plugin, as classes to derive from.

A plugin has a name and takes part at each point whose class it derives from. Filters and scores
work on rows of the snapshot at once. Their results must follow from the pod's *key*, the data
derived from it, and, by `scope`, the node object alone, the pods on the node as well, or all nodes
and pods. So one column of verdicts is kept for each key, and only changed rows are computed
again (with the last scope all rows, whenever the version changed).

A filter returns codes: 0 fits, any other is turned into a Status when it is needed.

The `rows` that a filter or score receives, int64[n], may have duplicates and dead rows. A dead row
has no node: `snapshot.columns.alive` is False there, and `snapshot.node` and `NodeView.of` raise
AssertionError. Its columns may be read; what is written for it is ignored.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/interface.go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from services.framework.arguments import Arguments
from services.framework.columns.columns import Int64s
from services.framework.preemption.batch_dry_run import Bounds
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.outcome import (
    CannotHelp,
    FailedCycle,
    NarrowCandidates,
    Nomination,
    PreemptionEvaluation,
)
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.framework.waiting_pods import Wait, WaitingPods
from services.kube.devices import ClaimChanges
from services.kube.pod import Pod, PodSpec
from services.kube.selector import LabelSelector

D = TypeVar("D")


class Scope(Enum):
    """The inputs of a verdict beside the pod: the node, its pods as well, or all nodes and pods."""

    NODE = "node"
    PODS = "pods"
    CLUSTER = "cluster"


class Normalization(Enum):
    """The way in which raw scores are scaled to 0 to 100 over the feasible nodes.

    NONE: they are on that scale. HIGHEST: the highest becomes 100. REVERSE: it becomes 0.
    Scores of these kinds are scaled as they are added up, and again where the highest has changed.
    OWN: the plugin's `normalize` does it.
    """

    NONE = 0
    HIGHEST = 1
    REVERSE = 2
    OWN = 3


class Plugin:
    """A named part of a profile; `name` is the one that profiles use.

    arguments: how its arguments are read; None where an in-tree plugin takes none, and for
    out-of-tree plugins, which receive theirs as the file has them.
    keys_follow_pod: whether the keys of its filter and score follow from more than the pod's spec
    and spec.nodeName and the device classes, such as the pod's labels and namespace or other
    objects of the cluster; they are computed for each pod then, not once per spec.
    keeps_rows: whether the value of each row is kept for each key. A filter and a score without
    normalization, of Scope.PODS, may leave that to the pods' classes, which keep what follows from
    all plugins: where keys are nearly as many as classes, and a row costs nanoseconds.
    """

    name: ClassVar[str]
    arguments: ClassVar[Arguments | None] = None
    keys_follow_pod: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    def skips(self, spec: PodSpec) -> bool:  # noqa: ARG002 - for those that can
        """Return whether the plugin has nothing to do for any pod of this spec.

        That must hold whatever the cluster has: the plugin's keys are None, and its Reserve and
        PreBind would succeed without doing anything. Neither is called for such a pod.
        """
        return False


class SnapshotPlugin(Plugin, ABC):
    """Receives the snapshot once, before anything else is called."""

    @abstractmethod
    def begin(self, snapshot: Snapshot) -> None:
        """Keep the snapshot, which lasts as long as the plugin."""


class ClaimsPlugin(Plugin, ABC):
    """Changes claims for devices where it reserves and binds."""

    @abstractmethod
    def planned(self, pod: Pod, row: int, snapshot: Snapshot) -> PlannedClaims:
        """Return the changes that Reserve and PreBind would make for a pod that fits on the row."""

    @abstractmethod
    def changed(self, pod: Pod) -> ClaimChanges | None:
        """Return the changes that they have made for a pod, None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClaims:
    """The changes of a binding; `failure` is the failure of Reserve or PreBind, None without one.

    in_binding: PreBind is what fails.
    """

    changes: ClaimChanges
    failure: Status | None = None
    in_binding: bool = False


NOTHING_PLANNED = PlannedClaims(changes=ClaimChanges())
"""The plan for a pod without claims."""


class PreEnqueuePlugin(Plugin, ABC):
    """Decides whether a pod may enter activeQ.

    gate_kinds: the objects of the pod's namespace that the answer follows from, beside the pod.
    """

    gate_kinds: ClassVar[frozenset[str]] = frozenset()

    def gate_names(self, pod: Pod) -> Collection[str] | None:  # noqa: ARG002 - any object of the kinds
        """Return the names of the objects of `gate_kinds` that the answer may follow from.

        They are in the pod's namespace. None: any of them.
        """
        return None

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why the pod must wait outside, None where it need not."""


class QueueSortPlugin(Plugin, ABC):
    """Orders activeQ."""

    @abstractmethod
    def sort_key(self, pod: Pod) -> bytes:
        """Return the key by which pods sort bytewise, the smallest first.

        Pods of equal keys go by their queue time. An empty key is the queue's own order: by
        priority, the highest first.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFiltered(Generic[D]):
    """A result of PreFilter: data for the plugin's filter, or a refusal of the whole pod.

    `node_names` are the only nodes that may fit; None leaves all.
    """

    data: D
    refusal: Status | None = None
    node_names: frozenset[str] | None = None


class FilterPlugin(Plugin, ABC, Generic[D]):
    """PreFilter and Filter. Override `filter`, too, where rows can be done at once.

    With Scope.PODS, dry runs call `filter_node`. With Scope.NODE they read the codes that `filter`
    wrote: pods cannot change those.

    has_pre_filter: whether it takes part at PreFilter. needs_pre_filter: whether its Filter fails
    where a profile switches PreFilter off. can_fail: whether a status may have the code ERROR,
    which ends the cycle. is_resource_fit: whether it refuses for want of free resources alone, as
    preemption's batch dry run computes for all nodes at once.
    """

    scope: ClassVar[Scope]
    has_pre_filter: ClassVar[bool] = True
    needs_pre_filter: ClassVar[bool] = False
    can_fail: ClassVar[bool] = False
    is_resource_fit: ClassVar[bool] = False

    @property
    def unprepared_text(self) -> str:
        """The error of its Filter where a profile disables its PreFilter."""
        return f'error reading "PreFilter{self.name}" from cycleState: not found'

    @abstractmethod
    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the key on which the verdicts depend; None if there is nothing to filter (Skip).

        It must hold all that `pre_filter` reads of the pod, the catalog and the time (and that
        `post_filter` reads, with `follows_from_class`): results are kept by key, and a result of
        PreFilter is never stale, since another key makes another column and class.
        """

    @abstractmethod
    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[D]:
        """Read the pod once for all nodes; called for each new column of codes."""

    @abstractmethod
    def filter_node(self, data: D, view: NodeView) -> int:
        """Return the code of one node as `view` shows it."""

    @abstractmethod
    def filter_status(self, data: D, code: int) -> Status:
        """Return the status of a code other than 0."""

    def selector_for_hints(self, pod: Pod, snapshot: Snapshot) -> LabelSelector | None:  # noqa: ARG002 - for those that need it
        """Return the selector that the plugin's hints need of a refused pod beside its spec."""
        return None

    def filter(self, data: D, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Write the codes of `rows` into `codes`, int64[nodes]; those of dead rows are ignored."""
        for row in rows[snapshot.columns.alive[rows]].tolist():
            codes[row] = self.filter_node(data, NodeView.of(snapshot, row))


class Trial(Protocol):
    """One filter's view of one node in a dry run, while pods are added and removed.

    Source: kubernetes v1.34, PreFilterExtensions (AddPod, RemovePod).
    """

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node."""

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node."""

    def code(self) -> int:
        """Return the current code of the node."""


class ClusterFilterPlugin(FilterPlugin[D], ABC):
    """A filter whose verdicts follow from pods and nodes anywhere.

    `filter` is called for all rows, and `codes` are zeros then. What follows from other objects
    belongs to the key, by their epoch in `snapshot.catalog`: their change alone calls nothing.
    """

    scope = Scope.CLUSTER

    @abstractmethod
    def filter_version(self, data: D, snapshot: Snapshot) -> Hashable:
        """Return a version that differs whenever a code may; pods and nodes may have changed."""

    @abstractmethod
    def filter(self, data: D, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Write the codes of all `rows`."""

    @abstractmethod
    def trial(self, data: D, snapshot: Snapshot, row: int) -> Trial:
        """Begin a dry run on a live row, right after `filter`."""

    def bounds(self, data: D, snapshot: Snapshot, rows: Int64s) -> Bounds | None:  # noqa: ARG002 - for those that can
        """Return the bounds of `rows`, right after `filter`; None where bounds do not suffice.

        With bounds, preemption is tried on all nodes at once.
        """
        return None

    def filter_node(self, data: D, view: NodeView) -> int:
        """Return the code of one node as the snapshot has it."""
        row = view.snapshot.row(view.node.name)
        assert row is not None, f"{view.node.name} is not in the snapshot"
        return self.trial(data, view.snapshot, row).code()


class PostFilterPlugin(Plugin, ABC):
    """Takes over where no node fits; the preemptor is one.

    follows_from_class: whether equivalent pods have the same outcome while nothing changes. All
    that `post_filter` reads of pod, catalog and time must then be in the pod's spec or in keys. A
    user's plugin may read more of a pod than what makes it equivalent.
    """

    follows_from_class: ClassVar[bool] = False

    @abstractmethod
    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nomination | CannotHelp:
        """Return how room is made for `pod`, or why that cannot help; nothing is changed.

        `tie_break` decides between nodes that the plugin's own order leaves equal.
        """


class Preemptor(PostFilterPlugin, ABC):
    """A PostFilter plugin that deletes pods of lower priority, and can say all that it found.

    narrow: what leaves out candidates that extenders do not accept; None without such extenders,
    where a batch dry run is enough.
    """

    narrow: NarrowCandidates | None

    @abstractmethod
    def evaluate(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> PreemptionEvaluation:
        """Decide as `post_filter` does, node by node, and return all that was found."""

    def preemption_began(self, pod: Pod) -> None:
        """Receive a pod whose nomination is not answered yet, although time goes on."""

    def preemption_ended(self, pod: Pod) -> None:
        """Receive a pod whose victims' deletions were all requested, or one of them refused."""


class Normalized(NamedTuple):
    """Scores of the nodes that fit, int64[n] each: raw, and on the scale 0 to 100."""

    raw: Int64s
    scores: Int64s


class ScoreError(Exception):
    """Raised by a plugin's `score`: a cycle that needs its scores ends with this error."""


class ScorePlugin(Plugin, ABC, Generic[D]):
    """PreScore, Score and NormalizeScore.

    has_pre_score: whether it takes part at PreScore. needs_pre_score: whether its Score fails
    where a profile switches PreScore off.
    """

    scope: ClassVar[Scope]
    has_pre_score: ClassVar[bool] = True
    needs_pre_score: ClassVar[bool] = False
    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the key on which the scores depend; None if there is nothing to score (Skip)."""

    @abstractmethod
    def pre_score(self, pod: Pod, snapshot: Snapshot) -> D:
        """Read the pod once for all nodes; called for each new column of scores."""

    @abstractmethod
    def score(self, data: D, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the raw scores of `rows` into `scores`, int64[nodes]; dead rows' are ignored.

        Rows that a filter refuses are scored, too. Out-of-tree plugins' scores of all live rows are
        checked: 0 to 100 with Normalization.NONE, from 0 with HIGHEST and REVERSE.
        """

    def score_epoch(self, snapshot: Snapshot) -> int:  # noqa: ARG002 - for those that need it
        """Return a number that changes whenever the scores of all rows may have changed."""
        return 0

    def normalize(self, data: D, snapshot: Snapshot, rows: Int64s, raw: Int64s) -> Normalized:
        """Return the scores of `rows`, which are all nodes that fit; for Normalization.OWN.

        rows: int64[n], ascending. raw: int64[n], what `score` gave them.
        """
        raise NotImplementedError(f"{self.name} has no normalisation of its own")


class ClusterScorePlugin(ScorePlugin[D], ABC):
    """A score that follows from pods and nodes anywhere; see ClusterFilterPlugin.

    `score` is called for all rows, and `scores` are zeros then.
    """

    scope = Scope.CLUSTER

    @abstractmethod
    def score_version(self, data: D, snapshot: Snapshot) -> Hashable:
        """Return a version that differs whenever a score may; pods and nodes may have changed."""


class PodColumnsPlugin(Plugin, ABC):
    """Owns columns that follow the pods on nodes (`Columns.owned`), however those got there.

    The snapshot calls it for each pod that it begins or ceases to count: assumed or assigned,
    once; a confirmed binding is not a new pod. What is counted may follow from the pod's spec,
    namespace, labels and deletion, which are the same when it comes and when it goes. All
    profiles share the columns, so one instance of each name is called.

    A dry run changes no column: where a filter reads one by `NodeView.owned`, its plugin says by
    `came_to_view` and `went_from_view` what a pod changes there (`NodeView.change_owned`).
    """

    @abstractmethod
    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count a pod that is on the node of `row` from now on."""

    @abstractmethod
    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Take it out again."""

    def came_to_view(self, pod: Pod, view: NodeView) -> None:
        """Count a pod on a node that is changed hypothetically."""

    def went_from_view(self, pod: Pod, view: NodeView) -> None:
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
    """May refuse or hold an assumed pod before its binding.

    waiting: the pods that are held, of all profiles; there before the first attempt.
    """

    waiting: WaitingPods

    @abstractmethod
    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | Wait | None:
        """Return None to go on, Wait to hold the pod, or a refusal.

        A pod that is held counts on its node. `waiting.allow` lets it go on, `waiting.reject`, or
        the end of the time-out, makes it unschedulable in this plugin's name.
        """


class PreBindPlugin(Plugin, ABC):
    """Prepares what a binding needs."""

    @abstractmethod
    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:
        """Return None where the pod may be bound."""


class BindPlugin(Plugin, ABC):
    """Binds; the first that does not skip ends the point."""

    @abstractmethod
    def bind(self, pod: Pod, node_name: str) -> Status:
        """Return SUCCESS to have the state bind the pod, SKIP to leave it to the next."""


class PostBindPlugin(Plugin, ABC):
    """Runs after a binding."""

    @abstractmethod
    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Clean up."""


AnyFilter = FilterPlugin[Any]
AnyScore = ScorePlugin[Any]


Plain = dict[str, "Plain"] | list["Plain"] | str | int | bool | None
"""What JSON holds; integers of 64 bits."""


class StatefulPlugin(Plugin, ABC):
    """Keeps a state of its own, or changes objects of the catalog."""

    @abstractmethod
    def saved_state(self, snapshot: Snapshot) -> Plain:
        """Return the state; called between rounds."""

    @abstractmethod
    def restore_state(self, saved: Plain, snapshot: Snapshot) -> None:
        """Restore a saved state; `snapshot` is already complete.

        Raises KeyError, IndexError, TypeError or ValueError for what `saved_state` never returns.
        """
