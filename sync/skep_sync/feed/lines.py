"""Changes as lines of JSON: operation, instant, and the rows before and after, which are JSON already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.buffers import joined_lines
from skep_format.instant_time import InstantTime
from skep_format.logfile.changes import AFTER, BEFORE, OP, TIME

_NULL: Final = "null"
_TEXT: Final = pa.large_string()


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """What one commit changed. `lines` are arrays of texts, read as they are asked for, once."""

    table_name: str
    base_path: str
    instant: InstantTime
    lines: Iterator[pa.Array]


def lines_of(changes: pa.RecordBatch) -> pa.Array:
    """Rows of a CDC query, each as a JSON object."""
    return _side_by_side(
        *(f'{{"{OP}":"', changes.column(OP)),
        *(f'","{TIME}":"', changes.column(TIME)),
        *(f'","{BEFORE}":', pc.fill_null(changes.column(BEFORE), _NULL)),
        *(f',"{AFTER}":', pc.fill_null(changes.column(AFTER), _NULL), "}"),
    )


def joined(lines: pa.Array) -> bytes:
    """One text, a line break behind each line."""
    return joined_lines(lines.cast(_TEXT)).to_pybytes()


def _side_by_side(*parts: pa.Array | str) -> pa.Array:
    large = [pa.scalar(each, _TEXT) if isinstance(each, str) else each.cast(_TEXT) for each in (*parts, "")]
    return pc.binary_join_element_wise(*large)
