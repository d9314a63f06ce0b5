"""Pods of one class whose claims are not alike: one gets its claim back, the other does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.cel.selectors import DeviceSelectors
from services.framework.profile import ALL, ExtensionPoint, PluginSet, PluginSetting
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.devices import (
    Allocation,
    ClaimSpec,
    Consumer,
    DeviceClass,
    DeviceRequest,
    RequestDetail,
    ResourceClaim,
)
from services.kube.pod import PodClaim
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import make_node, make_pod

GONE = NodeSelector(
    terms=(
        NodeSelectorTerm(
            match_fields=(Requirement(key="metadata.name", operator=Operator.IN, values=("gone",)),)
        ),
    )
)
"""Selects a node that is not there, on which the claim has its device."""
SPEC = replace(
    make_pod("p").req({"cpu": "1"}).obj().spec, device_claims=(PodClaim(name="c", claim_name="c"),)
)
"""One object, as equal specs are in a session."""


class Cluster:
    """A node, and claims named `c` whose device no node reaches."""

    def __init__(self, version: str) -> None:
        self.scheduler = Scheduler(
            SchedulerOptions(
                rules=RULES[version],
                queue=QUEUE_TRAITS[version],
                matches=DeviceSelectors(multiple=True),
            )
        )
        self.scheduler.put_node(make_node("a").capacity(cpu="10", memory="10Gi").obj())
        self.scheduler.put_object(DeviceClass(name="gpu", selectors=()))
        self.cycle = 0

    def claim(self, namespace: str, reserved_for: str) -> None:
        """Add an allocated claim, reserved for the pod of a UID."""
        detail = RequestDetail(name="r", class_name="gpu", count=1)
        self.scheduler.put_object(
            ResourceClaim(
                namespace=namespace,
                name="c",
                uid=f"uid-{namespace}",
                spec=ClaimSpec(requests=(DeviceRequest(name="r", exactly=detail),)),
                allocation=Allocation(node_selector=GONE),
                reserved_for=(Consumer(name=reserved_for, uid=reserved_for),),
            )
        )

    def freed(self, namespace: str, name: str) -> tuple[str, ...]:
        """Try a pod that uses its namespace's claim; return the claims that are given back."""
        pod = replace(make_pod(name).uid(name).obj(), namespace=namespace, spec=SPEC)
        self.scheduler.put_pod(pod)
        self.cycle += 1
        pop = PopId(name, self.cycle)
        head = Head(pop=pop, attempts=1, first_enqueued_ns=0, queued_ns=0)
        refused = self.scheduler.decide(head, 0).verdict
        assert isinstance(refused, Unschedulable)
        return () if refused.freed is None else refused.freed.deallocated


@pytest.mark.parametrize("version", ["v1.34", "v1.36"])
def test_a_claim_is_given_back_for_the_pod_that_it_is_reserved_for(version: str) -> None:
    """The other pod of the claim was tried just before, and was refused for good reason."""
    cluster = Cluster(version)
    cluster.claim("default", reserved_for="owner")
    assert cluster.freed("default", "other") == ()
    assert cluster.freed("default", "owner") == ("default/c",)


@pytest.mark.parametrize("version", ["v1.34", "v1.36"])
def test_a_pod_s_own_claim_is_given_back(version: str) -> None:
    """Another namespace has a claim of the same name, which a pod with the same spec waits for."""
    cluster = Cluster(version)
    cluster.claim("one", reserved_for="another")
    cluster.claim("two", reserved_for="second")
    assert cluster.freed("one", "first") == ()
    assert cluster.freed("two", "second") == ("two/c",)


def test_a_device_class_that_comes_later_serves_pods_of_a_known_spec() -> None:
    """NodeResourcesFit alone, which leaves such a resource to DynamicResources from then on."""
    fit = PluginSet(enabled=(PluginSetting(name="NodeResourcesFit"),), disabled=(ALL,))
    points = dict.fromkeys((ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER), fit)
    scores = (ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE)
    points |= dict.fromkeys(scores, PluginSet(disabled=(ALL,)))
    scheduler = Scheduler(
        SchedulerOptions(
            rules=RULES["v1.36"],
            queue=QUEUE_TRAITS["v1.36"],
            profiles=(replace(RULES["v1.36"].profile, at=points),),
            matches=DeviceSelectors(multiple=True),
        )
    )
    scheduler.put_node(make_node("a").capacity(cpu="4", memory="4Gi").obj())
    spec = make_pod("p").req({"example.com/gpu": "1"}).obj().spec
    verdicts = []
    for cycle, name in enumerate(("before", "after"), 1):
        scheduler.put_pod(replace(make_pod(name).uid(name).obj(), spec=spec))
        decision = scheduler.decide(Head(PopId(name, cycle), 1, 0, 0), 0)
        verdicts.append(type(decision.verdict))
        scheduler.put_object(
            DeviceClass(name="gpu", selectors=(), extended_resource_name="example.com/gpu")
        )
    assert verdicts == [Unschedulable, Binding]
