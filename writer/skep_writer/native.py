"""Slices that Spark reads itself: base files without logs, written with the table's schema of today, in types that both
readers take alike. All others go through Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep_table.errors import SkepError
from skep_table.query.plan import ReadTask, Scan
from skep_table.schema.arrow import to_arrow
from skep_table.schema.avro import parse_avro
from skep_table.schema.types import META_FIELDS, PARTITION_PATH, Schema
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.timeline.instant import DATA_ACTIONS
from skep_writer.edge import quoted
from skep_writer.schemas import spark_arrow, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The session's file systems need no credentials of the table's for these.
_SCHEMES: Final = ("file:", "hdfs:")
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


def reads_alike(spark: SparkSession) -> bool:
    """Whether this session's reader gives the values that skep's does."""
    return (spark.conf.get(_SHIFTS, None) or "false").lower() != "true"


def split(tasks: Sequence[ReadTask]) -> tuple[list[ReadTask], list[ReadTask]]:
    """The tasks of one scan whose base files Spark can read, and the others."""
    if not tasks or not _suits(tasks[0].scan):
        return [], list(tasks)
    scan = tasks[0].scan
    known = dict(_schemas(scan, {task.slice.base_instant for task in tasks}))
    wanted = to_arrow(scan.file_schema.select(scan.columns))
    fits = [_is_plain(task) and known.get(task.slice.base_instant) == wanted for task in tasks]
    native = [task for task, alone in zip(tasks, fits, strict=True) if alone]
    return native, [task for task, alone in zip(tasks, fits, strict=True) if not alone]


def native_frame(spark: SparkSession, tasks: Sequence[ReadTask]) -> DataFrame:
    """The rows of such tasks. Columns whose values the folder holds are added by the partition path of each row."""
    from pyspark.sql import functions

    scan = tasks[0].scan
    from_folder = [f.with_nullable(True) for f in spark_arrow(scan.arrow_schema) if f.name in scan.partitions.names]
    held = [name for name in scan.columns if name not in scan.partitions.names]
    read = tuple(dict.fromkeys((*held, PARTITION_PATH))) if from_folder else tuple(held)
    struct = spark_type(spark_arrow(to_arrow(scan.file_schema.select(read))))
    storage = scan.table.storage
    paths = [_GLOB.sub(r"\\\1", storage.uri(task.slice.base_file.path)) for task in tasks if task.slice.base_file]
    frame = spark.read.schema(struct).options(**_OPTIONS).parquet(*paths)
    if from_folder:
        values = {task.slice.partition_path: scan.constants(task.slice) for task in tasks}
        rows = [(path, *(found[field.name].as_py() for field in from_folder)) for path, found in values.items()]
        folders = pa.schema([(_FOLDER, pa.string()), *from_folder])
        listed = functions.broadcast(spark.createDataFrame(rows, spark_type(folders)))
        frame = frame.join(listed, frame[PARTITION_PATH] == listed[_FOLDER], "left")
    return frame.select([quoted(name) for name in scan.columns])


_FOLDER: Final = "_skep_folder"


def _suits(scan: Scan) -> bool:
    """What has to be so for all slices: nothing is left to do with the rows that a base file holds."""
    names = {name.lower() for name in scan.file_schema.names()}
    return (
        scan.predicate is None
        and scan.commit_times is None
        and not scan.history
        and not scan.partitions.as_text
        and scan.table.storage.uri("").startswith(_SCHEMES)
        and (scan.table.config.populate_meta_fields or not scan.partitions.names)
        and len(names) == len(scan.file_schema.names())
        and all(_is_common(field.type) for field in to_arrow(scan.file_schema.select(scan.columns)))
    )


def _is_plain(task: ReadTask) -> bool:
    base = task.slice.base_file
    return (
        base is not None
        and not task.slice.log_files
        and base.path.endswith(".parquet")
        and base.name.instant_time != METADATA_BOOTSTRAP
        and task.scan.partitions.names == task.scan.constants(task.slice).keys()
    )


def _schemas(scan: Scan, times: set[str]) -> Iterator[tuple[str, pa.Schema]]:
    """The types of the wanted columns in the files of each instant, as its commit states its schema."""
    table = scan.table
    instants = [i for i in table.timeline.completed() if i.requested_time in times and i.action in DATA_ACTIONS]
    for instant in instants:
        try:
            text = table.commit_metadata(instant).schema_json
            schema = parse_avro(text) if text else Schema(())
        except SkepError:
            continue
        names = set(schema.names())
        if names.issuperset(set(scan.columns) - set(META_FIELDS)):
            yield instant.requested_time, to_arrow(schema.with_meta().select(scan.columns))


def _is_common(kind: pa.DataType) -> bool:
    """Types that Spark's Parquet reader takes as skep's does."""
    t = pa.types
    if t.is_struct(kind):
        return all(_is_common(kind.field(at).type) for at in range(kind.num_fields))
    if t.is_map(kind):
        return _is_common(kind.key_type) and _is_common(kind.item_type)
    if t.is_list(kind):
        return _is_common(kind.value_type)
    return (
        t.is_boolean(kind)
        or t.is_int32(kind)
        or t.is_int64(kind)
        or t.is_floating(kind)
        or t.is_string(kind)
        or t.is_binary(kind)
        or t.is_date32(kind)
        or t.is_decimal(kind)
        or t.is_timestamp(kind)
    )
