"""What is known of one resource: lists and watch events in, the frames that are new out.

A list after a gap is compared with what was known, by uid and resourceVersion, so that what
happened meanwhile is told and nothing is told twice. No I/O and no clock.

Source: kubernetes v1.34 client-go tools/cache/reflector.go (ListAndWatch) and delta_fifo.go
(Replace), which do the same for an informer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
import zstandard

from replay.importers.kinds import Resource
from replay.importers.recording.change import Raw, version_number
from replay.importers.recording.change import uid as uid_of
from replay.importers.recording.change import version as version_of

LIST_END = "k8s.io/initial-events-end"
GAP = "RECORDER"
"""The type of a frame that says that something was missed; no API server sends it."""


class GoneError(Exception):
    """The watch says that its resourceVersion is too old: list again."""


class WatchError(Exception):
    """The watch says that something else went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event of a watch, received or worked out from a list."""

    type: str
    object: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An object as last seen; packed, since a cluster holds many."""

    version: str
    packed: bytes


class Followed:
    """One resource's objects. Memory is bounded by their number.

    `version` is where a watch goes on, "" before the first list has ended. `lists` counts the
    lists that ended.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.version = ""
        self.lists = 0
        self._packer = zstandard.ZstdCompressor(level=1)
        self._known: dict[str, _Known] = {}
        self._met: set[str] = set()
        self._changed: list[Frame] = []

    @property
    def objects(self) -> int:
        """Return how many objects are there."""
        return len(self._known)

    def begin_list(self) -> None:
        """Forget what an earlier list that broke off has brought beyond the first one."""
        self._met.clear()
        self._changed.clear()

    def page(self, items: Sequence[Raw]) -> Iterator[Frame]:
        """Take a page of a list; those of the first list are told at once."""
        for item in items:
            raw = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            uid = uid_of(raw)
            self._met.add(uid)
            known = self._known.get(uid)
            if known is not None and known.version == version_of(raw):
                continue
            if not self.lists:
                self._keep(uid, raw)
                yield Frame(type="ADDED", object=raw)
            else:
                self._changed.append(Frame(type="MODIFIED" if known else "ADDED", object=raw))

    def end_list(self, version: str, gap: str = "") -> Iterator[Frame]:
        """End the list that was as of `version`; `gap` says why it was needed.

        What has gone meanwhile comes first, with the list's version, since when it went nobody
        knows; then what came or changed, in the order of the versions.
        """
        if not self.lists:
            yield Frame(type="BOOKMARK", object=self._bookmark(version))
        elif gap:
            yield Frame(type=GAP, object={"kind": self.resource.kind, "message": gap})
        for uid in [each for each in self._known if each not in self._met]:
            yield Frame(type="DELETED", object=self._forget(uid, version))
        for frame in sorted(self._changed, key=_order):
            self._keep(uid_of(frame.object), frame.object)
            yield frame
        self.begin_list()
        self.lists += 1
        self.version = version

    def event(self, type_: str, raw: Raw) -> Frame | None:
        """Take a watch's event; None where it tells nothing new.

        Raises GoneError, and WatchError for any other error that the server tells.
        """
        if type_ == "ERROR":
            text = f"{raw.get('reason') or 'error'}: {raw.get('message') or ''}"
            if raw.get("code") == 410 or raw.get("reason") in {"Expired", "Gone"}:
                raise GoneError(text)
            raise WatchError(text)
        if not isinstance(raw.get("metadata"), dict):
            raise WatchError(f"an event of type {type_!r} without an object")
        version = version_of(raw)
        self.version = version or self.version
        if type_ not in {"ADDED", "MODIFIED", "DELETED"}:
            return None
        uid = uid_of(raw)
        known = self._known.get(uid)
        if type_ == "DELETED":
            if known is None:
                return None
            del self._known[uid]
        elif known is not None and known.version == version:
            return None
        else:
            self._keep(uid, raw)
        return Frame(type=type_, object=raw)

    def _keep(self, uid: str, raw: Raw) -> None:
        packed = self._packer.compress(orjson.dumps(raw))
        self._known[uid] = _Known(version=version_of(raw), packed=packed)

    def _forget(self, uid: str, version: str) -> Raw:
        """Return the last state of an object that has gone, as of `version`."""
        last = orjson.loads(zstandard.ZstdDecompressor().decompress(self._known.pop(uid).packed))
        last["metadata"]["resourceVersion"] = version
        result: Raw = last
        return result

    def _bookmark(self, version: str) -> Raw:
        annotations = {LIST_END: "true"}
        return {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": version, "annotations": annotations},
        }


def _order(frame: Frame) -> int:
    return version_number(frame.object) or 0
