"""Builds the OpenTelemetry resource and scope, which all spans, metrics and logs share."""

from __future__ import annotations

import uuid

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

SCOPE = "reprieve"
"""The name of the instrumentation scope."""
_INSTANCE = str(uuid.uuid4())


def resource(version: str, service: str = "") -> Resource:
    """Return the resource of the replay, or of one of its services, in this process.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
    Source: OpenTelemetry semantic conventions 1.37, resource/service.md and README.md.
    """
    resource = Resource(
        {
            "service.name": f"reprieve-{service}" if service else "reprieve",
            "service.version": version,
            "service.instance.id": _INSTANCE,
        }
    )
    return resource.merge(OTELResourceDetector().detect())


def scope(described: Resource) -> InstrumentationScope:
    """Return the instrumentation scope of a resource's spans and metrics."""
    return InstrumentationScope(SCOPE, version_of(described))


def version_of(described: Resource) -> str:
    """Return the version that a resource names."""
    return str(described.attributes["service.version"])
