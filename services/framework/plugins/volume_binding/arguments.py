"""Arguments of VolumeBinding.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config.strict import Int64, checked
from services.framework.arguments import Arguments
from services.typed import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeBindingArgs:
    """The arguments of VolumeBinding: how long a binding may wait for its volumes, s."""

    bind_timeout_seconds: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    bind_timeout_seconds: Int64 = 600
    shape: object = None


@checked.register
def _(args: _Fields) -> VolumeBindingArgs:
    if args.shape is not None:
        text = (
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        )
        raise DataError("shape", text)
    if args.bind_timeout_seconds < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        raise DataError("bindTimeoutSeconds", text)
    return VolumeBindingArgs(bind_timeout_seconds=args.bind_timeout_seconds)


ARGUMENTS = Arguments(kind=_Fields, has_effect=False)
