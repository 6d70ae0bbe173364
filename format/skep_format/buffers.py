"""Bytes as arrays of Arrow that share them, and the other way round."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def as_array(data: Any, start: int = 0, kind: pa.DataType | None = None) -> pa.Array:
    """An array with one value, the bytes from `start` on, which are not copied; large binary where no kind is given."""
    rest = pa.py_buffer(data).slice(start)
    offsets = pa.py_buffer(struct.pack("=qq", 0, rest.size))
    return pa.Array.from_buffers(kind or pa.large_binary(), 1, [None, offsets, rest])


def joined_lines(lines: pa.Array) -> pa.Buffer:
    """The values of a large array of bytes or texts, none of them null, each with a line end, as they follow."""
    ended = pc.binary_join_element_wise(lines, *(pa.scalar(each, lines.type) for each in ("\n", "")))
    offsets = np.frombuffer(ended.buffers()[1], np.int64, len(ended) + 1, ended.offset * 8)
    data = ended.buffers()[2]
    return pa.py_buffer(b"") if data is None else data[int(offsets[0]) : int(offsets[-1])]
