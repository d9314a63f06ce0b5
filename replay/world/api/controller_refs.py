"""Controller references: controllers adopt orphans that they select, and release other dependents.

An object belongs to the controller that its owner references name. A controller adopts an orphan of
its namespace whose labels its selector matches, unless the orphan is terminating, and releases a
dependent whose labels it does not match any more. A controller that is being deleted does neither.

Only objects whose labels or owners have changed are looked at, and the orphans of a namespace in
which a selector is new. Of two controllers whose selectors match, the one that came first adopts;
upstream it is whichever acts first.

Source: kubernetes v1.34 pkg/controller/controller_ref_manager.go, ClaimObject, ClaimPods,
ClaimReplicaSets; pkg/controller/controller_utils.go, FilterPodsByOwner; which controllers look at
an orphan: pkg/controller/replicaset/replica_set.go, addPod, updatePod, and the like.
"""

from __future__ import annotations

from collections.abc import Callable

from replay.world.api.pod_record import controller_uid
from reprieve.kube.v1beta1 import meta_pb2
from services.kube.selector import LabelSelector, LabelSelectors


class ControllerRefs:
    """The selectors of controllers of one kind of objects (pods, or ReplicaSets), by UID."""

    _by_namespace: dict[str, LabelSelectors[str]]
    _selectors: dict[str, tuple[str, LabelSelector]]
    _new: dict[str, None]

    def __init__(self) -> None:
        self._by_namespace = {}
        self._selectors = {}
        self._new = {}

    def put(self, meta: meta_pb2.ObjectMeta, selector: LabelSelector | None) -> None:
        """Add or replace the selector of a controller; None adopts and releases nothing."""
        if selector is None or meta.HasField("deletion_timestamp"):
            self.remove(meta.uid)
        elif self._selectors.get(meta.uid) != (meta.namespace, selector):
            self._selectors[meta.uid] = meta.namespace, selector
            selectors = self._by_namespace.setdefault(meta.namespace, LabelSelectors())
            selectors.put(meta.uid, selector)
            self._new[meta.namespace] = None

    def remove(self, uid: str) -> None:
        """Forget a controller; an unknown one is accepted."""
        namespace, _ = self._selectors.pop(uid, ("", None))
        if namespace:
            self._by_namespace[namespace].remove(uid)

    def take_new(self) -> list[str]:
        """Return each namespace with new selectors once; its orphans may be adopted."""
        new, self._new = self._new, {}
        return list(new)

    def owner(self, meta: meta_pb2.ObjectMeta, may_claim: Callable[[str], bool]) -> str:
        """Return the UID of the controller that an object should belong to, "" if none.

        `may_claim` returns whether a controller, by UID, claims the object by anything else than
        its labels.
        """
        owner_uid = controller_uid(meta)
        if owner_uid:
            _, selector = self._selectors.get(owner_uid, ("", None))
            if selector is None or selector.matches(meta.labels) or not may_claim(owner_uid):
                return owner_uid
        selectors = self._by_namespace.get(meta.namespace)
        if selectors is None or meta.HasField("deletion_timestamp"):
            return ""
        return next(filter(may_claim, selectors.matching(meta.labels)), "")
