"""Hashes of many record keys at once: those by which inserts are spread, and XXHash32."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets

_CHUNK_BYTES = 4 << 20


def key_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """One stable hash of 64 bits for each key, the same in every process; `keys` are texts without nulls.

    Multilinear hashing: each byte times an odd number that depends on its place in the key, summed modulo 2^64, mixed.
    """
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


Words = npt.NDArray[np.uint32]

_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_STRIPE: Final = 16
_WORD: Final = 4
_HASHED_AT_ONCE: Final = 65_536  # the arrays for so many keys stay in the processor's cache


def xxhash32(keys: pa.Array) -> Words:
    """The hash of each text, with seed 0, by which consistent hashing places it (format guide 11.2); none is null."""
    parts = [_hashes(keys.slice(at, _HASHED_AT_ONCE)) for at in range(0, len(keys), _HASHED_AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


def _hashes(keys: pa.Array) -> Words:
    data, offsets = bytes_and_offsets(keys)
    lengths = np.diff(offsets)
    at = offsets[:-1].copy()
    hashes = np.full(len(lengths), _P5, np.uint32)
    data = np.concatenate([data, np.zeros(_STRIPE, np.uint8)])  # words are read behind the end of keys, and not used
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long] = _stripes(data, at, lengths, long)
    hashes += lengths.astype(np.uint32)
    left = lengths % _STRIPE
    for number in range(_STRIPE // _WORD - 1):
        rows = np.flatnonzero(left >= _WORD * (number + 1))
        mixed = hashes[rows] + _words(data, at[rows]) * _P3
        hashes[rows] = _rotated(mixed, 17) * _P4
        at[rows] += _WORD
    left %= _WORD
    for number in range(_WORD - 1):
        rows = np.flatnonzero(left > number)
        mixed = hashes[rows] + data[at[rows]].astype(np.uint32) * _P5
        hashes[rows] = _rotated(mixed, 11) * _P1
        at[rows] += 1
    hashes ^= hashes >> np.uint32(15)
    hashes *= _P2
    hashes ^= hashes >> np.uint32(13)
    hashes *= _P3
    return hashes ^ (hashes >> np.uint32(16))


def _stripes(
    data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> Words:
    """What the whole stripes of the keys of `rows` add up to; `at` moves behind them. A round for each stripe."""
    zero = np.zeros(1, np.uint32)
    lanes = np.empty((4, len(at)), np.uint32)
    for lane, start in enumerate((zero + _P1 + _P2, zero + _P2, zero, zero - _P1)):
        lanes[lane] = start
    counts = lengths // _STRIPE
    left, number = rows, 0
    while len(left):
        for lane in range(4):
            mixed = lanes[lane, left] + _words(data, at[left] + lane * _WORD) * _P2
            lanes[lane, left] = _rotated(mixed, 13) * _P1
        at[left] += _STRIPE
        number += 1
        left = left[counts[left] > number]
    total = zero
    for lane, bits in enumerate((1, 7, 12, 18)):
        total = total + _rotated(lanes[lane, rows], bits)
    return total


def _words(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Words:
    """The little-endian words at some places."""
    word = data[at].astype(np.uint32)
    for number in range(1, _WORD):
        word |= data[at + number].astype(np.uint32) << np.uint32(8 * number)
    return word


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
