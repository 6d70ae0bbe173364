"""Hudi's DataFrame writer as `skep.write`: a path and `hoodie.*` options, no metastore."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from enum import Enum

from skep.base.arguments import checks_arguments
from skep.base.keywords import takes_options
from skep.base.schemas import schema_of
from skep.handles.by_path import handle_of
from skep.handles.destination import Destination, made_at
from skep.handles.new_tables import new_table
from skep.handles.table import Table
from skep.handles.writing import held, writer_for
from skep.services.runner import Services
from skep_format.errors import InputError, NotATableError, TableExistsError
from skep_format.options import Options, boolean, one_of, option
from skep_format.schema.arrow import to_arrow
from skep_format.schema.untyped import DROP_UNTYPED
from skep_format.storage import Storage, open_storage
from skep_table.commit.create import TableSpec, planned_table
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.table import HudiTable
from skep_table.write.bootstrap.run import check_apart, check_format
from skep_table.write.flow import TableWriter
from skep_table.write.planning.options import DUPLICATES_DROPPED, PARTITIONS_TO_DELETE
from skep_table.write.planning.settings import RECORD_KEY, TABLE_NAME, check_settings, spec_of
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
    BOOTSTRAP = "bootstrap"


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


def write(frame: object) -> FrameWriter:
    """`skep.write(df).options(**hoodie_options).mode("append").save(path)`, as with Hudi's DataFrame writer."""
    return FrameWriter(frame)


@checks_arguments
class FrameWriter:
    """Collects options and a mode; `save` writes."""

    def __init__(self, frame: object) -> None:
        self._frame = frame
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
        storage = open_storage(path, options)

        def make(frame: object, settings: Mapping[str, str] | None = None) -> AbstractContextManager[Table]:
            given = options.with_values(settings or {})
            return made_at(storage, spec_for(frame, given), given)

        there = Destination(storage.root, lambda: handle_of(HudiTable.open(storage, options)), make)
        return self.save_to(there, batch_id=batch_id)

    def save_to(self, there: Destination, *, batch_id: str | None = None) -> WriteResult | None:
        """The same for a table that is found or made elsewhere."""
        options = Options(self._options)
        options.check()
        frame, found = self._frame, there.table()
        table = None if found is None else found.snapshot
        keyed = bool(options.value(RECORD_KEY) or (table is not None and table.config.record_key_fields))
        if not keyed and not options.is_set(OPERATION):
            options = options.with_values({OPERATION.key: Operation.INSERT.value})  # as Hudi does
        operation = options.value(OPERATION)
        if operation is Operation.BOOTSTRAP:
            return self._bootstrap(there, found, options)
        if table is not None and found is not None:
            root = table.storage.root
            if self._mode is SaveMode.IGNORE:
                return None
            if self._mode is SaveMode.ERROR:
                raise TableExistsError(
                    f"table {table.config.name} exists at {root}", hint='mode("append") writes into it', path=root
                )
            if self._mode is SaveMode.OVERWRITE and operation not in _OVERWRITE_THEMSELVES:
                return self._overwrite(table.storage, found.services(), options, batch_id)
            check_settings(table.config, root, options)
            return _written(writer_for(frame, table.with_options(options), found.services()), frame, options, batch_id)
        if operation in _NEED_A_TABLE:
            raise NotATableError(
                f"{operation.value}: there is no Hudi table at {there.name}", table=there.name, path=there.name
            )
        frame = held(frame, options)  # its columns are needed first, and some frames can be read but once
        with there.for_rows(frame) as made:
            writer = writer_for(frame, made.snapshot.with_options(options), made.services())
            return _written(writer, frame, options, batch_id)

    def _bootstrap(self, there: Destination, found: Table | None, options: Options) -> WriteResult | None:
        """A table of the folder that the options name. The frame, whose rows would not be in it, has no columns."""
        from skep.handles.bootstraps import format_setting, found_source, written

        if schema_of(self._frame, "bootstrap").fields:
            raise InputError(
                f"the rows of a bootstrap are those of {BOOTSTRAP_BASE_PATH.key}: its frame has no columns",
                hint="spark.emptyDataFrame, or pyarrow.table({})",
            )
        if found is not None and self._mode is SaveMode.IGNORE:
            return None
        if found is not None and self._mode is SaveMode.ERROR:
            raise TableExistsError(
                f"table {found.name} exists at {found.path}", hint='mode("append") writes into it', path=found.path
            )
        keys = options.value(RECORD_KEY)
        source = found_source(options, keys)
        settings = format_setting(source, options)
        if found is not None and self._mode is SaveMode.OVERWRITE:
            check_apart(found.snapshot, source)
            spec = spec_for(to_arrow(source.columns), options.with_values(settings))
            check_format(source, spec.base_format, spec.name)
            storage = found.snapshot.storage
            storage.delete_folder("")
            with made_at(storage, spec, options) as made:
                return written(made, source, options, frame=self._frame)[-1]
        with there.for_rows(to_arrow(source.columns), settings) as made:
            check_settings(made.snapshot.config, made.path, options)
            return written(made, source, options, frame=self._frame)[-1]

    def _overwrite(self, storage: Storage, services: Services, options: Options, batch_id: str | None) -> WriteResult:
        """The old table is deleted when settings and rows were checked against the new one."""
        frame = held(self._frame, options)
        spec = spec_for(frame, options)
        with ExitStack() as stack:

            def replace_table() -> None:
                storage.delete_folder("")
                stack.enter_context(new_table(storage, spec, options))

            writer = writer_for(frame, planned_table(storage, spec, options), services, replace_table)
            return _written(writer, frame, options, batch_id)


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


def spec_for(frame: object, options: Options) -> TableSpec:
    """A new table for a frame. OptionError where the options don't name it, or don't go together."""
    name = options.needed(TABLE_NAME, "a new table needs")
    return spec_of(options, name, schema_of(frame, name, drop_untyped=options.value(DROP_UNTYPED)))
