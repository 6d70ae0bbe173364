"""Hudi's DataFrame reader and writer as `skep.load` and `skep.write`: paths and `hoodie.*` options, no metastore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from typing import Any

from skep.base.arguments import checked as with_checks
from skep.base.arguments import checks_arguments
from skep.base.keywords import takes_options
from skep.base.schemas import SchemaLike, schema_of
from skep.base.specs import table_spec
from skep.handles.table import Table
from skep.handles.writing import held, writer_for
from skep.metastore.locking import checked, lock_by_path
from skep.metastore.syncing import TableSyncs, open_queue
from skep.query.rows import Rows
from skep.query.spark import SparkHolder
from skep.services.runner import Services
from skep_format.errors import InputError, NotATableError, OptionError, TableExistsError
from skep_format.names import META_FOLDER
from skep_format.options import Options, boolean, one_of, option
from skep_format.schema.untyped import DROP_UNTYPED
from skep_format.storage import Storage, open_storage
from skep_format.timeline.instant import DATA_ACTIONS
from skep_sync.options import ENABLE, URIS
from skep_sync.targets import Clients, Target, targets_of
from skep_table.commit.create import TableSpec, create_table, planned_table, table_config
from skep_table.events import Events
from skep_table.hooks import Committed
from skep_table.query.request import ReadRequest
from skep_table.services.done import Done
from skep_table.table import HudiTable
from skep_table.write.flow import TableWriter
from skep_table.write.planning.options import DUPLICATES_DROPPED, PARTITIONS_TO_DELETE
from skep_table.write.planning.settings import RECORD_KEY, TABLE_NAME, check_settings, settings_among, spec_of
from skep_table.write.result import WriteResult


class Operation(str, Enum):
    """What becomes of a frame."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    DELETE_PARTITION = "delete_partition"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"


_TAKE_PREPPED = (Operation.UPSERT, Operation.DELETE)
_NEED_A_TABLE = (Operation.DELETE, Operation.DELETE_PARTITION)
# What they replace is known better than by deleting the table first.
_OVERWRITE_THEMSELVES = (Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE, *_NEED_A_TABLE)
_WRITE = "hoodie.datasource.write."
OPERATION = option(
    f"{_WRITE}operation", one_of(Operation), Operation.UPSERT, ", ".join(operation.value for operation in Operation)
)
PREPPED = option(
    "_hoodie.spark.sql.writes.prepped",
    boolean,
    False,
    "upsert and delete: the rows were read with their meta columns, which name their files: none of these is looked up",
)


class SaveMode(str, Enum):
    """What to do about a table that is there, by Spark's names."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    ERROR = "error"
    IGNORE = "ignore"


@with_checks
@takes_options
def load(path: str | os.PathLike[str], **options: object) -> Rows:
    """The rows of the Hudi table at `path`; `options` are those of Hudi's DataFrame reader."""
    return rows_at(path, options, SparkHolder())


def rows_at(path: str | os.PathLike[str], options: Mapping[str, object], spark: SparkHolder) -> Rows:
    """The same for a session."""
    given = Options(options)
    given.check()
    return Rows(HudiTable.open(path, given), ReadRequest.of(given), spark)


@with_checks
@takes_options
def open_table(path: str | os.PathLike[str], **options: object) -> Table:
    """The Hudi table at `path`, without a metastore: reads and writes it, and never syncs."""
    given = Options(options)
    hudi = HudiTable.open(path, given).with_context(events=Events())
    return Table(hudi, table_services(hudi))


def create_at(path: str | os.PathLike[str], schema: SchemaLike, options: Mapping[str, object], **spec: Any) -> Table:
    """A new table at `path`, without a metastore; `spec` is what `Lake.create_table` takes."""
    given = Options(options)
    given.check()
    Options(settings_among(spec.get("properties") or {})[1]).check()  # there is no entry that would have them
    storage = open_storage(path, given)
    name = given.value(TABLE_NAME) or storage.root.rstrip("/").rpartition("/")[2]
    made = table_spec(name, schema, options=given, **spec)
    check_settings(table_config(made), storage.root, given)
    hudi = create_table(storage, made, given).with_context(events=Events())
    return Table(hudi, table_services(hudi))


def write(frame: object) -> FrameWriter:
    """`skep.write(df).options(**hoodie_options).mode("append").save(path)`, as with Hudi's DataFrame writer."""
    return FrameWriter(frame)


@checks_arguments
class FrameWriter:
    """Collects options and a mode; `save` writes. `services`: how services run, for a table that a lake has."""

    def __init__(self, frame: object, services: Services | None = None) -> None:
        self._frame = frame
        self._given_services = services
        self._options: dict[str, object] = {}
        self._mode = SaveMode.ERROR

    def format(self, name: str) -> FrameWriter:
        """Accepted for code that comes from Hudi; anything but hudi is an error."""
        if name not in ("hudi", "org.apache.hudi"):
            raise InputError(f"format {name!r} is not written here", found=name, expected="hudi")
        return self

    def option(self, key: str, value: object) -> FrameWriter:
        """Sets one option."""
        self._options[key] = value
        return self

    @takes_options
    def options(self, **options: object) -> FrameWriter:
        """Sets several options."""
        self._options.update(options)
        return self

    def mode(self, name: str) -> FrameWriter:
        """Sets the mode by Spark's name of it. InputError for an unknown one."""
        try:
            self._mode = SaveMode(name.lower().replace("errorifexists", "error").replace("default", "error"))
        except ValueError:
            known = ", ".join(mode.value for mode in SaveMode)
            raise InputError(f"unknown mode {name!r}; there are: {known}", found=name) from None
        return self

    def save(self, path: str | os.PathLike[str], *, batch_id: str | None = None) -> WriteResult | None:
        """Writes the frame as one commit. None when the mode is ignore and a table is there.

        A `batch_id` that a commit already has makes the call a no-op.

        TableExistsError by the mode; TableMismatchError when the table at `path` contradicts the options.
        """
        options = Options(self._options)
        options.check()
        frame = self._frame
        storage = open_storage(path, options)
        table = _existing(storage, options)
        keyed = bool(options.value(RECORD_KEY) or (table is not None and table.config.record_key_fields))
        if not keyed and not options.is_set(OPERATION):
            options = options.with_values({OPERATION.key: Operation.INSERT.value})  # as Hudi does
        operation = options.value(OPERATION)
        if table is not None:
            if self._mode is SaveMode.IGNORE:
                return None
            if self._mode is SaveMode.ERROR:
                raise TableExistsError(
                    f"table {table.config.name} exists at {storage.root}",
                    hint='mode("append") writes into it',
                    path=storage.root,
                )
            if self._mode is SaveMode.OVERWRITE and operation not in _OVERWRITE_THEMSELVES:
                return self._overwrite(storage, options, batch_id)
            check_settings(table.config, table.storage.root, options)
        else:
            if operation in _NEED_A_TABLE:
                raise NotATableError(
                    f"{operation.value}: there is no Hudi table at {storage.root}",
                    table=storage.root,
                    path=storage.root,
                )
            # its columns are needed first, and some frames can be read but once
            frame = held(frame, options)
            table = create_table(storage, _spec(options, frame), options)
            with removed_when_refused(table):
                return _written(writer_for(frame, table, self._services(table)), frame, options, batch_id)
        return _written(writer_for(frame, table, self._services(table)), frame, options, batch_id)

    def _services(self, table: HudiTable) -> Services:
        return self._given_services or table_services(table)

    def _overwrite(self, storage: Storage, options: Options, batch_id: str | None) -> WriteResult:
        """The old table is deleted when settings and rows were checked against the new one."""
        frame = held(self._frame, options)
        spec = _spec(options, frame)
        table = planned_table(storage, spec, options)

        with ExitStack() as stack:

            def replace_table() -> None:
                storage.delete_folder("")
                stack.enter_context(removed_when_refused(create_table(storage, spec, options)))

            return _written(writer_for(frame, table, self._services(table), replace_table), frame, options, batch_id)


@contextmanager
def removed_when_refused(table: HudiTable, unregister: Callable[[], object] | None = None) -> Iterator[None]:
    """Removes a new table when its first rows are refused, unless another writer uses it already.

    `unregister` removes its entry from the metastore, where it has one.
    """
    try:
        yield
    except InputError:
        if not any(instant.action in DATA_ACTIONS for instant in table.reload().timeline):
            if unregister is not None:
                unregister()
            table.storage.delete_folder(META_FOLDER)
        raise


def _written(writer: TableWriter, frame: object, options: Options, batch_id: str | None) -> WriteResult:
    operation = options.value(OPERATION)
    if operation is Operation.DELETE_PARTITION:
        named = options.value(PARTITIONS_TO_DELETE)
        return writer.delete_partitions(named or writer.partitions_of(frame), batch_id=batch_id)
    if operation is Operation.UPSERT and options.value(DUPLICATES_DROPPED):
        operation = Operation.INSERT  # as Hudi does
    prepped = {"prepped": True} if options.value(PREPPED) and operation in _TAKE_PREPPED else {}
    call: Callable[..., WriteResult] = getattr(writer, operation.value)
    return call(frame, batch_id=batch_id, **prepped)


def _existing(storage: Storage, options: Mapping[str, str]) -> HudiTable | None:
    try:
        return HudiTable.open(storage, options)
    except NotATableError:
        return None


def _spec(options: Options, frame: object) -> TableSpec:
    name = options.value(TABLE_NAME)
    if not name:
        raise OptionError(f"a new table needs {TABLE_NAME.key}", option=TABLE_NAME.key)
    return spec_of(options, name, schema_of(frame, name, drop_untyped=options.value(DROP_UNTYPED)))


def table_services(table: HudiTable) -> Services:
    """How services run on a table that was opened by its path: the lock, callbacks and syncs that its options name."""
    options = table.options
    hooks = [partial(_sync, options, targets_of(options, options.value(URIS)))] if options.value(ENABLE) else []
    return Services(checked(partial(lock_by_path, table), options), SparkHolder(), hooks)


def _sync(options: Options, targets: tuple[Target, ...], committed: Committed) -> None:
    """After a commit with `hoodie.datasource.hive_sync.enable`."""
    with Clients() as clients:
        TableSyncs(targets, clients, partial(open_queue, options)).after_commit()(committed)


@takes_options
def maintain(
    table: Table | str | os.PathLike[str], *, plan: bool = False, dry_run: bool = False, **options: object
) -> list[Done]:
    """Runs what is due: pending plans, compaction, clustering and expiry where configured, clean, archive.

    `table` is one of a lake, or the path of one. `plan` or `dry_run`: only returns what is due. `options` are Hudi's:
    `**{"hoodie.…": …}`.
    """
    return (table if isinstance(table, Table) else open_table(table)).maintain(plan=plan, dry_run=dry_run, **options)
