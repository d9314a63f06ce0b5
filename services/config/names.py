"""Kubernetes' rules for names of labels and resources.

Source: kubernetes v1.34 apimachinery pkg/util/validation/validation.go, IsQualifiedName,
IsDNS1123Subdomain; pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX = 63
_SUBDOMAIN_MAX = 253


def qualified_name_problem(name: str) -> str:
    """Return what is wrong with a name such as "example.com/gpu", "" where nothing is."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or "/" in prefix):
        return (
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', with an "
            "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and (len(prefix) > _SUBDOMAIN_MAX or not _SUBDOMAIN.fullmatch(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain (e.g. 'example.com')"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > _NAME_MAX:
        return f"name part must be no more than {_NAME_MAX} characters"
    if not _NAME.fullmatch(rest):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc')"
        )
    return ""


def is_extended_resource(name: str) -> bool:
    """Tell whether a resource is none of Kubernetes' own, such as "nvidia.com/gpu"."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name_problem(f"requests.{name}")
