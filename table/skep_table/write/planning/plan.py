"""What is known about a write before its rows are read: schema, keys, merge rule, index, checked against the table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from skep_format.basefile import BaseFileOptions
from skep_format.errors import KeyFieldError
from skep_format.logfile.options import LogFileOptions
from skep_format.schema.arrow import to_arrow
from skep_format.schema.policy import hint_of_case
from skep_format.schema.types import Schema
from skep_format.storage import AppendingStorage
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation
from skep_table.commit.options import Concurrency
from skep_table.keys import KeyGenerator
from skep_table.keys.partition_path import DroppedColumns
from skep_table.keys.stored import StoredKeys, generator_as_stored
from skep_table.merge import MergeRule
from skep_table.metadata_table.partitions import STATISTICS
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.facts.files import ColumnReader
from skep_table.metadata_write.own import with_building
from skep_table.table import HudiTable
from skep_table.write.context import WriteContext
from skep_table.write.indexes import Index, index_of, refuse_other_buckets
from skep_table.write.input.columns import Arriving, columns_of_deletes, columns_of_rows
from skep_table.write.keyed import Keyer
from skep_table.write.output.held import names_positions
from skep_table.write.output.replaced import NamedPartitions
from skep_table.write.partial import PartialUpdate, SetColumns
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.planning.merge_options import merged_by
from skep_table.write.planning.operation import TRAITS, Replaces, Traits
from skep_table.write.planning.options import Duplicates, most_bytes, warn_of_other_formats
from skep_table.write.planning.settings import check_settings
from skep_table.write.planning.write_settings import WriteSettings


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
    settings: WriteSettings
    arrangement: Arrangement | None
    """How a bulk_insert sorts and partitions its rows; None for other operations."""
    replaced: NamedPartitions | None = None
    """The partitions that an insert_overwrite replaces; None for those that it has rows of."""
    partial: PartialUpdate | None = None
    """The columns that it sets, where others stay; None where rows are whole."""

    @property
    def traits(self) -> Traits:
        """The properties of the operation."""
        return TRAITS[self.operation]

    @property
    def duplicates(self) -> Duplicates:
        """What an insert, or a bulk insert, does with rows whose key is in the table."""
        adds = self.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT)
        return self.settings.duplicates if adds else Duplicates.NONE

    @property
    def uses_index(self) -> bool:
        """Whether each row is tagged before it is written."""
        return self.traits.finds_keys or self.index.places_new_keys or self.duplicates is not Duplicates.NONE

    def looks_up(self, *, all_named: bool) -> bool:
        """Whether the index is asked where keys are. `all_named`: see `KeyedRows`.

        Prepped rows that name theirs need no index, nor do those that only delete, nor new ones without a key so far.
        """
        if not self.traits.prepped or self.index.places_new_keys:
            return self.uses_index
        return not (all_named or self.traits.deletes) and bool(self.keyer.generator.record_fields)

    @property
    def fills_small_files(self) -> bool:
        """Whether new rows go into small files first."""
        return self.traits.fills_small_files and not self.index.places_new_keys

    @property
    def streams(self) -> bool:
        """Whether rows are written as they arrive, without being tagged or routed."""
        return self.traits.streams and not self.uses_index

    @property
    def combines(self) -> bool:
        """Whether rows of one batch with one key become one row."""
        if not self.keyer.generator.record_fields:
            return False
        if self.duplicates is Duplicates.DROP:
            return True
        return self.settings.combine_upsert if self.traits.finds_keys else self.settings.combine_insert

    @property
    def checking_keyer(self) -> Keyer:
        """The keyer that also refuses rows which the merge rule can't compare, as the write would at its end."""
        if self.traits.deletes or not self.combines or self.settings.commit_on_errors:
            return self.keyer
        return replace(self.keyer, ordering=self.rule.ordering_fields)

    def context(self, table: HudiTable, instant: Instant) -> WriteContext:
        """What the tasks of the instant need."""
        settings, meta = self.settings, table.config.populate_meta_fields
        return WriteContext(
            storage=table.storage,
            format=table.format,
            instant_time=instant.requested_time,
            operation=self.operation,
            schema=self.in_files,
            rule=self.rule,
            files=BaseFileOptions.of(settings.options, meta=meta, format=table.config.base_format),
            max_file_bytes=most_bytes(table.config, settings.options),
            combine=self.combines,
            auto_keys=not self.keyer.generator.record_fields,
            arrangement=self.arrangement,
            keeps_equal_keys=settings.keeps_equal_keys,
            logs=self._logs(table),
            partition_fields=self.keyer.generator.partition_fields,
            keys=StoredKeys.of(table.config, self.in_files) if self.keyer.generator.record_fields else None,
            dropped=DroppedColumns.of(table.config),
            memory=settings.memory,
            on_written=self.index.on_written if self.index.keeps_keys else None,
            partial=self._partial_of(table),
            changes=table.config.captured,
            facts=self._facts_of(table),
            event_time=settings.event_time,
            metafile=table.config.metafile,
            key_column=self.keyer.generator.column_of_key(to_arrow(self.in_files)),
        )

    def _logs(self, table: HudiTable) -> LogFileOptions:
        """In a table with change data a write has one log file a file group: readers find what came before by it.

        An index that opens no base file has no positions: unless asked for, none are looked up there.
        """
        looks_up = self.index.opens_base_files or self.settings.positions_given
        positions = looks_up and names_positions(table)
        logs = replace(self.settings.logs, positions=positions, appends=self._appends(table))
        return logs if table.config.captured is None else replace(logs, file_bytes=sys.maxsize)

    def _appends(self, table: HudiTable) -> bool:
        """Whether blocks may go into log files of other commits.

        Not where other writers may do so at the same time, or where a file that grows is not what others have noted:
        change data, statistics of files, plans to merge logs.
        """
        return (
            self.settings.appends_to_logs
            and not table.format.logs.of_delta_commit
            and isinstance(table.storage, AppendingStorage)
            and not Concurrency.of(table.options).is_shared
            and table.config.captured is None
            and self._facts_of(table) is None
            and not table.timeline.pending().of(Action.LOG_COMPACTION)
        )

    def _facts_of(self, table: HudiTable) -> ColumnReader | None:
        kept = with_building(table).config.metadata_partitions if self.settings.keeps_metadata_table else ()
        if STATISTICS.isdisjoint(kept):
            return None
        return ColumnReader.of_write(table, self.in_files, stats_columns(table))

    def _partial_of(self, table: HudiTable) -> PartialUpdate | None:
        if self.partial is None or self.partial.table is None:
            return self.partial
        return replace(self.partial, table=table)


def plan_write(
    table: HudiTable,
    operation: WriteOperation,
    incoming: pa.Schema,
    settings: WriteSettings,
    widened: frozenset[str] = frozenset(),
    replaced: Mapping[str, object] | None = None,
    sets: SetColumns | None = None,
) -> WritePlan:
    """Checks the frame's columns against the table. InputError for what does not fit.

    `widened` are columns that get a wider type where one holds all stored values, as the frame has others. `replaced`
    are the values of partition columns that an insert_overwrite replaces. `sets` are the columns that count, where
    others stay as they are in the table.
    """
    config, traits, options = table.config, TRAITS[operation], settings.options
    check_settings(config, table.storage.root, options)
    warn_of_other_formats(config, options)
    index = index_of(config, options)
    refuse_other_buckets(table, index)
    if traits.replaces is not Replaces.NOTHING:
        index = index.replacing()
    generator = generator_as_stored(table, options)
    rule = MergeRule.of(merged_by(config, options), options)
    rule.check()
    arriving = Arriving.of(table, incoming, traits, settings)
    _check_keys(table, traits, generator, arriving.given)
    fixed = frozenset((*generator.record_fields, *generator.partition_fields, *rule.ordering_fields))
    casts = replace(settings.casts, fixed=fixed, widened=widened)
    if traits.deletes:
        columns = columns_of_deletes(table, arriving, (*generator.record_fields, *generator.partition_fields))
    else:
        if traits.updates:
            _check_ordering(table, rule, arriving.given.names)
        columns = columns_of_rows(table, arriving, casts, settings, partial=sets is not None and sets.only)
        rule = rule.with_defaults(columns.in_files)
    keyer = Keyer(generator, columns.keyed, traits.prepped, casts, settings.ambiguous)
    partial = None
    if sets is not None and (sets.only or settings.partial_merge) and not traits.deletes:
        # rows compete by their ordering value, so they bring it, whether it is set or not
        ordering = (name.partition(".")[0] for name in rule.ordering_fields)
        sets = replace(sets, names=frozenset((*sets.names, *ordering)))
        partial = PartialUpdate.of(
            table, sets, columns.in_files, rule, moves_rows=index.is_global and not traits.prepped
        )
    named = None if replaced is None else NamedPartitions.of(generator, columns.keyed, replaced, config.name)
    arrangement = Arrangement.of(options) if operation is WriteOperation.BULK_INSERT else None
    if arrangement is not None:
        arrangement.check(keyer.schema)
    schema, in_files = columns.schema, columns.in_files
    return WritePlan(operation, schema, in_files, keyer, rule, index, settings, arrangement, named, partial)


def _check_keys(table: HudiTable, traits: Traits, generator: KeyGenerator, given: pa.Schema) -> None:
    """KeyFieldError where the rows, or the table, lack what the operation finds rows by."""
    name = table.config.name
    if not traits.prepped:
        generator.check(given)
        if traits.finds_keys and not generator.record_fields:
            raise KeyFieldError(
                f"table {name} has no record key, so rows can't be found by key",
                hint="insert adds rows; delete(where=…) deletes by a predicate",
                table=name,
            )
    elif not table.config.populate_meta_fields:
        raise KeyFieldError(
            f"table {name} has no meta columns (hoodie.populate.meta.fields=false), which name their files",
            hint="the same operation without the flag finds rows by their key",
            table=name,
        )


def _check_ordering(table: HudiTable, rule: MergeRule, given: Sequence[str]) -> None:
    for name in rule.ordering_fields:
        column = name.partition(".")[0]
        if column not in given:
            problem = f"ordering column {name} is not among {', '.join(given)}"
            raise table.error(KeyFieldError, problem, hint=hint_of_case(column, given), column=name)
