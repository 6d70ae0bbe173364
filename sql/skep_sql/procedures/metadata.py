"""Procedures about a table's metadata table, and its bootstrap index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from skep_format.errors import InputError
from skep_format.schema.arrow import arrow_type
from skep_sql.procedures.contract import Context, Rows, one_of, procedure
from skep_table.metadata_table import FOLDER, MetadataTable
from skep_table.metadata_table.partitions import COLUMN_STATS
from skep_table.metadata_write.definitions import stats_columns
from skep_table.services.metadata.indexing import show_metadata_table
from skep_table.services.metadata_check import compare_files
from skep_table.slices.bootstrap import plain_path, source_of
from skep_table.table import HudiTable

_STAT_KEYS: Final = ("totalBaseFileSizeInBytes", "totalLogFileSizeInBytes", "baseFileCount", "logFileCount")
_PERCENTS: Final = (50, 75, 95, 99)
_MAPPING: Final = ("partition", "file_id", "source_base_path", "source_partition", "source_file")


def _metadata(table: HudiTable) -> MetadataTable:
    found = table.metadata_table()
    if found is None:
        raise InputError(
            f"table {table.config.name} has no metadata table, or an outdated one", table=table.config.name
        )
    return found


@procedure("show_metadata_table_partitions(table, path!, filter!) -> partition")
def _show_partitions(context: Context) -> Rows:
    return [[path] for path in sorted(_metadata(context.table).partitions())]


@procedure("show_metadata_table_files(table, partition='', limit=-1, path!, filter!) -> file_path")
def _show_files(context: Context) -> Rows:
    metadata = _metadata(context.table)
    files = sorted(metadata.files(context["partition"] or ""), key=lambda file: file.path)
    return context.limited([[file.path.rpartition("/")[2]] for file in files])


@procedure("""validate_metadata_table_files(table, verbose=False) -> partition, file_name, is_present_in_fs:boolean,
    is_present_in_metadata:boolean, fs_size:long, metadata_size:long""")
def _validate(context: Context) -> Rows:
    """Files that the metadata table and the storage do not have alike; all data files where `verbose` is true.

    Files of writes that failed or are going on are none, as skep's own check has it.
    """
    table = context.table
    return [
        [each.path, each.name, each.stored is not None, each.stated is not None, each.stored or 0, each.stated or 0]
        for each in compare_files(table, _metadata(table))
        if context["verbose"] or (each.problem is not None and not each.problem.is_note)
    ]


@procedure("show_metadata_table_stats(table, path!, filter!) -> stat_key, stat_value")
def _stats(context: Context) -> Rows:
    """Sizes and counts of the files of each partition, by Hudi's names, whatever metrics are switched on."""
    table = context.table
    summary = show_metadata_table(table)
    found: list[list[object]] = []
    for each in summary.partitions:
        sizes = each.base_bytes, each.log_bytes, each.base_files, each.log_files
        found += [[f"{each.name}.{key}", str(value)] for key, value in zip(_STAT_KEYS, sizes, strict=True)]
    found.append(["partitionCount", str(len(_metadata(table).partitions()))])
    found.append(["lastCompactionTimestamp", summary.last_compaction or "none"])
    return found


@procedure("""show_metadata_table_column_stats(table, path!, partition='', targetColumns='', filter!) -> file_name,
    column_name, min_value, max_value, null_number:long""")
def _column_stats(context: Context) -> Rows:
    """The statistics of the listed files, a row for each file and column; bounds as text, null where none is known."""
    return [
        [name, column, _text(low), _text(high), nulls] for _, column, name, low, high, nulls in _statistics(context)
    ]


@procedure("""show_metadata_column_stats_overlap(table, path!, partition='', targetColumns='', filter!) -> Partition
    path, Field name, Average overlap:double, Maximum file overlap:int, Total file number:int, 50% overlap:int, 75%
    overlap:int, 95% overlap:int, 99% overlap:int, Total value number:int""")
def _overlap(context: Context) -> Rows:
    """How many of a partition's latest base files a look-up of one value of a column opens, over all their bounds."""
    view = context.table.view()
    slices = {path: view.slices(path) for path in view.partitions()}
    latest = {path: {str(each.base_file.name) for each in found if each.base_file} for path, found in slices.items()}
    bounds: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for path, column, name, low, high, _ in _statistics(context):
        if name in latest.get(path, ()) and low is not None and high is not None:
            bounds.setdefault((path, column), []).append((low, high))
    rows = []
    for (path, column), found in bounds.items():
        counts = sorted(_files_by_value(found).values())
        at = [counts[int(percent / 100 * (len(counts) - 1))] for percent in _PERCENTS]
        rows.append([path, column, sum(counts) / len(counts), max(counts), len(slices[path]), *at, len(counts)])
    return sorted(rows, key=lambda row: (row[1], row[2], row[0]))


def _files_by_value(bounds: Iterable[tuple[Any, Any]]) -> dict[Any, int]:
    """In how many ranges each bound lies."""
    points = sorted((value, is_end) for low, high in bounds for value, is_end in ((low, False), (high, True)))
    open_ranges = 0
    found: dict[Any, int] = {}
    for value, is_end in points:
        if is_end:
            found.setdefault(value, open_ranges)
            open_ranges -= 1
        else:
            open_ranges += 1
            found[value] = open_ranges
    return found


def _statistics(context: Context) -> Iterator[tuple[str, str, str, Any, Any, Any]]:
    """Partition path, column, file name, least and largest value, number of nulls, as far as the arguments name them.

    InputError where the metadata table has no column statistics.
    """
    table = context.table
    metadata = _metadata(table)
    if COLUMN_STATS not in metadata.indexes:
        raise InputError(f"table {table.config.name} has no column statistics", table=table.config.name)
    known = stats_columns(table)
    wanted = [name.strip() for name in str(context["targetColumns"] or "").split(",") if name.strip()]
    columns = {name: known[name] for name in (wanted or known) if name in known}
    starts = tuple(part for part in str(context["partition"] or "").split(",") if part) or ("",)
    for path in metadata.partitions():
        if not path.startswith(starts):
            continue
        files = [(path, file.path.rpartition("/")[2]) for file in metadata.files(path)]
        for column, kind in columns.items():
            stats = metadata.statistics_of_files(column, arrow_type(kind), files)
            for row in stats.to_pylist() if stats is not None else ():
                if row["file_name"] is not None:
                    yield path, column, row["file_name"], row["min_value"], row["max_value"], row["null_count"]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


@procedure("create_metadata_table(table) -> result")
def _create(context: Context) -> Rows:
    table = context.table
    if table.config.metadata_partitions:
        raise InputError(f"table {table.config.name} has a metadata table", table=table.config.name)
    return [[f"Created Metadata Table in {table.storage.uri(FOLDER)} (duration={_rebuilt(context)}secs)"]]


@procedure("init_metadata_table(table, read_only=False) -> result")
def _init(context: Context) -> Rows:
    """Makes a metadata table again that readers can't use; one that they can stays as it is."""
    table = context.table
    if not table.config.metadata_partitions:
        raise InputError(f"table {table.config.name} has no metadata table", table=table.config.name)
    seconds = 0.0 if context["read_only"] or table.metadata_table() is not None else _rebuilt(context)
    action = "Opened" if context["read_only"] else "Initialized"
    return [[f"{action} Metadata Table in {table.storage.uri(FOLDER)} (duration={seconds}sec)"]]


def _rebuilt(context: Context) -> float:
    """How long it took, in seconds."""
    clock = context.table.context.clock
    start = clock.monotonic()
    context.services.rebuild_metadata(**context.options())
    return round(clock.monotonic() - start, 3)


@procedure("delete_metadata_table(table) -> result")
def _delete(context: Context) -> Rows:
    context.services.drop_metadata()
    return [[f"Deleted Metadata Table at '{context.table.storage.uri(FOLDER)}'"]]


@procedure("show_bootstrap_partitions(table, path!, filter!) -> indexed_partitions")
def _bootstrap_partitions(context: Context) -> Rows:
    return [[path] for path in sorted({str(row[0]) for row in _sources(context.table)})]


@procedure("""show_bootstrap_mapping(table, partition_path='', file_ids='', limit=10, sort_by='partition',
    desc=False, path!, filter!) -> partition, file_id, source_base_path, source_partition, source_file""")
def _bootstrap_mapping(context: Context) -> Rows:
    rows = _sources(context.table)
    wanted = [part for part in str(context["file_ids"] or "").split(",") if part]
    path = context["partition_path"]
    if wanted and not path:
        raise InputError("file_ids need the partition_path that they are in", option="partition_path")
    sort_by = one_of("sort_by", context["sort_by"], _MAPPING)
    kept = [row for row in rows if (not path or row[0] == path) and (not wanted or row[1] in wanted)]
    kept.sort(key=lambda row: row[_MAPPING.index(sort_by)], reverse=context["desc"])
    return context.limited(kept)


def _sources(table: HudiTable) -> list[list[str]]:
    """The skeleton files of a bootstrapped table and the files that have their data."""
    view = table.view()
    rows = []
    for path in view.partitions():
        for found in view.slices(path):
            source = source_of(table, found, table.options)
            if source is not None:
                folder, _, name = source.path.rpartition("/")
                base = table.config.raw.get("hoodie.bootstrap.base.path", "")
                start, end = plain_path(folder), plain_path(base).rstrip("/")
                within = start[len(end) :].strip("/") if base and f"{start}/".startswith(f"{end}/") else folder
                rows.append([path, found.file_id, base, within, name])
    return rows
