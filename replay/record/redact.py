"""Redaction: names, label values, images and similar texts become keyed hashes.

Equal texts become equal hashes, so that selectors, affinities, tolerations and references still
match. The sets below list the texts that are kept; all other texts are hashed. Fields that a trace
does not contain (environments, commands, most annotations) are left out.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from replay.kube import device_versions
from replay.kube.kinds import KINDS_BY_RESOURCE, is_carried, to_object
from reprieve.kube.v1beta1.device_pb2 import ResourceSlice
from services.kube.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX
from services.rpc.kube import json_codec
from services.rpc.kube.codec import API_VERSIONS

Raw = Mapping[str, Any]
_HASH_BYTES = 8
_KEY_BYTES_MAX = 64
_INTEGER = re.compile(r"-?\d+")
_ORDINAL = re.compile(r"(?<=.)-\d{1,4}$")
_TOKEN = re.compile(r"\w+(?:[./:@-]+\w+)*")
_AMOUNT = re.compile(r"\d+(?:\.\d+)?[A-Za-z]{0,2}(?:/\d+)?")
_PERCENT = re.compile(r"\d+%?")
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}([eE][+-]?\d+|[numkKMGTPE]i?)?")
_PARTS = re.compile(r"[._/:@-]+")
_SEGMENTS = re.compile(r"[._/:@]+")
_OWN_GROUPS = frozenset(("", "apps", "autoscaling", "batch", "extensions", "policy"))
_RECORDED_KINDS = frozenset(KINDS_BY_RESOURCE.values())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields are "MESSAGE.field" of protos/reprieve/kube.
KEPT_FIELDS = _words("""
ObjectMeta.resource_version ContainerPort.protocol
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
ResourceQuotaSpec.scopes ScopedResourceSelectorRequirement.scope_name
ScopedResourceSelectorRequirement.operator LimitRangeItem.type
ResourceSliceSpec.driver OpaqueDeviceConfiguration.driver DeviceRequestAllocationResult.driver
AllocatedDeviceStatus.driver CELDeviceSelector.expression DeviceClassSpec.extended_resource_name
DeviceConstraint.match_attribute DeviceConstraint.distinct_attribute
ExactDeviceRequest.allocation_mode DeviceSubRequest.allocation_mode DeviceToleration.operator
DeviceToleration.effect DeviceTaint.effect DeviceAttribute.string_value
DeviceAttribute.version_value DeviceAllocationConfiguration.source
ResourceClaimConsumerReference.resource ResourceClaimConsumerReference.api_group
ContainerExtendedResourceRequest.resource_name
""")
"""Fields that are kept: enums, versions, schedules, and names of schedulers (configurations use
them); of devices, what selectors compare, and names of resources.
"""

KEY_FIELDS = _words("""
LabelSelectorRequirement.key NodeSelectorRequirement.key
TopologySelectorLabelRequirement.key Toleration.key Taint.key PodAffinityTerm.topology_key
PodAffinityTerm.match_label_keys PodAffinityTerm.mismatch_label_keys
TopologySpreadConstraint.topology_key TopologySpreadConstraint.match_label_keys
CSINodeDriver.topology_keys DeviceTaint.key DeviceToleration.key
""")
"""Keys of labels and taints."""

TYPE_FIELDS = _words("""
PodCondition.type NodeCondition.type Condition.type PodFailurePolicyOnPodCondition.type
Device.binding_conditions Device.binding_failure_conditions
DeviceRequestAllocationResult.binding_conditions
DeviceRequestAllocationResult.binding_failure_conditions
""")
"""Types of conditions; a type with a domain other than Kubernetes' is hashed."""

MESSAGE_FIELDS = _words("""
PodCondition.message PodStatus.message NodeCondition.message Condition.message
ContainerStateWaiting.message ContainerStateTerminated.message PriorityClass.description
""")
"""Messages, which are hashed word by word."""

KIND_FIELDS = _words("OwnerReference.kind ObjectReference.kind")
"""Kinds of objects; a kind that is not recorded, such as a custom resource, is hashed."""

API_VERSION_FIELDS = _words("OwnerReference.api_version ObjectReference.api_version")
"""Versions of API groups; a group with a domain other than Kubernetes' is hashed."""

REQUEST_FIELDS = _words("""
ResourceClaim.request DeviceConstraint.requests DeviceClaimConfiguration.requests
DeviceAllocationConfiguration.requests DeviceRequestAllocationResult.request
""")
"""Requests of claims, "REQUEST/ALTERNATIVE" for one of several alternatives."""

KEPT_KEYS = frozenset({"Device.attributes", "Device.capacity"})
"""Maps whose keys selectors name."""

HARDWARE = _words("uuid serial serialnumber pcibusid pciaddress busid macaddress")
"""Attributes of a device that identify one piece of hardware, in lower case."""

IMAGE_FIELDS = frozenset({"Container.image", "ContainerImage.names"})
"""Names of images."""

LABEL_MAPS = frozenset({"labels", "match_labels", "node_selector", "selector"})
"""Maps from a label's key to its value."""

KEPT_LABEL_KEYS = _words("""
app component controller-revision-hash controller-uid env environment job-name k8s-app name
metadata.name pod-template-generation pod-template-hash region release role tier track
version zone
""")
"""Label keys that are kept: common keys without a domain, and keys that Kubernetes sets."""

KEPT_TEXTS = _words("""
default kube-system kube-public kube-node-lease default-scheduler kube-root-ca.crt
system-node-critical system-cluster-critical true false yes no None linux windows amd64
arm64 0.0.0.0 127.0.0.1 :: ::1 foregroundDeletion orphan ebs.csi.aws.com
pd.csi.storage.gke.io disk.csi.azure.com file.csi.azure.com cinder.csi.openstack.org
csi.vsphere.vmware.com pxd.portworx.com efs.csi.aws.com
resource.kubernetes.io/delete-protection
""")
"""Texts that are kept: names and values of Kubernetes, and of public volume drivers that it counts.
"""

ANNOTATIONS = _words("""
batch.kubernetes.io/job-completion-index controller.kubernetes.io/pod-deletion-cost
deployment.kubernetes.io/revision k8s.io/initial-events-end kubernetes.io/config.mirror
kubernetes.io/config.source pv.kubernetes.io/bind-completed
pv.kubernetes.io/bound-by-controller storage.alpha.kubernetes.io/migrated-plugins
storageclass.kubernetes.io/is-default-class storageclass.beta.kubernetes.io/is-default-class
volume.beta.kubernetes.io/storage-class volume.kubernetes.io/selected-node
volume.kubernetes.io/storage-provisioner pv.kubernetes.io/migrated-to
resource.kubernetes.io/pod-claim-name resource.kubernetes.io/extended-resource-claim
""")
"""Annotations that a replay reads; their values are hashed as names. Other ones are left out."""

VOCABULARY = _words("""
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
""")
"""The words of kube-scheduler's and kubelet's messages, in lower case."""


class Redactor:
    """Hashes with one key; without the key, a hash does not reveal its text.

    `names` are hashed in a server's messages even if they are words of VOCABULARY.
    """

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._key = blake2b(key).digest()[:_KEY_BYTES_MAX]

    def object(self, raw: Raw) -> Raw | None:
        """Return an object's redacted JSON; None if a trace does not contain its kind.

        Raises FieldError if the object cannot be parsed, and so cannot be hashed.
        """
        if not is_carried(raw):
            return None
        carried = to_object(raw)
        is_device = raw["kind"] in device_versions.KINDS
        if is_device:
            raw = device_versions.to_v1(raw)
        field = carried.DESCRIPTOR.fields_by_name[carried.WhichOneof("object") or ""]
        hidden = self._hidden_value(field, raw)
        version = API_VERSIONS[raw["kind"]] if is_device else raw["apiVersion"]
        return {"apiVersion": version, "kind": raw["kind"], **hidden}

    def text(self, text: str) -> str:
        """Return the hash of a name or value; KEPT_TEXTS and integers are kept.

        The ordinal at the end of the name of a StatefulSet's pod is kept.
        """
        is_own = text in KEPT_TEXTS or text.startswith("kubernetes.io/")
        if not text or is_own or _INTEGER.fullmatch(text):
            return text
        ordinal = _ORDINAL.search(text)
        if ordinal is None:
            # A generateName ends in a dash.
            stem = text.rstrip("-")
            return self._hash(stem) + text[len(stem) :] if stem else text
        return self._hash(text[: ordinal.start()]) + ordinal[0]

    def key(self, key: str) -> str:
        """Return the hash of the key of a label or taint; Kubernetes' own keys are kept."""
        domain, slash, _ = key.rpartition("/")
        is_own = domain.endswith(("kubernetes.io", "k8s.io")) if slash else key in KEPT_LABEL_KEYS
        return key if is_own or not key else self._hash(key)

    def kind(self, kind: str) -> str:
        """Return the hash of a kind; recorded kinds are kept."""
        return kind if kind in _RECORDED_KINDS else self.text(kind)

    def api_version(self, api_version: str) -> str:
        """Return an API version with the hash of its group; Kubernetes' own groups are kept."""
        group, slash, version = api_version.rpartition("/")
        is_own = group in _OWN_GROUPS or group.endswith(".k8s.io")
        return api_version if is_own else f"{self._hash(group)}{slash}{version}"

    def request(self, name: str) -> str:
        """Return the hash of a request's name, and of an alternative's after a slash."""
        return "/".join(map(self.text, name.split("/")))

    def resource(self, name: str) -> str:
        """Return a resource's name, which is kept, but for that of a class of devices in it."""
        if not name.startswith(IMPLICIT_EXTENDED_RESOURCE_PREFIX):
            return name
        class_name = name.removeprefix(IMPLICIT_EXTENDED_RESOURCE_PREFIX)
        return f"{IMPLICIT_EXTENDED_RESOURCE_PREFIX}{self.text(class_name)}"

    def image(self, name: str) -> str:
        """Return the hash of an image's name, which has the tag "latest" by default.

        Source: kubernetes v1.34 plugins/imagelocality/image_locality.go, normalizedImageName.
        """
        if name.rfind(":") <= name.rfind("/"):
            name += ":latest"
        return f"{self._hash(name)}:x"

    def words(self, message: str) -> str:
        """Return a message with all words hashed that are not in VOCABULARY or KEPT_TEXTS."""
        return _TOKEN.sub(lambda match: self._word(match[0]), message)

    def server_words(self, message: str) -> str:
        """Return a server's message as `words` does, with the redactor's `names` hashed, too."""
        return _TOKEN.sub(lambda match: self._server_word(match[0]), message)

    def _server_word(self, word: str) -> str:
        if self._names.isdisjoint(_SEGMENTS.split(word)):
            return self._word(word)
        return self.key(word) if "/" in word else self.text(word)

    def _type(self, type_: str) -> str:
        return self.key(type_) if "/" in type_ else type_

    def _word(self, word: str) -> str:
        if _AMOUNT.fullmatch(word) or word in KEPT_TEXTS:
            return word
        if all(part.lower() in VOCABULARY for part in _PARTS.split(word)):
            return word
        return self.key(word) if "/" in word else self.text(word)

    def _hash(self, text: str) -> str:
        digest = blake2b(text.encode(), key=self._key, digest_size=_HASH_BYTES).digest()
        return "r" + b32encode(digest).decode().rstrip("=").lower()

    def _hidden(self, descriptor: Descriptor, raw: Raw) -> dict[str, Any]:
        """Return `raw` redacted, with only the fields of the message type."""
        result = {}
        for name, field in _fields(descriptor).items():
            if name in raw:
                value = raw[name]
                result[name] = None if value is None else self._hidden_field(field, value)
        return result

    def _hidden_field(self, field: FieldDescriptor, value: Any) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._hidden_map(field, value)
        if field.is_repeated:
            return [self._hidden_value(field, item) for item in value]
        return self._hidden_value(field, value)

    def _hidden_value(self, field: FieldDescriptor, value: Any) -> Any:
        if isinstance(value, dict) and field.message_type is not None:
            return self._hidden(field.message_type, value)
        if not isinstance(value, str) or _is_own(field, value):
            return value
        return self._hide_for(field)(value)

    def _hide_for(self, field: FieldDescriptor) -> Callable[[str], str]:
        name = _name(field)
        if name in KEY_FIELDS:
            return self.key
        if name in TYPE_FIELDS:
            return self._type
        if name in MESSAGE_FIELDS:
            return self.words
        if name in KIND_FIELDS:
            return self.kind
        if name in API_VERSION_FIELDS:
            return self.api_version
        if name in REQUEST_FIELDS:
            return self.request
        return self.image if name in IMAGE_FIELDS else self.text

    def _hidden_map(self, field: FieldDescriptor, value: Mapping[str, Any]) -> dict[str, Any]:
        if json_codec.is_quantity(field):
            return {
                self.resource(name): content
                for name, content in value.items()
                if _is_own(field, content)
            }
        if _is_map_of_devices(field):
            return self._hidden_parts(field, value)
        if field.name == "annotations":
            return dict(self._annotations(value.items()))
        hide = self.key if field.name in LABEL_MAPS else self.text
        # In the only map without string values, disruptedPods, the values are times.
        is_text = _value_of(field).type == FieldDescriptor.TYPE_STRING
        return {hide(name): self.text(value[name]) if is_text else value[name] for name in value}

    def _hidden_parts(self, field: FieldDescriptor, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes, capacities or counters by name; of hardware's identity a hash."""
        held = _value_of(field)
        hide = str if _name(field) in KEPT_KEYS else self.text
        hidden = {hide(name): self._hidden_value(held, value[name]) for name in value}
        for name, part in value.items() if field.name == "attributes" else ():
            if name.rpartition("/")[2].lower() in HARDWARE and isinstance(part, dict):
                texts = {key: self.text(text) for key, text in part.items() if type(text) is str}
                hidden[name] = {**part, **texts}
        return hidden

    def _annotations(self, items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in items:
            if name in ANNOTATIONS or name.startswith("reprieve/"):
                yield name, value if name.startswith("reprieve/") else self.text(value)


@cache
def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {field.json_name: field for field in descriptor.fields}


@cache
def _name(field: FieldDescriptor) -> str:
    # NAME.field of "reprieve.kube.v1beta1.NAME.field".
    return ".".join(field.full_name.split(".")[-2:])


def _value_of(field: FieldDescriptor) -> FieldDescriptor:
    entry = field.message_type
    assert entry is not None  # noqa: S101 - a map's entry is a message
    return entry.fields_by_name["value"]


def _is_map_of_devices(field: FieldDescriptor) -> bool:
    """Return whether a map's values are messages of devices' own: attributes and amounts."""
    kind = _value_of(field).message_type
    return kind is not None and kind.file is ResourceSlice.DESCRIPTOR.file


def _is_own(field: FieldDescriptor, value: object) -> bool:
    """Return whether a value can be kept, because its field or its form identifies nothing."""
    if not isinstance(value, str):
        return True
    if json_codec.is_quantity(field):
        return _QUANTITY.fullmatch(value) is not None
    if field.message_type is not None:
        # A valid time, or the percentage of an IntOrString.
        is_time = field.message_type.name == "Timestamp"
        return is_time or _PERCENT.fullmatch(value) is not None
    return field.type != FieldDescriptor.TYPE_STRING or _name(field) in KEPT_FIELDS
