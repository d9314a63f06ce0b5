"""The resume point of a run: its command, and the last checkpoint of all its parts.

The file of a run, resume.zst, is there from the run's beginning to its end, and always replaced as
a whole. The checkpoints that a run keeps (checkpoints.py) have the same form: one zstd frame with a
checksum, and in it MessagePack: the number of its format with a signature, and a ResumePoint as
replay/state_codec.py encodes it; so are its `world` and `recorder`. The services' parts are the
chunks of their CheckpointSession.

The file may be a stranger's. It names no code; the memory that reading takes is bounded by its
size; and of a command's environment only the variables in REPEATED are taken from it. Its command
is repeated where the signature is this user's.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgpack
import zstandard
from google.protobuf.message import DecodeError

from replay.bounds import NAMES, variable_name
from replay.errors import RunError, unreadable
from replay.results.run.manifest import RunFile
from replay.results.run.signature import signature, unsigned
from replay.state_codec import UnreadableStateError, dump, load
from reprieve.session.v1beta1 import session_pb2
from services.folder import read_file
from services.rpc.timeouts import VARIABLE as TIMEOUTS

RESUME = "resume.zst"
REPEATED = frozenset({*map(variable_name, NAMES), TIMEOUTS})
"""The environment variables that a resumed run has from its beginning: bounds and timeouts.

Others are options, too, but name code to run, or files with credentials.
"""
ASKED = frozenset({"REPRIEVE_ACCESS", "REPRIEVE_PLUGINS"})
"""Such others: where they were set at the beginning, they must be set again by the user."""
_FORMAT = 2
_PURPOSE = "resume point"
_HEAD_BYTES = 64
"""Enough for the number of a format, in every format, and for a signature in this one."""
_LEVEL = 1
_EXPANSION, _EXPANSION_FROM_BYTES = 32, 1 << 20
"""How many times as large as the file its content may be, beyond 1 MiB; it is 4 times as a rule."""
_SKIPPABLE = struct.Struct("<II")
_PADDING = 0x184D2A50
"""What a frame begins with that has no content (RFC 8878, 3.1.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The command of a run: its arguments, its folder as it was named, and where it ran.

    environment: the variables of REPEATED that were set. asked: the names of ASKED that were set.
    """

    argv: Sequence[str] = ()
    run: str = ""
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: Sequence[str] = ()

    @classmethod
    def here(cls, argv: Sequence[str], run: Path) -> Self:
        """Return the command of this process."""
        set_here = {name: os.environ[name] for name in sorted(REPEATED) if name in os.environ}
        asked = tuple(sorted(ASKED & os.environ.keys()))
        folder = str(Path.cwd())
        return cls(argv=tuple(argv), run=str(run), folder=folder, environment=set_here, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A run's command and its last checkpoint, between two instants.

    rounds: of the scheduler, so far. scheduler, eviction, autoscaler: the chunks of the services'
    checkpoints,
    none before the first one. world, recorder: the cluster and the recorder's position, as bytes.
    files: the run's files by name, as they were on the disk at that moment: those that grow may
    have more bytes since.
    """

    version: str
    command: RunCommand
    at_ns: int = 0
    rounds: int = 0
    scheduler: Sequence[bytes] = ()
    eviction: Sequence[bytes] = ()
    autoscaler: Sequence[bytes] = ()
    world: bytes = b""
    recorder: bytes = b""
    files: Mapping[str, RunFile] = field(default_factory=dict)

    def taken(self, **checkpoint: Any) -> Self:
        """Return the point with another checkpoint."""
        return replace(self, **checkpoint)

    @property
    def beginning(self) -> Self:
        """Return the point of the same run before anything was recorded."""
        return type(self)(version=self.version, command=self.command)

    def encoded(self) -> bytes:
        """Return the content of the file."""
        point = dump(ResumePoint, self)
        head = {"format": _FORMAT, "signature": signature(_PURPOSE, point)}
        return _compressed(msgpack.packb(head) + point)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the file of a run's folder. Raises RunError if it is missing or damaged."""
        return cls._read_of(folder)[0]

    @classmethod
    def read_file(cls, path: Path) -> Self:
        """Read a checkpoint that a run keeps. Raises RunError if it is missing or damaged."""
        try:
            return cls._read(path)[0]
        except OSError as error:
            raise unreadable(path, error) from error

    @classmethod
    def read_signed(cls, folder: Path) -> tuple[Self, str]:
        """Read as `read` does; return also why the signature is not this user's, "" if it is."""
        point, encoded, signed = cls._read_of(folder)
        return point, unsigned(_PURPOSE, encoded, signed)

    @classmethod
    def _read_of(cls, folder: Path) -> tuple[Self, bytes, bytes]:
        try:
            return cls._read(folder / RESUME)
        except FileNotFoundError:
            raise RunError(
                f"{folder} cannot be resumed: it has no {RESUME}; replay its trace again, with "
                "--force into this folder"
            ) from None
        except OSError as error:
            raise unreadable(folder / RESUME, error) from error

    @classmethod
    def _read(cls, path: Path) -> tuple[Self, bytes, bytes]:
        """Return the point, its encoding, and the signature of the encoding. Raises OSError."""
        try:
            content = _expanded(read_file(path))
            number, signed, size = _head(content)
            if number != _FORMAT:
                raise RunError(
                    f"{path}: has format {number}, and this version of reprieve reads {_FORMAT} "
                    "only: resume the run with the version that began it, or replay its trace again"
                )
            encoded = content[size:]
            point = load(cls, encoded)
        except (zstandard.ZstdError, UnreadableStateError) as error:
            raise RunError(f"{path}: is damaged: {error}") from error
        if not REPEATED.issuperset(point.command.environment):
            raise RunError(f"{path}: is damaged: its environment has a variable of another kind")
        return point, encoded, signed


def _compressed(content: bytes) -> bytes:
    """Return a frame, and behind it a frame of zeros where the content expands more than it may."""
    data = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(content)
    size_min = -(-len(content) // _EXPANSION)
    if len(content) <= _EXPANSION_FROM_BYTES or len(data) >= size_min:
        return data
    padding = max(0, size_min - len(data) - _SKIPPABLE.size)
    return data + _SKIPPABLE.pack(_PADDING, padding) + bytes(padding)


def _expanded(data: bytes) -> bytes:
    """Return the content of a frame. Raises ZstdError, UnreadableStateError for too much of it."""
    size = zstandard.get_frame_parameters(data).content_size
    if size > max(_EXPANSION_FROM_BYTES, _EXPANSION * len(data)):
        raise UnreadableStateError(f"{len(data):,} bytes would expand to {size:,}")
    return zstandard.ZstdDecompressor().decompress(data)


def _head(content: bytes) -> tuple[int, bytes, int]:
    """Return the number of the format and the signature, and how many bytes they take.

    Of another format only the number. In format 1 it is the first entry of a map that has
    everything else, too. Raises UnreadableStateError.
    """
    reader = msgpack.Unpacker(max_buffer_size=_HEAD_BYTES)
    reader.feed(content[:_HEAD_BYTES])
    try:
        reader.read_map_header()
        name, number = reader.unpack(), reader.unpack()
        if name == "format" and type(number) is int and number != _FORMAT:
            return number, b"", 0
        key, signed = reader.unpack(), reader.unpack()
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise UnreadableStateError("it does not begin with a format") from error
    if (name, type(number), key, type(signed)) != ("format", int, "signature", bytes):
        raise UnreadableStateError("it does not begin with a format and a signature")
    return number, signed, reader.tell()


def packed(chunks: Sequence[session_pb2.CheckpointChunk]) -> list[bytes]:
    """Return a checkpoint's chunks as they are kept."""
    return [chunk.SerializeToString() for chunk in chunks]


def unpacked(chunks: Sequence[bytes]) -> list[session_pb2.CheckpointChunk]:
    """Return kept chunks as messages. Raises RunError."""
    try:
        return [session_pb2.CheckpointChunk.FromString(chunk) for chunk in chunks]
    except DecodeError as error:
        raise RunError(f"{RESUME}: a service's checkpoint is damaged: {error}") from error
