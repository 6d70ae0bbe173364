"""XXHash32 of many keys at once, by which consistent hashing places them (format guide 11.2)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets

Words = npt.NDArray[np.uint32]

_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_STRIPE: Final = 16
_WORD: Final = 4
_HASHED_AT_ONCE: Final = 65_536  # the arrays for so many keys stay in the processor's cache


def xxhash32(keys: pa.Array) -> Words:
    """The hash of each text, with seed 0; none of them is null."""
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
