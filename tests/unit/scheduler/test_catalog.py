"""Objects beside pods, nodes and budgets."""

from __future__ import annotations

from services.framework.snapshot.catalog import Catalog
from services.kube.storage import CsiNode, PersistentVolumeClaim
from services.kube.workloads import Controller, ControllerKind, Namespace, Service


def test_objects_are_found_by_name_until_they_go() -> None:
    """Kinds go by the names that Kubernetes gives them."""
    catalog = Catalog()
    catalog.put(Namespace(name="a"))
    catalog.put(CsiNode(name="n"))
    catalog.put(PersistentVolumeClaim(namespace="a", name="c"))
    assert (list(catalog.namespaces), list(catalog.csi_nodes)) == (["a"], ["n"])
    assert list(catalog.claims) == ["a/c"]
    for kind, namespace, name in (
        ("Namespace", "", "a"),
        ("CSINode", "", "n"),
        ("PersistentVolumeClaim", "a", "c"),
        ("Unknown", "", "x"),
    ):
        catalog.remove(kind, namespace, name)
    assert not catalog.namespaces
    assert not catalog.csi_nodes
    assert not catalog.claims


def test_an_epoch_counts_the_changes_of_its_group_alone() -> None:
    """What was made of one group is kept while another changes."""
    catalog = Catalog()
    catalog.put(Service(namespace="a", name="s"))
    catalog.put(CsiNode(name="n"))
    epochs = (catalog.namespace_epoch, catalog.workload_epoch, catalog.storage_epoch)
    assert epochs == (0, 1, 1)
    catalog.put(Service(namespace="a", name="s"))
    assert catalog.workload_epoch == 1
    catalog.remove("Service", "a", "s")
    assert (catalog.workload_epoch, catalog.has_workloads) == (2, False)


def test_controllers_of_one_name_differ_by_kind() -> None:
    """A replica set is no stateful set."""
    catalog = Catalog()
    made = Controller(kind=ControllerKind.REPLICA_SET, namespace="a", name="x")
    catalog.put(made)
    assert catalog.has_workloads
    assert catalog.controller(ControllerKind.REPLICA_SET, "a", "x") is made
    assert catalog.controller(ControllerKind.STATEFUL_SET, "a", "x") is None
    catalog.remove("ReplicaSet", "a", "x")
    assert catalog.controller(ControllerKind.REPLICA_SET, "a", "x") is None
