"""KubeletConfiguration (kubelet.config.k8s.io/v1beta1) files.

A field that a kubelet has but that has no effect here gives a warning; a field that a kubelet does
not have gives an error, as in a kubelet's strict decoding.

Source: kubernetes v1.34 staging/src/k8s.io/kubelet/config/v1beta1/types.go (the fields),
pkg/kubelet/apis/config/v1beta1/defaults.go and cmd/kubelet/app/server.go, loadConfigFile (the
defaults), pkg/kubelet/apis/config/validation/validation.go (enforceNodeAllocatable).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from services.config.strict import DurationNs, checked, fields_of, reading, within
from services.kube.kubelet import DEFAULT_PRESSURE_TRANSITION_NS, EvictionConfig, Mode, default_hard
from services.typed import DataError

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
ENFORCEMENTS = (
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
)
OVERWRITE_GRACE_GATE = "AllowOverwriteTerminationGracePeriodSeconds"
SPLIT_DISK_GATE = "KubeletSeparateDiskGC"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfiguration:
    """The eviction settings of a file, and a warning for each field that has no effect.

    `single_process_oom_kill`: whether the kernel kills one process of a container, not all.
    """

    eviction: EvictionConfig
    warnings: tuple[str, ...]
    single_process_oom_kill: bool = False


_Statements = Annotated[Mapping[str, str], '{"memory.available": "100Mi"}']


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The fields that eviction and OOM kills read."""

    api_version: str
    kind: str
    eviction_hard: _Statements | None = None
    eviction_soft: _Statements = field(default_factory=dict)
    eviction_soft_grace_period: _Statements = field(default_factory=dict)
    eviction_minimum_reclaim: _Statements = field(default_factory=dict)
    eviction_pressure_transition_period: DurationNs = DEFAULT_PRESSURE_TRANSITION_NS
    eviction_max_pod_grace_period: int = 0
    merge_default_eviction_settings: bool = False
    enforce_node_allocatable: Annotated[tuple[str, ...], '["pods"]'] = ("pods",)
    local_storage_capacity_isolation: bool = True
    kernel_memcg_notification: bool = False
    single_process_oom_kill: bool = False
    feature_gates: Annotated[Mapping[str, bool], '{"NodeSwap": true}'] = field(default_factory=dict)


_NAMES: Mapping[tuple[type, str], str] = {
    (_File, "single_process_oom_kill"): "singleProcessOOMKill"
}


def read_kubelet_configuration(
    text: str,
    *,
    mode: Mode = Mode.V1_32,
    dedicated_imagefs: bool = False,
    split_containerfs: bool = False,
) -> KubeletConfiguration:
    """Read a file's text, YAML or JSON, with the defaults of the kubelet version `mode`.

    The two arguments about file systems are properties of the node, not fields of the file. The
    eviction manager parses and checks the thresholds. Raises DataError.
    """
    fields = fields_of(text, KIND, API_VERSION)
    served = {name: value for name, value in fields.items() if name not in _NOT_SERVED}
    file = reading(_NAMES).read(_File, served)
    gates = file.feature_gates
    eviction = EvictionConfig(
        mode=mode,
        hard=_hard(file, mode),
        soft=file.eviction_soft,
        soft_grace=file.eviction_soft_grace_period,
        min_reclaim=file.eviction_minimum_reclaim,
        enforce_node_allocatable=file.enforce_node_allocatable,
        # A kubelet treats 0 as absent.
        pressure_transition_ns=file.eviction_pressure_transition_period
        or DEFAULT_PRESSURE_TRANSITION_NS,
        max_pod_grace_s=file.eviction_max_pod_grace_period,
        dedicated_imagefs=dedicated_imagefs,
        split_containerfs=split_containerfs and gates.get(SPLIT_DISK_GATE, True),
        local_storage_isolation=file.local_storage_capacity_isolation,
        allow_overwrite_tgps=gates.get(OVERWRITE_GRACE_GATE, False),
        kernel_memcg_notification=file.kernel_memcg_notification,
    )
    unread = [
        f"{name} has no effect: eviction does not read it."
        for name in fields
        if name in _NOT_SERVED
    ]
    others = [
        f"featureGates[{name}] has no effect: eviction does not read it."
        for name in gates
        if name not in {OVERWRITE_GRACE_GATE, SPLIT_DISK_GATE}
    ]
    return KubeletConfiguration(
        eviction=eviction,
        warnings=(*unread, *others),
        single_process_oom_kill=file.single_process_oom_kill,
    )


@checked.register
def _(file: _File) -> _File:
    if file.eviction_pressure_transition_period < 0:
        raise DataError("evictionPressureTransitionPeriod", "must not be negative")
    text = f"must lie between 0 and {_INT32_MAX}"
    within("evictionMaxPodGracePeriod", file.eviction_max_pod_grace_period, 0, _INT32_MAX, text)
    enforced = file.enforce_node_allocatable
    for index, level in enumerate(enforced):
        path = f"enforceNodeAllocatable[{index}]"
        if level not in ENFORCEMENTS:
            names = ", ".join(f'"{name}"' for name in ENFORCEMENTS)
            raise DataError(path, f'unknown value "{level}": use one of {names}')
        if level in enforced[:index]:
            raise DataError(path, f'"{level}" comes twice')
    if "none" in enforced and len(enforced) > 1:
        raise DataError("enforceNodeAllocatable", '"none" must be the only value')
    return file


def _hard(file: _File, mode: Mode) -> Mapping[str, str]:
    if file.eviction_hard is None:
        return default_hard(mode)
    defaults = default_hard(mode) if file.merge_default_eviction_settings else {}
    return {**defaults, **file.eviction_hard}


# Fields that eviction does not read.
# Source: kubernetes v1.20 to v1.36 staging/src/k8s.io/kubelet/config/v1beta1/types.go.
# fmt: off
_NOT_SERVED = frozenset({
    "enableServer", "staticPodPath", "podLogsDir", "syncFrequency", "fileCheckFrequency",
    "httpCheckFrequency", "staticPodURL", "staticPodURLHeader", "address", "port", "readOnlyPort",
    "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion",
    "rotateCertificates", "serverTLSBootstrap", "authentication", "authorization",
    "registryPullQPS", "registryBurst", "imagePullCredentialsVerificationPolicy",
    "preloadedImagesVerificationAllowlist", "eventRecordQPS", "eventBurst",
    "enableDebuggingHandlers", "enableContentionProfiling", "healthzPort", "healthzBindAddress",
    "oomScoreAdj", "clusterDomain", "clusterDNS", "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeLeaseDurationSeconds",
    "imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent", "volumeStatsAggPeriod", "kubeletCgroups", "systemCgroups",
    "cgroupRoot", "cgroupsPerQOS", "cgroupDriver", "cpuManagerPolicy",
    "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "draManagerReconcilePeriod",
    "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
    "topologyManagerPolicyOptions", "qosReserved", "runtimeRequestTimeout", "hairpinMode",
    "maxPods", "podCIDR", "podPidsLimit", "resolvConf", "runOnce", "cpuCFSQuota",
    "cpuCFSQuotaPeriod", "nodeStatusMaxImages", "maxOpenFiles", "contentType", "kubeAPIQPS",
    "kubeAPIBurst", "serializeImagePulls", "maxParallelImagePulls", "podsPerCore",
    "enableControllerAttachDetach", "protectKernelDefaults", "makeIPTablesUtilChains",
    "iptablesMasqueradeBit", "iptablesDropBit", "failSwapOn", "memorySwap", "containerLogMaxSize",
    "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",
    "configMapAndSecretChangeDetectionStrategy", "systemReserved", "kubeReserved",
    "reservedSystemCPUs", "showHiddenMetricsForVersion", "systemReservedCgroup",
    "kubeReservedCgroup", "allowedUnsafeSysctls", "volumePluginDir", "providerID", "logging",
    "enableSystemLogHandler", "enableSystemLogQuery", "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority", "crashLoopBackOff",
    "reservedMemory", "enableProfilingHandler", "enableDebugFlagsHandler", "seccompDefault",
    "memoryThrottlingFactor", "memoryReservationPolicy", "registerWithTaints", "registerNode",
    "tracing", "containerRuntimeEndpoint", "imageServiceEndpoint", "failCgroupV1",
    "userNamespaces", "podHousekeepingPeriod",
})
# fmt: on
