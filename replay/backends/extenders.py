"""The extenders of a replay's own scheduler: those that the user's configuration names.

A scheduler calls no extender and reads no file but those that its operator lists. A replay that
starts a scheduler is its operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def named_extenders(configurations: Iterable[str]) -> NamedExtenders:
    """Return the extenders of KubeSchedulerConfigurations; none of one that is refused.

    configurations: the texts, "" if none.
    """
    named = [_named(configuration) for configuration in configurations]
    return NamedExtenders(
        urls=tuple(dict.fromkeys(url for one in named for url in one.urls)),
        files=tuple(dict.fromkeys(file for one in named for file in one.files)),
    )


def _named(configuration: str) -> NamedExtenders:
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
