"""DefaultBinder: binds every pod.

Source: kubernetes v1.34 plugins/defaultbinder/default_binder.go.
"""

from __future__ import annotations

from services.framework.plugin import BindPlugin
from services.framework.status import SUCCESS, Status
from services.kube.pod import Pod


class DefaultBinder(BindPlugin):
    """Binds."""

    name = "DefaultBinder"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - every pod, everywhere
        return SUCCESS
