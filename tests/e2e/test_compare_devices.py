"""`--compare-recorded` of clusters with devices: by hand, as a kube-scheduler v1.36 writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.compare.comparison import ComparisonReport, FindingOutcome
from replay.compare.explain import DifferenceReason
from replay.compare.recorded import DecisionKind
from replay.compare.run import CompareSettings, compare_recorded
from tests import device_objects as k8s
from tests.unit.compare.builders import write
from tests.unit.importers.builders import Raw, line

pytestmark = pytest.mark.e2e
WAITS = (
    "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
ELSEWHERE = (
    "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
    "1 resourceclaim not available on the node. deallocation of ResourceClaim completed, "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)


class Tape:
    """A recording that grows line by line, each with the next resourceVersion and second."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._refusals: dict[str, list[Raw]] = {}

    def put(self, type_: str, raw: Raw) -> None:
        """Add a change."""
        version = len(self.lines) + 1
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}
        self.lines.append(line(version, type_, raw))

    def cluster(self) -> None:
        """Add node a with one GPU, and the larger node b without any."""
        for name, cpu in (("a", "8"), ("b", "64")):
            node = k8s.node(name, cpu=cpu)
            node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.2"}
            self.put("ADDED", node)
        self.put("ADDED", k8s.gpus("a", 1))
        self.put("ADDED", k8s.device_class())

    def pending(self, name: str, **spec: Any) -> None:
        """Add a pod and its claim."""
        self.put("ADDED", k8s.claim(f"{name}-claim"))
        self.put("ADDED", _pod(name, **spec))

    def refused(self, name: str, message: str, **spec: Any) -> None:
        """Add what a failed attempt writes."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod = _pod(name, **spec)
        self._refusals[name] = pod["status"]["conditions"] = [{**condition, "message": message}]
        self.put("MODIFIED", pod)

    def bound(self, name: str, node: str, device: str = "gpu-0") -> None:
        """Add what a binding writes: the node as expected, the allocation, and the node."""
        expected = _pod(name)
        expected["status"]["nominatedNodeName"] = node
        expected["status"]["conditions"] = self._refusals.get(name, [])
        self.put("MODIFIED", expected)
        claim = k8s.claim(f"{name}-claim", f"{node}/{device}", reserved_for=[name])
        self.put("MODIFIED", {**claim, "status": {}})
        self.put("MODIFIED", claim)
        self.put("MODIFIED", _pod(name, on=node, phase="Pending"))

    def ended(self, name: str, node: str) -> None:
        """Add the end of a pod, after which its claim is given back."""
        self.put("MODIFIED", _pod(name, on=node, phase="Succeeded"))
        self.put("MODIFIED", k8s.claim(f"{name}-claim"))


def _pod(name: str, **spec: Any) -> Raw:
    selector = spec.pop("node_selector", None)
    pod = k8s.pod(name, claim=f"{name}-claim", **spec)
    if selector:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": selector}
    return pod


def compared(services: EmbeddedServices, folder: Path, tape: Tape) -> ComparisonReport:
    """Compare a recording by its own version's rules."""
    write(folder, *tape.lines)
    settings = CompareSettings(
        paths=(folder,), scheduler_address=services.addresses["scheduler"], follows_version=True
    )
    return compare_recorded(settings, lambda _count, _total: None)


def test_bindings_and_refusals_of_pods_with_claims_agree(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The GPU decides, not the larger node: q waits until p has given it back.

    A binding's allocation is written before the binding, which is judged in the state before both.
    """
    tape = Tape()
    tape.cluster()
    tape.pending("p")
    tape.bound("p", "a")
    tape.pending("q")
    tape.refused("q", WAITS)
    tape.ended("p", "a")
    tape.bound("q", "a")
    report = compared(here, tmp_path, tape)
    assert report.notable == []
    assert report.outcomes == {
        (DecisionKind.BIND, FindingOutcome.AGREES): 2,
        (DecisionKind.FAILURE, FindingOutcome.AGREES): 1,
    }


def test_a_binding_to_a_node_without_the_device_differs(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Its allocation is another node's; nothing explains that."""
    tape = Tape()
    tape.cluster()
    tape.pending("p")
    tape.bound("p", "b")
    report = compared(here, tmp_path, tape)
    (finding,) = report.notable
    assert finding.outcome is FindingOutcome.DIFFERS
    assert finding.verdict.got.startswith("bound to a (1 best of 1 feasible)")


def test_a_second_pod_that_gets_the_same_device_differs(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The first one's claim is in force as soon as it is written."""
    tape = Tape()
    tape.cluster()
    for name in ("p", "q"):
        tape.pending(name)
    for name in ("p", "q"):
        tape.bound(name, "a")
    report = compared(here, tmp_path, tape)
    (finding,) = report.notable
    assert finding.decision.pod.name == "q"
    assert finding.outcome is FindingOutcome.DIFFERS
    assert finding.verdict.got.startswith("0/2 nodes are available: 2 cannot allocate all claims")


def test_a_refusal_that_gave_a_claim_back_is_judged_with_it_allocated(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """PostFilter frees the claim of a pod that may not run where its device is."""
    tape = Tape()
    tape.cluster()
    tape.put("ADDED", k8s.claim("p-claim", "a/gpu-0"))
    tape.put("ADDED", _pod("p", node_selector="b"))
    tape.put("MODIFIED", k8s.claim("p-claim"))
    tape.refused("p", ELSEWHERE, node_selector="b")
    report = compared(here, tmp_path, tape)
    assert report.notable == []
    assert report.of(FindingOutcome.AGREES) == 1


def test_a_recording_without_devices_explains_differences_of_pods_with_claims(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Without slices, classes and claims they count for nothing."""
    tape = Tape()
    for name, cpu in (("a", "8"), ("b", "64")):
        tape.put("ADDED", k8s.node(name, cpu=cpu))
    tape.put("ADDED", _pod("p"))
    tape.put("MODIFIED", _pod("p", on="a", phase="Pending"))
    report = compared(here, tmp_path, tape)
    (finding,) = report.notable
    assert finding.explanation is not None
    assert finding.explanation.reason is DifferenceReason.MISSING
    assert finding.explanation.text.endswith("and no ResourceSlice was recorded")
