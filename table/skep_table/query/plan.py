"""From a request to tasks: which instants, partitions, file groups and columns a read needs. Tasks pickle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Final

import pyarrow as pa

from skep_format.errors import InputError, SkepError, UnsupportedError
from skep_format.hashing_metadata import INDEX_FOLDER
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow_type, to_arrow
from skep_format.schema.history import SchemaVersion
from skep_format.schema.policy import OPERATION_FIELD
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, Field, LongType, Schema
from skep_table.merge.rows import POSITION
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import BLOOM_FILTERS, FILES, PARTITION_STATS
from skep_table.query.cleaned import (
    check_named_files,
    check_not_cleaned,
    files_deleted,
    has_lost_indexes,
    is_outdated,
    named_partitions,
)
from skep_table.query.filters.among import OneOf
from skep_table.query.filters.predicate import Predicate
from skep_table.query.incremental import (
    WrittenFiles,
    bounded,
    check_not_cleaned_away,
    commits_of_rows,
    instants_between,
    path_matches,
    view_of_changes,
)
from skep_table.query.options import QueryType
from skep_table.query.pruning.indexes import (
    MatchingGroups,
    metadata_of_snapshot,
    places_of,
    prune_by_partition_statistics,
)
from skep_table.query.pruning.partitions import PartitionValues, partition_values
from skep_table.query.pruning.slices import (
    Steps,
    prune_by_buckets,
    prune_by_expressions,
    prune_by_keys,
    prune_by_statistics,
    record_keys,
)
from skep_table.query.request import ReadRequest, Where, instant_text
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP, folders_left
from skep_table.slices.context import CommitTimes
from skep_table.slices.history import schema_history
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView

_ATTEMPTS: Final = 5
_POSITION: Final = Field(POSITION, LongType())


class PartlyBootstrappedWarning(UserWarning):
    """A table was read of which a bootstrap has made a part so far."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What all tasks of one read share.

    `file_schema` is the table's, meta columns first; `schema` the same with the types that the query returns.
    `columns` are the answer's, in order. `as_of` bounds the log blocks that are read; `commit_times` keeps only rows
    that these commits wrote. `history` has the earlier names of renamed columns.
    `commits_after_merge`: what other commits wrote is merged first, so that rows they changed since are left out.
    """

    table: HudiTable
    file_schema: Schema
    schema: Schema
    columns: tuple[str, ...]
    partitions: PartitionValues
    predicate: Predicate | None = None
    as_of: InstantTime | None = None
    commit_times: CommitTimes | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    history: tuple[SchemaVersion, ...] = ()
    commits_after_merge: bool = False
    only: OneOf | None = None

    @property
    def arrow_schema(self) -> pa.Schema:
        """The answer's."""
        return self.schema_of(self.columns)

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """The Arrow schema of some columns, in the order given."""
        return to_arrow(self.schema.select(tuple(columns)))

    def constants(self, slice: FileSlice) -> dict[str, pa.Scalar]:
        """The columns that have one value all over the slice: that of its folder, or beside positions, of the file."""
        base = slice.base_file
        if base is not None and base.name.instant_time == METADATA_BOOTSTRAP:
            # The source of a bootstrap need not hold the partition columns: its folders did.
            fields = tuple(to_arrow(self.schema).field(name) for name in self.partitions.fields if name in self.schema)
            return replace(self.partitions, columns=fields).of(slice.partition_path)
        found = self.partitions.of(slice.partition_path)
        if base is not None and self.numbers_rows(slice):
            found[FILE_NAME] = pa.scalar(base.path.rpartition("/")[2])
            found[PARTITION_PATH] = pa.scalar(slice.partition_path)
        return found

    def numbers_rows(self, slice: FileSlice) -> bool:
        """Whether the rows of a slice come with their numbers in its base file."""
        base = slice.base_file
        if POSITION not in self.columns or base is None or slice.log_files:
            return False
        return base.name.instant_time != METADATA_BOOTSTRAP and BaseFormat.of(base.path) is BaseFormat.PARQUET

    @property
    def typed_as_in_files(self) -> frozenset[str]:
        """The columns that a filter may be put to in files."""
        return frozenset(self.schema.names()).difference(self.partitions.as_text)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The answer's columns and those that filters look at, in the table's order."""
        wanted = {*self.columns, *(self.predicate.columns if self.predicate else ())}
        return tuple(name for name in self.schema.names() if name in wanted)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """One file slice of a scan. `complete` is the slice of which an incremental scan reads a part."""

    scan: Scan
    slice: FileSlice
    complete: FileSlice | None = None


def plan(table: HudiTable, request: ReadRequest, steps: Steps | None = None) -> list[ReadTask]:
    """The file slices that can hold rows of the answer, partition by partition. CDC has its own plan (cdc.py).

    `steps` collects what each step left; the whole table is listed for it.

    A table that was cleaned since it was opened is planned as it is now: its files may have been deleted. So is one of
    whose metadata table something was dropped: a part of its files may have been there still.
    StorageError where it is cleaned faster than planned, or has got other columns.
    """
    _warn_of_bootstrap(table)
    now = table
    for _ in range(_ATTEMPTS):
        try:
            tasks = _plan(now, bounded(now, request), steps)
        except (SkepError, FileNotFoundError):
            if not _is_outdated(now, request):
                raise
        else:
            if not _is_outdated(now, request):
                if now is not table and scan_of(now, request).arrow_schema != scan_of(table, request).arrow_schema:
                    raise files_deleted(table, "since then the table has got other columns")
                return tasks
        now = now.reload()
    raise files_deleted(table, "it is cleaned faster than it can be listed")


def _warn_of_bootstrap(table: HudiTable) -> None:
    if left := folders_left(table):
        warnings.warn(
            f"table {table.config.name}: its bootstrap goes on, or was ended, before {left} of its folders were"
            " written; their rows are not in the answer",
            PartlyBootstrappedWarning,
            stacklevel=4,
        )


def matching(tasks: Sequence[ReadTask], predicate: Predicate, request: ReadRequest | None = None) -> list[ReadTask]:
    """The tasks of one scan in which a row can fulfil a further predicate, by their partition paths.

    With the request that they were planned for, by the indexes that it uses, too. No base file is opened: that is what
    the tasks do. An index that can't be read any more, since files were cleaned, leaves all tasks.
    """
    if not tasks:
        return []
    scan = replace(tasks[0].scan, predicate=predicate)
    names = set(scan.partitions.select(list(dict.fromkeys(task.slice.partition_path for task in tasks)), predicate))
    tasks = [task for task in tasks if task.slice.partition_path in names]
    if request is None or not tasks:
        return tasks
    try:
        slices = _Pruning(scan, request, opens_files=False).of_slices([task.slice for task in tasks])
    except (SkepError, FileNotFoundError):
        return tasks
    if has_lost_indexes(scan.table):
        return tasks
    left = {found.group: found for found in slices}
    return [replace(task, slice=left[task.slice.group]) for task in tasks if task.slice.group in left]


def has_indexes(table: HudiTable, request: ReadRequest) -> bool:
    """Whether the request uses indexes of the metadata table, and there are some besides the listing of files."""
    metadata = table.metadata_to_read() if request.uses_indexes else None
    return metadata is not None and metadata.indexes != {FILES}


def _is_outdated(table: HudiTable, request: ReadRequest) -> bool:
    return is_outdated(table, _moment(table, request)) or (request.metadata and has_lost_indexes(table))


def _moment(table: HudiTable, request: ReadRequest) -> InstantTime | None:
    return None if request.as_of is None else instant_text(request.as_of, table.config.timezone.value)


def _plan(table: HudiTable, request: ReadRequest, steps: Steps | None) -> list[ReadTask]:
    scan = scan_of(table, request)
    if request.query is QueryType.INCREMENTAL:
        instants = instants_between(table, request)
        scan = replace(scan, commit_times=commits_of_rows(table, request, instants))
        view = view_of_changes(table, instants, request)
        if isinstance(view.listing, WrittenFiles):
            scan = replace(scan, as_of=scan.commit_times.last if scan.commit_times else None)
            return _with_complete_slices(scan, _Pruning(scan, request, steps).of_view(view), request)
        # The whole table as it is now is read. Hudi 0.15 leaves out the log blocks of other commits all the same.
        scan = replace(scan, commits_after_merge=table.format.reads.filters_commits_after_merge)
    else:
        view = table.view(as_of=scan.as_of, metadata=request.metadata)
    return [ReadTask(scan, found) for found in _Pruning(scan, request, steps).of_view(view)]


def _with_complete_slices(scan: Scan, slices: list[FileSlice], request: ReadRequest) -> list[ReadTask]:
    """Partial updates of the range are completed from the slice that they lie on (table version 8 and later)."""
    if not scan.table.format.reads.has_partial_updates:
        return [ReadTask(scan, found) for found in slices]
    view = scan.table.view(as_of=scan.as_of, metadata=request.metadata)
    touched = sorted({found.partition_path for found in slices if found.log_files})
    complete = {found.group: found for name in touched for found in view.slices(name)}
    return [ReadTask(scan, found, complete.get(found.group)) for found in slices]


def scan_of(table: HudiTable, request: ReadRequest) -> Scan:
    """What the request means for this table; raises InputError for what the table can't answer."""
    as_of = _moment(table, request)
    if as_of is not None:
        check_not_cleaned(table, as_of)
    # before its first commit there were no rows, and the schema is that of today
    has_commits = as_of is None or len(table.timeline.data().completed().until(as_of))
    schema = table.schema(as_of if has_commits else None)
    if table.config.populate_meta_fields:
        recorded = {key: text for key, text in table.config.raw.items() if key == OPERATION_FIELD.key}
        options = Options(recorded).with_values(table.options).with_values(request.options)
        schema = schema.with_meta(operation=options.value(OPERATION_FIELD))
    elif request.query is QueryType.INCREMENTAL:
        raise UnsupportedError(
            f"no incremental queries on {table.config.name}: hoodie.populate.meta.fields=false",
            table=table.config.name,
        )
    partitions = partition_values(table.config, to_arrow(schema), request.query, request.partitions_from_path)
    if request.positions:
        schema = replace(schema, fields=(*schema.fields, _POSITION))
    file_schema, schema = schema, _with_types(schema, partitions)
    predicate = predicate_of(request.where, to_arrow(schema))
    return Scan(
        table,
        file_schema,
        schema,
        _columns(schema, request),
        partitions,
        predicate,
        as_of,
        None,
        request.options,
        schema_history(table),
        only=request.only,
    )


def predicate_of(where: Where | None, schema: pa.Schema) -> Predicate | None:
    """The parser is imported only when there is a text to parse: tasks on executors run without it."""
    if isinstance(where, str):
        return _parsed(where, schema)
    return where if where is None or isinstance(where, Predicate) else where(schema)


@lru_cache(maxsize=8)  # a read asks for its schema and its tasks
def _parsed(where: str, schema: pa.Schema) -> Predicate:
    from skep_table.query.filters.text import parse_predicate

    return parse_predicate(where, schema)


def _with_types(schema: Schema, partitions: PartitionValues) -> Schema:
    """The schema with the types that partition columns have when the path gives their values."""
    kinds = {column.name: column.type for column in partitions.columns} | dict.fromkeys(partitions.as_text, pa.string())
    arrow = to_arrow(schema)

    def typed(field: Field) -> Field:
        kind = kinds.get(field.name)
        if kind is None or kind == arrow.field(field.name).type:
            return field
        return replace(field, type=from_arrow_type(kind, field.name))

    return replace(schema, fields=tuple(map(typed, schema.fields)))


def _columns(schema: Schema, request: ReadRequest) -> tuple[str, ...]:
    if request.columns is None:
        return schema.names()
    unknown = [name for name in request.columns if name not in schema]
    if unknown:
        raise InputError(
            f"no column {', '.join(unknown)} in the table; there are: {', '.join(schema.names())}",
            column=unknown[0],
        )
    return request.columns


@dataclass(frozen=True, slots=True)
class _Pruning:
    """Finds the slices of a request's scan in which a row can match.

    `opens_files`: the footers of base files are read where the metadata table has no filter of their keys.
    """

    scan: Scan
    request: ReadRequest
    steps: Steps | None = None
    opens_files: bool = True

    def of_view(self, view: FileView) -> list[FileSlice]:
        """Those of all partitions. StorageError, ChangesCleanedError where files are missing."""
        scan, steps = self.scan, self.steps
        if steps is not None:
            steps.begin({path: self._of_request(view.slices(path)) for path in view.partitions()})
        metadata = self._indexes()
        places = self._places(metadata)
        if places is None:
            names = scan.partitions.select(
                view.partitions(scan.partitions.folder_filter(scan.predicate)), scan.predicate
            )
            if steps is not None:
                steps.left_partitions("by partition paths", names)
            names = self._by_partition_statistics(metadata, names)
        else:
            names = scan.partitions.select(places.partitions, scan.predicate)
            if steps is not None:
                steps.left_groups(places.by, {group for group in places.groups if group.partition_path in names})
        lost = scan.partitions.select(named_partitions(scan.table, view), scan.predicate)
        check_named_files(scan.table, view, list(dict.fromkeys([*names, *lost])), scan.as_of)
        slices = self._of_request([found for name in names for found in view.slices(name)])
        if isinstance(view.listing, WrittenFiles):
            check_not_cleaned_away(scan.table, slices, self.request)
        return self._matching(slices, places)

    def of_slices(self, slices: list[FileSlice]) -> list[FileSlice]:
        metadata = self._indexes()
        places = self._places(metadata)
        if places is None:
            paths = list(dict.fromkeys(found.partition_path for found in slices))
            names = set(self._by_partition_statistics(metadata, paths))
            slices = [found for found in slices if found.partition_path in names]
        return self._matching(slices, places)

    def _of_request(self, slices: list[FileSlice]) -> list[FileSlice]:
        if self.request.query is QueryType.READ_OPTIMIZED:
            slices = [replace(found, log_files=()) for found in slices if found.base_file is not None]
        if (glob := self.request.path_glob) is not None:
            slices = [found for found in slices if path_matches(found, self.scan.table.storage.root, glob)]
        return slices

    def _indexes(self) -> MetadataTable | None:
        """The metadata table where its indexes serve the filter of the query."""
        if self.scan.predicate is None or not self.request.uses_indexes:
            return None
        return metadata_of_snapshot(self.scan.table, self.request.query, self.scan.as_of)

    def _places(self, metadata: MetadataTable | None) -> MatchingGroups | None:
        if metadata is None or self.scan.predicate is None:
            return None
        return places_of(self.scan.table, metadata, self.scan.predicate, self.scan.partitions)

    def _by_partition_statistics(self, metadata: MetadataTable | None, names: list[str]) -> list[str]:
        conditions = self._conditions_on_files()
        if metadata is None or PARTITION_STATS not in metadata.indexes or conditions is None:
            return names
        names = prune_by_partition_statistics(self.scan.table, metadata, names, conditions)
        if self.steps is not None:
            self.steps.left_partitions("by partition statistics", names)
        return names

    def _conditions_on_files(self) -> Predicate | None:
        """What statistics can exclude: conditions on columns that files have, by the names that they have in all of
        them.

        Statistics are kept by name, also those of files that have another column by this name.
        """
        scan = self.scan
        if scan.predicate is None or scan.history:
            return None
        return scan.predicate.weakened(scan.typed_as_in_files - scan.partitions.names)

    def _matching(self, slices: list[FileSlice], places: MatchingGroups | None) -> list[FileSlice]:
        """By the places of the rows where these are known, else by statistics and by record keys."""
        table, predicate, steps = self.scan.table, self.scan.predicate, self.steps
        if places is not None:
            return [found for found in slices if found.group in places.groups]
        if predicate is None:
            return slices
        metadata = table.metadata_to_read() if self.request.uses_indexes else None
        conditions = self._conditions_on_files()
        if metadata is not None and conditions is not None:
            slices = self._by_statistics(metadata, slices, conditions)
        in_buckets = prune_by_buckets(slices, predicate, table.config, {**table.options, **self.request.options})
        if len(in_buckets) < len(slices) and not table.may_have_folder(INDEX_FOLDER):
            slices = in_buckets
            if steps is not None:
                steps.left_slices("by buckets", slices)
        keys = record_keys(predicate, table.config)
        if keys is None or not (self.opens_files or (metadata is not None and BLOOM_FILTERS in metadata.indexes)):
            return slices
        slices = prune_by_keys(table.storage, slices, keys, metadata)
        if steps is not None:
            steps.left_slices("by key ranges and bloom filters", slices)
        return slices

    def _by_statistics(
        self, metadata: MetadataTable, slices: list[FileSlice], conditions: Predicate
    ) -> list[FileSlice]:
        """The slices that column statistics and indexes over expressions leave.

        Those with partial updates are kept in an incremental query: columns that the files of the range do not have
        come from files before it.
        """
        table = self.scan.table
        is_partial = self.request.query is QueryType.INCREMENTAL and table.format.reads.has_partial_updates
        by_columns = prune_by_statistics(metadata, slices, conditions, table.config)
        by_expressions = prune_by_expressions(table, metadata, by_columns, conditions)
        for by, left in chain([("by column statistics", by_columns)], by_expressions):
            groups = {found.group for found in left}
            slices = [found for found in slices if found.group in groups or (is_partial and found.log_files)]
            if self.steps is not None:
                self.steps.left_slices(by, slices)
        return slices
