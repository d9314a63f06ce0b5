"""The types of objects that a run may hold, by every name that kubectl accepts for them.

Source: kubernetes v1.34 pkg/registry/*/*/storage/storage.go (singular and short names); kubectl
pkg/cmd/get and cli-runtime pkg/resource/builder.go (TYPE[,TYPE...] [NAME...] and TYPE/NAME).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from replay.errors import RunError


class NotFoundError(RunError):
    """Objects that a run does not have at a moment; `lines` has a sentence for each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A type of objects; `group` is its API group, "" for the core one.

    is_recorded: whether a run keeps these objects in objects.rounds.zst instead of its history.
    """

    kind: str
    plural: str
    shorts: Sequence[str] = ()
    group: str = ""
    namespaced: bool = True
    is_recorded: bool = False

    @property
    def singular(self) -> str:
        """Return the name of one object's type."""
        return self.kind.lower()

    @property
    def names(self) -> Sequence[str]:
        """Return every name of the type."""
        names = (self.plural, self.singular, *self.shorts)
        return (*names, *(f"{short}.{self.group}" for short in names[:2] if self.group))

    @property
    def title(self) -> str:
        """Return the type's name in messages of an API server, such as "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        """Return TYPE in kubectl's TYPE/NAME."""
        return f"{self.singular}.{self.group}" if self.group else self.singular


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Objects of one type: those of `names`, or all."""

    resource: Resource
    names: Sequence[str] = ()

    def missing(
        self, found: Collection[str], there: Collection[str], where: str, hint: str = ""
    ) -> Iterator[str]:
        """Yield an error message for each name not in `found`, with a similar name from `there`.

        where: names the run and the moment. hint: advice for a name without a similar one.
        """
        for name in self.names:
            if name not in found:
                close = difflib.get_close_matches(name, sorted(there), n=1)
                advice = f"did you mean {close[0]}?" if close else hint
                text = f'{self.resource.title} "{name}" not found in {where}'
                yield f"{text}; {advice}" if advice else text


EVENTS = Resource(kind="Event", plural="events", shorts=("ev",))
_STORAGE = "storage.k8s.io"
_DEVICES = "resource.k8s.io"
ALL = (
    Resource(kind="Pod", plural="pods", shorts=("po",)),
    Resource(kind="Node", plural="nodes", shorts=("no",), namespaced=False),
    Resource(
        kind="Deployment", plural="deployments", shorts=("deploy",), group="apps", is_recorded=True
    ),
    Resource(
        kind="ReplicaSet", plural="replicasets", shorts=("rs",), group="apps", is_recorded=True
    ),
    Resource(
        kind="StatefulSet", plural="statefulsets", shorts=("sts",), group="apps", is_recorded=True
    ),
    Resource(kind="DaemonSet", plural="daemonsets", shorts=("ds",), group="apps", is_recorded=True),
    Resource(
        kind="ReplicationController",
        plural="replicationcontrollers",
        shorts=("rc",),
        is_recorded=True,
    ),
    Resource(kind="Job", plural="jobs", group="batch", is_recorded=True),
    Resource(kind="CronJob", plural="cronjobs", shorts=("cj",), group="batch", is_recorded=True),
    Resource(
        kind="PodDisruptionBudget", plural="poddisruptionbudgets", shorts=("pdb",), group="policy"
    ),
    Resource(
        kind="PriorityClass",
        plural="priorityclasses",
        shorts=("pc",),
        group="scheduling.k8s.io",
        namespaced=False,
        is_recorded=True,
    ),
    Resource(kind="ResourceQuota", plural="resourcequotas", shorts=("quota",), is_recorded=True),
    Resource(kind="LimitRange", plural="limitranges", shorts=("limits",), is_recorded=True),
    Resource(
        kind="RuntimeClass",
        plural="runtimeclasses",
        group="node.k8s.io",
        namespaced=False,
        is_recorded=True,
    ),
    Resource(kind="Namespace", plural="namespaces", shorts=("ns",), namespaced=False),
    Resource(kind="Service", plural="services", shorts=("svc",)),
    Resource(kind="PersistentVolume", plural="persistentvolumes", shorts=("pv",), namespaced=False),
    Resource(kind="PersistentVolumeClaim", plural="persistentvolumeclaims", shorts=("pvc",)),
    Resource(
        kind="StorageClass",
        plural="storageclasses",
        shorts=("sc",),
        group=_STORAGE,
        namespaced=False,
    ),
    Resource(kind="CSINode", plural="csinodes", group=_STORAGE, namespaced=False),
    Resource(kind="VolumeAttachment", plural="volumeattachments", group=_STORAGE, namespaced=False),
    Resource(kind="ResourceClaim", plural="resourceclaims", group=_DEVICES),
    Resource(
        kind="ResourceClaimTemplate",
        plural="resourceclaimtemplates",
        group=_DEVICES,
        is_recorded=True,
    ),
    Resource(kind="ResourceSlice", plural="resourceslices", group=_DEVICES, namespaced=False),
    Resource(kind="DeviceClass", plural="deviceclasses", group=_DEVICES, namespaced=False),
    EVENTS,
)
RESOURCES = tuple(resource.plural for resource in ALL)
"""The plural names of all types."""
_BY_NAME = {name: resource for resource in ALL for name in resource.names}
_CATEGORY = "po,rc,svc,ds,deploy,rs,sts,cj,jobs"
"""The types of kubectl's category "all" that a run may hold, in kubectl's order."""


def is_type(name: str) -> bool:
    """Return whether a type of objects has that name."""
    return name.lower() in _BY_NAME


def resource(name: str) -> Resource:
    """Return the type of that name. Raises RunError with similar names."""
    type_ = _BY_NAME.get(name.lower())
    if type_ is not None:
        return type_
    close = difflib.get_close_matches(name.lower(), _BY_NAME, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"types are {', '.join(RESOURCES)}"
    raise RunError(f"a run has no resource type {name!r}; {hint}")


def targets(text: str, names: Sequence[str] = ()) -> list[Target]:
    """Return the objects of `TYPE[,TYPE...] [NAME...]`, or of several TYPE/NAME.

    Raises RunError for an unknown type and for a mixture of both forms.
    """
    if "/" not in text:
        if any("/" in name for name in names):
            raise RunError(f"write either {text} NAME... or TYPE/NAME..., not both")
        types = text.lower().split(",")
        if "all" in types:
            types = ",".join(_CATEGORY if name == "all" else name for name in types).split(",")
        resources = dict.fromkeys(map(resource, types))
        return [Target(resource=target, names=tuple(names)) for target in resources]
    names_by_resource: dict[Resource, list[str]] = {}
    for argument in (text, *names):
        type_, slash, name = argument.partition("/")
        if not (type_ and slash and name) or "/" in name:
            raise RunError(f"{argument!r} is not TYPE/NAME; write pod/{name or type_ or 'NAME'}")
        names_by_resource.setdefault(resource(type_), []).append(name)
    return [Target(resource=key, names=tuple(value)) for key, value in names_by_resource.items()]
