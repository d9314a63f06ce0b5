"""The extenders of a replay's own scheduler: those that the user's configuration names.

A scheduler calls no extender and reads no file but those that its operator lists. A replay that
starts a scheduler is its operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_FILES = ("caFile", "certFile", "keyFile")


@dataclass(frozen=True, slots=True)
class NamedExtenders:
    """The extenders of a KubeSchedulerConfiguration: their addresses, and their TLS files."""

    urls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Return the options of a scheduler service that list them."""
        urls = [argument for url in self.urls for argument in ("--extender", url)]
        return urls + [argument for path in self.files for argument in ("--extender-file", path)]


def named_extenders(configuration: str) -> NamedExtenders:
    """Return the extenders of a KubeSchedulerConfiguration; none if the scheduler refuses it.

    configuration: the text, "" if none.
    """
    if "extenders" not in configuration:
        return NamedExtenders()
    from services.config.strict import document  # noqa: PLC0415 - loads yaml, which few runs need
    from services.typed import DataError  # noqa: PLC0415 - as above

    try:
        extenders = list(_mappings(_field(document(configuration), "extenders")))
    except DataError:
        return NamedExtenders()
    settings = [_field(extender, "tlsConfig") for extender in extenders]
    return NamedExtenders(
        urls=tuple(_texts(extenders, "urlPrefix")),
        files=tuple(path for name in _FILES for path in _texts(settings, name)),
    )


def _field(data: object, name: str) -> object:
    return data.get(name) if isinstance(data, dict) else None


def _mappings(data: object) -> Iterator[dict[Any, Any]]:
    for element in data if isinstance(data, list) else ():
        if isinstance(element, dict):
            yield element


def _texts(data: list[Any], name: str) -> Iterator[str]:
    for element in data:
        text = _field(element, name)
        if isinstance(text, str) and text:
            yield text
