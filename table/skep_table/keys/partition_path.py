"""Partition paths: the text of folder names, from column values and back.

Format guide 9.2. Values are escaped, then prefixed with `field=`, then joined with `/`. The same text is the folder,
the `_hoodie_partition_path` column and the key in commit metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import FormatError, KeyFieldError
from skep_format.escaping import ESCAPED, NEEDS_ESCAPE, unescape
from skep_format.names import DEFAULT_PARTITION, META_FOLDER
from skep_format.table_config import TableConfig

_OUTSIDE = rf"(^|/)(\.{{0,2}}|{re.escape(META_FOLDER)})(/|$)|\x00"


def escape_column(values: pa.Array) -> pa.Array:
    """`escape` for a whole column."""
    if not pc.any(pc.match_substring_regex(values, NEEDS_ESCAPE)).as_py():
        return values
    encoded = values.dictionary_encode()
    escaped = encoded.dictionary
    for character in ["%", *(c for c in ESCAPED if c != "%")]:
        escaped = pc.replace_substring(escaped, character, f"%{ord(character):02X}")
    return escaped.take(encoded.indices)


def join_values(
    values: Sequence[pa.Array], fields: Sequence[str], *, hive_style: bool, url_encode: bool, rows: int
) -> pa.Array:
    """Partition paths from the text of each partition field, nulls and empty text as Hudi's default partition.

    Raises KeyFieldError for a value that would leave the table's folder or hide in Hudi's own.
    """
    if not values:
        return pa.repeat(pa.scalar("", pa.string()), rows)
    levels = []
    for text, field in zip(values, fields, strict=True):
        missing = pc.equal(pc.coalesce(text, pa.scalar("")), "")
        # Not copied without need: where path and column are one in memory, rows are put into partitions faster.
        filled = pc.if_else(missing, DEFAULT_PARTITION, text) if pc.any(missing).as_py() else text
        filled = filled.cast(pa.string())
        level = escape_column(filled) if url_encode else filled
        levels.append(pc.binary_join_element_wise(f"{field}=", level, "") if hive_style else level)
    paths = levels[0] if len(levels) == 1 else pc.binary_join_element_wise(*levels, "/")
    check_inside(paths, fields, may_encode=not url_encode)
    return paths


def check_inside(paths: pa.Array, fields: Sequence[str], *, may_encode: bool = False) -> None:
    """KeyFieldError for paths that lead out of the table's folder, or into Hudi's own.

    `may_encode`: the values could be URL-encoded and are not, which helps where a slash is the trouble.
    """
    distinct = pc.unique(paths)  # many rows have the same few
    odd = pc.filter(distinct, pc.match_substring_regex(distinct, _OUTSIDE))
    if len(odd):
        rows = pc.sum(pc.is_in(paths, odd)).as_py()
        encode = "make the table with hoodie.datasource.write.partitionpath.urlencode=true, or "
        raise KeyFieldError(
            f"partition column {','.join(fields)}: {odd[0].as_py()!r} can't be a folder of the table",
            hint=f"{encode if may_encode and '/' in odd[0].as_py() else ''}use other partition values",
            column=",".join(fields),
            rows=rows,
            found=odd[0].as_py(),
        )


def folder_values(
    path: str, fields: Sequence[str], columns: Iterable[pa.Field], *, hive_style: bool, url_encode: bool
) -> dict[str, pa.Scalar]:
    """The values that a partition path gives for some of its fields, in their types.

    A column is missing where its text is no value of its type, and all are where the path can't be split.
    """
    try:
        texts = split_path(path, fields, hive_style=hive_style, url_encode=url_encode)
    except FormatError:
        return {}  # values that contain slashes, more than one field: only the file has them
    values = {}
    for column in columns:
        try:
            values[column.name] = value_of(texts[column.name], column.type)
        except pa.ArrowException:
            continue
    return values


def value_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A folder's text as a value; times of day in folder names are in UTC. ArrowException for what is none."""
    value = pa.scalar(text, pa.string())
    if pa.types.is_string(kind):
        return value
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        value = value.cast(pa.timestamp(kind.unit))
    return value.cast(kind)


def split_path(path: str, fields: Sequence[str], *, hive_style: bool, url_encode: bool) -> dict[str, str | None]:
    """The value text of each partition field in `path`; None for the default partition.

    A single field takes the whole path (its values may hold `/`). FormatError when path and fields don't match.
    """
    if not fields:
        return {}
    levels = [path] if len(fields) == 1 else path.split("/")
    if len(levels) != len(fields):
        raise FormatError(
            f"partition path {path!r} has {len(levels)} levels, the table has partition fields {', '.join(fields)}",
            path=path,
            expected=len(fields),
        )
    values: dict[str, str | None] = {}
    for field, level in zip(fields, levels, strict=True):
        prefix = f"{field}="
        text = level[len(prefix) :] if hive_style and level.startswith(prefix) else level
        value = unescape(text) if url_encode else text
        values[field] = None if value == DEFAULT_PARTITION else value
    return values


@dataclass(frozen=True, slots=True)
class DroppedColumns:
    """The partition columns of a table that drops them from its base files; empty for other tables.

    Rows of log files keep them: Hudi 0.15 writes them there, and reads null where they are missing. They are text
    whatever their type in the written rows, because values parsed from a path are (`HudiTable.with_dropped`).
    """

    names: tuple[str, ...] = ()
    hive_style: bool = False
    url_encode: bool = False

    @classmethod
    def of(cls, config: TableConfig) -> DroppedColumns:
        """From the table's settings."""
        return cls(config.dropped_columns, config.names_columns is not False, config.url_encode)

    def filled(self, rows: pa.Table, partition_path: str) -> pa.Table:
        """Rows of one partition with its values; null where the path can't be split into values."""
        try:
            texts = split_path(partition_path, self.names, hive_style=self.hive_style, url_encode=self.url_encode)
        except FormatError:
            texts = {}
        for name in self.names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(texts.get(name), pa.string()), rows.num_rows))
        return rows
