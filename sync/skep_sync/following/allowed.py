"""Which tables a service may touch on behalf of others: only those below the base paths it was given.

A caller names a path, and the service opens it with its own credentials. So a path must be written plainly, without
anything that one reader takes for another folder than the next does; local folders are compared as they really are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from skep_format.errors import InputError
from skep_format.names import META_FOLDER
from skep_sync.planning.locations import Location, lies_below, location, same_location

_ODD: Final = re.compile(r"[\x00-\x1f\x7f\\?#*\[\]{}]")
_LONGEST: Final = 4096


class PathNotAllowedError(InputError):
    """A path that the service is not allowed to sync. Fields: path."""


class AllowedPaths:
    """The base paths below which tables may be synced; a base path may be a table itself."""

    def __init__(self, base_paths: Iterable[str]) -> None:
        self.base_paths = tuple(_resolved(path) for path in base_paths)
        if not self.base_paths:
            raise InputError("no base path is given below which tables may be synced", expected="at least one")

    def check(self, path: str) -> str:
        """The path as it may be opened: plain, without a slash at its end. PathNotAllowedError otherwise."""
        plain = _plain(path)
        real = _resolved(plain)
        if not any(same_location(real, base) or lies_below(real, base) for base in self.base_paths):
            raise PathNotAllowedError(
                f"{path} does not lie below a base path that may be synced", path=path, expected=self.base_paths
            )
        return plain


def _plain(path: str) -> str:
    text = path.rstrip("/")
    problem = None
    if not text or len(text) > _LONGEST:
        problem = "it is empty" if not text else "it is too long"
    elif _ODD.search(text):
        problem = "it has characters that not all readers take the same way"
    else:
        scheme, authority, folder = location(text)
        segments = folder.split("/")[1:]
        if not folder.startswith("/"):
            problem = "it is not absolute"
        elif any(_is_tricky(segment) for segment in segments):
            problem = "it has an empty, relative or encoded part"
        elif META_FOLDER in segments:
            problem = f"it lies within a table's {META_FOLDER}"
        elif scheme == "file" and authority:
            problem = "it names a host"
        elif scheme != "file" and (not authority or "%" in authority or ("@" in authority and scheme in ("s3", "gs"))):
            problem = "it names no plain bucket or host"
    if problem:
        raise PathNotAllowedError(f"{path[:200]!r} is no plain path of a table: {problem}", path=path[:_LONGEST])
    return text


def _is_tricky(segment: str) -> bool:
    decoded = unquote(unquote(segment))
    return decoded.strip() in ("", ".", "..") or "/" in decoded or "\\" in decoded or "\0" in decoded


def _resolved(path: str) -> str:
    """Local folders without links; all others as they are."""
    where: Location = location(path)
    if where[0] != "file":
        return path.rstrip("/")
    return str(Path(where[2] or "/").resolve())
