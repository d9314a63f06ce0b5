"""Trace records to changes of the cluster: what users, and nobody else, do.

Observations of the recorded cluster are passed over: they are compared with, never fed.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from replay.kube.identity import object_uid
from replay.trace.validate import pod_features
from replay.world.api.admission import AdmissionError, PriorityAdmission
from replay.world.api.cluster import Cluster
from replay.world.controllers.controllers import KINDS, Controllers
from replay.world.controllers.disruption import DisruptionController
from replay.world.controllers.node_lifecycle import NodeLives
from replay.world.journal import Journal
from replay.world.kubelet.pod_lifecycle import Admitted, Lives
from replay.world.kubelet.pressure import Pressure
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError


class _Asked(NamedTuple):
    """A pod that a record asks for; `named` is its kind, namespace and name where it has no UID."""

    message: pod_pb2.Pod
    life: trace_pb2.PodLife
    features: tuple[str, ...]
    named: tuple[str, str, str] | None


class _Foreseen(NamedTuple):
    """A record of which is known already what will be stored."""

    record: trace_pb2.Record
    asked: _Asked
    admitted: Admitted


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
        *,
        nodes: NodeLives,
    ) -> None:
        self._cluster = cluster
        self._lives = lives
        self._controllers = controllers
        self._budgets = budgets
        self._admission = admission
        self._pressure = pressure
        self._nodes = nodes
        self._journal = journal
        self._templates: dict[int, pod_pb2.Pod] = {}
        self._template_features: dict[int, tuple[str, ...]] = {}
        self._owner_features: dict[tuple[str, str, str], frozenset[str]] = {}
        self._unnamed: Counter[tuple[str, str, str]] = Counter()
        self._foreseen: dict[int, _Foreseen] = {}

    def learn(self, template: trace_pb2.Template) -> None:
        """Take a template, which nothing but records that come after it reads."""
        self._templates[template.id] = template.pod
        self._template_features[template.id] = tuple(pod_features(template.pod.spec))

    def feed(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Carry out one record; what cannot be is noted and leaves everything as it was."""
        match record.WhichOneof("record"):
            case "template":
                self.learn(record.template)
            case "pod_create":
                self._create_pod(now_ns, record)
            case "create" | "update":
                is_new = record.HasField("create")
                self._put(now_ns, record.create if is_new else record.update, is_new=is_new)
            case "delete":
                self._delete(now_ns, record.delete)
            case "usage":
                self._pressure.add_profile(now_ns, record.usage)
            case "controller_pod":
                self._controllers.expect(record.controller_pod)
            case "observed":
                if record.observed.HasField("budget_status"):
                    ref = record.observed.object
                    status = record.observed.budget_status.status
                    self._budgets.observed(now_ns, f"{ref.namespace}/{ref.name}", status)
            case "node_action":
                refusal = self._nodes.told(now_ns, record.node_action)
                if refusal:
                    self._journal.note("refused", refusal)
            case "issue":
                issue = record.issue
                self._journal.notes[issue.kind, issue.message] += max(1, issue.count)

    def foresee(self, at_ns: int, record: trace_pb2.Record) -> Admitted | None:
        """Return the pod that a record will create, None where it creates none.

        Nothing is changed; the pod is the one that `feed` stores when the record's time has come.
        Records are foreseen in their order, each as often as somebody asks.
        """
        known = self._foreseen.get(id(record))
        if known is not None:
            return known.admitted
        try:
            asked = self._read(record.pod_create)
            if asked is None or self._lives.is_taken(asked.message):
                return None
            admitted = self._lives.admitted(at_ns, asked.message, asked.life)
        except (AdmissionError, FieldError):
            return None
        self._foreseen[id(record)] = _Foreseen(record, asked, admitted)
        return admitted

    def _create_pod(self, now_ns: int, record: trace_pb2.Record) -> None:
        foreseen = self._foreseen.pop(id(record), None)
        asked: _Asked | None
        if foreseen is not None:
            asked = foreseen.asked
            if not self._lives.is_taken(asked.message):
                self._lives.store(now_ns, foreseen.admitted)
                self._stored(asked)
                return
        else:
            asked = self._read(record.pod_create)
            if asked is None:
                template_id = record.pod_create.template_id
                self._journal.note("refused", f"template {template_id} is not in the trace")
                return
        refusal = self._lives.create(now_ns, asked.message, asked.life)
        if refusal:
            self._journal.note("refused", refusal)
        else:
            self._stored(asked)

    def _read(self, create: trace_pb2.PodCreate) -> _Asked | None:
        """Return what is asked for; None where the trace does not have the template."""
        if create.template_id:
            template = self._templates.get(create.template_id)
            if template is None:
                return None
            message = _from_template(template, create.pod)
            features = self._template_features[create.template_id]
        else:
            message = pod_pb2.Pod()
            message.CopyFrom(create.pod)
            features = tuple(pod_features(message.spec))
        life = trace_pb2.PodLife()
        life.CopyFrom(create.life)
        if not life.usage_id:
            life.usage_id = self._pressure.profile_of(create.template_id)
        meta = message.metadata
        meta.namespace = meta.namespace or "default"
        named = None
        if not meta.uid:
            named = ("Pod", meta.namespace, meta.name)
            meta.uid = object_uid(*named, ordinal=self._unnamed[named])
        return _Asked(message, life, features, named)

    def _stored(self, asked: _Asked) -> None:
        """Note what follows from a pod that was stored."""
        if asked.named is not None:
            self._unnamed[asked.named] += 1
        for feature in asked.features:
            self._journal.note("not-simulated", feature)

    def _put(self, now_ns: int, given: object_pb2.KubernetesObject, *, is_new: bool) -> None:
        """Add or replace any object but a new pod; the trace's own message is left as it is."""
        message = object_pb2.KubernetesObject()
        message.CopyFrom(given)
        kind = message.WhichOneof("object")
        try:
            match kind:
                case "pod" if is_new:
                    create = trace_pb2.PodCreate(pod=message.pod)
                    self._create_pod(now_ns, trace_pb2.Record(pod_create=create))
                case "pod":
                    self._update_pod(now_ns, message.pod)
                case "node":
                    self._nodes.put(now_ns, message.node)
                case "pod_disruption_budget":
                    meta = message.pod_disruption_budget.metadata
                    meta.namespace = meta.namespace or "default"
                    self._budgets.put(now_ns, message.pod_disruption_budget)
                case "priority_class":
                    self._admission.put_class(message.priority_class)
                    self._controllers.retry_refused()
                case _ if kind in KINDS:
                    self._put_controller(now_ns, KINDS[kind], message)
                case None:
                    self._journal.note("refused", "an object of an unknown kind")
                case _:
                    self._controllers.claims.see(message)
                    self._cluster.put_other(now_ns, message, is_new=is_new)
        except (AdmissionError, FieldError) as error:
            self._journal.note("refused", str(error))

    def _put_controller(self, now_ns: int, kind: str, message: object_pb2.KubernetesObject) -> None:
        """Add or replace a controller, and note what its pods ask for and do not get, once each."""
        held = getattr(message, message.WhichOneof("object") or "")
        meta: meta_pb2.ObjectMeta = held.metadata
        self._remember(kind, meta)
        self._controllers.put(now_ns, message)
        named = (kind, meta.namespace, meta.name)
        known = self._owner_features.get(named, frozenset())
        spec = held.spec.job_template.spec if kind == "CronJob" else held.spec
        asked = dict.fromkeys(pod_features(spec.template.spec))
        for feature in asked:
            if feature not in known:
                self._journal.note("not-simulated", feature)
        self._owner_features[named] = known.union(asked)

    def _update_pod(self, now_ns: int, message: pod_pb2.Pod) -> None:
        """Carry out a user's update; the pod may have gone here though it had not when recorded."""
        meta = message.metadata
        meta.namespace = meta.namespace or "default"
        uid = self._cluster.pod_uids.get(f"{meta.namespace}/{meta.name}", "")
        known = self._cluster.pods.get(uid)
        if known is not None:
            self._lives.check(message)
            self._cluster.replace_pod(now_ns, known, message)

    def _delete(self, now_ns: int, delete: trace_pb2.Delete) -> None:
        ref = delete.object
        grace_s = delete.grace_period_seconds if delete.HasField("grace_period_seconds") else None
        namespace = ref.namespace or "default"
        key = f"{namespace}/{ref.name}"
        match ref.kind:
            case "Pod":
                pod = self._cluster.pods.get(self._cluster.pod_uids.get(key, ""))
                if pod is not None:
                    self._lives.delete(now_ns, pod, grace_s, "deleted")
            case "Node":
                self._nodes.remove(now_ns, ref.name)
            case "PodDisruptionBudget":
                self._budgets.remove(now_ns, key)
            case "PriorityClass":
                self._admission.remove_class(ref.name)
            case _ if ref.kind in KINDS.values():
                uid = self._controllers.uid_of(ref.kind, namespace, ref.name)
                self._controllers.remove(now_ns, uid or ref.uid)
            case _:
                self._controllers.claims.forget(ref)
                self._cluster.remove_other(now_ns, ref)

    def _remember(self, kind: str, meta: meta_pb2.ObjectMeta) -> None:
        """Give an object its UID where the trace names none: that of what it replaces, if any."""
        meta.namespace = meta.namespace or "default"
        if meta.uid:
            return
        meta.uid = self._controllers.uid_of(kind, meta.namespace, meta.name)
        if not meta.uid:
            named = (kind, meta.namespace, meta.name)
            meta.uid = object_uid(*named, ordinal=self._unnamed[named])
            self._unnamed[named] += 1


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
