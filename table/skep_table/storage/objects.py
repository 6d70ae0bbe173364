"""Tables on object stores (S3, GCS, Azure) through obstore: conditional creates, no renames to count on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from skep_table.errors import AlreadyExistsError, EnvironmentMissingError, StorageError, storage_error
from skep_table.storage.base import FileStatus, StorageFlags
from skep_table.storage.ranged import RangedFile, span
from skep_table.storage.versioned import Versioned

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


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    """Output that is not sent yet. A temporary folder without room is a failure of storage."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise storage_error("write", "", tempfile.gettempdir(), error) from error


class ObjectStorage:
    """Objects below one prefix. `options` are credentials and endpoints, by Hadoop's or obstore's names.

    Credentials that are not given come from the environment, as obstore finds them. A file that is written is sent when
    it is complete, so a reader never sees a part and an error leaves nothing.
    """

    flags = StorageFlags(atomic_rename=False, conditional_put=True)

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self._root = root.rstrip("/")
        self._options = dict(options or {})

    def __reduce__(self) -> tuple[object, ...]:
        return ObjectStorage, (self._root, self._options)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._root!r})"

    @property
    def root(self) -> str:
        return self._root

    def uri(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @cached_property
    def _obstore(self) -> Any:
        try:
            import obstore
            import obstore.store
        except ImportError as error:
            raise EnvironmentMissingError(
                f"{self._root}: object stores need the package obstore", hint="pip install 'skep[s3]'", path=self._root
            ) from error
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
        prefix = path + "/" if path else None
        with self._mapped("list", path):
            if recursive:
                metas = [meta for chunk in self._obstore.list(self._store, prefix) for meta in chunk]
            else:
                metas = list(self._obstore.list_with_delimiter(self._store, prefix)["objects"])
        found = [
            FileStatus(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000)) for meta in metas
        ]
        return sorted(found, key=lambda status: status.path)

    def list_folders(self, path: str) -> list[str]:
        with self._mapped("list", path):
            answer = self._obstore.list_with_delimiter(self._store, path + "/" if path else None)
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in answer["common_prefixes"])

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

    def read(self, path: str) -> bytes:
        with self._mapped("read", path):
            return bytes(self._obstore.get(self._store, path).bytes())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """One request; more only where the range lies outside of the file, or the store knows no suffix ranges."""
        if length <= 0:
            return b""
        with self._mapped("read_range", path):
            try:
                if offset < 0:
                    tail = self._obstore.get(self._store, path, options={"range": {"suffix": -offset}})
                    return bytes(tail.bytes())[:length]
                return bytes(self._obstore.get_range(self._store, path, start=offset, end=offset + length))
            except self._obstore.exceptions.BaseError:
                start, end = span(offset, length, self.size(path))
                return bytes(self._obstore.get_range(self._store, path, start=start, end=end)) if end > start else b""

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        with self._mapped("open_input", path):
            size = self.size(path)

        def fetch(start: int, end: int) -> bytes:
            with self._mapped("read_range", path):
                return bytes(self._obstore.get_range(self._store, path, start=start, end=end))

        return pa.PythonFile(RangedFile(fetch, size), mode="r")

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        with _Spool(max_size=_SPOOL_BYTES) as spool:
            yield spool
            spool.seek(0)
            with self._mapped("open_write", path):
                self._obstore.put(self._store, path, spool)

    def sync(self, paths: Collection[str]) -> None:
        """Nothing: what was written has copies on other machines."""

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

    def delete(self, path: str, *, durable: bool = True) -> bool:  # noqa: ARG002
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        with self._mapped("delete", path):
            self._obstore.delete(self._store, path)
        return True

    def delete_folder(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002
        with self._mapped("delete_folder", path):
            for chunk in self._obstore.list(self._store, path + "/" if path else None):
                self._obstore.delete(self._store, [meta["path"] for meta in chunk])


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
