"""The selectors of workloads, and what an API server refuses in them.

Source: kubernetes v1.34 pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec,
ValidatePodTemplateSpecForReplicaSet, validatePodTemplateSpecForStatefulSet, validateDaemonSetSpec;
pkg/apis/core/validation/validation.go, ValidatePodTemplateSpecForRC; pkg/apis/core/v1/defaults.go,
SetDefaults_ReplicationController.
"""

from __future__ import annotations

from reprieve.kube.v1beta1 import object_pb2
from services.kube.selector import LabelSelector, Operator, Requirement
from services.rpc.errors import FieldError
from services.rpc.kube import fields

_SELECTING = frozenset({"replica_set", "deployment", "stateful_set", "daemon_set"})


def selector_of(workload: object_pb2.KubernetesObject) -> LabelSelector | None:
    """Return the selector of a workload; None for one without a selector, or with an empty one.

    Raises FieldError for one that cannot be read, or that does not match the labels of the
    workload's own pods. An API server gives a new Job a selector; a Job that lacks it has none.
    """
    case = workload.WhichOneof("object") or ""
    if case == "job":
        return _not_empty(fields.optional_selector(workload.job.spec, "selector", "spec.selector"))
    if case == "replication_controller":
        spec = workload.replication_controller.spec
        labels = spec.template.metadata.labels
        selector = LabelSelector(
            requirements=tuple(
                Requirement(key=key, operator=Operator.IN, values=(text,))
                for key, text in sorted((spec.selector or labels).items())
            )
        )
    elif case in _SELECTING:
        spec = getattr(workload, case).spec
        labels = spec.template.metadata.labels
        optional = fields.optional_selector(spec, "selector", "spec.selector")
        if optional is None:
            return None
        selector = optional
    else:
        return None
    if not selector.matches(labels):
        text = "`selector` does not match template `labels`"
        raise FieldError("spec.template.metadata.labels", f"Invalid value: {dict(labels)}: {text}")
    return _not_empty(selector)


def _not_empty(selector: LabelSelector | None) -> LabelSelector | None:
    return selector if selector is not None and selector.requirements else None
