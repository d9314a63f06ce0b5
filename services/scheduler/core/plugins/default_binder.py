"""DefaultBinder: every pod is bound; the edge carries it out.

Source: kubernetes v1.34 plugins/defaultbinder/default_binder.go.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.scheduler.core.plugin import BindPlugin
from services.scheduler.core.status import SUCCESS, Status


class DefaultBinder(BindPlugin):
    """Binds."""

    name = "DefaultBinder"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - every pod, everywhere
        """Have the edge bind the pod."""
        return SUCCESS
