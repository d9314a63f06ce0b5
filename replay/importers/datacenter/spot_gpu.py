"""Alibaba's trace of spot GPUs (cluster-trace-v2026-spot-gpu): nodes and jobs, in CSV.

node_info_df: gpu_model, gpu_capacity_num, cpu_num (vCPUs), node_name. job_info_df: job_name,
organization, gpu_model, cpu_request (vCPUs) and gpu_request of each worker, worker_num, submit_time
(s since the first job), duration (s), job_type (HP or Spot).

GPUs are devices: each node has a slice of them, each model a DeviceClass, and a worker a claim from
a template. Or they are an extended resource, as a device plugin offers it, and a worker selects
nodes of its model. A job is a Job whose workers run at the same time; kube-scheduler schedules each
of them alone. The data have no memory: a node has some for each of its cores, and workers request
none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

from replay.errors import TraceError
from replay.hashing import object_uid
from replay.importers.datacenter.jobs import as_job
from replay.importers.records import Importer, ImportOptions, Issues, new_header
from replay.importers.rows import (
    NAMESPACE,
    RecordDrafts,
    RecordRank,
    TableRow,
    ceil_product,
    first_fields,
    make_node,
    make_pod,
    table_rows,
)
from reprieve.kube.v1beta1 import device_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, PodLife, Record
from services.kube.devices import RESULTS_MAX
from services.kube.time import SECOND_NS

NAME = "spot-gpu"
DRIVER = "gpu.alibabacloud.com"
GPU = "nvidia.com/gpu"
_MODEL = f"{DRIVER}/model"
PRIORITIES: Mapping[str, tuple[str, int]] = {"HP": ("high-priority", 1000), "Spot": ("spot", 0)}
"""Name and value of the PriorityClass of each job_type; the data set has no values."""
ANY_CLASS = "gpu"
"""The class of jobs that name no model."""
_HEADS = (["gpu_model", "gpu_capacity_num", "cpu_num"], ["job_name", "organization", "gpu_model"])
_GPUS_MAX, _CORES_MAX, _WORKERS_MAX = 128, 4096, 100_000
_MEMORY_GIB = 4
_OTHER = re.compile(r"[^a-z0-9]+")


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of the tables."""
    return first_fields(start)[:3] in _HEADS


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the tables. Raises TraceError, with file and line, for a broken row."""
    issues = Issues()
    header = new_header(NAME, paths, options)
    header.times_recorded, header.has_devices = True, options.gpu_claims
    models, templates = dict[str, None](), dict[tuple[str, int], None]()
    with RecordDrafts() as drafts:
        for path in paths:
            for row in table_rows(path):
                if row.has("gpu_capacity_num"):
                    for made in _node(row, options):
                        drafts.add(Record(create=made), RecordRank.NODE)
                    models[row.text("gpu_model")] = None
                    continue
                gpus = _gpus(row, issues)
                model = row.text("gpu_model")
                models[model] = None
                if gpus:
                    templates[model, gpus] = None
                workers = row.count("worker_num", _WORKERS_MAX)
                job = _job(row, gpus, options, issues)
                drafts.add(as_job(job, 1 if workers is None else workers))
        for model in models if options.gpu_claims else ():
            drafts.add(Record(create=_class(model)), RecordRank.NODE)
        for model, gpus in templates if options.gpu_claims else ():
            drafts.add(Record(create=_template(model, gpus)), RecordRank.NODE)
        yield from drafts.trace(header, dict(PRIORITIES.values()), issues)


def _node(row: TableRow, options: ImportOptions) -> Iterator[KubernetesObject]:
    """Yield a node, and the slice of its GPUs if they are devices."""
    name = f"node-{_label(row.required('node_name'))}"
    cores = row.count("cpu_num", _CORES_MAX) or 0
    amounts = {"cpu": str(cores), "memory": f"{_MEMORY_GIB * cores}Gi", "pods": "250"}
    gpus = row.count("gpu_capacity_num", _GPUS_MAX) or 0
    if not options.gpu_claims:
        amounts[GPU] = str(gpus)
    node = make_node(name, amounts, amounts)
    model = row.text("gpu_model")
    if model:
        node.metadata.labels[_MODEL] = _label(model)
    yield KubernetesObject(node=node)
    if not options.gpu_claims:
        return
    made = KubernetesObject()
    slice_ = made.resource_slice
    slice_.metadata.name = f"{name}-gpus"
    slice_.metadata.uid = object_uid("ResourceSlice", "", slice_.metadata.name)
    slice_.metadata.owner_references.add(
        api_version="v1", kind="Node", name=name, uid=node.metadata.uid, controller=True
    )
    spec = slice_.spec
    spec.driver, spec.node_name = DRIVER, name
    spec.pool.name, spec.pool.generation, spec.pool.resource_slice_count = name, 1, 1
    for number in range(gpus):
        device = spec.devices.add(name=f"gpu-{number}")
        device.attributes["model"].string_value = model
    yield made


def _job(row: TableRow, gpus: int, options: ImportOptions, issues: Issues) -> Record:
    """Return the creation of a worker of the job, named as the job."""
    cores = row.number("cpu_request")
    requests = {} if cores is None else {"cpu": f"{ceil_product(cores, 1000)}m"}
    pod = make_pod(f"job-{_label(row.required('job_name'))}", "main", requests)
    organization = row.text("organization")
    if organization:
        pod.metadata.labels["organization"] = _label(organization)
    job_type = row.text("job_type")
    if job_type not in PRIORITIES:
        raise TraceError(row.where, f"job_type: {job_type!r} is not HP or Spot")
    pod.spec.priority_class_name, pod.spec.priority = PRIORITIES[job_type]
    model = row.text("gpu_model")
    if gpus and options.gpu_claims:
        _claim(pod, _template_name(model, gpus))
    elif gpus:
        resources = pod.spec.containers[0].resources
        resources.requests[GPU] = resources.limits[GPU] = str(gpus)
        if model:
            pod.spec.node_selector[_MODEL] = _label(model)
    at_ns, lasts_ns = row.seconds_ns("submit_time"), row.seconds_ns("duration")
    if at_ns is None or at_ns < 0:
        raise TraceError(row.where, "submit_time: is not a time from 0 on")
    life = PodLife(censored=True)
    if lasts_ns is None:
        issues.add("censored", row.where, "no duration: runs until it is deleted")
    else:
        if lasts_ns < 0:
            issues.add("negative-time", row.where, "a negative duration: taken as 0 s")
        life = PodLife(service_duration_ns=max(0, lasts_ns) // SECOND_NS * SECOND_NS)
    return Record(time_ns=at_ns, pod_create=PodCreate(pod=pod, life=life))


def _gpus(row: TableRow, issues: Issues) -> int:
    """Return the GPUs of a worker; shares of one are rounded up, since claims get whole ones."""
    wanted = row.number("gpu_request") or Decimal(0)
    whole = int(wanted.to_integral_value(ROUND_CEILING))
    if not 0 <= whole <= RESULTS_MAX:
        raise TraceError(
            row.where, f"gpu_request: {wanted} is not a number from 0 to {RESULTS_MAX}"
        )
    if whole != wanted:
        issues.add("shared-gpu", row.where, "a share of a GPU: a worker gets a whole one")
    return whole


def _claim(pod: Pod, template: str) -> None:
    pod.spec.resource_claims.add(name="gpu", resource_claim_template_name=template)
    pod.spec.containers[0].resources.claims.add(name="gpu")


def _class(model: str) -> KubernetesObject:
    """Return the class of a model; "" stands for any."""
    made = KubernetesObject()
    class_ = made.device_class
    class_.metadata.name = class_name(model)
    class_.metadata.uid = object_uid("DeviceClass", "", class_.metadata.name)
    expression = f'device.driver == "{DRIVER}"'
    if model:
        text = model.replace("\\", "\\\\").replace('"', '\\"')
        expression += f' && device.attributes["{DRIVER}"].model == "{text}"'
    class_.spec.selectors.add().cel.expression = expression
    return made


def _template(model: str, gpus: int) -> KubernetesObject:
    made = KubernetesObject()
    template = made.resource_claim_template
    name = template.metadata.name = _template_name(model, gpus)
    template.metadata.namespace = NAMESPACE
    template.metadata.uid = object_uid("ResourceClaimTemplate", NAMESPACE, name)
    exactly = device_pb2.ExactDeviceRequest(
        device_class_name=class_name(model), allocation_mode="ExactCount", count=gpus
    )
    template.spec.spec.devices.requests.add(name="gpu", exactly=exactly)
    return made


def class_name(model: str) -> str:
    """Return the name of the DeviceClass of a GPU model, such as "a100-sxm4-80gb"."""
    return _label(model) if model else ANY_CLASS


def _template_name(model: str, gpus: int) -> str:
    return f"{class_name(model)}-x{gpus}"


def _label(text: str) -> str:
    """Return a text of the tables as a part of a name: lower case, with dashes."""
    return _OTHER.sub("-", text.lower()).strip("-") or "x"


IMPORTER = Importer(
    name=NAME,
    description='Alibaba\'s spot GPU CSV: "gpu_model,gpu_capacity_num,..." or "job_name,..."',
    sniff=sniff,
    load=load,
    no_outcomes="the tables have jobs and nodes",
)
