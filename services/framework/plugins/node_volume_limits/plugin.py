"""NodeVolumeLimits: a node takes no more volumes of a CSI driver than the driver can attach.

Source: kubernetes v1.34 plugins/nodevolumelimits/csi.go, Filter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.volumes.claims import (
    Attachable,
    UnusableError,
    attachable,
    attached,
    base_key,
)
from services.framework.volumes.migration import migrated, migrated_plugins
from services.kube.pod import Pod, PodSpec
from services.kube.storage import CsiNode
from services.kube.volumes import ClaimSource, EphemeralSource

_FULL = 1
_FIRST_PROBLEM = 2


_Held = frozenset[Attachable] | UnusableError
_Like = tuple[str, ...] | None
"""The in-tree plugins that a node migrated; None without a CSINode. Equal nodes count equally."""


class _There(NamedTuple):
    """The attached volumes of a node: its pods' volumes, their number by driver, and the limits."""

    held: _Held
    used: Mapping[str, int]
    limits: Mapping[str, int]
    like: _Like


class PodAttachments:
    """A pod whose volumes are counted; `problems` are those of volumes, by code."""

    __slots__ = ("_wanted", "pod", "problems")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.problems: list[tuple[str, bool]] = []
        self._wanted: dict[_Like, frozenset[Attachable]] = {}

    def wanted(self, like: _Like, node_name: str, catalog: Catalog) -> frozenset[Attachable]:
        """Return the pod's volumes on a node.

        The catalog is the one that the pod's key was made of. Raises UnusableError.
        """
        volumes = self._wanted.get(like)
        if volumes is None:
            csi_node = catalog.csi_nodes.get(node_name)
            volumes = frozenset(attachable(self.pod, csi_node, catalog, is_new=True))
            self._wanted[like] = volumes
        return volumes

    def code(self, error: UnusableError) -> int:
        """Return the code of a problem."""
        problem = (str(error), error.lasts)
        if problem not in self.problems:
            self.problems.append(problem)
        return _FIRST_PROBLEM + self.problems.index(problem)


class NodeVolumeLimits(FilterPlugin[PodAttachments]):
    """Filters by the volumes that drivers have attached."""

    name = "NodeVolumeLimits"
    scope = Scope.PODS
    can_fail = True
    keys_follow_pod = True

    def __init__(self) -> None:
        self._rows: dict[int, _There] = {}
        self._seen: tuple[int, int, int] | None = None

    def skips(self, spec: PodSpec) -> bool:
        return not spec.volumes

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the pod's volumes, None where none may be a driver's."""
        return base_key(pod, snapshot) if any(map(_may_count, pod.spec.volumes)) else None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[PodAttachments]:  # noqa: ARG002 - unused
        """Return the pod: which of its volumes count depends on the node."""
        return PreFiltered(data=PodAttachments(pod))

    def filter_node(self, data: PodAttachments, view: NodeView) -> int:
        there = _there(view.node.name, view.pods(), view.snapshot.catalog)
        return _code(data, view.node.name, there, view.snapshot.catalog)

    def filter(self, data: PodAttachments, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        self._forget_what_changed(snapshot)
        alive, catalog = snapshot.columns.alive, snapshot.catalog
        for row in rows.tolist():
            if not alive[row]:
                continue
            there = self._rows.get(row)
            name = snapshot.name(row)
            if there is None:
                there = self._rows[row] = _there(name, snapshot.pods_on(row), catalog)
            codes[row] = _code(data, name, there, catalog)

    def filter_status(self, data: PodAttachments, code: int) -> Status:
        """Return the refusal: the node is full, or a volume cannot be counted."""
        if code == _FULL:
            reason = "node(s) exceed max volume count"
            return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))
        text, lasts = data.problems[code - _FIRST_PROBLEM]
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if lasts else Code.ERROR
        return Status(code=code_, plugin=self.name, reasons=(text,))

    def _forget_what_changed(self, snapshot: Snapshot) -> None:
        """Keep the rows whose pods, nodes and volumes are as they were; all are of one snapshot."""
        logs = (snapshot.row_log, snapshot.node_log)
        now = (snapshot.catalog.storage_epoch, logs[0].end, logs[1].end)
        if now == self._seen:
            return
        changed = None
        if self._seen is not None and self._seen[0] == now[0]:
            changed = [log.since(end) for log, end in zip(logs, self._seen[1:], strict=True)]
        if changed is None or any(rows is None for rows in changed):
            self._rows.clear()
        else:
            for row in {row for rows in changed if rows is not None for row in rows.tolist()}:
                self._rows.pop(row, None)
        self._seen = now


def _may_count(volume: object) -> bool:
    source = getattr(volume, "source", None)
    return isinstance(source, ClaimSource | EphemeralSource) or migrated(source) is not None


def _code(data: PodAttachments, node_name: str, there: _There, catalog: Catalog) -> int:
    try:
        volumes = data.wanted(there.like, node_name, catalog)
    except UnusableError as error:
        return data.code(error)
    if not volumes or not there.limits:
        return 0
    if isinstance(there.held, UnusableError):
        return data.code(there.held)
    more: dict[str, int] = {}
    for volume in volumes:
        if volume not in there.held:
            more[volume.driver] = more.get(volume.driver, 0) + 1
    limits, used = there.limits, there.used
    full = any(
        driver in limits and used.get(driver, 0) + count > limits[driver]
        for driver, count in more.items()
    )
    return _FULL if full else 0


def _there(node_name: str, pods: Iterable[Pod], catalog: Catalog) -> _There:
    csi_node = catalog.csi_nodes.get(node_name)
    held = _attached_by(pods, csi_node, catalog)
    counted = frozenset() if isinstance(held, UnusableError) else held
    return _There(
        held=held,
        used=Counter(volume.driver for volume in counted | attached(node_name, catalog)),
        limits=_limits(csi_node),
        like=None if csi_node is None else tuple(migrated_plugins(csi_node)),
    )


def _attached_by(pods: Iterable[Pod], csi_node: CsiNode | None, catalog: Catalog) -> _Held:
    held: set[Attachable] = set()
    try:
        for pod in pods:
            if pod.spec.volumes:
                held |= attachable(pod, csi_node, catalog, is_new=False)
    except UnusableError as error:
        return error
    return frozenset(held)


def _limits(csi_node: CsiNode | None) -> Mapping[str, int]:
    drivers = csi_node.drivers if csi_node is not None else ()
    return {
        driver.name: driver.allocatable_count
        for driver in drivers
        if driver.allocatable_count is not None
    }
