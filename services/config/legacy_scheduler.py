"""The scheduler's configuration file of the older documents: disablePreemption alone is read.

Source: kubernetes v1.16 pkg/scheduler/apis/config/types.go, KubeSchedulerConfiguration
(kubescheduler.config.k8s.io/v1alpha1).
"""

from __future__ import annotations

import yaml

from services.rpc.errors import FieldError

API_VERSION = "kubescheduler.config.k8s.io/v1alpha1"
KIND = "KubeSchedulerConfiguration"
_FIELD = "config.kube_scheduler_configuration"


def preemption_disabled(text: str) -> bool:
    """Return disablePreemption of a v1alpha1 file. Raises FieldError for any other file."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FieldError(_FIELD, f"is no YAML: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise FieldError(_FIELD, f"is no {KIND}: give a file whose kind says so")
    if document.get("apiVersion") != API_VERSION:
        raise FieldError(
            f"{_FIELD}.apiVersion",
            f"{document.get('apiVersion')!r} is not served yet; {API_VERSION} is",
        )
    disabled = document.get("disablePreemption", False)
    if not isinstance(disabled, bool):
        raise FieldError(f"{_FIELD}.disablePreemption", f"{disabled!r} is not true or false")
    return disabled
