"""Trace records to changes of the cluster: what users, and nobody else, do.

Observations of the recorded cluster are passed over: they are compared with, never fed.
"""

from __future__ import annotations

from replay.identity import object_uid
from replay.world.admission import AdmissionError, PriorityAdmission
from replay.world.budgets import DisruptionController
from replay.world.cluster import Cluster
from replay.world.controllers import Controllers
from replay.world.journal import Journal
from replay.world.lives import Lives
from replay.world.pressure import Pressure
from reprieve.kube.v1alpha1 import meta_pb2, node_pb2, object_pb2, pod_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.rpc.errors import FieldError

_UNSERVED = "is not simulated yet: pods that it made in the recording are replayed as they came"


class Inputs:
    """Feeds a trace's records to a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        lives: Lives,
        controllers: Controllers,
        budgets: DisruptionController,
        admission: PriorityAdmission,
        pressure: Pressure,
        journal: Journal,
    ) -> None:
        self._cluster = cluster
        self._lives = lives
        self._controllers = controllers
        self._budgets = budgets
        self._admission = admission
        self._pressure = pressure
        self._journal = journal
        self._templates: dict[int, pod_pb2.Pod] = {}
        self._uids: dict[tuple[str, str, str], str] = {}

    def feed(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Carry out one record; what cannot be is noted and leaves everything as it was."""
        match record.WhichOneof("record"):
            case "template":
                self._templates[record.template.id] = record.template.pod
            case "pod_create":
                self._create_pod(now_ns, record.pod_create)
            case "create" | "update":
                kind = record.WhichOneof("record")
                self._put(now_ns, record.create if kind == "create" else record.update)
            case "delete":
                self._delete(now_ns, record.delete)
            case "usage":
                self._pressure.add_profile(record.usage)
            case "controller_pod":
                self._controllers.expect(record.controller_pod)
            case "observed":
                if record.observed.HasField("budget_status"):
                    ref = record.observed.object
                    status = record.observed.budget_status.status
                    self._budgets.observed(now_ns, f"{ref.namespace}/{ref.name}", status)
            case "issue":
                issue = record.issue
                self._journal.notes[issue.kind, issue.message] += max(1, issue.count)

    def _create_pod(self, now_ns: int, create: trace_pb2.PodCreate) -> None:
        if create.template_id:
            template = self._templates.get(create.template_id)
            if template is None:
                self._journal.note("refused", f"template {create.template_id} is not in the trace")
                return
            message = _from_template(template, create.pod)
        else:
            message = pod_pb2.Pod()
            message.CopyFrom(create.pod)
        life = trace_pb2.PodLife()
        life.CopyFrom(create.life)
        if not life.usage_id:
            life.usage_id = self._pressure.profile_of(create.template_id)
        refusal = self._lives.create(now_ns, _identified(message), life)
        if refusal:
            self._journal.note("refused", refusal)

    def _put(self, now_ns: int, given: object_pb2.Object) -> None:
        """Add or replace any object but a new pod; the trace's own message is left as it is."""
        message = object_pb2.Object()
        message.CopyFrom(given)
        kind = message.WhichOneof("object")
        try:
            match kind:
                case "pod":
                    self._put_pod(now_ns, message.pod)
                case "node":
                    self._put_node(now_ns, message.node)
                case "pod_disruption_budget":
                    self._budgets.put(now_ns, message.pod_disruption_budget)
                case "priority_class":
                    self._admission.put_class(message.priority_class)
                case "replica_set":
                    self._remember("ReplicaSet", message.replica_set.metadata)
                    self._controllers.put_replica_set(message.replica_set)
                case "deployment":
                    self._remember("Deployment", message.deployment.metadata)
                    self._controllers.put_deployment(message.deployment)
                case "stateful_set" | "daemon_set" | "job" | "cron_job" | "replication_controller":
                    self._journal.note("not-simulated", f"{kind} {_UNSERVED}")
                case None:
                    self._journal.note("refused", "an object of an unknown kind")
                case _:
                    self._cluster.put_other(now_ns, message, is_new=True)
        except (AdmissionError, FieldError) as error:
            self._journal.note("refused", str(error))

    def _put_pod(self, now_ns: int, message: pod_pb2.Pod) -> None:
        meta = message.metadata
        uid = self._cluster.pod_uids.get(f"{meta.namespace}/{meta.name}", "")
        known = self._cluster.pods.get(uid)
        if known is not None:
            self._cluster.replace_pod(now_ns, known, message)

    def _put_node(self, now_ns: int, node: node_pb2.Node) -> None:
        self._pressure.keep_own(node)
        self._cluster.put_node(now_ns, node)

    def _delete(self, now_ns: int, delete: trace_pb2.Delete) -> None:
        ref = delete.object
        grace_s = delete.grace_period_s if delete.HasField("grace_period_s") else None
        key = f"{ref.namespace}/{ref.name}"
        match ref.kind:
            case "Pod":
                pod = self._cluster.pods.get(self._cluster.pod_uids.get(key, ""))
                if pod is not None:
                    self._lives.delete(now_ns, pod, grace_s, "deleted")
            case "Node":
                if ref.name in self._cluster.nodes:
                    for pod in self._cluster.remove_node(now_ns, ref.name):
                        self._lives.lose(now_ns, pod)
                    self._pressure.forget(ref.name)
            case "PodDisruptionBudget":
                self._budgets.remove(now_ns, key)
            case "PriorityClass":
                self._admission.remove_class(ref.name)
            case "ReplicaSet" | "Deployment":
                uid = self._uids.get((ref.kind, ref.namespace, ref.name), ref.uid)
                self._controllers.remove(now_ns, uid)
            case _:
                self._cluster.remove_other(now_ns, ref)

    def _remember(self, kind: str, meta: meta_pb2.ObjectMeta) -> None:
        """Give an object its UID where the trace names none, and find it by name later."""
        meta.namespace = meta.namespace or "default"
        known = self._uids.get((kind, meta.namespace, meta.name), "")
        meta.uid = meta.uid or known or object_uid(kind, meta.namespace, meta.name)
        self._uids[kind, meta.namespace, meta.name] = meta.uid


def _from_template(template: pod_pb2.Pod, own: pod_pb2.Pod) -> pod_pb2.Pod:
    """Return the template with the pod's own metadata, node and status put over it."""
    message = pod_pb2.Pod()
    message.CopyFrom(template)
    meta = message.metadata
    meta.MergeFrom(own.metadata)
    if own.spec.node_name:
        message.spec.node_name = own.spec.node_name
    message.status.CopyFrom(own.status)
    return message


def _identified(message: pod_pb2.Pod) -> pod_pb2.Pod:
    meta = message.metadata
    meta.namespace = meta.namespace or "default"
    meta.uid = meta.uid or object_uid("Pod", meta.namespace, meta.name)
    return message
