"""A scale-up: one group, or groups like it, get nodes for pods that fit nowhere.

1. The pods are divided into equivalence groups. Groups of nodes that cannot grow are skipped.
2. On the template of each other group, the first pod of each equivalence group is tried.
3. The estimator says how many nodes of a group its pods need: an option.
4. The expander chooses one option. Pods that only other options would help wait for the next scan.
5. The nodes are bounded by the cluster's maxima, and spread over groups like the chosen one.
6. The cloud is asked group by group, and no more once it has refused one.

Source: kubernetes/autoscaler 1.36 core/scaleup/orchestrator/orchestrator.go, ScaleUp,
ScaleUpToNodeGroupMinSize; executor.go, executeScaleUpsSync.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.autoscaler.core.calls import CLOUD_PROVIDER_ERROR, Calls, Done, IncreaseSize
from services.autoscaler.core.cluster_state.registry import ClusterState
from services.autoscaler.core.equivalence import EquivalenceGroup, equivalence_groups
from services.autoscaler.core.estimator.binpacking import estimate
from services.autoscaler.core.estimator.limits import NodeLimiter, node_limit
from services.autoscaler.core.expander.chain import ExpanderChain
from services.autoscaler.core.expander.options import Choose, ExpanderContext, ExpansionOption
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.reports import (
    GroupIncrease,
    RemainingPod,
    ScaleUpReport,
    ScaleUpResult,
)
from services.autoscaler.core.scale_up.resource_maximum import ResourceMaximum
from services.autoscaler.core.scale_up.similar_groups import GroupChange, are_similar, balanced
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate

BACKOFF = "in backoff after failed scale-up"
MAX_SIZE = "max node group size reached"
NOT_READY = "not ready for scale-up"
TOO_MANY_NODES = "atomic scale-up exceeds cluster node count limit"


@dataclass(slots=True)
class _Candidate:
    """An equivalence group, and the groups of nodes by whether its first pod fits there."""

    group: EquivalenceGroup
    fits: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    is_helped: bool = False

    def note(self, verdicts: Iterable[tuple[str, bool]]) -> None:
        """Note on new nodes of which groups the pod fits."""
        for name, fits in verdicts:
            if fits:
                self.fits.append(name)
                self.is_helped = True
            else:
                self.refused.add(name)


@dataclass(slots=True, kw_only=True)
class ScaleUp:
    """Scale-ups of one cluster; see the module. `context` is read by the expanders."""

    snapshot: ClusterSnapshot
    cloud: Cloud
    state: ClusterState
    options: Options
    context: ExpanderContext = field(default_factory=ExpanderContext)

    def scale_up(
        self,
        pods: Iterable[ClusterPod],
        nodes: Sequence[ClusterNode],
        templates: Mapping[str, NodeTemplate],
        choose: Choose,
        now: Now,
    ) -> Calls[ScaleUpReport]:
        """Scale one group up for `pods`; `nodes` are those of the snapshot, upcoming ones too."""
        candidates = [_Candidate(group) for group in equivalence_groups(pods)]
        maximum = ResourceMaximum.of(nodes, self.cloud, self.options)
        skipped: dict[str, str] = {}
        valid: list[NodeGroup] = []
        for group in self.cloud.groups():
            reason = self._why_skipped(group, templates, maximum, len(nodes), now)
            if reason:
                skipped[group.name] = reason
            else:
                valid.append(group)
        self._try_on({group.name: templates[group.name] for group in valid}, candidates)
        options = [
            option
            for group in valid
            if (option := self._option(group, candidates, templates, len(nodes), now))
        ]
        context = replace(self.context, cluster_nodes=len(nodes))
        best = ExpanderChain(self.options.expander).choose(options, context, choose)
        if best is None:
            if options:
                _refuse_all(candidates)
            return _report(ScaleUpResult.NO_OPTIONS_AVAILABLE, candidates, skipped)
        count = self._capped(best.node_count, len(nodes))
        if count < 1:
            _refuse_all(candidates)
            return _report(ScaleUpResult.ERROR, candidates, skipped, triggered=best.pods)
        template = templates[best.group.name].node
        count = maximum.allowed(best.group, template, count)
        similar = self._similar(best.group, candidates, templates, now)
        changes = _within(
            balanced(
                (
                    best.group,
                    *(
                        group
                        for group in similar
                        if not maximum.refusal(group, templates[group.name].node, 1)
                    ),
                ),
                count,
            ),
            maximum,
            templates,
        )
        failed = yield from self._carry_out(changes, now)
        if failed is not None:
            asked = [change.group.name for change in changes]
            _refuse_failed(candidates, set(asked[asked.index(failed) :]))
            return _report(
                ScaleUpResult.ERROR, candidates, skipped, triggered=best.pods, failed=(failed,)
            )
        awaiting = (
            pod.key
            for candidate in candidates
            if candidate.is_helped and best.group.name in candidate.refused
            for pod in candidate.group.pods
        )
        report = _report(ScaleUpResult.SUCCESSFUL, candidates, skipped, triggered=best.pods)
        return replace(report, groups=_increases(changes), awaiting=tuple(awaiting))

    def scale_up_to_min_size(
        self, nodes: Sequence[ClusterNode], templates: Mapping[str, NodeTemplate], now: Now
    ) -> Calls[ScaleUpReport]:
        """Raise groups whose target is below their minimum."""
        maximum = ResourceMaximum.of(nodes, self.cloud, self.options)
        changes: list[GroupChange] = []
        for group in self.cloud.groups():
            template = templates.get(group.name)
            if group.target >= group.min_size or template is None:
                continue
            if self._why_unsafe(group, now) or maximum.refusal(group, template.node, 1):
                continue
            count = maximum.allowed(group, template.node, group.min_size - group.target)
            count = self._capped(count, group.target)
            if count >= 1:
                changes.append(GroupChange(group, group.target, group.target + count))
        if not changes:
            return ScaleUpReport(result=ScaleUpResult.NOT_NEEDED)
        failed = yield from self._carry_out(changes, now)
        if failed is not None:
            return ScaleUpReport(result=ScaleUpResult.ERROR, failed_groups=(failed,))
        return ScaleUpReport(result=ScaleUpResult.SUCCESSFUL, groups=_increases(changes))

    def _why_skipped(
        self,
        group: NodeGroup,
        templates: Mapping[str, NodeTemplate],
        maximum: ResourceMaximum,
        node_count: int,
        now: Now,
    ) -> str:
        """Return why a group is skipped, "" if it is not. Source: filterValidScaleUpNodeGroups."""
        unsafe = self._why_unsafe(group, now)
        if unsafe:
            return unsafe
        if group.target >= group.max_size:
            return MAX_SIZE
        count = 1
        if group.options.zero_or_max_node_scaling:
            count = group.max_size - group.target
            most = self.options.max_nodes_total
            if most and node_count + count > most:
                return TOO_MANY_NODES
        template = templates.get(group.name)
        if template is None:
            return NOT_READY
        return maximum.refusal(group, template.node, count)

    def _why_unsafe(self, group: NodeGroup, now: Now) -> str:
        if not self.state.is_group_healthy(group.name):
            return NOT_READY
        return BACKOFF if self.state.backed_off(group.name, now) is not None else ""

    def _try_on(
        self, templates: Mapping[str, NodeTemplate], candidates: Iterable[_Candidate]
    ) -> None:
        """Try the first pod of each equivalence group on a new node of each group.

        The nodes are tried at once where each is judged by itself, and else one after the other,
        since none would be there beside another.
        """
        names = [template.node.name for template in templates.values()]
        apart: list[_Candidate] = []
        self.snapshot.fork()
        for template in templates.values():
            self.snapshot.add(template.node, template.pods)
        for candidate in candidates:
            fits = self.snapshot.fits_each(candidate.group.sample, names)
            if fits is None:
                apart.append(candidate)
            else:
                candidate.note(zip(templates, fits, strict=True))
        self.snapshot.revert()
        for group, template in templates.items() if apart else ():
            self.snapshot.fork()
            self.snapshot.add(template.node, template.pods)
            for candidate in apart:
                refusal = self.snapshot.refusal(candidate.group.sample, template.node.name)
                candidate.note([(group, refusal is None)])
            self.snapshot.revert()

    def _option(
        self,
        group: NodeGroup,
        candidates: Sequence[_Candidate],
        templates: Mapping[str, NodeTemplate],
        node_count: int,
        now: Now,
    ) -> ExpansionOption | None:
        """Return the option of scaling a group up, None if it helps no pod."""
        fitting = [c.group for c in candidates if group.name in c.fits]
        if not fitting:
            return None
        similar = self._similar(group, candidates, templates, now)
        limit = node_limit(
            group,
            similar,
            nodes_now=node_count,
            max_nodes_total=self.options.max_nodes_total,
            max_nodes_per_scaleup=self.options.max_nodes_per_scaleup,
        )
        template = templates[group.name]
        estimated = estimate(
            self.snapshot,
            template,
            fitting,
            NodeLimiter(limit),
            fastpath=self.options.fastpath_binpacking_enabled,
        )
        if not estimated.pods or not estimated.node_count:
            return None
        count = estimated.node_count
        if group.options.zero_or_max_node_scaling:
            count = group.max_size
        return ExpansionOption(
            group=group, template=template, node_count=count, pods=estimated.pods
        )

    def _similar(
        self,
        group: NodeGroup,
        candidates: Sequence[_Candidate],
        templates: Mapping[str, NodeTemplate],
        now: Now,
    ) -> list[NodeGroup]:
        """Return the groups like `group` that can grow and take all pods that it takes."""
        if not self.options.balance_similar_node_groups or group.options.zero_or_max_node_scaling:
            return []
        fitting = [candidate for candidate in candidates if group.name in candidate.fits]
        return [
            other
            for other in self.cloud.groups()
            if other.name != group.name
            and other.name in templates
            and are_similar(templates[group.name], templates[other.name], self.options)
            and not self._why_unsafe(other, now)
            and fitting
            and all(other.name in candidate.fits for candidate in fitting)
        ]

    def _capped(self, count: int, node_count: int) -> int:
        most = self.options.max_nodes_total
        return min(count, most - node_count) if most > 0 else count

    def _carry_out(self, changes: Iterable[GroupChange], now: Now) -> Calls[str | None]:
        """Request the nodes from the cloud; return the group that it refused, None if none."""
        for change in changes:
            group, delta = change.group, change.to_size - change.from_size
            outcome = yield IncreaseSize(group=group.name, delta=delta)
            if not isinstance(outcome, Done):
                self.state.register_failed_scale_up(group.name, CLOUD_PROVIDER_ERROR, now.ns)
                return group.name
            self.state.register_scale_up(group, delta, now.ns)
        self.state.recalculate()
        return None


def _within(
    changes: Iterable[GroupChange], maximum: ResourceMaximum, templates: Mapping[str, NodeTemplate]
) -> list[GroupChange]:
    """Return the changes, each reduced to what the cluster's maxima still allow.

    What one group may not take, another one does not get. Source: capScaleUpsByQuota.
    """
    kept: list[GroupChange] = []
    for change in changes:
        node = templates[change.group.name].node
        allowed = maximum.allowed(change.group, node, change.to_size - change.from_size)
        if allowed > 0:
            maximum.take(change.group, node, allowed)
            kept.append(replace(change, to_size=change.from_size + allowed))
    return kept


def _refuse_all(candidates: Iterable[_Candidate]) -> None:
    """Note that no pod is helped. Source: markAllGroupsAsUnschedulable."""
    for candidate in candidates:
        candidate.refused.update(candidate.fits)
        candidate.is_helped = False


def _refuse_failed(candidates: Iterable[_Candidate], failed: set[str]) -> None:
    """Note that groups did not grow. Source: markFailedGroupsAsUnschedulable."""
    for candidate in candidates:
        candidate.refused.update(failed.intersection(candidate.fits))
        if failed.issuperset(candidate.fits):
            candidate.is_helped = False


def _report(
    result: ScaleUpResult,
    candidates: Iterable[_Candidate],
    skipped: Mapping[str, str],
    *,
    triggered: Iterable[ClusterPod] = (),
    failed: tuple[str, ...] = (),
) -> ScaleUpReport:
    remain = (
        RemainingPod(
            pod=pod.key,
            rejected=tuple(sorted(candidate.refused)),
            skipped={name: (reason,) for name, reason in skipped.items()},
        )
        for candidate in candidates
        if not candidate.is_helped
        for pod in candidate.group.pods
    )
    return ScaleUpReport(
        result=result,
        triggered=tuple(pod.key for pod in triggered),
        remain=tuple(remain),
        failed_groups=failed,
    )


def _increases(changes: Iterable[GroupChange]) -> tuple[GroupIncrease, ...]:
    return tuple(
        GroupIncrease(group=change.group.name, from_size=change.from_size, to_size=change.to_size)
        for change in changes
    )
