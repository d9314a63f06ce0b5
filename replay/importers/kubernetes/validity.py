"""What an API server refuses in the manifest of a workload, so that nothing of it is applied.

Only what a replay would otherwise answer wrongly: a request above its limit. In a pod that a
manifest or a controller asks for, admission refuses the same (replay/world/api/admission).
"""

from __future__ import annotations

from replay.errors import TraceError
from replay.kube.kinds import metadata
from replay.trace.validate import pod_template
from replay.world.api.admission.resources import refuse_above_limits
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.rpc.errors import FieldError


def refuse_invalid(where: str, carried: KubernetesObject) -> None:
    """Refuse a workload with an invalid pod template. Raises TraceError, with the field."""
    template = pod_template(carried)
    if template is None:
        return
    is_cron_job = carried.HasField("cron_job")
    path = "spec.jobTemplate.spec.template.spec" if is_cron_job else "spec.template.spec"
    try:
        refuse_above_limits(template.spec, path)
    except FieldError as error:
        problem = f"{metadata(carried).name}: an API server refuses it: {error}"
        raise TraceError(where, problem) from error
