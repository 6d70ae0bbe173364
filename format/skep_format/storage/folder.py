"""A folder of a storage as a storage of its own: the metadata table lies within its data table's."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from skep_format.storage.base import FileStatus, FolderListing, Storage, StorageFlags

if TYPE_CHECKING:
    import pyarrow as pa


class FolderStorage:
    """The files below `folder` of `storage`; paths are relative to that folder."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def __repr__(self) -> str:
        return f"FolderStorage({self._storage!r}, {self._folder!r})"

    @property
    def root(self) -> str:
        return f"{self._storage.root}/{self._folder}"

    @property
    def flags(self) -> StorageFlags:
        return self._storage.flags

    def _outer(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def uri(self, path: str) -> str:
        return self._storage.uri(self._outer(path))

    def _inner(self, files: list[FileStatus]) -> list[FileStatus]:
        cut = len(self._folder) + 1
        return [replace(status, path=status.path[cut:]) for status in files]

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        return self._inner(self._storage.list_prefix(self._outer(path), recursive=recursive))

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:  # noqa: ARG002
        found = self._storage.list_folder(self._outer(path))
        return FolderListing(self._inner(found.files), found.folders)

    def exists(self, path: str) -> bool:
        return self._storage.exists(self._outer(path))

    def size(self, path: str) -> int:
        return self._storage.size(self._outer(path))

    def status(self, path: str) -> FileStatus:
        found = self._storage.status(self._outer(path))
        return FileStatus(path, found.size_bytes, found.modified_ms)

    def read(self, path: str) -> bytes:
        return self._storage.read(self._outer(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._storage.read_range(self._outer(path), offset, length)

    def read_suffix(self, path: str, length: int) -> bytes:
        return self._storage.read_suffix(self._outer(path), length)

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        return self._storage.open_input(self._outer(path), size=size)

    def open_write(self, path: str) -> AbstractContextManager[IO[bytes]]:
        return self._storage.open_write(self._outer(path))

    def sync(self, paths: Collection[str]) -> None:
        self._storage.sync([self._outer(path) for path in paths])

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._storage.create_exclusive(self._outer(path), data, durable=durable)

    def replace_atomic(self, path: str, data: bytes) -> None:
        self._storage.replace_atomic(self._outer(path), data)

    def rename(self, source: str, target: str) -> None:
        self._storage.rename(self._outer(source), self._outer(target))

    def delete(self, path: str, *, durable: bool = True) -> None:
        self._storage.delete(self._outer(path), durable=durable)

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        self._storage.delete_many([self._outer(path) for path in paths], durable=durable)

    def delete_folder(self, path: str, *, durable: bool = True) -> None:
        self._storage.delete_folder(self._outer(path), durable=durable)
