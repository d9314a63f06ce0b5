"""Rules 1 to 9: which pods a scheduler tries, and which cluster state it keeps."""

from __future__ import annotations

from replay.conform.contract.checks import Checks, ContractClient, expect
from replay.conform.contract.scheduler.small_cluster import (
    SmallCluster,
    bound,
    budget,
    ended,
    gone,
    node,
    patched,
    pending,
    pod,
    terminating,
    updated,
)
from reprieve.kube.v1beta1 import object_pb2, service_pb2
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event
from services.kube.time import SECOND_NS

CHECKS = Checks()


@CHECKS.level(1, rule=1)
def tries_pods_that_have_no_node(client: ContractClient) -> None:
    """Check pods that came with a node: they are not tried, and hold their room there."""
    cluster = SmallCluster(client)
    expect("outcomes", cluster.round(0, node("n", 3), pod("old", 2, on="n")), [])
    expect("outcomes of a pod before its node", cluster.round(1, pod("early", 2, on="m")), [])
    expect("outcomes of the node", cluster.round(2, node("m", 3)), [])
    expect("bind of a pod that has no room", bound(cluster.round(3, pod("a", 2))), {})
    for name in ("b", "c"):
        expect(f"bind of {name}", list(bound(cluster.round(4, pod(name, 1)))), [name])


@CHECKS.level(1, rule=2)
def leaves_pods_of_other_schedulers_alone(client: ContractClient) -> None:
    """Check the scheduler's name, and the absent one, which is default-scheduler."""
    cluster = SmallCluster(client)
    other = pod("other", 1, scheduler_name="another-scheduler")
    expect("outcomes", cluster.round(0, node("n", 2), other), [])
    nameless = pod("nameless", 1, scheduler_name="")
    expect("bind", bound(cluster.round(1, nameless)), {"nameless": "n"})


@CHECKS.level(1, rule=3)
def waits_until_all_gates_are_removed(client: ContractClient) -> None:
    """Check a gated pod, also where one of two gates is left."""
    cluster = SmallCluster(client)
    gates = [{"name": "example.com/one"}, {"name": "example.com/two"}]
    expect("outcomes", cluster.round(0, node("n", 2), pod("a", 1, scheduling_gates=gates)), [])
    still = updated(pod("a", 1, scheduling_gates=gates[:1]))
    expect("outcomes of a pod with one gate", cluster.round(1, still), [])
    outcome = cluster.tried("a", cluster.round(2, updated(pod("a", 1))))
    expect("bind of a pod without gates", bound([outcome]), {"a": "n"})


@CHECKS.level(1, rule=4)
def does_not_try_a_pod_that_is_being_deleted(client: ContractClient) -> None:
    """Check a pod that is added terminating, and one whose deletion is requested while pending."""
    cluster = SmallCluster(client)
    deleted = pod("deleted", 1)
    deleted.add.pod.metadata.deletion_timestamp.FromNanoseconds(30 * SECOND_NS)
    expect("outcomes", cluster.round(0, node("n", 2), deleted), [])
    expect("bind without room", bound(cluster.round(1, pod("a", 4))), {})
    cluster.round(2, patched("a", deletion_time_ns=32 * SECOND_NS))
    expect("outcomes", cluster.round(20, node("m", 8)), [])
    cluster.round(21, patched("a", status=pending()))
    expect("outcomes after another patch", cluster.round(40, node("o", 8)), [])


@CHECKS.level(1, rule=5)
def forgets_a_pod_that_was_removed(client: ContractClient) -> None:
    """Check that a removed pod is not tried again, and that unknown objects may be removed."""
    cluster = SmallCluster(client)
    cluster.round(0, gone("nobody"), gone("nowhere", "Node"), node("n", 2), pod("a", 4))
    cluster.round(5, gone("a"))
    expect("bind", bound(cluster.round(20, node("m", 8), pod("b", 8))), {"b": "m"})


@CHECKS.level(1, rule=6)
def frees_the_room_of_a_pod_that_has_ended(client: ContractClient) -> None:
    """Check pods that end by a patch or by an update, and one that has ended when it is added."""
    cluster = SmallCluster(client)
    over = pod("over", 4, on="n")
    over.add.pod.status.CopyFrom(ended("Failed"))
    fill = [pod("one", 2, on="n"), pod("two", 2, on="n")]
    expect(
        "binds without room", bound(cluster.round(0, node("n", 4), over, *fill, pod("a", 2))), {}
    )
    outcome = cluster.tried("a", cluster.round(20, patched("one", status=ended())))
    expect("bind once a pod has ended by a patch", bound([outcome]), {"a": "n"})
    last = updated(pod("two", 2, on="n"))
    last.update.pod.status.CopyFrom(ended("Failed"))
    cluster.round(40, last)
    expect(
        "bind once a pod has ended by an update", bound(cluster.round(41, pod("b", 2))), {"b": "n"}
    )
    lost = pod("lost", 1)
    lost.add.pod.status.CopyFrom(ended("Failed"))
    expect("outcomes of a pod that ended without a node", cluster.round(60, lost), [])


@CHECKS.level(1, rule=7)
def follows_changes_of_objects(client: ContractClient) -> None:
    """Check nodes that change and go, a node that is added again, and kinds that may be unread."""
    cluster = SmallCluster(client)
    service = service_pb2.Service()
    service.metadata.name, service.metadata.namespace = "web", "default"
    unread = Event(add=object_pb2.KubernetesObject(service=service))
    decided = cluster.round(0, unread, budget("web", 1), node("n", 2), pod("old", 1, on="n"))
    expect("outcomes", decided, [])
    expect("binds without room", bound(cluster.round(1, pod("a", 3))), {})
    outcome = cluster.tried("a", cluster.round(20, updated(node("n", 4, disk="ssd"))))
    expect("bind on a node that has grown", bound([outcome]), {"a": "n"})
    expect("bind on a node that is full", bound(cluster.round(21, pod("b", 1))), {})
    outcome = cluster.tried("b", cluster.round(40, node("n", 5, disk="hdd")))
    expect("bind on a node that was added again", bound([outcome]), {"b": "n"})
    choosy = pod("c", 0, node_selector={"disk": "ssd"})
    expect("bind by a label that has changed", bound(cluster.round(41, choosy)), {})
    expect(
        "bind on a node that is gone", bound(cluster.round(60, gone("n", "Node"), pod("d", 0))), {}
    )


@CHECKS.level(1, rule=8)
def keeps_what_a_patch_leaves_out(client: ContractClient) -> None:
    """Check that a status alone changes no node, and no deletion that was requested."""
    cluster = SmallCluster(client)
    expect("bind", bound(cluster.round(0, node("n", 2), pod("a", 2))), {"a": "n"})
    running = pending()
    running.phase = "Running"
    expect("outcomes of a status", cluster.round(1, patched("a", status=running)), [])
    expect("bind on a full node", bound(cluster.round(2, pod("b", 2))), {})
    cluster.round(3, patched("b", deletion_time_ns=33 * SECOND_NS))
    cluster.round(4, patched("b", status=pending()))
    expect("outcomes of a pod that is being deleted", cluster.round(20, gone("a")), [])


@CHECKS.level(1, rule=9)
def counts_a_terminating_pod_until_it_is_removed(client: ContractClient) -> None:
    """Check that the requests of a terminating pod count on its node until it is removed."""
    cluster = SmallCluster(client)
    cluster.round(0, node("n", 2), pod("old", 2, on="n"))
    cluster.round(1, terminating("old", 1))
    expect("bind beside a terminating pod", bound(cluster.round(2, pod("a", 2))), {})
    outcome = cluster.tried("a", cluster.round(31, gone("old")))
    expect("bind once it is removed", bound([outcome]), {"a": "n"})
