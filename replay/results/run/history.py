"""The history: every round as it was told to the scheduler, and the cluster rebuilt from it.

Rounds are length-delimited in zstd frames of about 1 MiB of whole rounds, so that what a killed run
leaves behind can be read up to its last frame.

What the API server of the replay held is what its watchers were told: objects that were added,
changed, patched and deleted, in order.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, cast

import zstandard
from google.protobuf import proto
from google.protobuf.message import DecodeError, Message

from replay.errors import RunError, TraceError
from replay.trace.files import delimited, open_plain
from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.kube.codec import apply_patch

FRAME_BYTES = 1 << 20
_LEVEL = 1


class RoundLog:
    """Writes rounds to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._frame = io.BytesIO()

    def write(self, round_: scheduler_pb2.Round) -> None:
        """Append a round; equal rounds give equal bytes."""
        self._frame.write(delimited(round_))
        if self._frame.tell() >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the frame and hand it to the system."""
        if self._frame.tell():
            self._file.write(self._compressor.compress(self._frame.getvalue()))
            self._frame = io.BytesIO()
        self._file.flush()

    def close(self) -> None:
        """End the file; a second time does nothing."""
        if not self._file.closed:
            self.flush()
            self._file.close()


def read_rounds(path: Path) -> Iterator[scheduler_pb2.Round]:
    """Yield the rounds in the order in which they were told.

    Raises RunError where the file cannot be read or ends in the middle of a round.
    """
    try:
        with open_plain(path) as plain:
            # The stub asks for a BytesIO; any reader that reads in full serves.
            stream = cast("io.BytesIO", plain)
            while True:
                round_ = proto.parse_length_prefixed(scheduler_pb2.Round, stream)
                if round_ is None:
                    return
                yield round_
    except (TraceError, DecodeError, ValueError) as error:
        raise RunError(f"{path}: is no history of a run: {error}") from error


def with_answers(
    rounds: Iterable[scheduler_pb2.Round], answered: Iterator[scheduler_pb2.Round]
) -> Iterator[scheduler_pb2.Round]:
    """Yield `rounds`, the first of each moment with what extenders answered at that moment.

    `answered` is in the same order; each answer names its pod and attempt.
    """
    following = next(answered, None)
    for round_ in rounds:
        while following is not None and following.at_ns == round_.at_ns:
            round_.recorded.extend(following.recorded)
            following = next(answered, None)
        yield round_


Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class Verb(Enum):
    """What happened to an object, in a watch's words."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """An object that has changed at `at_ns` (ns since the Unix epoch).

    `message` is the object as it is now, or as it last was; the next change of the same object may
    change it in place.
    """

    at_ns: int
    verb: Verb
    key: Key
    message: Message


class ClusterHistory:
    """The objects at the moment up to which events were taken; `objects` is by kind and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, Message] = {}
        self._pod_keys: dict[str, Key] = {}

    def take(self, event: scheduler_pb2.Event) -> Change | None:
        """Apply an event and return what it changed, None where that is nothing."""
        match event.WhichOneof("event"):
            case "add":
                return self._put(event.at_ns, event.add)
            case "update":
                return self._put(event.at_ns, event.update)
            case "patch":
                return self._patch(event.at_ns, event.patch)
            case "remove":
                reference = event.remove
                key = (reference.kind, reference.namespace, reference.name)
                message = self.objects.pop(key, None)
                self._pod_keys.pop(reference.uid, None)
                return Change(event.at_ns, Verb.DELETED, key, message) if message else None
        return None

    def _put(self, at_ns: int, holder: object_pb2.KubernetesObject) -> Change | None:
        case = holder.WhichOneof("object")
        if case is None:
            return None
        message = getattr(holder, case)
        meta = message.metadata
        key = (message.DESCRIPTOR.name, meta.namespace, meta.name)
        verb = Verb.MODIFIED if key in self.objects else Verb.ADDED
        self.objects[key] = message
        if case == "pod":
            self._pod_keys[meta.uid] = key
        return Change(at_ns, verb, key, message)

    def _patch(self, at_ns: int, patch: scheduler_pb2.PodPatch) -> Change | None:
        key = self._pod_keys.get(patch.pod.uid)
        if key is None:
            return None
        pod = self.objects[key]
        assert isinstance(pod, pod_pb2.Pod)  # noqa: S101 - a pod's key leads to a pod
        apply_patch(pod, patch)
        return Change(at_ns, Verb.MODIFIED, key, pod)


def changes(rounds: Iterable[scheduler_pb2.Round]) -> Iterator[Change]:
    """Yield every change of a history, in order."""
    history = ClusterHistory()
    for round_ in rounds:
        for event in round_.events:
            change = history.take(event)
            if change is not None:
                yield change
