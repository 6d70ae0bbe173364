"""The distribution of all packages: its name on indexes, its version, the table versions it knows, its extras."""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "skep-hudi"
"""As in pyproject.toml. Another project has the name of the packages."""
TABLE_VERSIONS: Final = (6, 8, 9)
"""Hudi's table versions that are read and written, oldest first."""
OLDER_TABLE_VERSIONS: Final = (0, 1, 2, 3, 4, 5)
"""Those of Hudi before 0.14: read, and upgraded before they are written. No stated version is the first of them."""


def installed_version(distribution: str = DISTRIBUTION) -> str | None:
    """The version that is installed; None where a package runs from its source, or is not there."""
    import importlib.metadata  # as slow as a tenth of a command's imports, which do not need it

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """What installs the packages of an extra, for hints in errors."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
