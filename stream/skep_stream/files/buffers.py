"""Bytes as arrays of Arrow that share them, and the other way round."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa


def as_array(data: Any, start: int = 0, kind: pa.DataType | None = None) -> pa.Array:
    """An array with one value, the bytes from `start` on, which are not copied; large binary where no kind is given."""
    rest = pa.py_buffer(data).slice(start)
    offsets = pa.py_buffer(struct.pack("=qq", 0, rest.size))
    return pa.Array.from_buffers(kind or pa.large_binary(), 1, [None, offsets, rest])


def as_buffer(values: pa.Array) -> pa.Buffer:
    """The bytes of all values of a large binary array without nulls, which follow one another."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    return values.buffers()[2][int(offsets[0]) : int(offsets[-1])]
