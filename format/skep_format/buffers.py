"""Bytes as arrays of Arrow that share them, and the other way round."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def as_array(data: Any, start: int = 0, kind: pa.DataType | None = None) -> pa.Array:
    """An array with one value, the bytes from `start` on, which are not copied; large binary where no kind is given."""
    rest = pa.py_buffer(data).slice(start)
    offsets = pa.py_buffer(struct.pack("=qq", 0, rest.size))
    return pa.Array.from_buffers(kind or pa.large_binary(), 1, [None, offsets, rest])


def bytes_and_offsets(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of an array of texts or bytes, none of them null, and the offsets between its values, from 0 on."""
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    values = values.cast(pa.large_binary())
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[first:last]
    return data, offsets - first if first else offsets


def joined_lines(lines: pa.Array) -> pa.Buffer:
    """The values of a large array of bytes or texts, none of them null, each with a line end, as they follow."""
    ended = pc.binary_join_element_wise(lines, *(pa.scalar(each, lines.type) for each in ("\n", "")))
    return pa.py_buffer(bytes_and_offsets(ended)[0])
