"""Base files that Spark reads itself: those whose columns its Parquet reader takes as skep does, by the schema that
each was written with. All other files are read by skep's tasks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.basefile.encryption import keys_of
from skep_format.errors import SkepError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import COMMIT_TIME, NO_DEFAULT, PARTITION_PATH, Field, Schema, quoted
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_table.commit.plaintext import is_marked
from skep_table.query.plan import ReadTask, Scan, has_indexes, matching
from skep_table.query.request import ReadRequest
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.slices.history import names_in_file
from skep_table.table import HudiTable
from skep_writer.reading.conditions import from_spark, of_commits, on_spark
from skep_writer.reading.relation import Folder, file_frame, root_of_session, unavailable, warn_slower
from skep_writer.schemas import spark_arrow, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_FOLDER: Final = "_skep_folder"
_NO_COLUMN: Final = "_skep_none_{}"
"""The name of a column that a file does not have, where it has another one under the name of the answer's."""
_GLOB: Final = re.compile(r"([\[\]{}*?\\])")
# What holds for these reads whatever the session's settings are: files that do not state their calendar are in the
# proleptic Gregorian one, as skep's reader takes them; a file that is missing or damaged is an error.
_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
# Shifts INT96 times of some writers by the session's time zone; no option of a read can turn it off.
_SHIFTS: Final = "spark.sql.parquet.int96TimestampConversion"
# The footers that are read at most for the schemas of archived commits, one for each commit.
_MOST_FOOTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Stored:
    """A column as a base file has it. `cast`: its type is not that of the answer."""

    name: str
    type: pa.DataType
    cast: bool = False


Layout: TypeAlias = tuple[Stored, ...]
Tasks: TypeAlias = list[ReadTask]
FolderValues: TypeAlias = dict[str, pa.Scalar]

_schemas: Final[WeakKeyDictionary[HudiTable, dict[InstantTime, Schema | None]]] = WeakKeyDictionary()


def split(spark: SparkSession, tasks: Sequence[ReadTask]) -> tuple[Tasks, Tasks]:
    """The tasks of one scan that Spark can do alone, and the others."""
    plain = [task for task in tasks if not task.slice.log_files]
    if not plain:
        return [], list(tasks)
    scan = plain[0].scan
    if scan.predicate is not None and not scan.predicate.is_implied and on_spark(scan.predicate) is None:
        return [], list(tasks)
    native = readable(spark, plain, _columns_needed(scan))[0]
    return native, _without(tasks, native)


def native_rows(spark: SparkSession, tasks: Sequence[ReadTask], request: ReadRequest) -> DataFrame:
    """The rows of the answer in such tasks."""
    scan = tasks[0].scan
    frame = _native_frame(spark, tasks, _columns_needed(scan), request)
    if scan.commit_times is not None:
        frame = frame.where(of_commits(scan.commit_times))
    condition = None if scan.predicate is None else on_spark(scan.predicate)
    if condition is not None:
        frame = frame.where(condition)
    if scan.columns == _columns_needed(scan):
        return frame
    return frame.select([quoted(name) for name in scan.columns])


def _columns_needed(scan: Scan) -> tuple[str, ...]:
    names = scan.columns_read
    return names if scan.commit_times is None or COMMIT_TIME in names else (COMMIT_TIME, *names)


def _without(tasks: Sequence[ReadTask], others: Iterable[ReadTask]) -> Tasks:
    left_out = set(map(id, others))
    return [task for task in tasks if id(task) not in left_out]


def readable(
    spark: SparkSession, tasks: Sequence[ReadTask], columns: Sequence[str] | None = None
) -> tuple[Tasks, Tasks]:
    """The tasks of one scan whose base files Spark reads as skep does, as to `columns` (the scan's), and the others.

    Log files don't count. A ReadWarning has the reason where the session lacks something that the read needs.
    """
    candidates = _with_values([task for task in tasks if _is_plain(task)])
    if not candidates or (spark.conf.get(_SHIFTS, None) or "false").lower() == "true":
        return [], list(tasks)
    scan = candidates[0].scan
    if keys_of(scan.table.storage) is not None or is_marked(scan.table):
        return [], list(tasks)  # the session may not have the keys
    wanted = scan.columns if columns is None else tuple(columns)
    layouts = _layouts(scan, wanted, candidates)
    native = [task for task in candidates if layouts[task.slice.base_instant] is not None]
    if not native or not _has_means(spark, scan, wanted, native[0]):
        return [], list(tasks)
    return native, _without(tasks, native)


def _native_frame(
    spark: SparkSession, tasks: Sequence[ReadTask], wanted: Sequence[str], request: ReadRequest
) -> DataFrame:
    """All rows of the base files of such tasks: the columns `wanted`, in the types of the answer."""
    scan = tasks[0].scan
    held = [name for name in wanted if name not in scan.partitions.names]
    layouts = _layouts(scan, wanted, tasks)
    values = _values_in_files(scan, held, tasks)
    alike: dict[tuple[Layout, bool], Tasks] = defaultdict(list)
    for task in tasks:
        layout = layouts[task.slice.base_instant]
        assert layout is not None, "a task that `readable` left out"
        alike[layout, task.slice.partition_path in values].append(task)
    frames = []
    for (layout, in_files), group in alike.items():
        stored = dict(zip(held, layout, strict=True))
        result = [_expression(stored.get(field.name), field) for field in _spark_type(scan, wanted).fields]
        kept = values if in_files else None
        frames.append(_scanned(spark, group, request, stored, wanted, result, kept))
    return reduce(lambda one, other: one.union(other), frames)


def _expression(stored: Stored | None, field: StructField) -> str:
    """A column of the answer; `stored` is None for one of the folder."""
    if stored is None:
        return quoted(field.name)
    column = quoted(stored.name)
    cast = f"CAST({column} AS {field.dataType.simpleString()})" if stored.cast else column
    return f"{cast} AS {quoted(field.name)}"


def _spark_type(scan: Scan, names: Sequence[str]) -> StructType:
    return spark_type(spark_arrow(scan.schema_of(names)))


def _values_in_files(scan: Scan, held: Sequence[str], tasks: Sequence[ReadTask]) -> dict[str, FolderValues]:
    """By partition path, the value of each column of the files that leaves out partitions, where the path has all."""
    columns = [column for column in scan.partitions.pruned_by if column.name in held]
    if not columns or scan.partitions.names:
        return {}
    paths = dict.fromkeys(task.slice.partition_path for task in tasks)
    found = {path: scan.partitions.values(path, columns) for path in paths}
    return {path: values for path, values in found.items() if len(values) == len(columns)}


def _scanned(
    spark: SparkSession,
    tasks: Tasks,
    request: ReadRequest,
    layout: Mapping[str, Stored],
    wanted: Sequence[str],
    result: Sequence[str],
    in_files: Mapping[str, FolderValues] | None,
) -> DataFrame:
    """The expressions of `result` over the columns of files of one layout, and those of their folders.

    `layout` is by the names that the answer has. `in_files`: files have the columns of folders, too, and filters on
    these leave out folders all the same, by these values of each partition path.
    """
    from pyspark.sql.types import StructType

    scan = tasks[0].scan
    stored = spark_arrow(pa.schema([(each.name, each.type) for each in layout.values()]))
    if in_files is not None:
        columns = [column for column in scan.partitions.pruned_by if column in list(stored)]
    else:
        columns = [column for column in scan.partitions.columns if column.name in wanted]
    data, of_folders = spark_type(stored), spark_type(spark_arrow(pa.schema(columns)))
    root = _root(spark, tasks[0])
    folders = _folders(root, tasks, columns, in_files)
    holding = _files_by_filters(tasks, request, _paths(root, folders), _unchanged(scan, layout))
    try:
        return file_frame(
            spark, folders, data, of_folders, result, _OPTIONS, in_files=in_files is not None, holding=holding
        )
    except UnsupportedError as error:
        warn_slower(f"{error.message}; filters on partition columns leave out no files")
        return _joined(spark, folders, data, of_folders if in_files is None else StructType(), tasks).selectExpr(
            *result
        )


def _files_by_filters(
    tasks: Sequence[ReadTask], request: ReadRequest, files: Sequence[str], columns: pa.Schema
) -> Callable[[Sequence[Any]], bytes] | None:
    """Which base files Spark leaves out while it plans a query, by indexes and the filters that it knows only then.

    Returns, by objects of Spark's `sources.Filter`, which of `files` can hold rows that pass: a byte for each.

    `files` are the base files of `tasks`, `columns` those that have the name and the type of the table in the files.
    None where the table has no index that the request uses.
    """
    if not tasks or not has_indexes(tasks[0].scan.table, request):
        return None

    def holding(filters: Sequence[Any]) -> bytes:
        predicate = from_spark(filters, columns)
        if predicate is None:
            return bytes([1]) * len(files)
        left = {task.slice.base_file.path for task in matching(tasks, predicate, request) if task.slice.base_file}
        return bytes(path in left for path in files)

    return holding


def _folders(
    root: str, tasks: Tasks, columns: Sequence[pa.Field], in_files: Mapping[str, FolderValues] | None
) -> list[Folder]:
    scan = tasks[0].scan
    by_folder: dict[str, Tasks] = defaultdict(list)
    for task in tasks:
        assert task.slice.base_file is not None
        by_folder[task.slice.base_file.path.rpartition("/")[0]].append(task)
    folders = []
    for folder, group in by_folder.items():
        slice_ = group[0].slice
        values = scan.constants(slice_) if in_files is None else in_files[slice_.partition_path]
        folders.append(
            Folder(
                f"{root}/{folder}" if folder else root,
                tuple(values[column.name].as_py() for column in columns),
                tuple(_sizes(scan, group).items()),
            )
        )
    return folders


def _paths(root: str, folders: Sequence[Folder]) -> list[str]:
    """The files of the folders in their order, relative to the table."""
    return [f"{folder.uri}/{name}".removeprefix(f"{root}/") for folder in folders for name, _ in folder.files]


def _unchanged(scan: Scan, layout: Mapping[str, Stored]) -> pa.Schema:
    """The columns that have the table's name and type in the files: a filter means the same there and in indexes."""
    named = [name for name, stored in layout.items() if stored.name == name and not stored.cast]
    table = scan.schema_of(named)
    return pa.schema([column for column in table if column.type == layout[column.name].type])


def _sizes(scan: Scan, tasks: Tasks) -> dict[str, int]:
    """The names and sizes of the base files of one folder.

    Spark reads the row groups that begin within the size, so that of a listing counts, not what a commit states.
    """
    bases = [task.slice.base_file for task in tasks if task.slice.base_file is not None]
    found = {base.path.rpartition("/")[2]: base.size_bytes for base in bases}
    if scan.commit_times is not None or min(found.values()) <= 0:
        listed = scan.table.view().listing.files(tasks[0].slice.partition_path)
        found.update((file.name, file.size_bytes) for file in listed if file.name in found)
    return found


def _joined(
    spark: SparkSession, folders: Sequence[Folder], data: StructType, partition: StructType, tasks: Tasks
) -> DataFrame:
    """The same by Spark's public interface: the values of a folder are joined to its rows by their partition path."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructType

    paths = [_GLOB.sub(r"\\\1", f"{folder.uri}/{name}") for folder in folders for name, _ in folder.files]
    if not partition.fields:
        return spark.read.schema(data).options(**_OPTIONS).parquet(*paths)
    read = data if PARTITION_PATH in data.names else StructType(data.fields).add(PARTITION_PATH, StringType())
    rows = spark.read.schema(read).options(**_OPTIONS).parquet(*paths)
    names = list(dict.fromkeys(task.slice.partition_path for task in tasks))
    values = [(name, *folder.values) for name, folder in zip(names, folders, strict=True)]
    nullable = StructType().add(_FOLDER, StringType())
    for field in partition.fields:
        nullable = nullable.add(field.name, field.dataType)
    listed = functions.broadcast(spark.createDataFrame(values, nullable))
    return rows.join(listed, rows[PARTITION_PATH] == listed[_FOLDER], "left").drop(_FOLDER)


def _has_means(spark: SparkSession, scan: Scan, wanted: Sequence[str], task: ReadTask) -> bool:
    """Whether the session can read the table's files at all, and give their rows the values of their folders."""
    needs_scan = not scan.partitions.names.isdisjoint(wanted) and not scan.table.config.populate_meta_fields
    reason = unavailable(spark) if needs_scan else None
    try:
        if reason is None:
            _root(spark, task)
    except UnsupportedError as error:
        reason = error.message
    if reason is not None:
        warn_slower(f"{reason}; skep's tasks read the table")
    return reason is None


def _root(spark: SparkSession, task: ReadTask) -> str:
    base = task.slice.base_file
    assert base is not None
    return root_of_session(spark, task.scan.table.storage.uri(""), base.path, base.size_bytes)


def _is_plain(task: ReadTask) -> bool:
    """Whether nothing but its columns could keep Spark from reading the base file."""
    base = task.slice.base_file
    return (
        base is not None
        and base.path.endswith(".parquet")
        and base.path.rpartition("/")[2][0] not in "._"  # Spark takes such files for hidden ones
        and base.name.instant_time != METADATA_BOOTSTRAP
    )


def _with_values(tasks: Sequence[ReadTask]) -> Tasks:
    """The tasks in whose folders all partition columns have values."""
    slices = {task.slice.partition_path: task.slice for task in tasks}
    values = {path: tasks[0].scan.constants(slice_).keys() for path, slice_ in slices.items()}
    return [task for task in tasks if values[task.slice.partition_path] == task.scan.partitions.names]


def _layouts(scan: Scan, wanted: Sequence[str], tasks: Sequence[ReadTask]) -> dict[InstantTime, Layout | None]:
    """How the files of each commit have the columns that are wanted; None where skep's tasks have to read them."""
    times = {task.slice.base_instant for task in tasks}
    names = scan.file_schema.names()
    held = [scan.file_schema[name] for name in wanted if name not in scan.partitions.names]
    common = all(_is_common(field.type) for field in to_arrow(scan.schema.select(tuple(wanted))))
    if not common or not _differ_in_any_case(names) or not set(wanted).isdisjoint(scan.partitions.as_text):
        return dict.fromkeys(times)
    schemas = _file_schemas(scan.table, tasks)
    return {time: _layout(scan, held, time, schemas.get(time)) for time in times}


def _layout(scan: Scan, held: Sequence[Field], time: InstantTime, file: Schema | None) -> Layout | None:
    if file is None or not _differ_in_any_case(file.names()):
        return None
    names = names_in_file(scan.history, time)
    found = [_stored(field, file, names.get(field.name, field.name)) for field in held]
    layout = tuple(each for each in found if each is not None)
    if len(layout) < len(held) or any("." in name for name in names):  # renamed within a struct
        return None
    return layout if _differ_in_any_case([*(each.name for each in layout), *scan.partitions.names]) else None


def _stored(field: Field, file: Schema, name: str | None) -> Stored | None:
    """Where a file has a column; None where Spark would read or convert it in another way than skep."""
    wanted = to_arrow(Schema((field,))).field(0).type
    if name is None or name not in file:
        default = field.default is not NO_DEFAULT and field.default is not None
        in_another_case = name is not None and name.lower() in map(str.lower, file.names())
        if default or not field.nullable or in_another_case:
            return None
        return Stored(name or _NO_COLUMN.format(field.name), wanted)  # Spark reads nulls where a file has no column
    found = to_arrow(file.select((name,))).field(0).type
    if found == wanted:
        return Stored(name, wanted)
    return Stored(name, found, cast=True) if _is_common(found) and _widens_alike(found, wanted) else None


def _widens_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark's cast gives the values that skep's gives. Floats become doubles by way of text, in skep only."""
    t = pa.types
    if t.is_integer(found):
        return (t.is_integer(wanted) and wanted.bit_width > found.bit_width) or t.is_float64(wanted)
    if t.is_decimal(found) and t.is_decimal(wanted):
        more = wanted.scale - found.scale
        return bool(more >= 0 and wanted.precision - found.precision >= more)
    return False


def _differ_in_any_case(names: Sequence[str]) -> bool:
    """Whether Spark distinguishes the columns where the session's names have no case."""
    return len({name.lower() for name in names}) == len(names)


def _file_schemas(table: HudiTable, tasks: Sequence[ReadTask]) -> dict[InstantTime, Schema | None]:
    """The columns of the base files of each commit, meta columns first: as the commit states them or, where it is
    archived or states none, as the footer of one of its files does. None for what is not known.
    """
    known = _schemas.setdefault(table, {})
    files = {task.slice.base_instant: task.slice.base_file.path for task in tasks if task.slice.base_file is not None}
    missing = files.keys() - known.keys()
    for instant in table.timeline.completed():
        if instant.requested_time in missing and instant.action in DATA_ACTIONS:
            schema = _schema_of_commit(table, instant)
            if schema is not None:
                known[instant.requested_time] = schema
    unknown = sorted(missing - known.keys(), reverse=True)

    def of_footer(time: InstantTime) -> Schema | None:
        try:
            return read_footer(table.storage, files[time]).schema.with_meta()
        except SkepError:
            return None

    known.update(zip(unknown, ThreadRunner().map(of_footer, unknown[:_MOST_FOOTERS]), strict=False))
    return known


def _schema_of_commit(table: HudiTable, instant: Instant) -> Schema | None:
    try:
        text = table.commit_schema_text(instant)
        return parse_avro(text).with_meta() if text else None
    except SkepError:
        return None


def _is_common(kind: pa.DataType) -> bool:
    """Types that Spark's Parquet reader takes as skep's does."""
    t = pa.types
    if t.is_map(kind):
        return _is_common(kind.key_type) and _is_common(kind.item_type)
    if t.is_struct(kind) or t.is_list(kind):
        return all(_is_common(kind.field(at).type) for at in range(kind.num_fields))
    is_plain = kind in (pa.bool_(), pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.date32())
    return is_plain or t.is_floating(kind) or t.is_decimal(kind) or t.is_timestamp(kind)
