"""Namespaces, services and controllers: messages to values. Raises FieldError."""

from __future__ import annotations

from reprieve.kube.v1alpha1 import namespace_pb2, service_pb2, workloads_pb2
from services.kube.namespace import Namespace
from services.kube.selector import LabelSelector, Operator, Requirement
from services.kube.workloads import Controller, ControllerKind, Service
from services.rpc import kube_fields


def namespace_from_message(message: namespace_pb2.Namespace) -> Namespace:
    """Return the namespace's value."""
    return Namespace(
        name=message.metadata.name, labels=kube_fields.strings(message.metadata.labels)
    )


def service_from_message(message: service_pb2.Service) -> Service:
    """Return the service's value."""
    return Service(
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=kube_fields.strings(message.spec.selector),
    )


def replication_controller_from_message(
    message: workloads_pb2.ReplicationController,
) -> Controller:
    """Return the controller's value, its plain selector as requirements."""
    requirements = tuple(
        Requirement(key=key, operator=Operator.IN, values=(text,))
        for key, text in sorted(message.spec.selector.items())
    )
    return Controller(
        kind=ControllerKind.REPLICATION_CONTROLLER,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=LabelSelector(requirements=requirements),
    )


def controller_from_message(
    message: workloads_pb2.ReplicaSet | workloads_pb2.StatefulSet, *, field: str = "controller"
) -> Controller:
    """Return the value of a replica set or a stateful set; an absent selector is None."""
    spec = message.spec
    is_set = isinstance(message, workloads_pb2.ReplicaSet)
    return Controller(
        kind=ControllerKind.REPLICA_SET if is_set else ControllerKind.STATEFUL_SET,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=(
            kube_fields.label_selector(spec.selector, f"{field}.spec.selector")
            if spec.HasField("selector")
            else None
        ),
    )
