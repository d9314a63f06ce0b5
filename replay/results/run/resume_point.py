"""Where a run can be resumed: its command, and the last checkpoint of everything.

The file of a run, resume.zst, is there from the run's beginning to its end, and always replaced as
a whole. It has one zstd frame with a checksum, and in it MessagePack: the version that wrote it,
the command, and the checkpoint, once one is taken. The services' parts are those of their
CheckpointSession; `world` and `recorder` are what replay/state_codec.py writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgpack
import zstandard

from replay.errors import RunError, unreadable
from replay.results.run.manifest import RunFile
from reprieve.session.v1beta1 import session_pb2
from services.folder import read_file

RESUME = "resume.zst"
_FORMAT = 2
_LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The command of a run: its arguments, its folder as it was named, and where it ran.

    environment: the variables that are options, such as REPRIEVE_ACCESS.
    """

    argv: Sequence[str] = ()
    run: str = ""
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, argv: Sequence[str], run: Path) -> Self:
        """Return the command of this process."""
        set_here = {name: text for name, text in os.environ.items() if name.startswith("REPRIEVE_")}
        return cls(argv=tuple(argv), run=str(run), folder=str(Path.cwd()), environment=set_here)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A run's command and its last checkpoint, between two instants.

    rounds: of the scheduler, so far. scheduler, eviction: the chunks of the services' checkpoints,
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
        content = msgpack.packb({"format": _FORMAT, **asdict(self)})
        return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(content)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the file of a run's folder. Raises RunError where it is missing or damaged."""
        path = folder / RESUME
        try:
            content = zstandard.ZstdDecompressor().decompress(read_file(path))
            values = msgpack.unpackb(content)
            number = values.pop("format")
            if number != _FORMAT:
                raise RunError(f"{path}: has format {number}; this version reads {_FORMAT}")
            values["command"] = RunCommand(**values["command"])
            values["files"] = {name: RunFile(**each) for name, each in values["files"].items()}
            return cls(**values)
        except FileNotFoundError:
            raise RunError(
                f"{folder} cannot be resumed: it has no {RESUME}; replay its trace again, with "
                "--force into this folder"
            ) from None
        except OSError as error:
            raise unreadable(path, error) from error
        except (zstandard.ZstdError, ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, RunError):
                raise
            raise RunError(f"{path}: is damaged: {error}") from error


def packed(chunks: Sequence[session_pb2.CheckpointChunk]) -> list[bytes]:
    """Return a checkpoint's chunks as they are kept."""
    return [chunk.SerializeToString() for chunk in chunks]


def unpacked(chunks: Sequence[bytes]) -> list[session_pb2.CheckpointChunk]:
    """Return kept chunks as messages."""
    return [session_pb2.CheckpointChunk.FromString(chunk) for chunk in chunks]
