"""AWS Glue's data catalog as a client of the metastore's kind: frozen values in and out, in batches of Glue's sizes.

Throttled calls are repeated by botocore, by its own settings (AWS_RETRY_MODE, AWS_MAX_ATTEMPTS). Answers that name some
partitions of a batch as failed are errors here; what was there already, or missing already, is what was wanted. An
alteration is for one version of an entry: Glue refuses it when another was faster.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import Database, Partition, PartitionIndexes, TableEntry, partition_name, values_of_name
from skep_catalog.glue import codec
from skep_catalog.glue.settings import INDEX_FIELDS, GlueSettings
from skep_catalog.lengths import GLUE_LENGTHS, Lengths
from skep_format.batching import pieces
from skep_format.errors import (
    AuthenticationError,
    CatalogError,
    EntryChangedError,
    EntryExistsError,
    MetastoreUnreachableError,
    NoSuchTableError,
    OptionError,
    UnsupportedError,
    needs,
)

T = TypeVar("T")
R = TypeVar("R")

_CREATED: Final = 100
_UPDATED: Final = 100
_DELETED: Final = 25
_READ: Final = 1000
"""Partitions in one call, at most, by Glue's API."""
_NAMED: Final = 5  # so many partitions are named in an error

_EXISTS: Final = "AlreadyExistsException"
_MISSING: Final = "EntityNotFoundException"
_KINDS: Final[dict[str, type[CatalogError]]] = {
    _EXISTS: EntryExistsError,
    _MISSING: NoSuchTableError,
    "ConcurrentModificationException": EntryChangedError,
    "AccessDeniedException": AuthenticationError,
    "ExpiredTokenException": AuthenticationError,
    "ExpiredToken": AuthenticationError,
    "IncompleteSignature": AuthenticationError,
    "InvalidClientTokenId": AuthenticationError,
    "InvalidSignatureException": AuthenticationError,
    "MissingAuthenticationToken": AuthenticationError,
    "UnrecognizedClientException": AuthenticationError,
    "InternalServiceException": MetastoreUnreachableError,
    "OperationTimeoutException": MetastoreUnreachableError,
    "RequestLimitExceeded": MetastoreUnreachableError,
    "ServiceUnavailable": MetastoreUnreachableError,
    "Throttling": MetastoreUnreachableError,
    "ThrottlingException": MetastoreUnreachableError,
    "TooManyRequestsException": MetastoreUnreachableError,
}
_MANAGED: Final = "MANAGED_TABLE"
_LISTING: Final = "hudi.metadata-listing-enabled"
_INDEXED: Final = "partition_filtering.enabled"
_INDEX: Final = "hudi_managed_"  # what names of indexes begin with, as those of Hudi's tool


class GlueCatalog(EntryCatalog):
    """A client of one catalog in one region. Threads may share it. See EntryCatalog for what each method does."""

    user: str | None = None
    """Glue has no callers by name: entries have the owner that others give them."""
    lengths: Lengths = GLUE_LENGTHS
    compares_columns = False
    calls = 0

    def __init__(self, settings: GlueSettings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._client: Any = None

    @classmethod
    def connect(cls, uri: str, settings: Mapping[str, object] | None = None) -> GlueCatalog:
        """`uri`: `glue:`, or `glue://REGION/CATALOG`; `settings` are option keys."""
        return cls(GlueSettings.of(uri, settings))

    @property
    def uri(self) -> str:
        """`glue://REGION`, with the catalog's id where one was given."""
        region = self._connected().meta.region_name
        return f"glue://{region}" + (f"/{self._settings.catalog}" if self._settings.catalog else "")

    @property
    def entry_parameters(self) -> Mapping[str, str]:
        """Whether Athena lists files by the metadata table, and Glue filters by partition indexes."""
        indexed = {} if self._settings.indexes is None else {_INDEXED: "true"}
        return {_LISTING: str(self._settings.file_listing).upper(), **indexed}

    def location(self, uri: str) -> str:
        """Athena and Glue's Spark know S3 by its plain scheme only."""
        return re.sub(r"^s3[an]://", "s3://", uri)

    def close(self) -> None:
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- databases and tables

    def databases(self) -> list[str]:
        return sorted(raw["Name"] for raw in self._all("get_databases", "DatabaseList"))

    def database(self, name: str) -> Database:
        return codec.database_of(self._call("get_database", name, Name=name.lower())["Database"])

    def new_database(self, database: Database) -> None:
        tags = {"Tags": dict(self._settings.tags)} if self._settings.tags else {}
        self._call("create_database", database.name, DatabaseInput=codec.database_input(database), **tags)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Glue itself would drop the tables, too, and one by one after the call."""
        tables = self.tables(name)
        if tables and not cascade:
            raise CatalogError(
                f"database {name}: {self.uri} has tables in it: {', '.join(tables[:_NAMED])}",
                uri=self.uri,
                call="delete_database",
                table=name,
            )
        for table in tables:
            self.drop_table(name, table)
        self._call("delete_database", name, Name=name.lower())

    def tables(self, database: str) -> list[str]:
        return sorted(entry.name for entry in self._tables(database))

    def table(self, database: str, name: str) -> TableEntry:
        return codec.table_of(self._table(database, name))

    def tables_of(self, database: str, names: Sequence[str] | None = None) -> Iterator[TableEntry]:
        if names is not None and len(names) < 2:
            yield from filter(None, (self.find_table(database, name) for name in names))
            return
        wanted = None if names is None else {name.lower() for name in names}
        yield from (entry for entry in self._tables(database) if wanted is None or entry.name in wanted)

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> None:  # noqa: ARG002
        raise self._lacks(f"{database}.{name}", "no rename of tables", "drop the entry and register the table again")

    def create_table(self, table: TableEntry) -> None:
        self.check(table)
        request = {"DatabaseName": table.database.lower(), "TableInput": codec.table_input(table)}
        try:
            self._call("create_table", table.full_name, **request)
        except NoSuchTableError as error:
            raise NoSuchTableError(
                f"table {table.full_name}: {self.uri} has no database {table.database}",
                **error.fields,  # type: ignore[arg-type]
            ) from error

    def alter_table(
        self,
        database: str,
        name: str,
        table: TableEntry,
        *,
        cascade: bool = False,
        expected: tuple[str, str] | None = None,
    ) -> None:
        """EntryChangedError for an entry that is not as it was read any more, or has not what is expected."""
        full_name = f"{database}.{name}"
        if cascade:
            raise self._lacks(full_name, "no alteration that goes to all partitions", "alter the partitions, too")
        if (table.database.lower(), table.name.lower()) != (database.lower(), name.lower()):
            self.rename_table(database, name, table.database, table.name)
        self.check(table)
        actual = self._table(database, name)
        read = (table.origin or actual).get("VersionId")
        found = (actual.get("Parameters") or {}).get(expected[0]) if expected else None
        if actual.get("VersionId") != read or (expected and found != expected[1]):
            raise EntryChangedError(
                f"table {full_name} in {self.uri} was changed by another meanwhile",
                uri=self.uri,
                call="update_table",
                table=full_name,
            )
        version = {} if read is None else {"VersionId": read}
        entry = codec.table_input(table) if table.origin else {**codec.kept(actual), **codec.table_input(table)}
        self._call(
            "update_table",
            full_name,
            DatabaseName=database.lower(),
            TableInput=entry,
            SkipArchive=self._settings.skip_archive,
            **version,
        )

    def drop_table(self, database: str, name: str) -> None:
        self._call("delete_table", f"{database}.{name}", DatabaseName=database.lower(), Name=name.lower())

    # -- partitions

    def partition_names(self, database: str, name: str) -> list[str]:
        keys = [key["Name"] for key in self._table(database, name).get("PartitionKeys") or ()]
        found = self._partitions(database, name, columns=False)
        return sorted(partition_name(keys, raw["Values"]) for raw in found)

    def partitions(self, database: str, name: str, names: Sequence[str] | None = None) -> Iterator[Partition]:
        if names is None:
            yield from map(codec.partition_of, self._partitions(database, name, columns=True))
            return

        def read(batch: Sequence[str]) -> list[Any]:
            wanted = [{"Values": list(values_of_name(text))} for text in batch]
            found: list[Any] = []
            while wanted:
                answer = self._call("batch_get_partition", f"{database}.{name}", **of, PartitionsToGet=wanted)
                found += answer.get("Partitions") or ()
                wanted = answer.get("UnprocessedKeys") or []
            return found

        of = _names(database, name)
        for raws in _at_once(read, pieces(names, _READ), self._settings.reads_at_once):
            yield from map(codec.partition_of, raws)

    def add_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        def add(batch: Sequence[Partition]) -> dict[str, Any]:
            return {"PartitionInputList": [codec.partition_input(partition) for partition in batch]}

        self._change("batch_create_partition", database, name, partitions, add, _CREATED)

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        def alter(batch: Sequence[Partition]) -> dict[str, Any]:
            entries = ((list(partition.values), codec.partition_input(partition)) for partition in batch)
            return {"Entries": [{"PartitionValueList": old, "PartitionInput": new} for old, new in entries]}

        self._change("batch_update_partition", database, name, partitions, alter, _UPDATED)

    def drop_partitions(self, database: str, name: str, names: Sequence[str]) -> None:
        def drop(batch: Sequence[str]) -> dict[str, Any]:
            return {"PartitionsToDelete": [{"Values": list(values_of_name(text))} for text in batch]}

        self._change("batch_delete_partition", database, name, names, drop, _DELETED)

    def lacking_indexes(self, table: TableEntry) -> PartitionIndexes | None:
        """Of those that the options name; of others those that Hudi's tool or skep made are dropped. OptionError for a
        column that is no partition key."""
        keys = tuple(key.name.lower() for key in table.partition_keys)
        if self._settings.indexes is None or not keys:
            return None
        wanted = self._settings.indexes or (keys,)
        for column in (name for index in wanted for name in index):
            if column not in keys:
                raise OptionError(
                    f"option {INDEX_FIELDS.key}: {column} is no partition key of {table.full_name}: {', '.join(keys)}",
                    option=INDEX_FIELDS.key,
                    found=column,
                    expected=keys,
                )
        there: dict[str, tuple[str, ...]] = {}
        of = _names(table.database, table.name)
        with suppress(NoSuchTableError):  # it is about to be made
            found = self._all("get_partition_indexes", "PartitionIndexDescriptorList", table.full_name, **of)
            there = {raw["IndexName"]: tuple(key["Name"].lower() for key in raw["Keys"]) for raw in found}
        add = tuple(index for index in wanted if index not in there.values())
        drop = tuple(name for name, index in there.items() if name.startswith(_INDEX) and index not in wanted)
        return PartitionIndexes(add, drop) if add or drop else None

    def change_indexes(self, table: TableEntry, changes: PartitionIndexes) -> None:
        of = _names(table.database, table.name)
        for name in changes.drop:
            self._call("delete_partition_index", table.full_name, **of, IndexName=name)
        for index in changes.add:
            wanted = {"Keys": list(index), "IndexName": f"{_INDEX}[{', '.join(index)}]"}
            self._call("create_partition_index", table.full_name, **of, PartitionIndex=wanted)

    # -- how

    def _change(
        self,
        call: str,
        database: str,
        name: str,
        items: Sequence[T],
        request: Callable[[Sequence[T]], dict[str, Any]],
        most: int,
    ) -> None:
        """Calls of at most `most` items."""
        of = _names(database, name)

        def send(part: Sequence[T]) -> None:
            answer = self._call(call, f"{database}.{name}", **of, **request(part))
            self._check_parts(call, f"{database}.{name}", answer.get("Errors") or ())

        list(_at_once(send, pieces(items, most), self._settings.changes_at_once))

    def _check_parts(self, call: str, of: str, errors: Sequence[Mapping[str, Any]]) -> None:
        """An error that names the partitions that were not changed."""
        wanted = {"batch_create_partition": _EXISTS, "batch_delete_partition": _MISSING}.get(call)
        failed = [error for error in errors if error.get("ErrorDetail", {}).get("ErrorCode") != wanted]
        if not failed:
            return
        code = failed[0].get("ErrorDetail", {}).get("ErrorCode") or "unknown error"
        parts = [
            f"{'/'.join(each.get('PartitionValues') or each.get('PartitionValueList') or ['?'])}: "
            f"{each.get('ErrorDetail', {}).get('ErrorCode')} {each.get('ErrorDetail', {}).get('ErrorMessage') or ''}"
            for each in failed[:_NAMED]
        ]
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        raise _KINDS.get(code, CatalogError)(
            f"table {of}: {self.uri} did not take {len(failed)} partitions by {call}: {'; '.join(parts)}{more}",
            uri=self.uri,
            call=call,
            table=of,
            error=code,
        )

    def _partitions(self, database: str, name: str, *, columns: bool) -> list[dict[str, Any]]:
        """All of them, each segment of Glue's by one thread."""
        request = {**_names(database, name), "ExcludeColumnSchema": not columns, "MaxResults": _READ}
        total, of = self._settings.segments, f"{database}.{name}"

        def read(number: int) -> list[dict[str, Any]]:
            segment = {} if total == 1 else {"Segment": {"SegmentNumber": number, "TotalSegments": total}}
            return list(self._all("get_partitions", "Partitions", of, **request, **segment))

        found = {tuple(raw["Values"]): raw for raws in _at_once(read, range(total), total) for raw in raws}
        return list(found.values())

    def _tables(self, database: str) -> Iterator[TableEntry]:
        return map(codec.table_of, self._all("get_tables", "TableList", database, DatabaseName=database.lower()))

    def _table(self, database: str, name: str) -> dict[str, Any]:
        answer = self._call("get_table", f"{database}.{name}", DatabaseName=database.lower(), Name=name.lower())
        return {"DatabaseName": database.lower(), **answer["Table"]}

    def _all(self, call: str, key: str, of: str | None = None, **request: Any) -> Iterator[dict[str, Any]]:
        """The pages of a list."""
        more: dict[str, Any] = {}
        while True:
            answer = self._call(call, of, **request, **more)
            yield from answer.get(key) or ()
            if not answer.get("NextToken"):
                return
            more = {"NextToken": answer["NextToken"]}

    def _call(self, call: str, of: str | None = None, **request: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._connected()
        if self._settings.catalog:
            request["CatalogId"] = self._settings.catalog
        try:
            return getattr(client, call)(**request)
        except ClientError as error:
            self._refused(call, of, error)
        except BotoCoreError as error:
            raise self._broken(call, of, error) from error

    def _connected(self) -> Any:
        from botocore.exceptions import BotoCoreError

        with self._guard:
            if self._client is None:
                try:
                    self._client = self._opened()
                except BotoCoreError as error:
                    raise OptionError(
                        f"AWS Glue can't be addressed: {error}",
                        hint="name the region: glue://REGION, hoodie.aws.glue.region or AWS_DEFAULT_REGION",
                    ) from error
            return self._client

    def _opened(self) -> Any:
        with needs("glue", "AWS Glue needs the package %s"):
            import boto3
            from botocore.config import Config
            from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
            from botocore.session import Session
        settings = self._settings
        core = Session()
        core.register_component("data_loader", _descriptions())
        session = boto3.session.Session(
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
            botocore_session=core,
        )
        if settings.role is not None:
            extra = {"ExternalId": settings.role_external_id} if settings.role_external_id else {}
            fetcher = AssumeRoleCredentialFetcher(
                core.create_client,
                core.get_credentials(),
                settings.role,
                extra_args={"RoleSessionName": settings.role_session, **extra},
            )
            core._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        retries = {} if settings.attempts is None else {"retries": {"total_max_attempts": settings.attempts}}
        config = Config(
            connect_timeout=settings.connect_timeout,
            read_timeout=settings.timeout,
            max_pool_connections=32,
            **retries,
        )
        client = session.client("glue", endpoint_url=settings.endpoint, config=config)
        client.meta.events.register("before-send.glue", self._count)
        return client

    def _count(self, **_: object) -> None:
        self.calls += 1

    # -- errors

    def check(self, table: TableEntry) -> None:
        if table.table_type == _MANAGED:
            raise self._lacks(table.full_name, "no managed tables", "register it as an external one")

    def _lacks(self, of: str, what: str, hint: str) -> UnsupportedError:
        return UnsupportedError.of_table(of, f"AWS Glue ({self.uri}) has {what}", hint=hint, uri=self.uri)

    def _refused(self, call: str, of: str | None, error: Any) -> NoReturn:
        detail = error.response.get("Error", {})
        code = detail.get("Code") or "unknown error"
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
        kind = _KINDS.get(code, MetastoreUnreachableError if status >= 500 else CatalogError)
        raise kind(
            f"{_subject(of)}{self.uri} refused {call}: {code}: {detail.get('Message') or 'no reason is given'}",
            uri=self.uri,
            call=call,
            table=of,
            error=code,
        ) from error

    def _broken(self, call: str, of: str | None, error: Exception) -> CatalogError:
        from botocore import exceptions

        kind, hint = CatalogError, None
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            kind = MetastoreUnreachableError
        elif isinstance(
            error,
            exceptions.NoCredentialsError | exceptions.PartialCredentialsError | exceptions.CredentialRetrievalError,
        ):
            kind, hint = (
                AuthenticationError,
                "set hoodie.aws.access.key and its secret, or AWS's own variables or files",
            )
        text = f"{_subject(of)}{self.uri} could not be asked for {call}: {error}"
        return kind(text, hint=hint, uri=self.uri, call=call, table=of)


@cache
def _descriptions() -> Any:
    """AWS's descriptions of its services, parsed once a process: most of what opening a client costs."""
    from botocore.loaders import create_loader

    return create_loader()


def _names(database: str, table: str) -> dict[str, str]:
    return {"DatabaseName": database.lower(), "TableName": table.lower()}


def _subject(of: str | None) -> str:
    return f"table {of}: " if of else ""


def _at_once(work: Callable[[T], R], items: Sequence[T], most: int) -> Iterator[R]:
    """The results in order, of so many calls at once."""
    if most == 1 or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(most, len(items)), "skep-glue") as pool:
        yield from pool.map(work, items)
