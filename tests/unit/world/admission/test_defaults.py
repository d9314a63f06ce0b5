"""What an API server fills into a new pod."""

from __future__ import annotations

import pytest

from replay.world.api.admission import defaults
from reprieve.kube.v1beta1.pod_pb2 import Pod
from services.kube.requests import pod_requests
from services.rpc.kube import json_codec
from services.rpc.kube.spec import spec_from_message
from tests.unit.world.builders import World, create, make_replica_set


def filled_in(spec: dict[str, object]) -> Pod:
    """Return the pod that an API server makes of a manifest's spec."""
    pod: Pod = json_codec.parse(Pod, {"metadata": {"name": "p"}, "spec": spec})
    defaults.fill_in(pod.spec)
    defaults.tolerate(pod.spec, None)
    return pod


def test_requests_come_from_limits_by_resource() -> None:
    """Of 2 CPUs that are limited 1 is requested already; memory is not."""
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    pod = filled_in(
        {
            "containers": [{"name": "c", "resources": resources}],
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "3"}}}],
        }
    )
    assert dict(pod.spec.containers[0].resources.requests) == {"cpu": "1", "memory": "1Gi"}
    assert dict(pod.spec.init_containers[0].resources.requests) == {"cpu": "3"}
    assert pod_requests(spec_from_message(pod.spec)) == {"cpu": 3000, "memory": 2**30}


def test_requests_of_the_pod_come_from_its_containers_and_then_from_its_limits() -> None:
    """CPU from two containers (300m), memory from the limit; none without pod-level limits."""
    containers = [
        {"name": "a", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "b", "resources": {"requests": {"cpu": "200m"}}},
    ]
    limits = {"cpu": "2", "memory": "1Gi"}
    pod = filled_in({"containers": containers, "resources": {"limits": limits}})
    assert dict(pod.spec.resources.requests) == {"cpu": "300m", "memory": "1Gi"}
    assert not filled_in({"containers": containers}).spec.HasField("resources")


@pytest.mark.parametrize(("host_network", "port"), [(True, 8080), (False, 0)])
def test_ports_of_the_hosts_network_are_host_ports(host_network: bool, port: int) -> None:
    """A second such pod does not fit on the node then."""
    container = {"name": "c", "ports": [{"containerPort": 8080}]}
    pod = filled_in({"hostNetwork": host_network, "containers": [container]})
    (made,) = pod.spec.containers[0].ports
    assert (made.host_port, made.protocol) == (port, "TCP")


def test_defaults_of_absent_pod_fields_are_filled_in() -> None:
    """restartPolicy, schedulerName and the grace period."""
    spec = filled_in({"containers": [{"name": "c"}]}).spec
    assert (spec.restart_policy, spec.scheduler_name) == ("Always", "default-scheduler")
    assert spec.termination_grace_period_seconds == 30
    assert filled_in({"restartPolicy": "Never"}).spec.restart_policy == "Never"


@pytest.mark.parametrize(
    ("toleration", "seconds"),
    [
        ({"key": "other", "operator": "Exists"}, [300, 300]),
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoSchedule"}, [300, 300]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, [300]),
    ],
)
def test_a_pod_tolerates_failing_nodes_for_300_s(
    toleration: dict[str, object], seconds: list[int]
) -> None:
    """Unless it has a NoExecute toleration of that key."""
    spec = filled_in({"tolerations": [toleration]}).spec
    assert [toleration.toleration_seconds for toleration in spec.tolerations[1:]] == seconds


def test_the_pods_of_a_controller_are_filled_in_and_its_template_is_not() -> None:
    """A template with limits only: its pods request them."""
    world = World()
    replica_set = make_replica_set()
    replica_set.spec.template.spec.containers[0].resources.limits["cpu"] = "2"
    world.feed(0, create(replica_set))
    (pod,) = world.cluster.pods.values()
    assert pod.message.spec.containers[0].resources.requests["cpu"] == "2"
    assert [toleration.toleration_seconds for toleration in pod.message.spec.tolerations] == [
        300,
        300,
    ]
    (stored,) = world.cluster.replica_sets.values()
    assert not stored.spec.template.spec.containers[0].resources.requests
