"""Tables on the local file system: POSIX renames and links give atomic and exclusive creation."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

from skep_format.clock import retried, within
from skep_format.errors import AlreadyExistsError, StorageError, storage_error
from skep_format.storage.base import FileStatus, FolderListing, StorageFlags
from skep_format.storage.deletion import delete_each
from skep_format.storage.versioned import Versioned

if TYPE_CHECKING:
    import pyarrow as pa

try:
    import fcntl
except ImportError:  # not on POSIX
    fcntl = None  # type: ignore[assignment]


_GUARD_SECONDS: Final = 30.0
_SYNCED_MOST: Final = 10_000
_SYNCS_AT_ONCE: Final = 16
_BUFFER_BYTES: Final = 1 << 18
# Of a folder: it may be written to and not opened, or its file system has no sync of folders.
_NO_SYNC: Final = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)


class _Output(io.FileIO):
    """A file that is being written, whose failures are the storage's. Buffered by its user."""

    def __init__(self, storage: LocalStorage, path: str, mode: str = "wb") -> None:
        self._storage, self._path = storage, path
        super().__init__(storage.local_path(path), mode)

    def write(self, data: Any) -> int:
        with self._storage.mapped("write", self._path):
            return super().write(data)

    def close(self) -> None:
        with self._storage.mapped("write", self._path):
            super().close()


class _SyncedFolders:
    """Folders whose entry in the folder above this process has synced: they need no second sync. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[Path] = set()
        self._below: dict[Path, set[Path]] = {}  # of each folder above a known one: its folders on the way there

    def __contains__(self, folder: Path) -> bool:
        return folder in self._known

    def add(self, folder: Path) -> None:
        with self._lock:
            if len(self._known) >= _SYNCED_MOST:
                self._known.clear()
                self._below.clear()
            self._known.add(folder)
            for inner, outer in itertools.pairwise((folder, *folder.parents)):
                siblings = self._below.setdefault(outer, set())
                if inner in siblings:
                    break
                siblings.add(inner)

    def discard(self, folder: Path) -> None:
        """Forgets a folder and all below it."""
        with self._lock:
            waiting = [folder]
            while waiting:
                each = waiting.pop()
                self._known.discard(each)
                waiting += self._below.pop(each, ())
            self._below.get(folder.parent, set()).discard(folder)


_synced: Final = _SyncedFolders()


class LocalStorage:
    """Files below a local folder. Hadoop's `.<name>.crc` side files are kept in step: removed with their file.

    Whole files are written under a temporary dot name in the same folder, flushed, and then linked (exclusive) or
    renamed (replacing), so no reader ever sees a part of one and a crash leaves only a dot file.

    What a durable call has done when it returns survives a power loss: files are synced before they get their names,
    then the folders that hold the names, those of new folders and of deleted files included. `sync` does that for many
    files at once, from several threads: the journal of a file system takes their requests together.
    """

    flags = StorageFlags(atomic_rename=True)

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/") or "/"
        self._folder = Path("/" + root[len("file:") :].lstrip("/") if root.startswith("file:") else root).absolute()

    @property
    def root(self) -> str:
        return self._root

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def uri(self, path: str) -> str:
        return f"file://{self._folder}/{path}" if path else f"file://{self._folder}"

    def local_path(self, path: str) -> Path:
        """Where a path lies on the local file system."""
        return self._folder / path if path else self._folder

    @contextlib.contextmanager
    def mapped(self, call: str, path: str) -> Iterator[None]:
        """Failures of the system as StorageError; that a file is not there stays FileNotFoundError."""
        try:
            yield
        except (StorageError, FileNotFoundError):
            raise
        except OSError as error:
            raise storage_error(call, path, self.local_path(path), error) from error

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        found: list[FileStatus] = []
        folders = [path]
        with self.mapped("list", path):
            while folders:
                folder = folders.pop()
                files, below = self._entries(folder)
                found += files
                if recursive:
                    folders += [f"{folder}/{name}" if folder else name for name in below]
        found.sort(key=lambda status: status.path)
        return found

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:
        with self.mapped("list", path):
            files, folders = self._entries(path, {status.path: status for status in known})
        return FolderListing(sorted(files, key=lambda status: status.path), sorted(folders))

    def _entries(
        self, folder: str, known: Mapping[str, FileStatus] = MappingProxyType({})
    ) -> tuple[list[FileStatus], list[str]]:
        """Files, and names of folders, directly in a folder; none when it is missing."""
        files: list[FileStatus] = []
        folders: list[str] = []
        try:
            entries = os.scandir(self.local_path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return files, folders
        with entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.name)
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                found = known.get(path)
                if found is None:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue  # deleted since the folder was read
                    found = FileStatus(path, status.st_size, status.st_mtime_ns // 1_000_000)
                files.append(found)
        return files, folders

    def exists(self, path: str) -> bool:
        with self.mapped("exists", path):
            return self.local_path(path).exists()

    def size(self, path: str) -> int:
        with self.mapped("size", path):
            return self.local_path(path).stat().st_size

    def status(self, path: str) -> FileStatus:
        with self.mapped("status", path):
            found = self.local_path(path).stat()
            return FileStatus(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def read(self, path: str) -> bytes:
        with self.mapped("read", path):
            return self.local_path(path).read_bytes()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self.mapped("read_range", path), self.local_path(path).open("rb") as file:
            file.seek(offset)
            return file.read(max(0, length))

    def read_suffix(self, path: str, length: int) -> bytes:
        with self.mapped("read_suffix", path), self.local_path(path).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - length))
            return file.read(max(0, length))

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:  # noqa: ARG002 - the open file has it
        import pyarrow as pa  # not with the module: reading a timeline does not need it

        with self.mapped("open_input", path):
            return pa.OSFile(str(self.local_path(path)), "rb")

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        target = self.local_path(path)
        with self.mapped("open_write", path):
            target.parent.mkdir(parents=True, exist_ok=True)
            file = io.BufferedWriter(_Output(self, path), _BUFFER_BYTES)
        try:
            yield file
            with self.mapped("open_write", path):
                file.close()
                self._drop_crc(target)
        except BaseException:
            with contextlib.suppress(OSError, ValueError):  # what is still in the buffer meets the same fault
                file.close()
            with contextlib.suppress(OSError):
                target.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def open_append(self, path: str) -> Iterator[IO[bytes]]:
        with self.mapped("open_append", path):
            target = self.local_path(path)
            target.stat()
            self._drop_crc(target)  # the sum of a part of the file is none
            file = io.BufferedWriter(_Output(self, path, "ab"), _BUFFER_BYTES)
        with contextlib.closing(file):
            yield file

    def sync(self, paths: Collection[str]) -> None:
        files = [self.local_path(path) for path in paths]
        folders = [found for folder in {file.parent for file in files} for found in self._folders_above(folder)]
        entries = {file.parent for file in files} | {above for above, _ in folders}
        with self.mapped("sync", ""):
            for wanted in (files, entries):
                _sync_each(wanted)
        for _, folder in folders:
            _synced.add(folder)

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        target = self.local_path(path)
        with self.mapped("create_exclusive", path):
            with self._staged(target, data, durable) as staged:
                try:
                    os.link(staged, target)  # fails when the name is taken, unlike rename
                except FileExistsError as error:
                    raise AlreadyExistsError(f"{path} exists already below {self._root}", path=path) from error
                except FileNotFoundError as error:
                    raise _staged_file_missing("create_exclusive", path) from error
            if durable:
                _sync_name(target)

    def replace_atomic(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        with self.mapped("replace_atomic", path), self._staged(target, data) as staged:
            self._drop_crc(target)
            try:
                staged.replace(target)
            except FileNotFoundError as error:
                raise _staged_file_missing("replace_atomic", path) from error
            _sync(target.parent)

    def set_modified(self, path: str, modified_ms: int) -> None:
        target = self.local_path(path)
        with self.mapped("set_modified", path):
            os.utime(target, ns=(modified_ms * 1_000_000,) * 2)
            _sync(target)

    def rename(self, source: str, target: str) -> None:
        old, new = self.local_path(source), self.local_path(target)
        with self.mapped("rename", source):
            self._make_folder(new.parent)
            try:
                os.link(old, new)
            except FileExistsError as error:
                raise AlreadyExistsError(f"{target} exists already below {self._root}", path=target) from error
            _sync_name(new)
            old.unlink()
            self._drop_crc(old)
            _sync(old.parent)

    def delete(self, path: str, *, durable: bool = True) -> None:
        if self._unlink(path) and durable:
            with self.mapped("delete", path):
                _sync_if_there(self.local_path(path).parent)

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
        try:
            delete_each(paths, self._unlink, self._root)
        finally:
            if durable and paths:
                with self.mapped("delete_many", ""):
                    _sync_each({self.local_path(path).parent for path in paths})

    def _unlink(self, path: str) -> bool:
        """Whether there was a file to delete."""
        target = self.local_path(path)
        with self.mapped("delete", path):
            self._drop_crc(target)
            try:
                target.unlink()
            except FileNotFoundError:
                return False
        return True

    def delete_folder(self, path: str, *, durable: bool = True) -> None:
        folder = self.local_path(path)
        with self.mapped("delete_folder", path):
            if not folder.exists():
                return
            _synced.discard(folder)
            shutil.rmtree(folder, ignore_errors=False, onerror=_ignore_missing)
            if durable:
                _sync_if_there(folder.parent)

    def read_versioned(self, path: str) -> Versioned | None:
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return Versioned(data, hashlib.sha256(data).hexdigest())

    def swap(self, path: str, data: bytes | None, seen: Versioned | None) -> bool:
        if fcntl is None:
            raise StorageError(f"swap failed on {path}: only POSIX systems have file locks", call="swap", path=path)
        target = self.local_path(path)
        with self.mapped("swap", path):
            self._make_folder(target.parent)
            with target.with_name(f".{target.name}.guard").open("ab") as guard:
                _lock_file(guard, path)
                if self.read_versioned(path) != seen:
                    return False
                if data is None:
                    self.delete(path)
                else:
                    self.replace_atomic(path, data)
                return True

    @contextlib.contextmanager
    def _staged(self, target: Path, data: bytes, durable: bool = True) -> Iterator[Path]:
        if durable:
            self._make_folder(target.parent)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
        staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with staged.open("xb") as file:
                file.write(data)
                if durable and data:
                    file.flush()
                    os.fsync(file.fileno())
            yield staged
        finally:
            with contextlib.suppress(OSError):  # nothing reads dot files
                staged.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """A folder and those above it that are missing, each of them synced into the one above.

        Below the table's base path existing folders are synced, too: their creator may not have synced them yet.
        """
        if folder in _synced and folder.is_dir():
            return
        missing = set(itertools.takewhile(lambda each: not each.is_dir(), (folder, *folder.parents)))
        folder.mkdir(parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            if each not in missing and (each in _synced or not each.is_relative_to(self._folder)):
                break
            _sync(each.parent)
            _synced.add(each)

    def _folders_above(self, folder: Path) -> Iterator[tuple[Path, Path]]:
        """The folders up to the base path whose names are not known to be on the disk, each with the one above it."""
        for each in (folder, *folder.parents):
            if each in _synced or not each.is_relative_to(self._folder):
                return
            yield each.parent, each

    @staticmethod
    def _drop_crc(target: Path) -> None:
        # Hadoop's checksum side file of an earlier version would make its readers refuse the new bytes.
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)


def _sync(place: Path) -> None:
    """Puts a file's bytes, or a folder's entries, on the disk."""
    if os.name == "nt" and place.is_dir():
        return  # folders can't be opened; NTFS keeps a journal of its own
    handle: int | None = None
    try:
        handle = os.open(place, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        if handle is not None:
            os.close(handle)


def _sync_if_there(place: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        _sync(place)


def _sync_each(places: Collection[Path]) -> None:
    """Puts all of these that are there on the disk, at the same time."""
    if len(places) == 1:
        _sync_if_there(*places)
        return
    for _ in _sync_threads().map(_sync_if_there, places):
        pass


@cache
def _sync_threads() -> ThreadPoolExecutor:
    """Kept, since a commit puts files on the disk several times, and to start threads may take longer than that."""
    return ThreadPoolExecutor(_SYNCS_AT_ONCE, "skep-sync-files")


os.register_at_fork(after_in_child=_sync_threads.cache_clear)  # threads stay in the parent


def _sync_name(target: Path) -> None:
    """Puts the new name of a file on the disk, or takes it back: callers look for it to learn if a call succeeded."""
    try:
        _sync(target.parent)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _staged_file_missing(call: str, path: str) -> StorageError:
    """Another process considered the caller dead and cleaned up after it before the file had its name."""
    return StorageError(f"{call} failed on {path}: its temporary file was deleted", call=call, path=path)


def _lock_file(file: IO[bytes], path: str) -> None:
    """Takes the kernel's lock, which is released when the file is closed or the process ends."""
    take = partial(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        retried(take, BlockingIOError, within(_GUARD_SECONDS, 0.002))
    except BlockingIOError as error:
        raise StorageError(
            f"swap failed on {path}: another process has held its lock for {_GUARD_SECONDS:g} s",
            hint="it may have been stopped",
            call="swap",
            path=path,
        ) from error


def _ignore_missing(
    _function: object, _path: object, problem: tuple[type[BaseException], BaseException, object]
) -> None:
    if not isinstance(problem[1], FileNotFoundError):
        raise problem[1]
