"""The name and version of this implementation."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version

IMPLEMENTATION = "reprieve"
"""The name of this implementation of the contract."""

FROM_SOURCE = "0+source"


@functools.cache
def package_version() -> str:
    """Return the installed version; FROM_SOURCE if the package is not installed."""
    try:
        return version("reprieve")
    except PackageNotFoundError:
        return FROM_SOURCE
