"""A stable 64-bit hash of record keys, the same in every process, by which inserts are spread over buckets.

Multilinear hashing: each byte times an odd number that depends on its place in the key, summed modulo 2^64, then mixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets

_CHUNK_BYTES = 4 << 20


def key_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """One hash for each key; `keys` are texts without nulls."""
    data, offsets = bytes_and_offsets(keys)
    hashes = np.empty(len(keys), np.uint64)
    start = 0
    while start < len(keys):
        # whole keys, at least one, up to about a chunk of bytes
        end = int(np.searchsorted(offsets, offsets[start] + _CHUNK_BYTES, side="right")) - 1
        end = min(max(end, start + 1), len(keys))
        hashes[start:end] = _sums(data, offsets[start : end + 1])
        start = end
    return _mix(hashes)


def _sums(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    lengths = np.diff(offsets)
    piece = data[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    places = np.arange(len(piece), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], lengths)
    weights = _mix(np.arange(int(lengths.max(initial=0)) + 1, dtype=np.uint64)) | np.uint64(1)
    products = piece * weights[places]
    sums = np.zeros(len(lengths), np.uint64)
    filled = lengths > 0
    if filled.any():
        sums[filled] = np.add.reduceat(products, (offsets[:-1] - offsets[0])[filled])
    return sums


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    mixed: npt.NDArray[Any] = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
