"""The RuntimeClass admission: the overhead and the nodes of pods that name a RuntimeClass.

Source: kubernetes v1.34 plugin/pkg/admission/runtimeclass/admission.go, setOverhead, setScheduling,
validateOverhead; pkg/util/tolerations, MergeTolerations.
"""

from __future__ import annotations

from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.admission.resources import amounts
from reprieve.kube.v1beta1 import admission_pb2, pod_pb2


class RuntimeClasses:
    """The RuntimeClasses, and their effect on new pods."""

    _classes: dict[str, admission_pb2.RuntimeClass]

    def __init__(self) -> None:
        self._classes = {}

    def put(self, message: admission_pb2.RuntimeClass) -> None:
        """Create or update a class."""
        self._classes[message.metadata.name] = message

    def remove(self, name: str) -> None:
        """Delete a class; an unknown one is accepted."""
        self._classes.pop(name, None)

    def admit(self, spec: pod_pb2.PodSpec, *, enforced: bool) -> None:
        """Fill in overhead, node selector and tolerations of the pod's class.

        Raises AdmissionError, where `enforced`, for an unknown class and for contradictions. While
        no class exists at all, the objects are taken to be missing from the trace.
        """
        name = spec.runtime_class_name
        runtime_class = self._classes.get(name) if name else None
        if runtime_class is None:
            if enforced and name and self._classes:
                raise AdmissionError(f'pod rejected: RuntimeClass "{name}" not found')
            return
        if runtime_class.HasField("overhead"):
            if enforced and spec.overhead and not _is_equal(spec, runtime_class):
                raise AdmissionError(
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                )
            spec.overhead.update(runtime_class.overhead.pod_fixed)
        for key, value in sorted(runtime_class.scheduling.node_selector.items()):
            other = spec.node_selector.get(key, value)
            if enforced and other != value:
                raise AdmissionError(
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {other}"
                )
            spec.node_selector[key] = value
        for toleration in runtime_class.scheduling.tolerations:
            if toleration not in spec.tolerations:
                spec.tolerations.append(toleration)


def _is_equal(spec: pod_pb2.PodSpec, runtime_class: admission_pb2.RuntimeClass) -> bool:
    one, other = amounts(spec.overhead), amounts(runtime_class.overhead.pod_fixed)
    return {name: amount.nano for name, amount in one.items()} == {
        name: amount.nano for name, amount in other.items()
    }
