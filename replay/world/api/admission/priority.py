"""The priority admission: a new pod's priority and preemptionPolicy, from its PriorityClass.

The priority is resolved when a pod is created and never again: existing pods keep theirs when a
class is created, becomes the default or is deleted.

Source: kubernetes v1.34 plugin/pkg/admission/priority/admission.go, pkg/apis/scheduling/validation.
"""

from __future__ import annotations

import re

from replay.world.api.admission.refusal import AdmissionError
from reprieve.kube.v1beta1 import pod_pb2, scheduling_pb2
from services.kube.pod import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES, SYSTEM_PREFIX, PriorityClass
from services.rpc.errors import FieldError
from services.rpc.kube.codec import priority_class_from_message

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NO_CLASS = PriorityClass(name="", value=0)
"""The class of a pod that names none, where no class is the default."""


class PriorityAdmission:
    """The priority classes, and their effect on new pods."""

    _classes: dict[str, PriorityClass]

    def __init__(self) -> None:
        self._classes = {system_class.name: system_class for system_class in SYSTEM_CLASSES}

    def put_class(self, message: scheduling_pb2.PriorityClass) -> None:
        """Create or update a class. Raises AdmissionError if an API server rejects it."""
        try:
            new = priority_class_from_message(message)
        except FieldError as error:
            raise AdmissionError(str(error)) from error
        if new.name in {system_class.name for system_class in SYSTEM_CLASSES}:
            self._check_system_class(new)
            return
        _check_class(new)
        stored = self._classes.get(new.name)
        if stored is not None:
            _check_update(stored, new)
        default = self._default()
        if new.global_default and default is not None and default.name != new.name:
            raise AdmissionError(
                f"PriorityClass {new.name!r}: {default.name!r} is marked as globalDefault "
                "already, and only one class may be"
            )
        self._classes[new.name] = new

    def remove_class(self, name: str) -> None:
        """Delete a class; an unknown one is accepted, a system class stays."""
        if name not in {system_class.name for system_class in SYSTEM_CLASSES}:
            self._classes.pop(name, None)

    def classes(self) -> list[PriorityClass]:
        """Return all classes by name."""
        return [self._classes[name] for name in sorted(self._classes)]

    def admit(self, pod: pod_pb2.Pod) -> str:
        """Fill in priority and preemptionPolicy, and return a note, "" if none.

        A priority that the pod already has is kept, since a recorded pod has passed a real
        admission. Raises AdmissionError for a pod without a priority whose class is unknown, or
        whose preemptionPolicy is not that of its class.
        """
        spec = pod.spec
        name = spec.priority_class_name
        if spec.HasField("priority"):
            if not name:
                if spec.priority == _NO_CLASS.value:
                    return ""
                return "spec.priority without a priorityClassName is kept as given"
            if name not in self._classes:
                return f"there is no PriorityClass {name!r}; spec.priority is kept as recorded"
            return ""
        chosen = self._classes.get(name) if name else self._default() or _NO_CLASS
        if chosen is None:
            raise AdmissionError(f"no PriorityClass with name {name} was found")
        policy = chosen.preemption_policy.value
        if spec.HasField("preemption_policy") and spec.preemption_policy != policy:
            raise AdmissionError(
                f"preemptionPolicy {spec.preemption_policy} must not be given: the priority "
                f"class's is {policy}"
            )
        spec.priority_class_name = chosen.name
        spec.priority = chosen.value
        spec.preemption_policy = policy
        return ""

    def _default(self) -> PriorityClass | None:
        """Return the global default with the lowest value, as upstream chooses among several."""
        defaults = (stored for stored in self._classes.values() if stored.global_default)
        return min(defaults, key=lambda default: (default.value, default.name), default=None)

    def _check_system_class(self, new: PriorityClass) -> None:
        stored = self._classes[new.name]
        if (new.value, new.global_default) != (stored.value, False):
            raise AdmissionError(
                f"PriorityClass {new.name!r} is a system class: its value is {stored.value} "
                "and it is not a globalDefault"
            )


def _check_class(new: PriorityClass) -> None:
    if not _SUBDOMAIN.fullmatch(new.name) or len(new.name) > 253:
        raise AdmissionError(
            f"PriorityClass {new.name!r}: the name must be a DNS subdomain (lower case letters, "
            "digits, '-' and '.', at most 253)"
        )
    if new.name.startswith(SYSTEM_PREFIX):
        raise AdmissionError(
            f"PriorityClass {new.name!r}: names that begin with {SYSTEM_PREFIX!r} are reserved "
            "for the system's own classes"
        )
    if new.value > HIGHEST_USER_PRIORITY:
        raise AdmissionError(
            f"PriorityClass {new.name!r}: value {new.value} is above "
            f"{HIGHEST_USER_PRIORITY}, the highest that users may define"
        )


def _check_update(stored: PriorityClass, new: PriorityClass) -> None:
    if stored.value != new.value:
        raise AdmissionError(
            f"PriorityClass {new.name!r}: value may not be changed in an update "
            f"(it is {stored.value}, not {new.value}): delete the class and create it again"
        )
    if stored.preemption_policy is not new.preemption_policy:
        raise AdmissionError(
            f"PriorityClass {new.name!r}: preemptionPolicy may not be changed in an update "
            f"(it is {stored.preemption_policy.value}): delete the class and create it again"
        )
