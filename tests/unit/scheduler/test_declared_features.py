"""NodeDeclaredFeatures: pods stay off nodes whose kubelets lack what they require."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.cluster_event import ObjectEvent
from services.framework.plugins.events import registrations
from services.framework.plugins.in_tree import SERVED
from services.framework.plugins.node_declared_features.features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_WITH_HOST_NETWORK,
    required_features,
)
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code
from services.kube.node import Node
from services.kube.pod import Container, Pod
from services.queue.core.queued_pod import QueuedPod
from services.scheduler.core.queueing import events
from services.scheduler.core.queueing.steps import EventLabel, Move
from services.scheduler.core.session.options import RULES
from tests.builders import make_node, make_pod
from tests.cycles import evaluate

NAME = "NodeDeclaredFeatures"


def node(name: str, *features: str) -> Node:
    """Return a node that declares features."""
    return replace(make_node(name).capacity(cpu="4").obj(), declared_features=features)


def restarting(*, init: bool = False) -> Pod:
    """Return a pod with a container that restarts all of them."""
    pod = make_pod("p").obj()
    containers = (Container(name="c", restart_actions=("Restart", "RestartAllContainers")),)
    spec = pod.spec
    spec = (
        replace(spec, init_containers=containers) if init else replace(spec, containers=containers)
    )
    return replace(pod, spec=spec)


def on_host(*, host_users: bool | None) -> Pod:
    """Return a pod of the host's network."""
    pod = make_pod("p").obj()
    return replace(pod, spec=replace(pod.spec, host_network=True, host_users=host_users))


@pytest.mark.parametrize(
    ("pod", "features"),
    [
        (make_pod("p").obj(), set()),
        (restarting(), {RESTART_ALL_CONTAINERS}),
        (restarting(init=True), {RESTART_ALL_CONTAINERS}),
        (on_host(host_users=False), {USER_NAMESPACES_WITH_HOST_NETWORK}),
        (on_host(host_users=True), set()),
        (on_host(host_users=None), set()),
    ],
)
def test_restart_rules_and_user_namespaces_require_features(pod: Pod, features: set[str]) -> None:
    """An absent hostUsers is true, as the API server takes it."""
    assert required_features(pod.spec) == features


@pytest.mark.parametrize(("rules", "fitting"), [("v1.36", {"whole"}), ("v1.34", {"none", "whole"})])
def test_a_node_without_a_required_feature_is_refused_since_v1_36(
    rules: str, fitting: set[str]
) -> None:
    """No deletion of pods can help."""
    snapshot = Snapshot()
    for made in (node("none", "Other"), node("whole", "Other", RESTART_ALL_CONTAINERS)):
        snapshot.set_node(made)
    of_version = RULES[rules]
    framework = Framework(snapshot, of_version.profile, {**SERVED, **of_version.plugins})
    evaluation = evaluate(framework, restarting())
    assert set(evaluation.feasible) == fitting
    if rules == "v1.36":
        status = evaluation.refusals["none"]
        assert (status.plugin, status.code) == (NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
        assert status.reasons == ("node(s) didn't match Pod's required features",)


def queued_by(label: str, old: object | None, new: object | None) -> bool:
    """Return whether an event queues a pod that the plugin refused."""
    event, pod = ObjectEvent.of(label, old, new), restarting()
    pending = QueuedPod(pod.uid, pod.namespace, pod.name, spec=pod.spec)
    hints = [
        row.hint
        for row in registrations({}, "v1.36")
        if row.plugin == NAME and row.event.covers(event.event)
    ]
    return any(hint is None or hint(pending, event) for hint in hints)


def test_a_node_that_declares_other_features_queues_the_pod() -> None:
    """So does a new node; other changes of a node do not."""
    bare, whole = node("n"), node("n", RESTART_ALL_CONTAINERS)
    assert queued_by("NodeAdd", None, bare)
    assert queued_by("NodeDeclaredFeatureChange", bare, whole)
    assert not queued_by("NodeLabelChange", bare, whole)
    assert not queued_by("NodeDeclaredFeatureChange", whole, whole)


def test_the_pods_own_update_queues_it_where_it_requires_others() -> None:
    """Another pod's does not."""
    plain, needing = make_pod("p").obj(), restarting()
    assert queued_by("UnschedulablePodUpdate", needing, plain)
    assert not queued_by("UnschedulablePodUpdate", needing, needing)
    assert not queued_by("UnschedulablePodUpdate", needing, replace(plain, uid="other"))


def test_only_v1_36_moves_pods_for_declared_features() -> None:
    """It is the last of a node's changes."""
    old, new = node("n"), replace(node("n", "A"), labels={"a": "b"})
    labels = Move(event=EventLabel.NODE_LABEL_CHANGE, old=old, new=new)
    features = Move(event=EventLabel.NODE_DECLARED_FEATURE_CHANGE, old=old, new=new)
    assert events.V1_34.node_updated(old, new) == (labels,)
    assert events.V1_36.node_updated(old, new) == (labels, features)
