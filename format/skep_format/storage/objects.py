"""Tables on object stores (S3, GCS, Azure) through obstore: conditional creates, no renames to count on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from skep_format.errors import AlreadyExistsError, EnvironmentMissingError, StorageError, needs, storage_error
from skep_format.storage.base import FileStatus, FolderListing, StorageFlags
from skep_format.storage.deletion import delete_each
from skep_format.storage.ranged import TAIL_BYTES, RangedFile, span
from skep_format.storage.remote import RemoteStorage
from skep_format.storage.versioned import Versioned

if TYPE_CHECKING:
    import pyarrow as pa

# Schemes as Hadoop users write them, and as obstore knows them.
SCHEMES: Mapping[str, str] = {
    "s3": "s3", "s3a": "s3", "s3n": "s3",
    "gs": "gs", "gcs": "gs",
    "abfs": "abfs", "abfss": "abfss", "wasb": "abfs", "wasbs": "abfss", "az": "az",
}  # fmt: skip

# Hadoop's names of what a store needs to know; obstore's own (`aws_region`, …) are taken too.
_HADOOP_OPTIONS: Mapping[str, str] = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint",
    "fs.s3a.endpoint.region": "aws_region",
}
_PREFIXES = ("aws_", "google_", "azure_")
# Output is held in memory up to this size, then in a temporary file, until it is complete.
_SPOOL_BYTES = 64 << 20
_DELETES_AT_ONCE = 1_000  # what S3 takes in one request
_THREADS = 8  # for requests that a store has no bulk request for


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    """Output that is not sent yet. A temporary folder without room is a failure of storage."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise storage_error("write", "", tempfile.gettempdir(), error) from error


class ObjectStorage(RemoteStorage):
    """Objects below one prefix. `options` are credentials and endpoints, by Hadoop's or obstore's names.

    Credentials that are not given come from the environment, as obstore finds them. A file that is written is sent when
    it is complete, so a reader never sees a part and an error leaves nothing.
    """

    flags = StorageFlags(atomic_rename=False)

    @cached_property
    def _obstore(self) -> Any:
        with needs("s3", f"{self._root}: object stores need the package obstore", path=self._root):
            import obstore
            import obstore.store
        return obstore

    @cached_property
    def _store(self) -> Any:
        scheme, _, rest = self._root.partition("://")
        config, client = _store_options(self._options)
        return self._obstore.store.from_url(f"{SCHEMES[scheme]}://{rest}", config=config, client_options=client)

    @contextlib.contextmanager
    def _mapped(self, call: str, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, StorageError, EnvironmentMissingError):
            raise
        except Exception as error:
            where = self.uri(path)
            if isinstance(error, self._obstore.exceptions.NotFoundError):
                raise FileNotFoundError(f"{where} is not there") from error
            if isinstance(error, (self._obstore.exceptions.BaseError, OSError)):
                raise StorageError(f"{call} failed on {where}: {error}", call=call, path=path) from error
            raise

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        if not recursive:
            return self.list_folder(path).files
        with self._mapped("list", path):
            chunks = self._obstore.list(self._store, path + "/" if path else None)
            return _files(meta for chunk in chunks for meta in chunk)

    def list_folder(self, path: str, *, known: Collection[FileStatus] = ()) -> FolderListing:  # noqa: ARG002
        with self._mapped("list", path):
            found = self._obstore.list_with_delimiter(self._store, path + "/" if path else None)
        folders = (prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])
        return FolderListing(_files(found["objects"]), sorted(folders))

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            with self._mapped("exists", path):
                return any(
                    chunk for chunk in self._obstore.list(self._store, path + "/" if path else None, chunk_size=1)
                )
        return True

    def size(self, path: str) -> int:
        with self._mapped("size", path):
            return int(self._obstore.head(self._store, path)["size"])

    def status(self, path: str) -> FileStatus:
        # By a listing that starts before the file: HEAD states times to the second, where listings may be finer.
        folder = path.rpartition("/")[0] or None
        with self._mapped("status", path):
            for chunk in self._obstore.list(self._store, folder, offset=path[:-1]):
                for meta in chunk:
                    if meta["path"] == path:
                        return FileStatus(path, meta["size"], int(meta["last_modified"].timestamp() * 1000))
                    if meta["path"] > path:
                        break
        raise FileNotFoundError(path)

    def read(self, path: str) -> bytes:
        with self._mapped("read", path):
            return bytes(self._obstore.get(self._store, path).bytes())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        with self._mapped("read_range", path):
            try:
                return bytes(self._obstore.get_range(self._store, path, start=offset, end=offset + length))
            except self._obstore.exceptions.NotFoundError:
                raise
            except self._obstore.exceptions.BaseError:  # stores refuse a range that begins behind the end
                return self._within(path, offset, length)

    def read_suffix(self, path: str, length: int) -> bytes:
        if length <= 0:
            return b""
        with self._mapped("read_suffix", path):
            try:
                return bytes(self._obstore.get(self._store, path, options={"range": {"suffix": length}}).bytes())
            except self._obstore.exceptions.NotFoundError:
                raise
            except self._obstore.exceptions.BaseError:  # an empty file, or a store without suffix ranges (Azure)
                return self._within(path, -length, length)

    def _within(self, path: str, offset: int, length: int) -> bytes:
        """What the file holds of a range, by its size: a second request, and a third."""
        start, end = span(offset, length, self.size(path))
        return bytes(self._obstore.get_range(self._store, path, start=start, end=end)) if end > start else b""

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        import pyarrow as pa

        def fetch(start: int, end: int) -> bytes:
            with self._mapped("read_range", path):
                return bytes(self._obstore.get_range(self._store, path, start=start, end=end))

        if size is not None:
            return pa.PythonFile(RangedFile(fetch, size), mode="r")
        with self._mapped("open_input", path):
            size, tail = self._tail(path)
        return pa.PythonFile(RangedFile(fetch, size, tail), mode="r")

    def _tail(self, path: str) -> tuple[int, bytes]:
        """The size of a file and its last bytes, by one request."""
        try:
            found = self._obstore.get(self._store, path, options={"range": {"suffix": TAIL_BYTES}})
            return int(found.meta["size"]), bytes(found.bytes())
        except self._obstore.exceptions.NotFoundError:
            raise
        except self._obstore.exceptions.BaseError:  # an empty file, or a store without suffix ranges (Azure)
            return self.size(path), b""

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        with _Spool(max_size=_SPOOL_BYTES) as spool:
            yield spool
            spool.seek(0)
            with self._mapped("open_write", path):
                self._obstore.put(self._store, path, spool)

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("create_exclusive", path):
            try:
                self._obstore.put(self._store, path, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError as error:
                raise AlreadyExistsError(f"{path} exists already below {self._root}", path=path) from error

    def replace_atomic(self, path: str, data: bytes) -> None:
        with self._mapped("replace_atomic", path):
            self._obstore.put(self._store, path, data)

    def read_versioned(self, path: str) -> Versioned | None:
        try:
            with self._mapped("read", path):
                answer = self._obstore.get(self._store, path)
                return Versioned(bytes(answer.bytes()), str(answer.meta["e_tag"]))
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes | None, seen: Versioned | None) -> bool:
        """Deleting is not conditional on object stores: StorageError."""
        if data is None:
            raise StorageError(f"swap failed on {self.uri(path)}: deletes have no condition", call="swap", path=path)
        failures = (self._obstore.exceptions.AlreadyExistsError, self._obstore.exceptions.PreconditionError)
        mode: Any = "create" if seen is None else {"e_tag": seen.version}
        with self._mapped("swap", path):
            try:
                self._obstore.put(self._store, path, data, mode=mode)
            except failures:
                return False
        return True

    def rename(self, source: str, target: str) -> None:
        # Object stores copy; the conditional create at least lets only one of two renamers win.
        self.create_exclusive(target, self.read(source))
        self.delete(source)

    def delete(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("delete", path), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, path)

    def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:  # noqa: ARG002
        wanted = list(paths)
        for start in range(0, len(wanted), _DELETES_AT_ONCE):
            part = wanted[start : start + _DELETES_AT_ONCE]
            try:
                self._obstore.delete(self._store, part)
            except self._obstore.exceptions.BaseError:  # at least one failed; some stores try none after that
                delete_each(wanted[start:], self.delete, self._root, _THREADS)
                return

    def delete_folder(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("delete_folder", path):
            chunks = self._obstore.list(self._store, path + "/" if path else None, chunk_size=_DELETES_AT_ONCE)
            for chunk in chunks:
                self.delete_many([meta["path"] for meta in chunk])


def _files(metas: Iterable[Any]) -> list[FileStatus]:
    found = (FileStatus(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000)) for meta in metas)
    return sorted(found, key=lambda status: status.path)


def _store_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """obstore's settings of the store, and of its HTTP client, from Hadoop's or its own names."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for name, value in options.items():
        key = name.removeprefix("spark.hadoop.")
        if key in _HADOOP_OPTIONS:
            config[_HADOOP_OPTIONS[key]] = value
        elif key == "fs.s3a.path.style.access":
            config["aws_virtual_hosted_style_request"] = "false" if value.lower() == "true" else "true"
        elif key.lower().startswith(_PREFIXES):
            config[key.lower()] = value
    endpoint = config.get("aws_endpoint")
    if endpoint:
        if "://" not in endpoint:
            secure = options.get("fs.s3a.connection.ssl.enabled", "true").lower() == "true"
            config["aws_endpoint"] = endpoint = f"{'https' if secure else 'http'}://{endpoint}"
        client["allow_http"] = endpoint.startswith("http://")
    return config, client
