"""Names of objects that a test case makes by the thousand."""

from __future__ import annotations

from collections import Counter

from reprieve.kube.v1alpha1.meta_pb2 import ObjectMeta


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
