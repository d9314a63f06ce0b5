"""The object templates that a performance-config file names, found beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from replay.importers.kinds import is_carried, read_object
from replay.importers.perf.go_template import TemplateError, expand, is_template
from replay.trace.errors import TraceError
from reprieve.kube.v1alpha1.meta_pb2 import ObjectMeta
from reprieve.kube.v1alpha1.object_pb2 import Object

Raw = Mapping[str, Any]


class ObjectFiles:
    """Reads templates, each once; paths are relative to `folder`, the config file's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._objects: dict[str, Object | None] = {}

    def path(self, name: str) -> Path:
        """Return where a template is."""
        return self._folder / name

    def varies(self, name: str) -> bool:
        """Tell whether the template makes a different object for each index."""
        return is_template(self._text(name))

    def kind(self, name: str, values: Raw) -> str:
        """Return the template's apiVersion and kind. Raises TraceError."""
        raw = self._raw(name, values)
        return f"{raw.get('apiVersion')} {raw.get('kind')}"

    def make(self, name: str, values: Raw) -> Object | None:
        """Return a new object of the template; None for a kind that a trace does not carry.

        `values` are what its actions read. Raises TraceError where it cannot be read.
        """
        if self.varies(name):
            return self._made(name, values)
        if name not in self._objects:
            self._objects[name] = self._made(name, values)
        known = self._objects[name]
        if known is None:
            return None
        result = Object()
        result.CopyFrom(known)
        return result

    def _made(self, name: str, values: Raw) -> Object | None:
        raw = self._raw(name, values)
        return read_object(str(self.path(name)), raw) if is_carried(raw) else None

    def _raw(self, name: str, values: Raw) -> Raw:
        text, where = self._text(name), str(self.path(name))
        try:
            raw = yaml.load(expand(text, values), yaml.CSafeLoader)
        except (yaml.YAMLError, TemplateError) as error:
            raise TraceError(where, f"is no object template: {error}") from error
        if not isinstance(raw, dict):
            raise TraceError(where, "is no object template: not a mapping")
        return raw

    def _text(self, name: str) -> str:
        if name not in self._texts:
            path = self.path(name)
            try:
                self._texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise TraceError(str(path), f"is no UTF-8: {error.reason}") from error
            except OSError as error:
                problem = f"the template cannot be read: {error.strerror or error}"
                raise TraceError(str(path), problem) from error
        return self._texts[name]


class Names:
    """Names objects by generateName and a number, where upstream draws five letters."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def name(self, meta: ObjectMeta, kind: str) -> None:
        """Name an object that has no name; one that has keeps it."""
        if meta.name:
            return
        prefix = meta.generate_name or f"{kind.lower()}-"
        key = (kind, meta.namespace, prefix)
        meta.name = f"{prefix}{self._counts[key]}"
        self._counts[key] += 1
