"""Procedures about a table's metadata table, which skep reads and drops, and its bootstrap index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skep_sql.procedures.contract import (
    BOOL,
    FILTER,
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
from skep_table.commit.metadata_table import drop_metadata_table
from skep_table.errors import InputError
from skep_table.metadata_table import MetadataTable
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
    """Files that the metadata table and the storage do not have alike; all of them where `verbose` is true."""
    table = context.target.hudi
    metadata, listing = _metadata(table), table.view(metadata=False).listing
    rows: list[list[object]] = []
    for path in sorted({*metadata.partitions(), *listing.partitions()}):
        stated = {file.path.rpartition("/")[2]: file.size_bytes for file in metadata.files(path)}
        there = {file.path.rpartition("/")[2]: file.size_bytes for file in listing.files(path)}
        for name in sorted({*stated, *there}):
            if context["verbose"] or stated.get(name) != there.get(name):
                sizes = there.get(name, 0), stated.get(name, 0)
                rows.append([path, name, name in there, name in stated, *sizes])
    return rows


def _delete(context: Context) -> Rows:
    target: Any = context.target
    table = target.services().on(target.hudi)
    if not table.config.metadata_partitions:
        raise InputError(f"table {table.config.name} has no metadata table", table=table.config.name)
    with table.context.locked():
        drop_metadata_table(table.reload())
    return [[f"Deleted Metadata Table at '{table.storage.uri('.hoodie/metadata')}'"]]


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
