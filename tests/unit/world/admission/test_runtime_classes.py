"""RuntimeClasses: overhead, nodes and tolerations of the pods that name one."""

from __future__ import annotations

import pytest

from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.admission.runtime_classes import RuntimeClasses
from reprieve.kube.v1beta1.admission_pb2 import RuntimeClass
from reprieve.kube.v1beta1.pod_pb2 import PodSpec
from services.rpc.kube import json_codec

GVISOR = {
    "metadata": {"name": "gvisor"},
    "handler": "runsc",
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {
        "nodeSelector": {"sandbox": "yes"},
        "tolerations": [{"key": "sandbox", "operator": "Exists"}],
    },
}


def classes() -> RuntimeClasses:
    """Return the admission with one class."""
    made = RuntimeClasses()
    made.put(json_codec.parse(RuntimeClass, GVISOR))
    return made


def spec_of(**spec: object) -> PodSpec:
    """Return a pod's spec."""
    made: PodSpec = json_codec.parse(PodSpec, spec)
    return made


def test_a_pod_gets_overhead_and_scheduling_of_its_runtime_class() -> None:
    """Beside its own selector; a pod without a class stays as it is."""
    spec = spec_of(runtimeClassName="gvisor", nodeSelector={"zone": "a"})
    classes().admit(spec, enforced=True)
    assert dict(spec.overhead) == {"cpu": "250m"}
    assert dict(spec.node_selector) == {"zone": "a", "sandbox": "yes"}
    assert [toleration.key for toleration in spec.tolerations] == ["sandbox"]
    plain = spec_of()
    classes().admit(plain, enforced=True)
    assert plain == PodSpec()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"runtimeClassName": "kata"}, 'pod rejected: RuntimeClass "kata" not found'),
        (
            {"runtimeClassName": "gvisor", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"runtimeClassName": "gvisor", "nodeSelector": {"sandbox": "no"}},
            (
                "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; "
                "pod.spec.nodeSelector[sandbox] = no"
            ),
        ),
    ],
)
def test_a_contradiction_is_refused(spec: dict[str, object], text: str) -> None:
    """As upstream says it; not where the objects are missing from the trace altogether."""
    with pytest.raises(AdmissionError) as refused:
        classes().admit(spec_of(**spec), enforced=True)
    assert str(refused.value) == text
    RuntimeClasses().admit(spec_of(**spec), enforced=True)
