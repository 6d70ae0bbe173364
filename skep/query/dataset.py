"""The rows of a read as a dataset of pyarrow, for what scans datasets: DuckDB, Polars, Ray, a writer of Arrow's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystemHandler, PyFileSystem
from sqlglot import exp

from skep_format.errors import InputError, UnsupportedError
from skep_table.query.filters.predicate import Predicate
from skep_table.query.filters.text import parse_predicate

_COMPARISON: Final = re.compile(r"\((\w+) (==|>=|<=|>|<) (-?\d+|\"[^\"\\]*\")\)", re.ASCII)
_SIGNS: Final = {"==": exp.EQ, ">=": exp.GTE, "<=": exp.LTE, ">": exp.GT, "<": exp.LT}
_PLAIN: Final = re.compile(r"\w+", re.ASCII)


class Scanned(Protocol):
    """The rows of a read; see `Rows`."""

    schema: pa.Schema

    def filtered(self, where: Predicate | None) -> Scanned:
        """With a filter; it may keep more."""

    def narrowed(self, names: frozenset[str] | None) -> Scanned:
        """With these columns, in lower case, at least; None keeps all."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Reads."""

    def count(self) -> int:
        """How many there are."""


def _refuse(*_: object) -> None:
    raise UnsupportedError("this use of a dataset is not supported for tables", hint="to_table() makes an Arrow table")


_CALLS: Final = dict.fromkeys(FileSystemHandler.__abstractmethods__, _refuse)
_Refusing: Final = type("_Refusing", (FileSystemHandler,), {**_CALLS, "get_type_name": lambda _: "skep"})


class RowsDataset(ds.FileSystemDataset):
    """Scans read the table: of its columns those that they name, and of its files those that their filter leaves.

    `filter` is a condition that all scans have. What reads datasets without a scan of theirs (joins, unions, fragments)
    gets an UnsupportedError: to_table() makes an Arrow table for it.
    """

    def __init__(self, rows: Scanned, filter: ds.Expression | None = None) -> None:
        kind = ds.ParquetFileFormat()
        fragment = kind.make_fragment("rows", PyFileSystem(_Refusing()))  # what would be read past the scanner
        super().__init__([fragment], rows.schema, kind)
        self._rows, self._filter = rows, filter

    def __reduce__(self) -> tuple[object, ...]:
        raise UnsupportedError("a dataset of a table can't be pickled", hint="open the table in the other process")

    def filter(self, expression: ds.Expression) -> RowsDataset:
        """The rows for which a condition holds, too."""
        return RowsDataset(self._rows, self._with(expression))

    def count_rows(self, filter: ds.Expression | None = None, **options: Any) -> int:
        """The number of rows; from file footers alone where that is possible."""
        if filter is None and self._filter is None:
            return self._rows.count()
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """What pyarrow's own methods, and others that read datasets, call. `options` are those of Arrow's scanners."""
        names = self._rows.schema.names
        if columns is not None and not isinstance(columns, Mapping):
            columns = list(columns)
            unknown = [name for name in columns if name not in names]
            if unknown:
                raise InputError(f"no column {unknown[0]}; there are: {', '.join(names)}", column=unknown[0])
        filter = self._with(filter)
        rows = self._rows.filtered(_where(filter, self._rows.schema)).narrowed(_used(columns, filter, names))
        return ds.Scanner.from_batches(rows.to_reader(), columns=columns, filter=filter, **options)

    def _with(self, filter: ds.Expression | None) -> ds.Expression | None:
        if self._filter is None or filter is None:
            return self._filter if filter is None else filter
        return self._filter & filter


def _used(
    columns: Sequence[str] | Mapping[str, ds.Expression] | None, filter: ds.Expression | None, names: Sequence[str]
) -> frozenset[str] | None:
    """The columns that a scan can need, in lower case. Expressions show the names in them, others count as well."""
    if columns is None:
        return None
    listed = [] if isinstance(columns, Mapping) else columns
    texts = [*(columns.values() if isinstance(columns, Mapping) else ()), *([] if filter is None else [filter])]
    shown = " ".join(map(str, texts))
    if "FieldPath" in shown or "FieldRef" in shown:  # by number, or of members
        return None
    return frozenset(name.lower() for name in names if name in listed or name in shown)


def _where(filter: ds.Expression | None, schema: pa.Schema) -> Predicate | None:
    """A condition that holds for all rows that the filter keeps: its comparisons with texts and whole numbers, as far
    as `and` joins them. The filter is applied to what is read all the same.
    """
    if filter is None or not all(map(_PLAIN.fullmatch, schema.names)):  # other names could look like conditions
        return None
    found = []
    for part in _conjuncts(str(filter)):
        match = _COMPARISON.fullmatch(part)
        if match is None:
            continue
        name, sign, value = match.groups()
        if schema.get_field_index(name) < 0 or value.startswith('"') is not pa.types.is_string(schema.field(name).type):
            continue
        constant = exp.Literal.string(value[1:-1]) if value.startswith('"') else exp.Literal.number(value)
        found.append(_SIGNS[sign](this=exp.column(exp.to_identifier(name, quoted=True)), expression=constant))
    return parse_predicate(exp.and_(*found, copy=False), schema) if found else None


def _conjuncts(text: str) -> Iterator[str]:
    """The parts that `and` joins, at any depth below others; text in quotes is no structure."""
    if not (text.startswith("(") and text.endswith(")")):
        return
    depth, quoted, escaped = 0, False, False
    for at, character in enumerate(text):
        if quoted:
            quoted, escaped = escaped or character != '"', not escaped and character == "\\"
        elif character == '"':
            quoted = True
        elif character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        if depth == 1 and not quoted and text.startswith(" and ", at):
            yield from _conjuncts(text[1:at])
            yield from _conjuncts(text[at + len(" and ") : -1])
            return
    yield text
