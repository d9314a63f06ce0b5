"""The files of a folder: opened by name in the opened folder, and written whole or not at all.

A folder that came from somewhere else, such as an unpacked archive, may have anything under the
name of a file: a symbolic link to another file of the person who uses it, a FIFO at which opening
waits for ever, a device. So two rules hold for every file that is opened here. It is reached from
the descriptor of its folder, which is opened once, never through a link and without waiting. And
it is a regular file, without a second name where it is changed in place; anything else is refused.

A file that is written as a whole is a draft first, new and with a random name. The draft takes the
place of the former file when the disk has its content, and the folder is then synced: after a
crash the name has the former content or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

DRAFT = ".draft"
"""Suffix of a file that is being written, and replaces the former one as a whole."""
_RANDOM_BYTES = 8
_DRAFT = re.compile(r"(.+?)(?:\.[0-9a-f]{16})?\.draft")
_HOW = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHANGES = os.O_WRONLY | os.O_RDWR
_NEW = os.O_CREAT | os.O_EXCL
_MODE = 0o666
_CHUNK_BYTES = 1 << 20
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
"""What network file systems answer where a folder cannot be synced."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotAFileError(OSError):
    """Something other than a regular file has the name of a file that is read or written."""

    def __init__(self, what: str, name: str | Path) -> None:
        text = f"it is {what} and not a regular file; remove it"
        super().__init__(errno.EINVAL, text, str(name))


class Folder:
    """A folder, opened once; `path` is for messages. Methods raise OSError.

    A context manager that closes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file and return its descriptor. Raises NotAFileError for anything else."""
        return _opened(name, flags, self._descriptor)

    def create(self, name: str) -> int:
        """Make a new file, open it for appending and return its descriptor.

        A former file of that name is removed.
        """
        self.remove(name)
        return self.open(name, os.O_WRONLY | os.O_APPEND | _NEW)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file, which replaces the one of that name at the end of the `with` block.

        After an exception the former file is as it was, and the new one is gone.
        """
        _refuse_others(name, self._descriptor)
        draft, file = self._draft(name)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            self.rename(draft, name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=self._descriptor)
            raise
        self.sync()

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file; a former one is left where this fails."""
        with self.replacing(name) as file:
            file.write(content)

    def write_private(self, name: str, content: bytes) -> None:
        """Write a whole file that its owner alone may read and change; a former one stays.

        If several processes write at once, the first one's file is kept.
        """
        draft, file = self._draft(name)
        try:
            with file:
                os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                # Unlike a rename, a link does not replace what has the name.
                descriptor = self._descriptor
                os.link(draft, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        finally:
            os.unlink(draft, dir_fd=self._descriptor)
        self.sync()

    def take(self, source: Folder, name: str) -> None:
        """Move a file from another folder of this file system to here, in place of a former one."""
        _refuse_others(name, self._descriptor)
        descriptor = source.open(name)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(name, name, src_dir_fd=source._descriptor, dst_dir_fd=self._descriptor)

    def copy_beginning(self, source: Folder, name: str, size: int) -> None:
        """Copy the first bytes of another folder's file, in place of a former one, to the disk.

        The copy has fewer where the file has. Where the file system can, both share their blocks
        until one of them is written to.
        """
        self.remove(name)
        reading = source.open(name)
        try:
            # The kernel copies to no file that is opened for appending.
            writing = self.open(name, os.O_WRONLY | _NEW)
        except OSError:
            os.close(reading)
            raise
        try:
            while size and (copied := _copied(reading, writing, size)):
                size -= copied
            os.fsync(writing)
        finally:
            os.close(reading)
            os.close(writing)

    def link(self, source: Folder, name: str) -> None:
        """Give another folder's file a second name here, which has none yet.

        It is copied where it cannot be linked, as to another file system. Neither may be changed in
        place from then on.
        """
        descriptor = source.open(name)
        try:
            os.link(
                name,
                name,
                src_dir_fd=source._descriptor,
                dst_dir_fd=self._descriptor,
                follow_symlinks=False,
            )
        except OSError:
            self.copy_beginning(source, name, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file within the folder."""
        descriptor = self._descriptor
        os.rename(name, new_name, src_dir_fd=descriptor, dst_dir_fd=descriptor)

    def remove(self, name: str) -> None:
        """Remove a file; one that does not exist is no error. Raises NotAFileError."""
        _refuse_others(name, self._descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove a folder within this one with all that is in it; links are not followed."""
        shutil.rmtree(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """Return the names of all that is in the folder, in alphabetical order."""
        return sorted(os.listdir(self._descriptor))  # noqa: PTH208 - a descriptor

    def is_folder(self, name: str) -> bool:
        """Return whether the name is that of a folder, and not of a link to one."""
        return _kind(name, self._descriptor) == stat.S_IFDIR

    def is_file(self, name: str) -> bool:
        """Return whether the name is that of a regular file."""
        return _kind(name, self._descriptor) == stat.S_IFREG

    def is_at(self, name: str, descriptor: int) -> bool:
        """Return whether a name still refers to an open file."""
        try:
            there = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(descriptor), there)

    def sync(self) -> None:
        """Wait until the disk has the names in the folder."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise

    def _draft(self, name: str) -> tuple[str, BinaryIO]:
        """Return the name of a new draft of a file, and the draft, opened for writing."""
        draft = f"{name}.{secrets.token_hex(_RANDOM_BYTES)}{DRAFT}"
        return draft, os.fdopen(self.open(draft, os.O_WRONLY | _NEW), "wb")


def _copied(reading: int, writing: int, size: int) -> int:
    """Copy the next bytes of a file to another, at most `size`; return their number."""
    with contextlib.suppress(OSError):
        return os.copy_file_range(reading, writing, size)
    chunk = os.read(reading, min(size, _CHUNK_BYTES))
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(writing, rest) :]
    return len(chunk)


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises OSError; NotAFileError for anything else."""
    return open(_opened(path, os.O_RDONLY, None), "rb")


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises as `open_file` does."""
    with open_file(path) as file:
        return file.read()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Replace a file by its path, as Folder.replacing does. Raises OSError."""
    with Folder(path.parent) as folder, folder.replacing(path.name) as file:
        yield file


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file; a former one is left where this fails. Raises OSError."""
    with replacing(path) as file:
        file.write(content)


def append_to(path: Path, content: bytes) -> None:
    """Append to a file, which is made where there is none. Raises OSError."""
    with open_to_append(path) as file:
        file.write(content)


def open_to_append(path: Path) -> BinaryIO:
    """Open a file for appending; create it if it does not exist. Raises OSError."""
    with Folder(path.parent) as folder:
        return os.fdopen(folder.open(path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def create_file(path: Path) -> BinaryIO:
    """Make a new file in place of a former one, and open it. Raises OSError."""
    with Folder(path.parent) as folder:
        return os.fdopen(folder.create(path.name), "ab")


def drafted(name: str) -> str:
    """Return the name of the file that a draft would replace; "" for other files."""
    match = _DRAFT.fullmatch(name)
    return match[1] if match else ""


def _opened(name: str | Path, flags: int, folder: int | None) -> int:
    try:
        descriptor = os.open(name, flags | _HOW, _MODE, dir_fd=folder)
    except OSError:
        _refuse_others(name, folder)
        raise
    try:
        status = os.fstat(descriptor)
        _refuse_kind(stat.S_IFMT(status.st_mode), name)
        if flags & _CHANGES and status.st_nlink > 1:
            raise NotAFileError("a file with a second name (a hard link)", name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_others(name: str | Path, folder: int | None) -> None:
    """Raise NotAFileError if there is something under a name that is not a regular file."""
    _refuse_kind(_kind(name, folder), name)


def _refuse_kind(kind: int, name: str | Path) -> None:
    if kind not in {0, stat.S_IFREG}:
        raise NotAFileError(_KINDS.get(kind, "something else"), name)


def _kind(name: str | Path, folder: int | None) -> int:
    """Return a file's type as in stat.S_IFMT; 0 if it is missing or cannot be read."""
    try:
        return stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return 0
