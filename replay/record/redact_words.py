"""What redaction keeps: Kubernetes' own words. Whatever is not listed here is hashed.

Fields are "MESSAGE.field" of protos/reprieve/kube.
"""

from __future__ import annotations

_KEPT_FIELDS_TEXT = """
ObjectMeta.resource_version OwnerReference.api_version OwnerReference.kind
ObjectReference.kind ObjectReference.api_version ContainerPort.protocol
Container.restart_policy EmptyDirVolumeSource.medium PersistentVolumeClaimSpec.access_modes
PersistentVolumeClaimSpec.volume_mode PersistentVolumeClaimStatus.phase
PersistentVolumeClaimStatus.access_modes PersistentVolumeSpec.access_modes
PersistentVolumeSpec.volume_mode PersistentVolumeSpec.persistent_volume_reclaim_policy
PersistentVolumeStatus.phase StorageClass.reclaim_policy StorageClass.volume_binding_mode
LabelSelectorRequirement.operator NodeSelectorRequirement.operator Toleration.operator
Toleration.effect Taint.effect TopologySpreadConstraint.when_unsatisfiable
TopologySpreadConstraint.node_affinity_policy TopologySpreadConstraint.node_taints_policy
PodSpec.preemption_policy PodSpec.scheduler_name PodSpec.restart_policy PodStatus.phase
PodStatus.reason PodStatus.qos_class PodStatus.resize PodCondition.status
PodCondition.reason NodeCondition.status NodeCondition.reason Condition.status
Condition.reason ContainerStateWaiting.reason ContainerStateTerminated.reason
NodeStatus.phase NodeAddress.type NodeSystemInfo.kubelet_version
NodeSystemInfo.operating_system NodeSystemInfo.architecture
PodDisruptionBudgetSpec.unhealthy_pod_eviction_policy PriorityClass.preemption_policy
NamespaceStatus.phase ServiceSpec.type DeploymentStrategy.type UpdateStrategy.type
StatefulSetSpec.pod_management_policy JobSpec.completion_mode JobSpec.pod_replacement_policy
PodFailurePolicyRule.action PodFailurePolicyOnExitCodes.operator
PodFailurePolicyOnPodCondition.status JobStatus.completed_indexes JobStatus.failed_indexes
CronJobSpec.schedule CronJobSpec.time_zone CronJobSpec.concurrency_policy
"""
KEPT_FIELDS = frozenset(_KEPT_FIELDS_TEXT.split())
"""Closed sets, versions, schedules, and the names of schedulers, which configurations name."""

_KEY_FIELDS_TEXT = """
LabelSelectorRequirement.key NodeSelectorRequirement.key
TopologySelectorLabelRequirement.key Toleration.key Taint.key PodAffinityTerm.topology_key
PodAffinityTerm.match_label_keys PodAffinityTerm.mismatch_label_keys
TopologySpreadConstraint.topology_key TopologySpreadConstraint.match_label_keys
CSINodeDriver.topology_keys
"""
KEY_FIELDS = frozenset(_KEY_FIELDS_TEXT.split())
"""Keys of labels and taints."""

_TYPE_FIELDS_TEXT = """
PodCondition.type NodeCondition.type Condition.type PodFailurePolicyOnPodCondition.type
"""
TYPE_FIELDS = frozenset(_TYPE_FIELDS_TEXT.split())
"""Types of conditions: those of other domains are hashed."""

_MESSAGE_FIELDS_TEXT = """
PodCondition.message PodStatus.message NodeCondition.message Condition.message
ContainerStateWaiting.message ContainerStateTerminated.message PriorityClass.description
"""
MESSAGE_FIELDS = frozenset(_MESSAGE_FIELDS_TEXT.split())
"""Sentences, which are hashed word by word."""

IMAGE_FIELDS = frozenset({"Container.image", "ContainerImage.names"})
"""Names of images."""

LABEL_MAPS = frozenset({"labels", "match_labels", "node_selector", "selector"})
"""Maps from a label's key to its value."""

_KEPT_LABEL_KEYS_TEXT = """
app component controller-revision-hash controller-uid env environment job-name k8s-app name
metadata.name pod-template-generation pod-template-hash region release role tier track
version zone
"""
KEPT_LABEL_KEYS = frozenset(_KEPT_LABEL_KEYS_TEXT.split())
"""Keys without a domain that everybody uses, or that Kubernetes sets."""

_KEPT_TEXTS_TEXT = """
default kube-system kube-public kube-node-lease default-scheduler kube-root-ca.crt
system-node-critical system-cluster-critical true false yes no None linux windows amd64
arm64 0.0.0.0 127.0.0.1 :: ::1 foregroundDeletion orphan ebs.csi.aws.com
pd.csi.storage.gke.io disk.csi.azure.com file.csi.azure.com cinder.csi.openstack.org
csi.vsphere.vmware.com pxd.portworx.com efs.csi.aws.com
"""
KEPT_TEXTS = frozenset(_KEPT_TEXTS_TEXT.split())
"""Names and values that Kubernetes, or a public driver whose volumes it counts, sets."""

_ANNOTATIONS_TEXT = """
batch.kubernetes.io/job-completion-index controller.kubernetes.io/pod-deletion-cost
deployment.kubernetes.io/revision k8s.io/initial-events-end kubernetes.io/config.mirror
kubernetes.io/config.source pv.kubernetes.io/bind-completed
pv.kubernetes.io/bound-by-controller storage.alpha.kubernetes.io/migrated-plugins
storageclass.kubernetes.io/is-default-class storageclass.beta.kubernetes.io/is-default-class
volume.beta.kubernetes.io/storage-class volume.kubernetes.io/selected-node
volume.kubernetes.io/storage-provisioner pv.kubernetes.io/migrated-to
"""
ANNOTATIONS = frozenset(_ANNOTATIONS_TEXT.split())
"""Annotations that a replay reads; their values are hashed like names. Others are left out."""

_VOCABULARY_TEXT = """
a about above acting affinity after all already also an and another anti antiaffinity any
are as at available be because been before being below bind both bound but by can cannot
change claim claims completed condition conditions conflict constraint constraints container
containers cores could count cpu currently deallocate default deleted deleting deletion
demand devices did didn disk does doesn don due during dynamic e eligible enough ephemeral
error errors evicted evicting eviction exceed exceeded exceeds exist existing exists
expectation failed fit follow for found free from g gate gated gates gi gpu gpus graceful
had has have having helpful higher host hugepages i id if ignored image imagefs images
immediate in incoming initialized inodes insufficient inter interpod into io is it its just
kube kubelet kubernetes kubernetes.io label labels larger limit limits longer low lower
manager many match matched matches max maximum memory met mi missing more must network never
new no node nodefs nodename nodes nominated none not nvidia of on once only or other out
over own pending percent persistent persistentvolume persistentvolumeclaim pid pids pod pods
policy ports preempt preempted preempting preemption preemptionpolicy preemptlowerpriority
pressure priority process provisioning quantity reached ready reason rejected request
requested requests required requirement requirements resource resources rule rules s
satisfied satisfy satisfying scheduled scheduler scheduling selectednode selector selectors
since skew so some spec spread status still storage sufficient t taint tainted taints term
terminated terminates terminating terms than that the their there this threshold through
time to tolerate tolerated tolerates toleration tolerations too topology total unavailable
unbound under undergoing unschedulable until untolerated up usage use used uses using value
victim victims violate violated volume volumes wait waiting was were when which while will
with without would zone
"""
VOCABULARY = frozenset(_VOCABULARY_TEXT.split())
"""The words of kube-scheduler's and kubelet's messages, in lower case."""
