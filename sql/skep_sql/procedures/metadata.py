"""Procedures about a table's metadata table, and its bootstrap index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from skep_format.errors import InputError
from skep_format.schema.arrow import arrow_type
from skep_sql.procedures.contract import (
    BOOL,
    DOUBLE,
    FILTER,
    INT,
    LIMIT,
    LONG,
    PATH,
    TABLE,
    TEXT,
    Argument,
    Context,
    Procedure,
    Rows,
    columns,
)
from skep_table.metadata_table import FOLDER, MetadataTable
from skep_table.metadata_table.partitions import COLUMN_STATS
from skep_table.metadata_write.definitions import stats_columns
from skep_table.services.metadata.admin import drop_metadata, rebuild_metadata_table, show_metadata_table
from skep_table.services.metadata_check import compare_files
from skep_table.slices.bootstrap import source_of
from skep_table.table import HudiTable


def _metadata(table: HudiTable) -> MetadataTable:
    found = table.metadata_table()
    if found is None:
        raise InputError(
            f"table {table.config.name} has no metadata table, or an outdated one", table=table.config.name
        )
    return found


def _show_partitions(context: Context) -> Rows:
    return [[path] for path in sorted(_metadata(context.target.hudi).partitions())]


def _show_files(context: Context) -> Rows:
    metadata = _metadata(context.target.hudi)
    files = sorted(metadata.files(context["partition"] or ""), key=lambda file: file.path)
    return context.limited([[file.path.rpartition("/")[2]] for file in files])


def _validate(context: Context) -> Rows:
    """Files that the metadata table and the storage do not have alike; all data files where `verbose` is true.

    Files of writes that failed or are going on are none, as skep's own check has it.
    """
    table = context.target.hudi
    return [
        [each.path, each.name, each.stored is not None, each.stated is not None, each.stored or 0, each.stated or 0]
        for each in compare_files(table, _metadata(table))
        if context["verbose"] or (each.problem is not None and not each.problem.is_note)
    ]


def _stats(context: Context) -> Rows:
    """Sizes and counts of the files of each partition, by Hudi's names, whatever metrics are switched on."""
    table = context.target.hudi
    summary = show_metadata_table(table)
    found: list[list[object]] = []
    for each in summary.partitions:
        sizes = each.base_bytes, each.log_bytes, each.base_files, each.log_files
        found += [[f"{each.name}.{key}", str(value)] for key, value in zip(_STAT_KEYS, sizes, strict=True)]
    found.append(["partitionCount", str(len(_metadata(table).partitions()))])
    found.append(["lastCompactionTimestamp", summary.last_compaction or "none"])
    return found


def _column_stats(context: Context) -> Rows:
    """The statistics of the listed files, a row for each file and column; bounds as text, null where none is known."""
    return [
        [name, column, _text(low), _text(high), nulls] for _, column, name, low, high, nulls in _statistics(context)
    ]


def _overlap(context: Context) -> Rows:
    """How many of a partition's latest base files a look-up of one value of a column opens, over all their bounds."""
    view = context.target.hudi.view()
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
    table = context.target.hudi
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


def _create(context: Context) -> Rows:
    target: Any = context.target
    table = target.hudi
    if table.config.metadata_partitions:
        raise InputError(f"table {table.config.name} has a metadata table", table=table.config.name)
    return [[f"Created Metadata Table in {table.storage.uri(FOLDER)} (duration={_rebuilt(context, target)}secs)"]]


def _init(context: Context) -> Rows:
    """Makes a metadata table again that readers can't use; one that they can stays as it is."""
    target: Any = context.target
    table = target.hudi
    if not table.config.metadata_partitions:
        raise InputError(f"table {table.config.name} has no metadata table", table=table.config.name)
    seconds = 0.0
    if not context["read_only"] and table.metadata_table() is None:
        seconds = _rebuilt(context, target)
    action = "Opened" if context["read_only"] else "Initialized"
    return [[f"{action} Metadata Table in {table.storage.uri(FOLDER)} (duration={seconds}sec)"]]


def _rebuilt(context: Context, target: Any) -> float:
    """How long it took, in seconds."""
    table = target.services().on(target.hudi.with_options(context.settings.hoodie))
    clock = table.context.clock
    start = clock.monotonic()
    rebuild_metadata_table(table)
    return round(clock.monotonic() - start, 3)


def _delete(context: Context) -> Rows:
    target: Any = context.target
    table = target.services().on(target.hudi)
    drop_metadata(table)
    return [[f"Deleted Metadata Table at '{table.storage.uri(FOLDER)}'"]]


def _bootstrap_partitions(context: Context) -> Rows:
    return [[path] for path in sorted({str(row[0]) for row in _sources(context.target.hudi)})]


def _bootstrap_mapping(context: Context) -> Rows:
    rows = _sources(context.target.hudi)
    wanted = [part for part in str(context["file_ids"] or "").split(",") if part]
    path, names = context["partition_path"], [name for name, _ in _MAPPING]
    if wanted and not path:
        raise InputError("file_ids need the partition_path that they are in", option="partition_path")
    if context["sort_by"] not in names:
        raise InputError(
            f"sort_by is {context['sort_by']!r}", option="sort_by", found=context["sort_by"], expected=", ".join(names)
        )
    kept = [row for row in rows if (not path or row[0] == path) and (not wanted or row[1] in wanted)]
    kept.sort(key=lambda row: row[names.index(context["sort_by"])], reverse=context["desc"])
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
                within = folder[len(base) :].strip("/") if base and folder.startswith(base) else folder
                rows.append([path, found.file_id, base, within, name])
    return rows


_STAT_KEYS: Final = ("totalBaseFileSizeInBytes", "totalLogFileSizeInBytes", "baseFileCount", "logFileCount")
_PERCENTS: Final = (50, 75, 95, 99)
_OF_COLUMNS: Final = (Argument("partition", str, ""), Argument("targetColumns", str, ""))
_MAPPING: Final = columns(TEXT, "partition file_id source_base_path source_partition source_file")

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "show_metadata_table_partitions": Procedure((TABLE, PATH, FILTER), columns(TEXT, "partition"), _show_partitions),
    "show_metadata_table_files": Procedure(
        (TABLE, Argument("partition", str, ""), Argument("limit", int, -1), PATH, FILTER),
        columns(TEXT, "file_path"),
        _show_files,
    ),
    "validate_metadata_table_files": Procedure(
        (TABLE, Argument("verbose", bool, False)),
        (
            *columns(TEXT, "partition file_name"),
            *columns(BOOL, "is_present_in_fs is_present_in_metadata"),
            *columns(LONG, "fs_size metadata_size"),
        ),
        _validate,
    ),
    "show_metadata_table_stats": Procedure((TABLE, PATH, FILTER), columns(TEXT, "stat_key stat_value"), _stats),
    "show_metadata_table_column_stats": Procedure(
        (TABLE, PATH, *_OF_COLUMNS, FILTER),
        (*columns(TEXT, "file_name column_name min_value max_value"), *columns(LONG, "null_number")),
        _column_stats,
    ),
    "show_metadata_column_stats_overlap": Procedure(
        (TABLE, PATH, *_OF_COLUMNS, FILTER),
        (
            ("Partition path", TEXT),
            ("Field name", TEXT),
            ("Average overlap", DOUBLE),
            ("Maximum file overlap", INT),
            ("Total file number", INT),
            *((f"{percent}% overlap", INT) for percent in _PERCENTS),
            ("Total value number", INT),
        ),
        _overlap,
    ),
    "create_metadata_table": Procedure((TABLE,), columns(TEXT, "result"), _create),
    "init_metadata_table": Procedure((TABLE, Argument("read_only", bool, False)), columns(TEXT, "result"), _init),
    "delete_metadata_table": Procedure((TABLE,), columns(TEXT, "result"), _delete),
    "show_bootstrap_partitions": Procedure(
        (TABLE, PATH, FILTER), columns(TEXT, "indexed_partitions"), _bootstrap_partitions
    ),
    "show_bootstrap_mapping": Procedure(
        (
            TABLE,
            Argument("partition_path", str, ""),
            Argument("file_ids", str, ""),
            LIMIT,
            Argument("sort_by", str, "partition"),
            Argument("desc", bool, False),
            PATH,
            FILTER,
        ),
        _MAPPING,
        _bootstrap_mapping,
    ),
}
