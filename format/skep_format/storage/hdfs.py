"""Tables on HDFS through hdfs-native, which speaks the name node's protocol itself: no Java, no libhdfs."""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Final, cast

from skep_format.errors import AlreadyExistsError, EnvironmentMissingError, StorageError, needs
from skep_format.storage.base import FileStatus, FolderListing, StorageFlags
from skep_format.storage.deletion import delete_each
from skep_format.storage.ranged import RangedFile, span
from skep_format.storage.remote import RemoteStorage

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES: Final = ("hdfs", "viewfs")
# Of a job's options, those that Hadoop's client configuration knows; the files in HADOOP_CONF_DIR are read besides.
_THREADS: Final = 8  # the name node takes one delete per call
_PREFIXES: Final = ("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.")


class HdfsStorage(RemoteStorage):
    """Files below one folder of HDFS. `options` are those of Hadoop's client, by their names there.

    Whole files are written under a temporary dot name in the same folder and then renamed: the name node decides who
    gets a name, and no reader ever sees a part of one.
    """

    flags = StorageFlags(atomic_rename=True)

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        super().__init__(root, options)
        scheme, _, rest = self._root.partition(":")
        authority, _, folder = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
        self._server = f"{scheme}://{authority}" if authority else None
        self._folder = f"/{folder}".rstrip("/")

    @cached_property
    def _hdfs(self) -> Any:
        with needs("hdfs", f"{self._root}: HDFS needs the package hdfs-native", path=self._root):
            import hdfs_native
        return hdfs_native

    @cached_property
    def _client(self) -> Any:
        given = {name.removeprefix("spark.hadoop."): value for name, value in self._options.items()}
        config = {name: value for name, value in given.items() if name.startswith(_PREFIXES)}
        return self._hdfs.Client(self._server, config)

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder or "/"

    @contextlib.contextmanager
    def _mapped(self, call: str, path: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, EnvironmentMissingError):
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.uri(path)} is not there") from error
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\\n\\tat ")[0].partition("\n\tat ")[0]  # without the name node's stack
            raise StorageError(f"{call} failed on {self.uri(path)}: {reason}", call=call, path=path) from error

    def _entries(self, path: str, recursive: bool) -> list[Any]:
        """What is in a folder; nothing when it is not there, or a file."""
        with self._mapped("list", path):
            try:
                found = list(self._client.list_status(self._at(path), recursive))
            except FileNotFoundError:
                return []
        return [] if len(found) == 1 and found[0].path == self._at(path) else found

    def _files(self, entries: list[Any]) -> list[FileStatus]:
        cut = len(self._folder) + 1
        found = [
            FileStatus(entry.path[cut:], entry.length, entry.modification_time) for entry in entries if not entry.isdir
        ]
        return sorted(found, key=lambda status: status.path)

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        return self._files(self._entries(path, recursive))

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:  # noqa: ARG002
        entries = self._entries(path, False)
        return FolderListing(
            self._files(entries), sorted(entry.path.rpartition("/")[2] for entry in entries if entry.isdir)
        )

    def exists(self, path: str) -> bool:
        with self._mapped("exists", path):
            try:
                self._client.get_file_info(self._at(path))
            except FileNotFoundError:
                return False
        return True

    def size(self, path: str) -> int:
        with self._mapped("size", path):
            return int(self._client.get_file_info(self._at(path)).length)

    def status(self, path: str) -> FileStatus:
        with self._mapped("status", path):
            found = self._client.get_file_info(self._at(path))
            return FileStatus(path, int(found.length), int(found.modification_time))

    def read(self, path: str) -> bytes:
        with self._mapped("read", path):
            return bytes(self._client.read(self._at(path)).read())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._part("read_range", path, offset, length)

    def read_suffix(self, path: str, length: int) -> bytes:
        return self._part("read_suffix", path, -length, length)

    def _part(self, call: str, path: str, offset: int, length: int) -> bytes:
        with self._mapped(call, path):
            file = self._client.read(self._at(path))
            start, end = span(offset, length, len(file))
            return bytes(file.read_range(start, end - start)) if end > start else b""

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:  # noqa: ARG002
        import pyarrow as pa

        with self._mapped("open_input", path):
            file = self._client.read(self._at(path))

        def fetch(start: int, end: int) -> bytes:
            with self._mapped("read_range", path):
                return bytes(file.read_range(start, end - start))

        return pa.PythonFile(RangedFile(fetch, len(file)), mode="r")

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        with self._mapped("open_write", path):
            file = _Output(self, path, self._create(self._at(path)))
        try:
            yield cast("IO[bytes]", file)
            file.close()
        except BaseException:
            with contextlib.suppress(StorageError):
                self.delete(path)
            raise

    @contextlib.contextmanager
    def open_append(self, path: str) -> Iterator[IO[bytes]]:
        with self._mapped("open_append", path):
            file = _Output(self, path, self._client.append(self._at(path)))
        with contextlib.closing(file):
            yield cast("IO[bytes]", file)

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("create_exclusive", path), self._staged(path, data) as staged:
            try:
                self._client.rename(staged, self._at(path))
            except FileExistsError as error:
                raise AlreadyExistsError(f"{path} exists already below {self._root}", path=path) from error

    def replace_atomic(self, path: str, data: bytes) -> None:
        with self._mapped("replace_atomic", path), self._staged(path, data) as staged:
            self._client.rename(staged, self._at(path), True)

    def set_modified(self, path: str, modified_ms: int) -> None:
        with self._mapped("set_modified", path):
            self._client.set_times(self._at(path), modified_ms, modified_ms)

    def rename(self, source: str, target: str) -> None:
        with self._mapped("rename", source):
            self._client.mkdirs(self._at(target).rpartition("/")[0] or "/", create_parent=True)
            try:
                self._client.rename(self._at(source), self._at(target))
            except FileExistsError as error:
                raise AlreadyExistsError(f"{target} exists already below {self._root}", path=target) from error

    def delete(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("delete", path), contextlib.suppress(FileNotFoundError):
            self._client.delete(self._at(path))

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:  # noqa: ARG002
        delete_each(paths, self.delete, self._root, _THREADS)

    def delete_folder(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("delete_folder", path):
            self._client.delete(self._at(path), True)

    def _create(self, full: str) -> Any:
        return self._client.create(full, self._hdfs.WriteOptions(overwrite=True, create_parent=True))

    @contextlib.contextmanager
    def _staged(self, path: str, data: bytes) -> Iterator[str]:
        """A file with `data` under another name; whatever is left of it goes with the block."""
        folder, _, name = self._at(path).rpartition("/")
        staged = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            file = self._create(staged)
            file.write(data)
            file.close()
            yield staged
        except BaseException:
            with contextlib.suppress(OSError, RuntimeError):
                self._client.delete(staged)
            raise


class _Output(io.RawIOBase):
    """A file that is being written. Its errors are StorageError; Parquet writers need its position."""

    def __init__(self, storage: HdfsStorage, path: str, file: Any) -> None:
        self._storage, self._path, self._file, self._count = storage, path, file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._count

    def write(self, data: Any) -> int:
        with self._storage._mapped("open_write", self._path):
            written = int(self._file.write(data))
        self._count += written
        return written

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._storage._mapped("open_write", self._path):
                self._file.close()
