"""Partition columns: where a query takes their values from, and which partitions a filter needs.

Hudi's releases differ, and a table is answered as the release that writes its version answers. From version 8 on the
value is the folder's name, but for fields that are formatted times; incremental queries do not decode what URL encoding
escaped. In version 6 snapshots (time travel too) of copy-on-write tables and read-optimized queries take it from the
folder; incremental queries, and snapshots of merge-on-read tables unless their files lack the column, from the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from skep_format.errors import PredicateError
from skep_format.escaping import unescape
from skep_format.names import DEFAULT_PARTITION, META_FOLDER, join
from skep_format.table_config import TIMESTAMP_KEY_GENERATOR, TableConfig, TableType
from skep_format.versions import format_of
from skep_table.keys.partition_path import folder_values, value_of
from skep_table.query.filters.predicate import Bounds, Path, Predicate
from skep_table.query.options import QueryType
from skep_table.view import FolderFilter

_CHANGES = (QueryType.INCREMENTAL, QueryType.CDC)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """How partition paths become column values. `columns` are those that the path gives; the file gives the others.

    `names_columns` is that of the settings. `pruned_by` are the columns by which a filter leaves out partitions.
    `as_text` are columns of the file that are answered as text whatever their type. `single_level` are the fields whose
    values can't hold a slash, `formatted` those whose folders are formatted times. `encoded`: the table escapes folder
    names.
    """

    fields: tuple[str, ...]
    columns: tuple[pa.Field, ...]
    names_columns: bool | None
    decode: bool
    pruned_by: tuple[pa.Field, ...] = ()
    as_text: tuple[str, ...] = ()
    single_level: frozenset[str] = frozenset()
    formatted: frozenset[str] = frozenset()
    encoded: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names of `columns`."""
        return frozenset(column.name for column in self.columns)

    def of(self, path: str) -> dict[str, pa.Scalar]:
        """The columns' values in one partition. A column is missing where its text is no value of its type."""
        return self.values(path, self.columns)

    def values(self, path: str, columns: Sequence[pa.Field]) -> dict[str, pa.Scalar]:
        """The values of `columns`, of the path or of `pruned_by`, that the rows of one partition have.

        Without those that are not known: the text is no value of the type, or stands for null and for an empty text,
        and the file has which of them it is.
        """
        found = folder_values(
            path, self.fields, columns, hive_style=self.names_columns is not False, url_encode=self.decode
        )
        return {name: value for name, value in found.items() if value.is_valid or name in self.names}

    def select(self, paths: Sequence[str], predicate: Predicate | None) -> list[str]:
        """The partitions in which a row can match."""
        weaker, names = self._conditions(predicate)
        if weaker is None or not paths:
            return list(paths)
        known = [self.values(path, names) for path in paths]
        rows = ([_python(values.get(column.name)) for values in known] for column in names)
        table = pa.table({column.name: pa.array(row, column.type) for column, row in zip(names, rows, strict=True)})
        matches = np.asarray(weaker.mask(table).fill_null(False))
        complete = np.array([all(column.name in values for column in names) for values in known])
        return [path for path, wanted in zip(paths, matches | ~complete, strict=True) if wanted]

    def _conditions(self, predicate: Predicate | None) -> tuple[Predicate | None, list[pa.Field]]:
        """What must hold of the columns by which partitions are left out, and which of these it looks at."""
        known = frozenset(column.name for column in self.pruned_by)
        weaker = predicate.weakened(known) if predicate is not None and known else None
        return weaker, [column for column in self.pruned_by if weaker is not None and column.name in weaker.columns]

    def folder_filter(self, predicate: Predicate | None) -> FolderFilter | None:
        """Which folders can lead to a partition in which a row can match; None where that can be any."""
        weaker, columns = self._conditions(predicate)
        if weaker is None:
            return None
        start, exact = self._start(weaker, columns)
        return FolderFilter(start, partial(self._folders, weaker, columns), exact)

    def _start(self, predicate: Predicate, columns: Sequence[pa.Field]) -> tuple[tuple[str, ...], bool]:
        """The folders of the first fields, as far as the filter binds them to texts that have one folder each; and
        whether these are all fields, so that a partition in which a row can match is one of the folders."""
        folders = [""]
        kinds = {column.name: column.type for column in columns}
        for name in self.fields:
            values = predicate.equal_values((name,)) if pa.types.is_string(kinds.get(name, pa.null())) else None
            texts = None if values is None else values.drop_null().unique().to_pylist()
            if (
                self.names_columns is None
                or texts is None
                or len(folders) * len(texts) > _MOST_STARTS
                or not all(map(self._has_one_folder, texts))
            ):
                return tuple(folders), False
            prefix = f"{name}=" if self.names_columns else ""
            folders = [join(folder, prefix + text) for folder in folders for text in texts]
        return tuple(folders), bool(self.fields)

    def _has_one_folder(self, text: str) -> bool:
        """Whether all writers name the folder of a value by the value. Releases differ in which characters they encode,
        and a text with slashes may lie below the partition of another.
        """
        plain = _NEVER_ENCODED if self.encoded else _ONE_LEVEL
        return re.fullmatch(plain, text) is not None and text not in (DEFAULT_PARTITION, META_FOLDER, ".", "..")

    def _folders(self, predicate: Predicate, columns: Sequence[pa.Field], folders: Sequence[str]) -> list[str]:
        """The folders of which some reading of their levels as values of the fields lets a row match."""
        readings: list[dict[str, Range]] = []
        owners: list[int] = []
        for number, folder in enumerate(folders):
            for texts in _readings(folder.split("/"), self.fields, self.single_level):
                readings.append({c.name: self._range(c, texts) for c in columns if c.name in texts})
                owners.append(number)
        bounds: dict[Path, Bounds] = {
            (c.name,): _bounds([found.get(c.name, _ANY) for found in readings], c.type) for c in columns
        }
        wanted = np.zeros(len(folders), bool)
        try:
            np.logical_or.at(wanted, owners, predicate.may_match(bounds, len(readings)))
        except PredicateError:
            return list(folders)  # raised for the rows, if there are any
        return [folder for folder, keep in zip(folders, wanted, strict=True) if keep]

    def _range(self, column: pa.Field, texts: Mapping[str, tuple[str, bool]]) -> Range:
        """The values that a field can have whose text is known, or only how it begins (`whole` is False)."""
        level, whole = texts[column.name]
        prefix = f"{column.name}="
        text = level[len(prefix) :] if self.names_columns is not False and level.startswith(prefix) else level
        value = unescape(text) if self.decode else text
        if value == DEFAULT_PARTITION:
            return _NULL if column.name in self.names else _ANY  # files have null or an empty text
        if not whole and pa.types.is_string(column.type):
            return value, value + _AFTER_SLASH, 0
        if not whole and column.name in self.formatted:
            return _ANY
        try:
            exact = _python(value_of(value, column.type))
        except pa.ArrowException:
            return _ANY
        return exact, exact, 0


Range = tuple[object, object, int | None]
"""Lowest and highest value, and whether they are null: 1 or 0; None where nothing is known."""
_ANY: Final[Range] = (None, None, None)
_NULL: Final[Range] = (None, None, 1)
_AFTER_SLASH: Final = "0"  # the character after the slash: a longer text lies before the text with it
_MOST_LEVELS: Final = 12
_MOST_STARTS: Final = 16
_NEVER_ENCODED: Final = r"[A-Za-z0-9_.-]+"
_ONE_LEVEL: Final = r"[^/\x00]+"


def _readings(
    levels: Sequence[str], fields: Sequence[str], single_level: frozenset[str]
) -> Iterator[dict[str, tuple[str, bool]]]:
    """The ways to read the levels of a folder as the texts of the first fields: values may hold slashes.

    Of each field its text and whether that is all of it. Fields that are not in the answer can have any value.
    """
    if len(levels) > _MOST_LEVELS:
        yield {}
        return

    def read(at: int, field: int) -> Iterator[dict[str, tuple[str, bool]]]:
        if field == len(fields):
            if at == len(levels):
                yield {}
            return
        name = fields[field]
        for end in range(at + 1, 2 + at if name in single_level else len(levels) + 1):
            text = "/".join(levels[at:end])
            if end == len(levels):
                yield {name: (text, name in single_level)}
            elif field + 1 < len(fields):
                for rest in read(end, field + 1):
                    yield {name: (text, True), **rest}

    found = False
    for reading in read(0, 0):
        found = True
        yield reading
    if not found:
        yield {}  # more levels than the fields can have: any value is possible


def _bounds(ranges: Sequence[Range], kind: pa.DataType) -> Bounds:
    lowest, highest, nulls = zip(*ranges, strict=True) if ranges else ((), (), ())
    known = [None if each is None else 1 for each in nulls]
    return Bounds(
        pa.array(lowest, kind), pa.array(highest, kind), pa.array(nulls, pa.int64()), pa.array(known, pa.int64())
    )


def _python(value: pa.Scalar | None) -> object:
    return None if value is None else value.as_py()


def partition_values(
    config: TableConfig, schema: pa.Schema, query: QueryType, from_path: bool | None = None
) -> PartitionValues:
    """The rule for a query on a table; `from_path` True takes all values from the path, whatever the key generator."""
    fields, reads = config.partition_fields, format_of(config).reads
    undecoded = query in _CHANGES and reads.partition_values_from_path
    decode = config.url_encode and not undecoded
    if not all(name in schema.names for name in fields):
        return PartitionValues(fields, (), config.names_columns, decode)
    taken = [name for name in fields if from_path or _in_path(name, config, query)]
    prunable = [name for name in fields if name in taken or name not in config.formatted_times]
    text = reads.partition_values_from_path and config.key_generator == TIMESTAMP_KEY_GENERATOR
    return PartitionValues(
        fields,
        tuple(_column(name, config, schema) for name in taken),
        config.names_columns,
        decode,
        tuple(_column(name, config, schema) for name in prunable) if query not in _CHANGES or taken else (),
        tuple(n for n in fields if text and n not in taken and not pa.types.is_string(schema.field(n).type)),
        frozenset(name for name in fields if _is_single_level(name, config, schema)),
        config.formatted_times,
        config.url_encode,
    )


def _is_single_level(name: str, config: TableConfig, schema: pa.Schema) -> bool:
    """Texts of numbers have no slash; of other types only encoding makes sure of that, if the value is the text."""
    kind = schema.field(name).type
    if name in config.formatted_times:
        return False
    return config.url_encode or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)


def _in_path(name: str, config: TableConfig, query: QueryType) -> bool:
    if format_of(config).reads.partition_values_from_path:
        return name not in config.formatted_times
    if config.type is TableType.MERGE_ON_READ and query is not QueryType.READ_OPTIMIZED:
        return config.drop_partition_columns
    return query not in _CHANGES


def _column(name: str, config: TableConfig, schema: pa.Schema) -> pa.Field:
    # A formatted time need not be a value of the column's type: Hudi makes the column text then.
    kind = pa.string() if config.key_generator == TIMESTAMP_KEY_GENERATOR else schema.field(name).type
    return pa.field(name, kind)
