"""Pods that wait for their claims, through the services."""

from __future__ import annotations

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.e2e.test_scheduler_service import Caller, add_node, add_pod, pod

pytestmark = pytest.mark.e2e


def add_claim() -> scheduler_pb2.Event:
    """Return a claim that comes, bound to the volume "pv"."""
    event = scheduler_pb2.Event()
    claim = event.add.persistent_volume_claim
    claim.metadata.name, claim.metadata.namespace = "c", "default"
    claim.metadata.annotations["pv.kubernetes.io/bind-completed"] = "yes"
    claim.spec.volume_name = "pv"
    return event


def add_volume() -> scheduler_pb2.Event:
    """Return the volume that comes; nodes of zone "z" alone reach it."""
    event = scheduler_pb2.Event()
    volume = event.add.persistent_volume
    volume.metadata.name = "pv"
    term = volume.spec.node_affinity.required.node_selector_terms.add()
    term.match_expressions.add(key="zone", operator="In", values=["z"])
    return event


def test_a_pod_is_tried_again_when_its_claim_comes(services: EmbeddedServices) -> None:
    """And goes where its volume is."""
    caller = Caller(services.addresses["scheduler"])
    waiting = pod("waiting", "1")
    waiting.spec.volumes.add(name="v").persistent_volume_claim.claim_name = "c"
    near = add_node("near", "2")
    near.add.node.metadata.labels["zone"] = "z"
    (refused,) = caller.tell(0, add_node("far", "8"), near, add_pod(waiting))
    assert 'persistentvolumeclaim "c" not found' in refused.unschedulable.message
    (refused,) = caller.tell(10, add_claim())
    assert list(refused.unschedulable.unschedulable_plugins) == ["VolumeZone"]
    (bound,) = caller.tell(20, add_volume())
    assert bound.bind.node_name == "near"
    caller.channel.close()
