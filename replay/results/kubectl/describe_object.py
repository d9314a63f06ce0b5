"""An object as `kubectl describe` shows it if kubectl has no page for its kind: field by field.

Source: kubernetes v1.34 kubectl pkg/describe/describe.go, genericDescriber.Describe,
printUnstructuredContent, smartLabelFor, describerMap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from replay.results.kubectl.page import Page, pairs

KINDS = frozenset(
    {
        *("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"),
        *("VolumeAttachment", "RuntimeClass"),
    }
)
"""The kinds of a run that kubectl describes field by field."""
_SHOWN_FIRST = frozenset({"managedFields", "name", "namespace", "labels", "annotations"})
_ACRONYMS = frozenset({"API", "URL", "UID", "OSB", "GUID"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|-+")
_PLAIN = re.compile(r"[A-Za-z-]*")


def add_object(page: Page, raw: Mapping[str, Any]) -> None:
    """Add the lines of an object, as Kubernetes JSON, without its Events."""
    meta = raw["metadata"]
    page.line("Name:", meta["name"])
    page.line("Namespace:", meta.get("namespace", ""))
    page.values("Labels", pairs(meta.get("labels", {}), "="))
    page.values("Annotations", pairs(meta.get("annotations", {}), ": "))
    rest = {name: value for name, value in meta.items() if name not in _SHOWN_FIRST}
    _add_fields(page, {**raw, "metadata": rest}, 0)


def _add_fields(page: Page, fields: Mapping[str, Any], indent: int) -> None:
    for name in sorted(fields):
        value = fields[name]
        title = f"{_title(name)}:"
        if isinstance(value, Mapping):
            page.line(title, indent=indent)
            _add_fields(page, value, indent + 1)
        elif isinstance(value, list):
            page.line(title, indent=indent)
            for item in value:
                if isinstance(item, Mapping):
                    _add_fields(page, item, indent + 1)
                else:
                    page.line(_text(item), indent=indent + 1)
        else:
            page.line(title, _text(value), indent=indent)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _title(name: str) -> str:
    """Return the words of a camel-case name, each with a capital letter; other names as they are.

    Names with digits, dots and slashes are keys that users and drivers choose.
    """
    if not _PLAIN.fullmatch(name):
        return name
    words = (
        word.upper() if word.upper() in _ACRONYMS else word[:1].upper() + word[1:]
        for word in _WORD.findall(name)
    )
    return " ".join(words)
