"""The storage protocol: the calls that skep makes to a file system or an object store, and their guarantees."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file found by a listing. `path` is relative to the storage's root, `/` separated, without a leading `/`."""

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What lies directly in a folder: its files sorted by path, and the names of its folders, sorted."""

    files: list[FileStatus]
    folders: list[str]


@dataclass(frozen=True, slots=True)
class StorageFlags:
    """What a storage can promise. `atomic_rename`: `rename` moves a file in one step and readers see either name.

    In every storage skep writes to, `create_exclusive` is decided by the server.
    """

    atomic_rename: bool


@runtime_checkable
class Storage(Protocol):
    """Files below one root, the table's base path. Paths are relative to it and `/` separated; `""` is the root.

    What a method has written or deleted when it returns survives a power loss: on local disks it is synced, object
    stores and HDFS keep copies. Files of `open_write`, and calls with `durable=False`, do so after `sync` only.

    Every method raises StorageError (with path, call and the cause) when storage fails, FileNotFoundError when a file
    to be read or renamed is not there. Instances pickle: they travel to executors with their options.
    """

    @property
    def root(self) -> str:
        """The base path as the user gave it: scheme kept (`s3a://…` stays so), no trailing `/`."""

    @property
    def flags(self) -> StorageFlags:
        """What the storage promises beyond this protocol."""

    def uri(self, path: str) -> str:
        """The full address of a path, in the scheme of the root (`file:///…` for local paths), unescaped."""

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        """Files (never folders) in folder `path`, or below it. A folder that is not there is empty. Sorted by path."""

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:
        """The files and folders directly in folder `path`, in one request (one per 1,000 entries on object stores).

        A missing folder is empty. Object stores have no empty folders. `known`: files of an earlier listing that never
        change while they are there; a storage that has to look at each file may answer with those that still are.
        """

    def exists(self, path: str) -> bool:
        """Whether a file (or folder, where the storage has them) is there."""

    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    def status(self, path: str) -> FileStatus:
        """What a listing shows of one file, in one request; its time is as precise as there."""

    def read(self, path: str) -> bytes:
        """All bytes of a file, in one request."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` (>= 0), in one request; fewer at the end of the file."""

    def read_suffix(self, path: str, length: int) -> bytes:
        """The last `length` bytes in one request, without the file's size; all of them when the file is shorter."""

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """A seekable Arrow file, for Parquet, ORC and log readers.

        On object stores opening fetches the end of the file, which has its size. With `size` in bytes, of a file that
        never grows, nothing is fetched before the first read, which then raises FileNotFoundError for a missing file.
        """

    def open_write(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file for streaming output, folders made as needed; an existing one is replaced.

        On a clean exit the file is complete, and durable after `sync`; when the body raises, nothing stays under `path`
        where the storage allows it (object stores drop the upload, file systems delete).
        """

    def sync(self, paths: Collection[str]) -> None:
        """Makes durable what was done to these files: their bytes, names, and folders, or that they were deleted.

        One call for many files takes far less time than each on its own.
        """

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Creates a whole file, visible at once or not at all. AlreadyExistsError when the name is taken."""

    def replace_atomic(self, path: str, data: bytes) -> None:
        """Creates or replaces a whole file; readers see the old or the new bytes, never a mixture."""

    def rename(self, source: str, target: str) -> None:
        """Moves a file. AlreadyExistsError when the target exists."""

    def delete(self, path: str, *, durable: bool = True) -> None:
        """Deletes a file, in one request. No error when it is missing."""

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        """Deletes files: on object stores 1,000 by one request, on local disks in the order given. Missing is no error.

        After `durable` no file of `paths` comes back, also one that an earlier call deleted. Tries all before it raises
        StorageError, whose field `paths` has those that could not be deleted.
        """

    def delete_folder(self, path: str, *, durable: bool = True) -> None:
        """Deletes everything below a folder and the folder itself. No error when it is not there."""
