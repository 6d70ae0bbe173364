"""The files of the history of layout 2: names by range and level, and the manifests that list them (format guide 3.2).

A manifest lists all files of one state of the history; `_version_` has the number of the current one.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.storage import Storage

VERSION_FILE: Final = "_version_"
MAX_LEVEL: Final = 9
"""A name has one digit for the level."""

_NAME: Final = re.compile(r"(\d+)_(\d+)_(\d)\.parquet", re.ASCII)
_MANIFEST: Final = re.compile(r"manifest_(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A Parquet file of archived instants. `low` and `high` are the range of their requested times by its name."""

    name: str
    low: InstantTime
    high: InstantTime
    level: int
    size_bytes: int

    @classmethod
    def parse(cls, name: str, size_bytes: int = 0) -> HistoryFile | None:
        """None for any other file. Upgrades leave names that state the last instant first (format guide 14.8)."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        low, high = sorted((InstantTime(match[1]), InstantTime(match[2])))
        return cls(name, low, high, int(match[3]), size_bytes)

    def may_hold(self, time: InstantTime) -> bool:
        """Whether the range includes `time`."""
        return time.is_at_or_after(self.low) and time.is_at_or_before(self.high)


def file_name(low: InstantTime, high: InstantTime, level: int) -> str:
    """The name of a file of instants requested from `low` to `high`."""
    return f"{low}_{high}_{level}.parquet"


def manifest_name(number: int) -> str:
    """The name of the manifest with this number."""
    return f"manifest_{number}"


def manifest_number(name: str) -> int | None:
    """The number of a manifest; None for any other file."""
    match = _MANIFEST.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class HistoryManifest:
    """The files of one state of the history. The number of an empty history without a manifest is 0."""

    number: int
    files: tuple[HistoryFile, ...]

    def successor(self, added: HistoryFile, replaced: Collection[HistoryFile] = ()) -> HistoryManifest:
        """The next manifest, with one file instead of those that are `replaced`."""
        kept = tuple(file for file in self.files if file not in replaced)
        return HistoryManifest(self.number + 1, (*kept, added))

    def encode(self) -> bytes:
        """The bytes of the manifest's file."""
        files = [{"fileName": file.name, "fileLen": file.size_bytes} for file in self.files]
        return json.dumps({"files": files}, indent=2, separators=(",", " : ")).encode()


def read_manifest(storage: Storage, folder: str, number: int) -> HistoryManifest:
    """FileNotFoundError where it is not there, FormatError naming it for a damaged one."""
    path = f"{folder}/{manifest_name(number)}"
    try:
        entries = [(str(e["fileName"]), int(e.get("fileLen") or 0)) for e in json.loads(storage.read(path))["files"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{path} is not a manifest of the timeline's history: {error}", path=path) from error
    return HistoryManifest(number, tuple(_listed(path, name, size) for name, size in entries))


def _listed(path: str, name: str, size: int) -> HistoryFile:
    file = HistoryFile.parse(name, size)
    if file is None:
        raise FormatError(f"{path} names {name!r}", path=path, found=name, expected="<min>_<max>_<level>.parquet")
    return file


def current_manifest(storage: Storage, folder: str) -> HistoryManifest:
    """The manifest that `_version_` names; where that is missing or not readable, the one with the highest number."""
    named = _named_version(storage, folder)
    if named is not None:
        with contextlib.suppress(FileNotFoundError):
            return read_manifest(storage, folder, named)
    numbers = manifest_numbers(file.name for file in storage.list_prefix(folder))
    return read_manifest(storage, folder, max(numbers)) if numbers else HistoryManifest(0, ())


def _named_version(storage: Storage, folder: str) -> int | None:
    try:
        return int(storage.read(f"{folder}/{VERSION_FILE}"))
    except (FileNotFoundError, ValueError):
        return None


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the manifests among the names of files."""
    return [number for name in names if (number := manifest_number(name)) is not None]
