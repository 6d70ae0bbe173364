"""The distribution of all packages: its name on package indexes, its version, and how its extras are installed."""

from __future__ import annotations

import importlib.metadata
from typing import Final

DISTRIBUTION: Final = "skep-hudi"
"""As in pyproject.toml. Another project has the name of the packages."""


def installed_version(distribution: str = DISTRIBUTION) -> str | None:
    """The version that is installed; None where a package runs from its source, or is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """What installs the packages of an extra, for hints in errors."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
