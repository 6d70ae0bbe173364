"""Change data capture: one row per change, with operation, instant, and the images before and after as JSON text.

The stat of a written file determines the source of its changes (format guide 8.5): the CDC log files listed with a base
file, whose missing images come from the slices before and after; a base file that contains inserts only; the slice
before, where all its rows were deleted or its group was replaced; for a log file of a merge-on-read table, the
difference between the slices without and with it. Without CDC log files the two base files are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import FormatError, InputError
from skep_format.instant_time import InstantTime
from skep_format.json_text import AVRO, COMPACT, json_rows, json_values
from skep_format.logfile import BlockType, read_blocks
from skep_format.logfile.changes import AFTER, BEFORE, DELETE, INSERT, KEY, OP, TIME, UPDATE
from skep_format.names import BaseFileName
from skep_format.schema.history import SchemaVersion
from skep_format.schema.types import COMMIT_TIME, RECORD_KEY, Schema
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import WriteOperation, WriteStat
from skep_table.query.filters.predicate import Predicate
from skep_table.query.incremental import bounded, check_known, instants_between
from skep_table.query.plan import predicate_of
from skep_table.query.request import ReadRequest
from skep_table.slices import read_slice
from skep_table.slices.history import schema_history
from skep_table.table import HudiTable
from skep_table.view import BaseFile, FileGroup, FileSlice, FileView

SCHEMA: Final = pa.schema([(name, pa.string()) for name in (OP, TIME, BEFORE, AFTER)])

# Operations that rewrite rows without changing them.
_NO_CHANGES: Final = frozenset(
    {WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.CLUSTER, WriteOperation.INDEX}
)
_DELETES: Final = frozenset({WriteOperation.DELETE, WriteOperation.DELETE_PREPPED})
# The text that Hudi returns for an image that a CDC log file lacks.
_NO_IMAGE: Final = "null"


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """The changes that one commit made to one file group. Pickles.

    They are in `cdc_logs` where that is not empty. Otherwise, with only `after` its rows were inserted, with only
    `before` its rows were deleted, and with both the two are compared, restricted to the keys in `log` where it is set.
    `schema` is the table's, meta columns first, and `history` its earlier ones: a task does not read the timeline.
    """

    table: HudiTable
    instant: InstantTime
    cdc_logs: tuple[str, ...] = ()
    before: FileSlice | None = None
    after: FileSlice | None = None
    log: str | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    predicate: Predicate | None = None
    schema: Schema | None = None
    history: tuple[SchemaVersion, ...] | None = None


def answer_schema(request: ReadRequest) -> pa.Schema:
    """The columns of the result. InputError for a column that a cdc query does not have."""
    names = request.columns or tuple(SCHEMA.names)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise InputError(f"no column {', '.join(unknown)} in a cdc query; there are: {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in names])


def plan_changes(table: HudiTable, request: ReadRequest) -> list[ChangeTask]:
    """One task per commit and changed file group of the request's range, in the order of the commits."""
    columns = tuple(answer_schema(request).names)
    predicate = predicate_of(request.where, SCHEMA)
    found = _tasks(table, bounded(table, request))
    if not found:
        return []
    schema = table.schema().with_meta() if table.config.populate_meta_fields else table.schema()
    history = schema_history(table)
    return [replace(task, columns=columns, predicate=predicate, schema=schema, history=history) for task in found]


def _tasks(table: HudiTable, request: ReadRequest) -> list[ChangeTask]:
    slices = _Slices(table, table.view(metadata=request.metadata))
    tasks: list[ChangeTask] = []
    instants = instants_between(table, request)
    check_known(table, instants, request)
    for instant in instants:
        metadata = table.commit_metadata(instant)
        if metadata.operation_type in _NO_CHANGES:
            continue
        for stat in metadata.stats:
            task = _task(table, slices, instant, stat, metadata.operation_type)
            if task is not None:
                tasks.append(task)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            before = slices.as_of_before(instant, partition, frozenset(file_ids))
            tasks += (ChangeTask(table, instant.requested_time, before=found) for found in before)
    return tasks


def _task(
    table: HudiTable, slices: _Slices, instant: Instant, stat: WriteStat, operation: WriteOperation | None
) -> ChangeTask | None:
    time, partition, previous = instant.requested_time, stat.partition_path, InstantTime(stat.prev_commit)
    if stat.cdc_stats:
        # The slices before and after supply the images that the table's CDC mode leaves out of the log files.
        before = slices.at(partition, stat.file_id, previous)
        return ChangeTask(table, time, tuple(stat.cdc_stats), before, _base_slice(stat))
    if stat.is_log:
        before, after = slices.around(partition, stat.file_id, stat.path)
        return ChangeTask(table, time, (), before, after, stat.path)
    if operation in _DELETES and stat.num_writes == 0 and stat.num_deletes:
        return ChangeTask(table, time, before=slices.at(partition, stat.file_id, previous, needed=True))
    if stat.num_update_writes == 0 and stat.num_deletes == 0 and stat.num_writes == stat.num_inserts:
        return ChangeTask(table, time, after=slices.written(stat))
    # A table without change data capture: the two base files are compared while the older one exists.
    before = slices.at(partition, stat.file_id, previous, needed=True)
    return ChangeTask(table, time, (), before, slices.written(stat))


def _base_slice(stat: WriteStat) -> FileSlice:
    name = BaseFileName.parse(stat.path.rpartition("/")[2])
    if name is None:
        raise FormatError(f"{stat.path} is not a base file", path=stat.path)
    base = BaseFile(stat.path, stat.file_size_in_bytes, name)
    return FileSlice(stat.partition_path, stat.file_id, name.instant_time, base)


class _Slices:
    """The slices of a table, including old and replaced ones, listed partition by partition."""

    def __init__(self, table: HudiTable, view: FileView) -> None:
        self._table = table
        self._view = view
        self._groups: dict[str, dict[str, FileGroup]] = {}
        self._names: dict[str, frozenset[str]] = {}

    def group(self, partition: str, file_id: str) -> FileGroup | None:
        if partition not in self._groups:
            groups = self._view.file_groups(partition, replaced=True)
            self._groups[partition] = {group.file_id: group for group in groups}
        return self._groups[partition].get(file_id)

    def at(self, partition: str, file_id: str, base_instant: InstantTime, *, needed: bool = False) -> FileSlice | None:
        """The slice with this base instant; None for a new group, and for a cleaned slice that is not `needed`."""
        group = self.group(partition, file_id)
        found = next((s for s in group.slices if s.base_instant == base_instant), None) if group else None
        if found is None and needed:
            raise _cleaned(f"the slice {base_instant} of file group {file_id} in partition {partition!r}")
        return found

    def written(self, stat: WriteStat) -> FileSlice:
        """The base file that a commit wrote. InputError where it was cleaned."""
        partition = stat.partition_path
        if partition not in self._names:
            self._names[partition] = frozenset(file.name for file in self._view.listing.files(partition))
        if stat.path.rpartition("/")[2] not in self._names[partition]:
            raise _cleaned(stat.path)
        return _base_slice(stat)

    def around(self, partition: str, file_id: str, log_path: str) -> tuple[FileSlice, FileSlice]:
        """The slice without and with a log file, both without later log files."""
        group = self.group(partition, file_id)
        for at, found in enumerate(group.slices if group else ()):
            if all(log.path != log_path for log in found.log_files):
                continue
            if found.base_file is None and group is not None and at + 1 < len(group.slices):
                # The slice awaited its compaction when the log file was written: its base file is in the older slice.
                older = group.slices[at + 1]
                found = replace(older, log_files=older.log_files + found.log_files)
            upto = next(i for i, log in enumerate(found.log_files) if log.path == log_path)
            logs = found.log_files
            return replace(found, log_files=logs[:upto]), replace(found, log_files=logs[: upto + 1])
        raise _cleaned(log_path)

    def as_of_before(self, instant: Instant, partition: str, file_ids: frozenset[str]) -> list[FileSlice]:
        """The slices that a replace commit replaced, as of the commit before it."""
        earlier = self._table.timeline.data().completed().before(instant.requested_time)
        last = earlier.last()
        if last is None:
            return []
        view = self._table.view(as_of=last.requested_time)
        found = [slice_ for slice_ in view.slices(partition) if slice_.file_id in file_ids]
        for file_id in sorted(file_ids - {slice_.file_id for slice_ in found}):
            raise _cleaned(f"file group {file_id} in partition {partition!r}, which {instant.requested_time} replaced")
        return found


def _cleaned(what: str) -> InputError:
    return InputError(f"the cleaner has removed {what}, which the cdc query needs; ask for a later range", path=what)


# Reading


def run(task: ChangeTask) -> Iterator[pa.RecordBatch]:
    """The changes of one task that match the predicate, in the columns of the result."""
    for rows in _changed(task):
        kept = rows if task.predicate is None else task.predicate.filter(rows)
        if kept.num_rows:
            yield kept.select(list(task.columns))


def _changed(task: ChangeTask) -> Iterator[pa.RecordBatch]:
    if task.cdc_logs:
        for path in task.cdc_logs:
            yield from _logged(task, path)
    elif task.before is not None and task.after is not None:
        yield from _compared(task, task.before, task.after)
    elif task.after is not None:
        for rows in _rows(task, task.after):
            inserted = rows.filter(pc.equal(rows.column(COMMIT_TIME), task.instant))
            yield _changes(INSERT, task.instant, None, _compact(inserted))
    elif task.before is not None:
        for rows in _rows(task, task.before):
            yield _changes(DELETE, task.instant, _compact(rows), None)


def _rows(task: ChangeTask, found: FileSlice, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """All columns, or some, as files have them."""
    if found.base_file is not None or found.log_files:
        yield from read_slice(task.table, found, columns=columns, schema=task.schema, history=task.history)


def _compact(rows: pa.RecordBatch) -> pa.Array:
    return json_rows(rows, COMPACT).cast(pa.string())


def _of_records(table: HudiTable) -> Callable[[pa.RecordBatch], pa.Array]:
    """How images are printed that Hudi makes of single records: 0.15 prints them as it does those of a CDC log."""
    if table.format.reads.compact_change_images:
        return _compact
    return lambda rows: json_values(rows.to_struct_array(), AVRO).cast(pa.string())


def _changes(
    op: str | pa.Array, instant: InstantTime, before: pa.Array | None, after: pa.Array | None
) -> pa.RecordBatch:
    count = len(before if before is not None else after if after is not None else ())
    columns = [
        pa.repeat(pa.scalar(op, pa.string()), count) if isinstance(op, str) else op.cast(pa.string()),
        pa.repeat(pa.scalar(instant, pa.string()), count),
        before.cast(pa.string()) if before is not None else pa.nulls(count, pa.string()),
        after.cast(pa.string()) if after is not None else pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _logged(task: ChangeTask, path: str) -> Iterator[pa.RecordBatch]:
    """Changes from a CDC log file; images that its mode leaves out come from the slices before and after the commit."""
    with task.table.storage.open_input(path) as file:
        for block in read_blocks(file, path):
            if block.type is not BlockType.CDC_DATA or block.instant_time != task.instant:
                continue
            rows = block.records().combine_chunks()
            for batch in rows.to_batches():
                yield from _completed(task, path, batch)


def _completed(task: ChangeTask, path: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    names = rows.schema.names
    op = rows.column(OP)
    if AFTER in names and BEFORE in names:
        yield _changes(op, task.instant, _printed(rows, BEFORE), _printed(rows, AFTER))
        return
    if KEY not in names:
        raise FormatError.of_file(path, f"a CDC block with fields {', '.join(names)}", expected=f"{OP}, {KEY}")
    keys = rows.column(KEY)
    if BEFORE in names:
        before = _printed(rows, BEFORE)
    else:
        before = _only(op, (UPDATE, DELETE), _images(task, task.before, keys, _of_records(task.table)))
    after = _only(op, (INSERT, UPDATE), _images(task, task.after, keys))
    yield _changes(op, task.instant, before, after)


def _printed(rows: pa.RecordBatch, column: str) -> pa.Array:
    return pc.fill_null(json_values(rows.column(column), AVRO), _NO_IMAGE)


def _only(op: pa.Array, ops: Sequence[str], images: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(op, pa.array(ops)), images, pa.scalar(None, pa.string()))


def _images(
    task: ChangeTask, found: FileSlice | None, keys: pa.Array, print_as: Callable[[pa.RecordBatch], pa.Array] = _compact
) -> pa.Array:
    """The image of each key in a slice, null where the slice lacks the key."""
    if found is None:
        raise _cleaned(f"the slice before {task.instant} of a file group")
    held, images = _rows_of_keys(task, found, keys, print_as=print_as)
    return images.take(pc.index_in(keys, value_set=held))


def _rows_of_keys(
    task: ChangeTask,
    found: FileSlice,
    keys: pa.Array,
    written_by: InstantTime | None = None,
    print_as: Callable[[pa.RecordBatch], pa.Array] = _compact,
) -> tuple[pa.Array, pa.Array]:
    """Key and image of the rows whose key is among `keys`, and which the instant `written_by` wrote, if one is
    given."""
    held, images = [pa.array([], pa.string())], [pa.array([], pa.string())]
    for batch in _rows(task, found):
        rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys))
        if written_by is not None:
            rows = rows.filter(pc.equal(rows.column(COMMIT_TIME), written_by))
        held.append(rows.column(RECORD_KEY).cast(pa.string()))
        images.append(print_as(rows))
    return pa.concat_arrays(held), pa.concat_arrays(images)


def _compared(task: ChangeTask, before: FileSlice, after: FileSlice) -> Iterator[pa.RecordBatch]:
    """The changes of a commit to a file group, found by comparing the rows of its keys before and after it."""
    if task.log is not None:
        keys = _keys_in_log(task.table, task.log, task.instant)
    else:
        keys = _keys_that_differ(task, before, after)
    if not len(keys):
        return
    print_as = _compact if task.log is None else _of_records(task.table)
    old_keys, old_images = _rows_of_keys(task, before, keys, print_as=print_as)
    new_keys, images = _rows_of_keys(task, after, keys, print_as=print_as)
    if task.log is None:
        written, images = _rows_of_keys(task, after, keys, task.instant, print_as)
        was = pc.index_in(written, value_set=old_keys)
    else:
        # an entry that loses may still have filled what the row lacked, which keeps its commit
        was = pc.index_in(new_keys, value_set=old_keys)
        differs = pc.fill_null(pc.not_equal(old_images.take(was), images), True)
        was, images = was.filter(differs), images.filter(differs)
    if len(images):
        yield _changes(pc.if_else(pc.is_null(was), INSERT, UPDATE), task.instant, old_images.take(was), images)
    deleted = old_images.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))
    if len(deleted):
        yield _changes(DELETE, task.instant, deleted, None)


def _keys_that_differ(task: ChangeTask, before: FileSlice, after: FileSlice) -> pa.Array:
    """Keys of rows that the instant wrote, and of rows that only `before` contains."""
    old = _key_rows(task, before)
    new = _key_rows(task, after)
    written = new.filter(pc.equal(new[COMMIT_TIME], task.instant))[RECORD_KEY]
    deleted = old.filter(pc.invert(pc.is_in(old[RECORD_KEY], value_set=new[RECORD_KEY].combine_chunks())))[RECORD_KEY]
    return pc.unique(pa.chunked_array([*written.chunks, *deleted.chunks], pa.string()))


def _key_rows(task: ChangeTask, found: FileSlice) -> pa.Table:
    columns = (RECORD_KEY, COMMIT_TIME)
    schema = pa.schema([(name, pa.string()) for name in columns])
    return pa.Table.from_batches(_rows(task, found, columns), schema)


def _keys_in_log(table: HudiTable, path: str, instant: InstantTime) -> pa.Array:
    """The record keys that one commit wrote to a log file, deletes too."""
    keys = [pa.array([], pa.string())]
    with table.storage.open_input(path) as file:
        for block in read_blocks(file, path):
            if block.type is BlockType.CORRUPT or block.type is BlockType.COMMAND or block.instant_time != instant:
                continue
            if block.type is BlockType.DELETE:
                found = block.deletes().column("record_key")
            else:
                found = block.records([RECORD_KEY]).column(RECORD_KEY)
            keys += (chunk.cast(pa.string()) for chunk in found.chunks)
    return pc.unique(pa.concat_arrays(keys))
