"""The objects of one resource: lists and watch events in, new events out. No I/O.

Source: kubernetes v1.34 client-go tools/cache/delta_fifo.go (Replace).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import zstandard

from replay.importers.kubernetes.watch_coverage import GAP
from replay.kube.changes import Raw, version_number
from replay.kube.changes import uid as uid_of
from replay.kube.changes import version as version_of
from replay.kube.kinds import Resource
from replay.record.http_client import BoundError

_OBJECT_BYTES_MIN = 1 << 10
_VERSION_LENGTH_MAX = 256


class GoneError(Exception):
    """The resourceVersion of a watch has expired: list again."""


class WatchError(Exception):
    """A watch reports another error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch, received or derived from a list."""

    type: str
    object: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredObject:
    """The last state of an object, compressed because a cluster has many objects.

    `held_bytes` is its uncompressed size, at least _OBJECT_BYTES_MIN.
    """

    version: str
    packed: bytes
    held_bytes: int


class Listing:
    """The pages of one list so far: its objects, and the objects that differ from the store."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.changed: list[tuple[int, str, _StoredObject]] = []
        self.changed_bytes = 0


class ResourceStore:
    """The objects of one resource: lists and watch events in, new events out. No I/O.

    A list after a gap is compared with the stored objects, by UID and resourceVersion, so that
    changes during the gap become events and no event is repeated. Memory is bounded: BoundError is
    raised if the objects have more than `bytes_max` together; an object counts at least 1 KiB, even
    if it is left out. `version` is the resourceVersion of the next watch, "" before the end of the
    first list. `lists` counts completed lists.
    """

    def __init__(self, resource: Resource, bytes_max: int) -> None:
        self.resource = resource
        self.version = ""
        self.lists = 0
        self._bytes_max = bytes_max
        self._held_bytes = 0
        self._packer = zstandard.ZstdCompressor(level=1)
        self._objects: dict[str, _StoredObject] = {}
        self._unreadable: set[str] = set()

    @property
    def objects(self) -> int:
        """Return the number of objects that exist."""
        return len(self._objects)

    @property
    def unreadable(self) -> int:
        """Return the number of objects of which at least one state was left out."""
        return len(self._unreadable)

    def leave_out(self, uid: str) -> None:
        """Count an object that cannot be parsed."""
        if uid not in self._unreadable:
            self._unreadable.add(uid)
            self._held_bytes += _OBJECT_BYTES_MIN
            self._check_bytes(self._held_bytes)

    def page(self, listing: Listing, items: Sequence[Raw]) -> Iterator[WatchEvent]:
        """Add a page of a list; if it is the first list, yield the page's events at once."""
        for item in items:
            raw = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            uid = uid_of(raw)
            listing.listed.add(uid)
            stored = self._objects.get(uid)
            if stored is not None and stored.version == version_of(raw):
                continue
            new = self._packed(uid, raw)
            if new is None:
                continue
            if not self.lists:
                self._keep(uid, new)
                yield WatchEvent(type="ADDED", object=raw)
            else:
                listing.changed_bytes += new.held_bytes
                self._check_bytes(listing.changed_bytes)
                listing.changed.append((_number(raw), uid, new))

    def differs(self, listing: Listing) -> bool:
        """Return whether a list differs from the store in its objects or their states."""
        return any(uid not in listing.listed for uid in self._objects) or any(
            self._is_new(uid, new) for _, uid, new in listing.changed
        )

    def end_list(
        self, listing: Listing, version: str, gap: Mapping[str, Any] | None = None
    ) -> Iterator[WatchEvent]:
        """End the list, whose resourceVersion is `version`; yield the events of a later list.

        Deletions come first, with the version of the list, because their own versions are unknown;
        then additions and changes in the order of their versions. `gap` is the content of the event
        that marks the gap before the list.
        """
        if self.lists and gap:
            yield WatchEvent(type=GAP, object={"kind": self.resource.kind, **gap})
        for uid in [known_uid for known_uid in self._objects if known_uid not in listing.listed]:
            last = _unpacked(self._dropped(uid))
            last["metadata"]["resourceVersion"] = version
            yield WatchEvent(type="DELETED", object=last)
        for _, uid, new in sorted(listing.changed, key=lambda changed: changed[0]):
            if self._is_new(uid, new):
                type_ = "MODIFIED" if uid in self._objects else "ADDED"
                self._keep(uid, new)
                yield WatchEvent(type=type_, object=_unpacked(new))
        self.lists += 1
        self.version = version

    def bookmark(self, version: str, annotations: Mapping[str, str]) -> WatchEvent:
        """Return the event which states that all changes up to a resourceVersion were received."""
        raw = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": version, "annotations": annotations},
        }
        return WatchEvent(type="BOOKMARK", object=raw)

    def _is_new(self, uid: str, listed: _StoredObject) -> bool:
        """Return whether a listed state is not in the store; a watch may have added it since."""
        stored = self._objects.get(uid)
        return stored is None or stored.version != listed.version

    def event(self, type_: str, raw: Raw) -> WatchEvent | None:
        """Add an event of a watch; return None if it is not new.

        Raises GoneError, and WatchError for any other error that the server reports.
        """
        if type_ == "ERROR":
            text = f"{raw.get('reason') or 'error'}: {raw.get('message') or ''}"
            if raw.get("code") == 410 or raw.get("reason") in ("Expired", "Gone"):
                raise GoneError(text)
            raise WatchError(text)
        if not isinstance(raw.get("metadata"), dict):
            raise WatchError(f"an event of type {type_!r} without an object")
        version = valid_version(version_of(raw))
        self.version = version or self.version
        if type_ not in {"ADDED", "MODIFIED", "DELETED"}:
            return None
        uid = uid_of(raw)
        stored = self._objects.get(uid)
        if type_ == "DELETED":
            if stored is None:
                return None
            self._dropped(uid)
            return WatchEvent(type=type_, object=raw)
        is_repeated = stored is not None and stored.version == version
        new = None if is_repeated else self._packed(uid, raw)
        if new is None:
            return None
        self._keep(uid, new)
        return WatchEvent(type=type_, object=raw)

    def _packed(self, uid: str, raw: Raw) -> _StoredObject | None:
        """Return an object in stored form; None if it cannot be encoded as JSON.

        An object that cannot be encoded is counted in `unreadable`.
        """
        try:
            # Nested as in a line of the recording: orjson's limit is 254 levels.
            data = orjson.dumps({"event": {"object": raw}})
        except TypeError:
            self.leave_out(uid)
            return None
        held_bytes = max(len(data), _OBJECT_BYTES_MIN)
        packed = self._packer.compress(data)
        return _StoredObject(version=version_of(raw), packed=packed, held_bytes=held_bytes)

    def _keep(self, uid: str, new: _StoredObject) -> None:
        before = self._objects.get(uid)
        self._held_bytes += new.held_bytes - (before.held_bytes if before else 0)
        self._check_bytes(self._held_bytes)
        self._objects[uid] = new

    def _dropped(self, uid: str) -> _StoredObject:
        last = self._objects.pop(uid)
        self._held_bytes -= last.held_bytes
        return last

    def _check_bytes(self, held_bytes: int) -> None:
        if held_bytes > self._bytes_max:
            what = "the list of all objects"
            raise BoundError(self.resource.path, what, "list_bytes", self._bytes_max)


def valid_version(version: str) -> str:
    """Return a resourceVersion. Raises WatchError for a text that no API server sends."""
    if len(version) > _VERSION_LENGTH_MAX:
        raise WatchError(f"a resourceVersion of {len(version):,} characters")
    return version


def _number(raw: Raw) -> int:
    return version_number(raw) or 0


def _unpacked(stored: _StoredObject) -> dict[str, Any]:
    last = orjson.loads(zstandard.ZstdDecompressor().decompress(stored.packed))
    result: dict[str, Any] = last["event"]["object"]
    return result
