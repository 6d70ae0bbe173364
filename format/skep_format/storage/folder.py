"""A folder of a storage as a storage of its own: the metadata table lies within its data table's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from skep_format.storage.base import FileStatus, FolderListing, Storage, StorageFlags


def _below(name: str) -> Any:
    """A method of `Storage` that takes a path first, called with where that is in the other storage."""

    def method(self: FolderStorage, path: str, *more: Any, **named: Any) -> Any:
        return getattr(self._storage, name)(self._outer(path), *more, **named)

    return method


class FolderStorage(Storage):
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

    def _inner(self, files: list[FileStatus]) -> list[FileStatus]:
        cut = len(self._folder) + 1
        return [FileStatus(status.path[cut:], status.size_bytes, status.modified_ms) for status in files]

    uri = _below("uri")
    exists = _below("exists")
    size = _below("size")
    read = _below("read")
    read_range = _below("read_range")
    read_suffix = _below("read_suffix")
    open_input = _below("open_input")
    open_write = _below("open_write")
    create_exclusive = _below("create_exclusive")
    replace_atomic = _below("replace_atomic")
    delete = _below("delete")
    delete_folder = _below("delete_folder")

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        return self._inner(self._storage.list_prefix(self._outer(path), recursive=recursive))

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:  # noqa: ARG002
        found = self._storage.list_folder(self._outer(path))
        return FolderListing(self._inner(found.files), found.folders)

    def status(self, path: str) -> FileStatus:
        found = self._storage.status(self._outer(path))
        return FileStatus(path, found.size_bytes, found.modified_ms)

    def sync(self, paths: Collection[str]) -> None:
        self._storage.sync([self._outer(path) for path in paths])

    def rename(self, source: str, target: str) -> None:
        self._storage.rename(self._outer(source), self._outer(target))

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        self._storage.delete_many([self._outer(path) for path in paths], durable=durable)
