"""Compare and swap on small files, for locks: a file changes only when it is still what the caller has seen.

Object stores decide it by the object's tag. On a local file system the change is made under the kernel's lock on a file
beside it, which dies with its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Versioned:
    """A file as it was read: its bytes, and what the storage knows this state of it by."""

    data: bytes
    version: str


@runtime_checkable
class VersionedStorage(Protocol):
    """A storage that can compare and swap."""

    def read_versioned(self, path: str) -> Versioned | None:
        """None when the file is not there."""

    def swap(self, path: str, data: bytes | None, seen: Versioned | None) -> bool:
        """Writes the file (None: deletes it) if it is still as `seen` (None: if it is not there). Whether it did."""
