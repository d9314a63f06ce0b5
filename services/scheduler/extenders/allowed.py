"""The extenders that a service calls, and the files that their TLS settings may name.

The service's operator lists both; a caller's configuration chooses among them and nothing else. So
a caller can neither make the service connect to an address of the caller's choice, nor learn of the
service's files: what is not listed is refused with one text, whether or not it exists.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass

ANY = "*"
"""Stands in the list of addresses for every address."""
FILE_BYTES_MAX = 1024 * 1024


class NotAllowedError(ValueError):
    """An address or a file that the service's operator has not listed."""


@dataclass(frozen=True, slots=True)
class AllowedExtenders:
    """`urls` are values of urlPrefix, `files` paths of PEM files as a configuration writes them."""

    urls: Collection[str] = ()
    files: Collection[str] = ()

    def check_url(self, url: str) -> None:
        """Raise NotAllowedError for an address that is not listed."""
        if ANY not in self.urls and url not in self.urls:
            raise NotAllowedError(
                f"{url!r} is not among the extenders that this service calls: start it with "
                "--extender URL_PREFIX, or remove the extender from the file"
            )

    def read(self, path: str) -> bytes:
        """Return the content of a listed file.

        Raises NotAllowedError for another one, and OSError for what cannot be read, is not a
        regular file or has more than FILE_BYTES_MAX bytes.
        """
        if path not in self.files:
            raise NotAllowedError(
                "this service reads no file that only its callers name: send the content as data "
                "(caData, certData, keyData), or start the service with --extender-file PATH"
            )
        # Without O_NONBLOCK a FIFO in the file's place would stop the service.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "is not a regular file")
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise OSError(0, f"has more than {FILE_BYTES_MAX} bytes")
        return content


NO_EXTENDERS = AllowedExtenders()
