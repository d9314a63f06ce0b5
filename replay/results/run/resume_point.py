"""The resume point of a run: its command, and the last checkpoint of all its parts.

The file resume.zst exists from the run's beginning to its end, and is always replaced as a whole.
The checkpoints that a run keeps (checkpoints.py) have the same format: one zstd frame with a
checksum, holding MessagePack: the number of the format and a signature, then a ResumePoint encoded
by replay/state_codec.py, as are its `world` and `recorder`. The services' parts are the chunks that
their CheckpointSession returned.

The file may come from another person, so it is not trusted. It names no code; the memory for
reading it is bounded by its size; from the environment in it, only the variables in REPEATED are
used. Its command is run again only if the signature is this user's.
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
"""Environment variables that a resumed run takes from its resume point: bounds and timeouts.

Other variables are options, too, but they name code to run, or files with credentials.
"""
ASKED = frozenset({"REPRIEVE_ACCESS", "REPRIEVE_PLUGINS"})
"""Variables that name code or credentials.

If one was set at the run's beginning, the user must set it again to resume the run.
"""
_FORMAT = 2
_PURPOSE = "resume point"
_HEAD_BYTES = 64
"""Enough for the number of any format, and for the signature in this format."""
_LEVEL = 1
_EXPANSION, _EXPANSION_FROM_BYTES = 32, 1 << 20
"""Largest ratio of content to file, for content above 1 MiB; the usual ratio is 4."""
_SKIPPABLE = struct.Struct("<II")
_PADDING = 0x184D2A50
"""Magic number of a skippable frame (RFC 8878, 3.1.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The command of a run.

    argv: its arguments. run: the run's folder as given on the command line. folder: the working
    directory. environment: the variables of REPEATED that were set. asked: the names of ASKED that
    were set.
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

    rounds: the number of rounds so far. scheduler, eviction, autoscaler: the chunks of the
    services' checkpoints; empty before the first checkpoint. world, recorder: the encoded cluster
    and the encoded recorder position. files: the run's files by name, with their sizes and digests
    at the checkpoint; files that grow may have more bytes by now.
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
        """Return the same run's point with a new checkpoint."""
        return replace(self, **checkpoint)

    @property
    def beginning(self) -> Self:
        """Return the same run's point without a checkpoint."""
        return type(self)(version=self.version, command=self.command)

    def encoded(self) -> bytes:
        """Return the content of the file."""
        point = dump(ResumePoint, self)
        head = {"format": _FORMAT, "signature": signature(_PURPOSE, point)}
        return _compressed(msgpack.packb(head) + point)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read resume.zst of a run. Raises RunError if it is missing or damaged."""
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
        """Read resume.zst; return also why its signature is not this user's, "" if it is."""
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
    """Return a zstd frame, padded by a skippable frame if the content would exceed _EXPANSION."""
    data = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(content)
    size_min = -(-len(content) // _EXPANSION)
    if len(content) <= _EXPANSION_FROM_BYTES or len(data) >= size_min:
        return data
    padding = max(0, size_min - len(data) - _SKIPPABLE.size)
    return data + _SKIPPABLE.pack(_PADDING, padding) + bytes(padding)


def _expanded(data: bytes) -> bytes:
    """Return the content of a frame. Raises ZstdError; UnreadableStateError if it is too large."""
    size = zstandard.get_frame_parameters(data).content_size
    if size > max(_EXPANSION_FROM_BYTES, _EXPANSION * len(data)):
        raise UnreadableStateError(f"{len(data):,} bytes would expand to {size:,}")
    return zstandard.ZstdDecompressor().decompress(data)


def _head(content: bytes) -> tuple[int, bytes, int]:
    """Return the format's number, the signature, and the number of bytes that both take.

    Returns only the number for another format. In format 1, the number was the first entry of one
    map that held the whole point. Raises UnreadableStateError.
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
    """Return a checkpoint's chunks as bytes."""
    return [chunk.SerializeToString() for chunk in chunks]


def unpacked(chunks: Sequence[bytes]) -> list[session_pb2.CheckpointChunk]:
    """Return the chunks that `packed` encoded. Raises RunError if one is damaged."""
    try:
        return [session_pb2.CheckpointChunk.FromString(chunk) for chunk in chunks]
    except DecodeError as error:
        raise RunError(f"{RESUME}: a service's checkpoint is damaged: {error}") from error
