"""What is known about a write before its rows are read: schema, keys, merge rule, index, checked against the table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from skep_table.basefile import BaseFileOptions, ValueFilters, read_footer
from skep_table.errors import KeyFieldError, OptionError, SchemaError, UnsupportedError
from skep_table.keys import KeyGenerator, KeyGeneratorType
from skep_table.keys.dropped import DroppedColumns
from skep_table.keys.stored import StoredKeys
from skep_table.logfile.options import LogFileOptions
from skep_table.merge import MergeRule
from skep_table.names import META_FOLDER
from skep_table.options import Option, Options
from skep_table.schema.arrow import from_arrow, to_arrow
from skep_table.schema.exact import LOSSY, Casts
from skep_table.schema.policy import OPERATION_FIELD, SchemaPolicy, hint_of_case
from skep_table.schema.reconcile import check_fixed, reconcile
from skep_table.schema.types import META_FIELDS, OPERATION, DoubleType, Field, FloatType, Schema, StringType
from skep_table.schema.untyped import DROP_UNTYPED, typed
from skep_table.slices.history import schema_history
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import WriteOperation
from skep_table.write.arrange import Arrangement
from skep_table.write.conform import plain_schema
from skep_table.write.context import Memory, WriteContext
from skep_table.write.indexes import Index, index_of
from skep_table.write.keyed import Keyer
from skep_table.write.operation import TRAITS, Traits
from skep_table.write.options import (
    ALLOW_DUPLICATE_INSERTS,
    AMBIGUOUS_KEYS,
    COMBINE_INSERT,
    COMBINE_UPSERT,
    DUPLICATES,
    DUPLICATES_DROPPED,
    MAX_FILE_BYTES,
    AmbiguousKeys,
    Duplicates,
)
from skep_table.write.settings import check_settings, merged_by


class MetaColumnWarning(UserWarning):
    """Columns of a frame were left out because they bear the names of Hudi's meta columns."""


_BUCKET_INDEX: Final = f"{META_FOLDER}/.bucket_index"
_CONSISTENT_HASHING: Final = "consistent_hashing_metadata"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write, planned against a snapshot of the table.

    `schema` is the table's after the write, `in_files` the part of it that files hold.
    """

    operation: WriteOperation
    schema: Schema
    in_files: Schema
    keyer: Keyer
    rule: MergeRule
    index: Index
    options: Options

    @property
    def traits(self) -> Traits:
        """The properties of the operation."""
        return TRAITS[self.operation]

    @property
    def duplicates(self) -> Duplicates:
        """What an insert does with rows whose key is in the table."""
        if self.operation is not WriteOperation.INSERT:
            return Duplicates.NONE
        return Duplicates.DROP if self.options.value(DUPLICATES_DROPPED) else self.options.value(DUPLICATES)

    @property
    def uses_index(self) -> bool:
        """Whether each row is tagged before it is written."""
        return self.traits.finds_keys or self.index.places_new_keys or self.duplicates is not Duplicates.NONE

    @property
    def arrangement(self) -> Arrangement | None:
        """How a bulk_insert sorts and partitions its rows; None for other operations."""
        return Arrangement.of(self.options) if self.operation is WriteOperation.BULK_INSERT else None

    @property
    def fills_small_files(self) -> bool:
        """Whether new rows go into small files first."""
        return self.traits.fills_small_files and not self.index.places_new_keys

    @property
    def streams(self) -> bool:
        """Whether rows are written as they arrive, without being tagged or routed."""
        return self.traits.streams and not self.index.places_new_keys

    @property
    def combines(self) -> bool:
        """Whether rows of one batch with one key become one row."""
        if not self.keyer.generator.record_fields:
            return False
        if self.duplicates is Duplicates.DROP:
            return True
        return self.options.value(COMBINE_UPSERT if self.traits.finds_keys else COMBINE_INSERT)

    def context(self, table: HudiTable, instant: Instant) -> WriteContext:
        """What the tasks of the instant need."""
        return WriteContext(
            storage=table.storage,
            format=table.format,
            instant_time=instant.requested_time,
            operation=self.operation,
            schema=self.in_files,
            rule=self.rule,
            files=BaseFileOptions.of(self.options, meta=table.config.populate_meta_fields),
            max_file_bytes=self.options.value(MAX_FILE_BYTES),
            combine=self.combines,
            auto_keys=not self.keyer.generator.record_fields and not self.keyer.prepped,
            arrangement=self.arrangement,
            keeps_equal_keys=self.options.value(ALLOW_DUPLICATE_INSERTS),
            logs=LogFileOptions.of(self.options),
            partition_fields=self.keyer.generator.partition_fields,
            keys=StoredKeys.of(table.config, self.in_files) if self.keyer.generator.record_fields else None,
            dropped=DroppedColumns.of(table.config),
            memory=Memory.of(self.options),
            on_written=self.index.on_written if self.index.keeps_keys else None,
        )


def plan_write(
    table: HudiTable,
    operation: WriteOperation,
    incoming: pa.Schema,
    options: Options,
    widened: frozenset[str] = frozenset(),
) -> WritePlan:
    """Checks the frame's columns against the table. InputError for what does not fit.

    `widened` are columns that get a wider type where one holds all stored values, as the frame has others.
    """
    config = table.config
    check_settings(config, table.storage.root, options)
    _refuse_consistent_hashing(table)
    generator = _as_stored(table, KeyGenerator.of(config, options))
    rule = MergeRule.of(merged_by(config, options), options)
    given = plain_schema(pa.schema([field for field in incoming if field.name not in META_FIELDS]))
    traits = TRAITS[operation]
    if not (traits.deletes or traits.prepped):
        _warn_of_meta_columns(incoming.names)
    _refuse_unasked_duplicates(operation, options)
    index = index_of(config, options)
    ambiguous = options.value(AMBIGUOUS_KEYS) is AmbiguousKeys.ALLOW
    if not traits.prepped:
        generator.check(given)
    if traits.prepped and not config.populate_meta_fields:
        raise KeyFieldError(
            f"table {config.name} has no meta columns (hoodie.populate.meta.fields=false), which name their files",
            hint="the same operation without the flag finds rows by their key",
            table=config.name,
        )
    stored = _with_operation(table.schema(), options)
    given = typed(given, to_arrow(stored), drop=traits.deletes or options.value(DROP_UNTYPED))
    if traits.finds_keys and not traits.prepped and not generator.record_fields:
        raise KeyFieldError(
            f"table {config.name} has no record key, so rows can't be found by key",
            hint="insert adds rows; delete(where=…) deletes by a predicate",
            table=config.name,
        )
    fixed = frozenset((*generator.record_fields, *generator.partition_fields, *rule.ordering_fields))
    casts = Casts(fixed, widened, options.value(LOSSY))
    if traits.deletes:
        keys = (*generator.record_fields, *generator.partition_fields)
        wanted = {name.partition(".")[0] for name in keys}
        columns = pa.schema(
            [
                given.field(field.name) if field.name in config.dropped_columns else field
                for field in to_arrow(stored)
                if field.name in wanted and field.name in given.names
            ]
        )
        found = from_arrow(pa.schema([given.field(name) for name in columns.names]))
        check_fixed(table.without_dropped(stored), found, keys)
        _refuse_floats(found.select(tuple(name for name in config.dropped_columns if name in found)))
        keyer = Keyer(generator, columns, traits.prepped, casts, ambiguous)
        return WritePlan(operation, stored, table.without_dropped(stored), keyer, rule, index, options)
    if traits.updates:
        for name in rule.ordering_fields:
            if name.partition(".")[0] not in given.names:
                raise KeyFieldError(
                    f"table {config.name}: ordering column {name} is not among {', '.join(given.names)}",
                    hint=hint_of_case(name.partition(".")[0], given.names),
                    column=name,
                )
    incoming = _with_operation(from_arrow(given, stored.name, stored.namespace), options)
    # paths are made of a dropped column as it arrives: what it is read back as does not matter
    dropped = incoming.select(tuple(name for name in config.dropped_columns if name in incoming))
    _refuse_floats(dropped)
    in_files = reconcile(
        table.without_dropped(stored), table.without_dropped(incoming), SchemaPolicy.of(options), casts
    )
    _refuse_new_columns_without_id(table, to_arrow(table.without_dropped(stored)), to_arrow(in_files))
    target = to_arrow(replace(in_files, fields=in_files.fields + dropped.fields))
    keyer = Keyer(generator, target, traits.prepped, casts, ambiguous)
    ValueFilters.of(options).check(to_arrow(in_files.with_meta()))
    arrangement = Arrangement.of(options) if operation is WriteOperation.BULK_INSERT else None
    if arrangement is not None:
        arrangement.check(keyer.schema)
    rule = rule.with_defaults(in_files)
    return WritePlan(operation, table.with_dropped(in_files), in_files, keyer, rule, index, options)


def _refuse_unasked_duplicates(operation: WriteOperation, options: Options) -> None:
    """A bulk insert looks no keys up, so it can't leave out or refuse those that are in the table."""
    if operation is not WriteOperation.BULK_INSERT:
        return
    asked: tuple[Option[Any], ...] = (DUPLICATES_DROPPED, DUPLICATES)
    for option in asked:
        if options.value(option) != option.default:
            raise OptionError(
                f"{option.key}={options[option.key]}: bulk_insert does not look for keys that are in the table",
                hint=f"insert does; {COMBINE_INSERT.key}=true keeps one row a key of the batch",
                option=option.key,
                found=options[option.key],
            )


def _refuse_new_columns_without_id(table: HudiTable, stored: pa.Schema, wanted: pa.Schema) -> None:
    """Where Hudi gave the columns ids, it reads no columns without one."""
    changed = [
        field.name
        for field in wanted
        if stored.get_field_index(field.name) < 0 or stored.field(field.name).type != field.type
    ]
    if changed and schema_history(table):
        raise UnsupportedError(
            f"table {table.config.name}: Hudi keeps its columns by id (schema on read), a write can't add or change"
            f" {', '.join(changed)}",
            hint="ALTER TABLE in a Hudi session",
            table=table.config.name,
            column=changed[0],
        )


def _with_operation(schema: Schema, options: Options) -> Schema:
    if not options.value(OPERATION_FIELD) or OPERATION in schema:
        return schema
    return replace(schema, fields=(*schema.fields, Field(OPERATION, StringType(), default=None)))


def _warn_of_meta_columns(names: Sequence[str]) -> None:
    """All of them come with rows that were read from a Hudi table; a few may be a user's own columns."""
    given = [name for name in META_FIELDS if name in names]
    if given and len(given) < len(META_FIELDS):
        warnings.warn(
            f"{', '.join(given)} of the rows: not written, as Hudi's meta columns have these names; rename the columns"
            " to keep them",
            MetaColumnWarning,
            stacklevel=6,
        )


def _refuse_floats(dropped: Schema) -> None:
    """Nothing records the type of a partition column that files leave out: `2024` and `2024.0` would be two paths."""
    for field in dropped.fields:
        if isinstance(field.type, (FloatType, DoubleType)):
            raise SchemaError(
                f"column {field.name}: the rows have floats, of which paths such as 2024.0 are made",
                hint="cast the column to the type that the partition paths show: int, or string",
                column=field.name,
                found="double" if isinstance(field.type, DoubleType) else "float",
                expected="text, whole numbers or dates",
            )


def _refuse_consistent_hashing(table: HudiTable) -> None:
    """Such a table records the hash ranges of its file groups: Hudi would not find a group that is not recorded."""
    if table.config.is_mor and _CONSISTENT_HASHING in table.storage.list_folder(_BUCKET_INDEX).folders:
        raise UnsupportedError(
            f"table {table.config.name} is written by consistent hashing, which is not supported yet",
            hint="Hudi's writers know it: hoodie.index.bucket.engine=CONSISTENT_HASHING",
            table=table.config.name,
            path=table.storage.root,
        )


def _as_stored(table: HudiTable, generator: KeyGenerator) -> KeyGenerator:
    """Where Hudi's releases differ in how they write keys, a stored key decides."""
    if generator.type is not KeyGeneratorType.COMPLEX or len(generator.record_fields) != 1:
        return generator
    for instant in reversed(table.timeline.data().completed().instants):
        for stat in table.commit_metadata(instant).stats:
            if stat.num_writes and not stat.is_log and table.storage.exists(stat.path):
                key = read_footer(table.storage, stat.path).min_key
                return generator.as_in(key) if key else generator
    return generator
