"""The NamespaceLifecycle admission: nothing is created in a namespace that is being deleted.

Source: kubernetes v1.34 staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/
admission.go, Admit.
"""

from __future__ import annotations

from replay.world.api.admission.refusal import AdmissionError
from reprieve.kube.v1beta1 import namespace_pb2


class Namespaces:
    """The namespaces that are being deleted; any other is taken to exist."""

    _terminating: dict[str, None]

    def __init__(self) -> None:
        self._terminating = {}

    def put(self, message: namespace_pb2.Namespace) -> str:
        """Create or update a namespace; return a note, "" if none."""
        meta = message.metadata
        if not (meta.HasField("deletion_timestamp") or message.status.phase == "Terminating"):
            self.remove(meta.name)
            return ""
        self._terminating[meta.name] = None
        return (
            f"Namespace {meta.name} is being deleted: no pods are created in it, but those that it "
            "has are not deleted"
        )

    def remove(self, name: str) -> None:
        """Delete a namespace; an unknown one is accepted."""
        self._terminating.pop(name, None)

    def check(self, namespace: str) -> None:
        """Refuse what is created in a namespace. Raises AdmissionError."""
        if namespace in self._terminating:
            raise AdmissionError(
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
