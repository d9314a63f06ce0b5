"""Which Reprieve this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

IMPLEMENTATION = "reprieve"
"""What this implementation of the contract calls itself."""

FROM_SOURCE = "0+source"


def package_version() -> str:
    """Return the installed version, FROM_SOURCE where sources run that are not installed."""
    try:
        return version("reprieve")
    except PackageNotFoundError:
        return FROM_SOURCE
