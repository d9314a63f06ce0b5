"""The controllers of pods as one: who makes a pod again.

Controllers look at the cluster between rounds, at what has changed only. What one of them makes or
deletes is looked at again within the same look, until nothing is left to do. A pod that is made
takes its name, its UID and (where the trace tells it) its life from its owner and its number, so
that two runs pair their pods.
"""

from __future__ import annotations

from typing import Protocol

from replay.world.api.cluster import Changed, Cluster
from replay.world.api.pod_record import controller_uid, object_ref
from replay.world.controllers.cron_jobs import CronJobs
from replay.world.controllers.daemon_sets import DaemonSets
from replay.world.controllers.jobs import Jobs
from replay.world.controllers.pod_template import PodMaker
from replay.world.controllers.replica_sets import Deployments, ReplicaSets
from replay.world.controllers.stateful_sets import Claims, StatefulSets
from replay.world.journal import Journal
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.timeline import Timeline
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2

KINDS = {
    "replica_set": "ReplicaSet",
    "replication_controller": "ReplicationController",
    "deployment": "Deployment",
    "stateful_set": "StatefulSet",
    "daemon_set": "DaemonSet",
    "job": "Job",
    "cron_job": "CronJob",
}
"""The kinds that are served, by the fields of an Object that hold them."""

_SPREAD = {
    KINDS[field]: field for field in ("replica_set", "replication_controller", "stateful_set")
}
"""Those whose pods are spread by default, with their fields."""

_Spread = workloads_pb2.ReplicaSet | workloads_pb2.ReplicationController | workloads_pb2.StatefulSet


class _OfPods(Protocol):
    def remove(self, uid: str) -> None:
        """Forget an object, whose pods are then deleted."""

    def sync(self, now_ns: int, uid: str) -> bool:
        """Do what an object asks for; answer whether it must be looked at again at once."""


class Controllers:
    """All controllers of a cluster."""

    def __init__(
        self, cluster: Cluster, lives: Lives, journal: Journal, timeline: Timeline
    ) -> None:
        self._cluster = cluster
        self._lives = lives
        self.claims = Claims(cluster)
        self._maker = PodMaker(cluster, lives, journal)
        self._replica_sets = ReplicaSets(cluster, lives, self._maker)
        self._deployments = Deployments(cluster, self._replica_sets, self._maker)
        self._stateful_sets = StatefulSets(cluster, lives, self._maker, timeline, self.claims)
        self._daemon_sets = DaemonSets(cluster, lives, self._maker, timeline)
        self._jobs = Jobs(cluster, lives, self._maker, timeline, journal)
        self._cron_jobs = CronJobs(cluster, timeline, self._jobs)
        self._jobs.finished = self._job_finished
        self._of_pods: dict[str, _OfPods] = {
            "ReplicaSet": self._replica_sets,
            "ReplicationController": self._replica_sets,
            "StatefulSet": self._stateful_sets,
            "DaemonSet": self._daemon_sets,
            "Job": self._jobs,
        }
        self._uids: dict[tuple[str, str, str], str] = {}
        self._known: dict[str, tuple[str, meta_pb2.ObjectMeta]] = {}
        self._again: dict[str, None] = {}
        self._told: dict[str, bytes] = {}

    @property
    def has_cron_jobs(self) -> bool:
        """Tell whether there is a CronJob."""
        return bool(len(self._cron_jobs))

    def expect(self, record: trace_pb2.ControllerPod) -> None:
        """Take what the trace tells of a pod (or a ReplicaSet) that a controller will make."""
        self._maker.expect(record)

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        """Return the UID of the controller of that kind and name, "" for none."""
        return self._uids.get((kind, namespace, name), "")

    def is_daemon(self, pod: pod_pb2.Pod) -> bool:
        """Tell whether a DaemonSet that is there manages a pod."""
        kind, _ = self._known.get(controller_uid(pod.metadata), ("", None))
        return kind == "DaemonSet"

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Add or replace a controller. Raises FieldError for one that cannot be read."""
        case = message.WhichOneof("object") or ""
        kind, meta = KINDS[case], getattr(message, case).metadata
        match case:
            case "replica_set":
                self._replica_sets.put(message.replica_set)
            case "replication_controller":
                self._replica_sets.put_replication_controller(message.replication_controller)
            case "deployment":
                self._deployments.put(message.deployment)
            case "stateful_set":
                self._stateful_sets.put(message.stateful_set)
            case "daemon_set":
                self._daemon_sets.put(message.daemon_set)
            case "job":
                self._jobs.put(message.job)
            case "cron_job":
                self._cron_jobs.put(now_ns, message.cron_job)
        self._remember(kind, meta)
        if kind in _SPREAD:
            self._tell(now_ns, kind, getattr(message, case))

    def remove(self, now_ns: int, uid: str) -> None:
        """Delete a controller and, in the background, all that it owns; an unknown one is accepted.

        A Deployment whose ReplicaSet was deleted looks again.
        """
        kind, meta = self._known.pop(uid, ("", None))
        if meta is None:
            return
        if self.uid_of(kind, meta.namespace, meta.name) == uid:
            del self._uids[kind, meta.namespace, meta.name]
        if self._told.pop(uid, None) is not None:
            self._cluster.remove_other(now_ns, object_ref(kind, meta))
        if kind == "Deployment":
            del self._cluster.deployments[uid]
            for each in self._replica_sets.of(uid):
                self.remove(now_ns, each.metadata.uid)
        elif kind == "CronJob":
            for job_uid in self._cron_jobs.remove(uid):
                self.remove(now_ns, job_uid)
        else:
            self._of_pods[kind].remove(uid)
            for pod in list(self._cluster.pods_by_owner.get(uid, {}).values()):
                self._lives.delete(now_ns, pod, None, "deleted")

    def look(self, uid: str) -> None:
        """Look at a controller again, as its time has come."""
        self._cluster.changed.owners[uid] = None

    def retry_refused(self) -> None:
        """Let controllers whose pods were refused try again, as something has changed for them."""
        self._cluster.changed.owners.update(self._maker.take_refused())

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Make and delete what the changed controllers ask for."""
        self._daemon_sets.pods_changed(changed.pods)
        for uid in changed.deployments:
            made = self._deployments.roll_out(now_ns, uid)
            if made is not None:
                self._remember("ReplicaSet", made.metadata)
                self._tell(now_ns, "ReplicaSet", made)
        waiting = dict(changed.owners) | self._daemon_sets.nodes_changed(changed.nodes)
        waiting |= self._cluster.changed.owners
        while waiting:
            for uid in waiting:
                self._sync(now_ns, uid)
            waiting, self._again = self._again, {}

    def _tell(self, now_ns: int, kind: str, message: _Spread) -> None:
        """Tell the scheduler whose pods are spread by default, anew when a selector changes."""
        told = object_pb2.KubernetesObject()
        mine = getattr(told, _SPREAD[kind])
        meta = message.metadata
        mine.metadata.name, mine.metadata.namespace = meta.name, meta.namespace
        mine.metadata.uid = meta.uid
        if isinstance(message, workloads_pb2.ReplicationController):
            mine.spec.selector.update(message.spec.selector)
        elif message.spec.HasField("selector"):
            mine.spec.selector.CopyFrom(message.spec.selector)
        text = told.SerializeToString(deterministic=True)
        if self._told.get(meta.uid) != text:
            self._cluster.put_other(now_ns, told, is_new=meta.uid not in self._told)
            self._told[meta.uid] = text

    def _sync(self, now_ns: int, uid: str) -> None:
        kind, _ = self._known.get(uid, ("", None))
        if kind == "CronJob":
            made, gone = self._cron_jobs.sync(now_ns, uid)
            for job_uid in gone:
                self.remove(now_ns, job_uid)
            for job in made:
                self._start(job)
        elif kind in self._of_pods:
            if self._of_pods[kind].sync(now_ns, uid):
                self._again[uid] = None
            if kind == "Job" and self._jobs.expire(now_ns, uid):
                self.remove(now_ns, uid)

    def _start(self, job: workloads_pb2.Job) -> None:
        """Add a CronJob's Job; one of that name that is there already stays."""
        meta = job.metadata
        if not self.uid_of("Job", meta.namespace, meta.name):
            self._jobs.put(job)
            self._remember("Job", meta)
            self._again[meta.uid] = None

    def _job_finished(self, uid: str) -> None:
        """Let a Job's CronJob look, which may have waited for it."""
        _, meta = self._known[uid]
        self._again[controller_uid(meta)] = None

    def _remember(self, kind: str, meta: meta_pb2.ObjectMeta) -> None:
        self._uids[kind, meta.namespace, meta.name] = meta.uid
        self._known[meta.uid] = (kind, meta)
