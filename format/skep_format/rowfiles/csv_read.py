"""CSV text that Arrow cuts as it is: the values of its columns, or which of them can't be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from skep_format.schema.arrow import is_number
from skep_format.schema.exact import first_refused

_BLOCK_BYTES: Final = 16 << 20  # a row has to fit
_ZONE: Final = r"([zZ]|[+-]\d\d:?\d\d)$"


class UnreadError(ValueError):
    """A row, from 1 on, and the number of a column, as far as they are known, and the reason."""

    def __init__(self, reason: str, row: int | None, column: int | None) -> None:
        super().__init__(reason)
        self.reason, self.row, self.column = reason, row, column


def read_csv(
    text: Any, columns: Sequence[str] | None, types: Mapping[str, pa.DataType], parsing: csv.ParseOptions, **given: Any
) -> pa.Table:
    """The columns in their `types`, others as what fits their texts; names are in the first row where none are given.

    Numbers may have a plus, and times without a zone are in UTC. UnreadError for what does not fit. `given` are
    further options of Arrow's conversion.
    """
    read = partial(_read, text, columns, parsing, given)
    try:
        return read(types)
    except pa.ArrowException:
        by_text = {name: kind for name, kind in types.items() if is_number(kind) or has_zone(kind)}
    as_texts = {**types, **dict.fromkeys(by_text, pa.string())}
    try:
        table = read(as_texts)
    except pa.ArrowException as error:
        raise _unread(partial(read, as_texts, threads=False), error) from error
    options = csv.ConvertOptions(**given)
    for name, kind in by_text.items():
        at = table.schema.get_field_index(name)
        texts = table.column(at)
        if not options.strings_can_be_null:
            texts = pc.if_else(pc.is_in(texts, pa.array(options.null_values)), None, texts)
        try:
            table = table.set_column(at, name, _converted(texts, kind))
        except pa.ArrowException as error:
            row = first_refused(texts, partial(_converted, kind=kind))
            reason = f"{kind}: invalid value '{texts[row]}'"
            raise UnreadError(reason, row + 1 + (columns is None), at) from error
    return table


def has_zone(kind: pa.DataType) -> bool:
    """Whether values are instants."""
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _read(
    text: Any,
    columns: Sequence[str] | None,
    parsing: csv.ParseOptions,
    given: Mapping[str, Any],
    types: Mapping[str, pa.DataType],
    threads: bool = True,
) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES, column_names=columns),
        parse_options=parsing,
        convert_options=csv.ConvertOptions(column_types=dict(types), **given),
    )


def _converted(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    texts = pc.utf8_trim_whitespace(texts)
    if is_number(kind):
        return pc.replace_substring_regex(texts, r"^\+([\d.])", r"\1").cast(kind)
    plain = pc.if_else(pc.match_substring_regex(texts, _ZONE), None, texts).cast(pa.timestamp(kind.unit))
    zoned = pc.if_else(pc.is_valid(plain), None, texts).cast(kind)
    return pc.coalesce(zoned, pc.assume_timezone(plain, "UTC").cast(kind))


def _unread(read_again: partial[pa.Table], error: pa.ArrowException) -> UnreadError:
    """The value behind an error. Only one thread counts rows."""
    text = str(error)
    try:
        read_again()
    except pa.ArrowException as again:
        text = str(again)
    column, row = re.search(r"In CSV column #(\d+): ", text), re.search(r"Row #(\d+): ", text)
    reason = re.sub(r"^CSV parse error: |In CSV column #\d+: |Row #\d+: |CSV conversion error to ", "", text)
    return UnreadError(reason, int(row[1]) if row else None, int(column[1]) if column else None)
