"""The two hash functions of Hudi's bloom filters, over many keys at once.

A filter with k hash functions hashes a key k times, each round seeded with the hash before. What a round does to the
seed depends on the key's words alone, so these are prepared once, and each round is a few passes over all keys. Keys
are sorted by their number of words: those that have a word j are then the first so many, and no pass needs a mask.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets
from skep_format.errors import KeyFieldError

U32 = npt.NDArray[np.uint32]
V = TypeVar("V", bound=np.generic)

_M = np.uint32(0x5BD1E995)
_MASK = 0xFFFFFFFF
# Of so few keys a loop is faster than a kernel for each step: a filter has 30 rounds.
_FEW_KEYS = 8
_GOLDEN = np.uint32(0xDEADBEEF)


class HashKind(IntEnum):
    """The hash type byte of a filter."""

    JENKINS = 0
    MURMUR = 1


class KeyHashes:
    """A batch of record keys, hashed once and tested against any number of filters.

    The rounds are computed when first asked for and kept: 4 bytes a key and round. Keys must not be null or empty:
    Hudi's filters refuse these.
    """

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        data, offsets = _string_buffers(keys)
        self._offsets, self._data = offsets, data
        self._rounds: dict[HashKind, list[U32]] = {}
        self._mixers: dict[HashKind, _Murmur | _MurmurOfFew | _Jenkins] = {}
        if len(offsets) > 1 and int(np.diff(offsets).min()) == 0:
            raise KeyFieldError("a bloom filter can't hold an empty record key", column="_hoodie_record_key")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def round(self, kind: HashKind, number: int) -> U32:
        """The hashes of all keys, as unsigned 32 bits, after `number` + 1 rounds."""
        rounds = self._rounds.setdefault(kind, [])
        while len(rounds) <= number:
            if kind not in self._mixers:
                self._mixers[kind] = self._mixer(kind)
            seeds = rounds[-1] if rounds else np.zeros(len(self), np.uint32)
            rounds.append(self._mixers[kind].hash(seeds))
        return rounds[number]

    def _mixer(self, kind: HashKind) -> _Murmur | _MurmurOfFew | _Jenkins:
        if kind is HashKind.JENKINS:
            return _Jenkins(self._offsets, self._data)
        return (_MurmurOfFew if len(self) <= _FEW_KEYS else _Murmur)(self._offsets, self._data)

    def positions(self, kind: HashKind, number: int, bits: int) -> U32:
        """The bit that round `number` sets for each key: `abs(h % bits)` on Java's signed integers."""
        return _positions(self.round(kind, number), bits, np.uint32)

    def positions_of_rounds(self, rounds: int, bits: int) -> Iterator[npt.NDArray[np.intp]]:
        """The positions of all rounds: an array for each round, or one with a row for each where there are few keys.

        Murmur's, none of which are kept.
        """
        if len(self) <= _FEW_KEYS:
            yield _positions(_MurmurOfFew(self._offsets, self._data).rounds(rounds), bits, np.intp)
            return
        hashes, mixer = np.zeros(len(self), np.uint32), _Murmur(self._offsets, self._data)
        for _ in range(rounds):
            hashes = mixer.hash(hashes)
            yield _positions(hashes, bits, np.intp)


def _positions(hashes: U32, bits: int, kind: type[V]) -> npt.NDArray[V]:
    signed = hashes.view(np.int32)
    magnitude: U32 = np.abs(signed).view(np.uint32)  # abs of the smallest integer is itself: 2^31 unsigned
    whole = magnitude // np.uint32(bits)  # numpy divides by vectors, and takes remainders one by one
    whole *= np.uint32(bits)
    positions = np.empty(hashes.shape, kind)
    np.subtract(magnitude, whole, out=positions, casting="unsafe")
    return positions


def _string_buffers(keys: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes and offsets of a string array. KeyFieldError where it has nulls."""
    if keys.null_count:
        raise KeyFieldError(
            f"{keys.null_count} of {len(keys)} record keys are null", column="_hoodie_record_key", rows=keys.null_count
        )
    array = keys
    if isinstance(keys, pa.ChunkedArray):
        array = keys.combine_chunks() if keys.num_chunks != 1 else keys.chunk(0)
    return bytes_and_offsets(array)


class _Words:
    """The keys' bytes as little-endian 32-bit words, a column each, for keys sorted by falling number of words."""

    def __init__(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64]
    ) -> None:
        same = not len(counts) or bool((counts == counts[0]).all())
        # None: the keys stay in their order, as those of one length do, and no round has to gather and scatter them.
        self.order: npt.NDArray[np.int64] | None = None if same else np.argsort(-counts, kind="stable")
        # Four readable bytes must follow the last start, whatever the last key's length.
        padded = np.concatenate([data, np.zeros(4, np.uint8)])
        starts = self.sorted(offsets[:-1])
        sorted_counts = self.sorted(counts)
        top = int(sorted_counts[0]) if len(counts) else 0
        # having[j]: how many keys have a word j
        having = len(counts) - np.searchsorted(sorted_counts[::-1], np.arange(1, top + 1), side="left")
        steps = np.diff(starts)
        if same and len(steps) and bool((steps == steps[0]).all()):
            # Keys of one length: their words lie at equal distances.
            words = np.ndarray((len(starts), top), "<u4", padded, int(starts[0]), (int(steps[0]), 4))
            self.columns: list[U32] = [np.array(words[:, j], np.uint32) for j in range(top)]
        else:
            self.columns = [_word_at(padded, starts[:n] + 4 * j) for j, n in enumerate(having.tolist())]

    def sorted(self, values: npt.NDArray[V]) -> npt.NDArray[V]:
        """Values of the keys in the order of the columns; not a copy where that is the keys' own order."""
        return values if self.order is None else values[self.order]

    def given(self, values: U32) -> U32:
        """Values in the order of the columns, in the order of the keys."""
        if self.order is None:
            return values
        result = np.empty_like(values)
        result[self.order] = values
        return result


def _word_at(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> U32:
    word: Any = data[at].astype(np.uint32)
    for i in (1, 2, 3):
        word |= data[at + i].astype(np.uint32) << np.uint32(8 * i)
    return word


class _Murmur:
    """Hadoop's 32-bit MurmurHash: tail bytes are signed, and the first of them gets the highest shift."""

    def __init__(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        lengths = np.diff(offsets)
        words = self._words = _Words(offsets, data, lengths >> 2)
        self._columns = words.columns
        for word in self._columns:
            word *= _M
            word ^= word >> np.uint32(24)
            word *= _M
        self._lengths = words.sorted(lengths).astype(np.uint32)
        tail_bytes = words.sorted(lengths) & 3
        ends = words.sorted(offsets[1:])
        signed = data.view(np.int8)
        self._tail = np.zeros(len(lengths), np.uint32)
        for i in (1, 2, 3):
            some = np.nonzero(tail_bytes >= i)[0]
            byte = signed[ends[some] - i].astype(np.int32).view(np.uint32)
            self._tail[some] ^= byte << np.uint32(8 * (i - 1))
        self._tail_factor = np.where(tail_bytes > 0, _M, np.uint32(1)) if tail_bytes.any() else None

    def hash(self, seeds: U32) -> U32:
        h = self._words.sorted(seeds) ^ self._lengths
        for word in self._columns:
            part = h[: len(word)]
            part *= _M
            part ^= word
        if self._tail_factor is not None:
            h ^= self._tail
            h *= self._tail_factor
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        return self._words.given(h)


class _MurmurOfFew:
    """What `_Murmur` computes, key by key in Python."""

    def __init__(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        text, bounds = data.tobytes(), offsets.tolist()
        self._keys = [self._prepared(text[low:high]) for low, high in pairwise(bounds)]

    @staticmethod
    def _prepared(key: bytes) -> tuple[int, list[int], int, int]:
        """Length, mixed words, tail, and the factor after the tail."""
        length, factor, words = len(key), int(_M), []
        for (word,) in struct.iter_unpack("<I", key[: length & ~3]):
            word = word * factor & _MASK
            words.append((word ^ word >> 24) * factor & _MASK)
        tail = 0
        for i in range(1, (length & 3) + 1):
            byte = key[-i] - 256 if key[-i] >= 128 else key[-i]
            tail ^= byte << 8 * (i - 1) & _MASK
        return length, words, tail, factor if length & 3 else 1

    def hash(self, seeds: U32) -> U32:
        return np.array([self._hashed(h, *key) for h, key in zip(seeds.tolist(), self._keys, strict=True)], np.uint32)

    def rounds(self, count: int) -> U32:
        """The hashes of the first `count` rounds, a row each."""
        found, hashes = [], [0] * len(self._keys)
        for _ in range(count):
            hashes = [self._hashed(h, *key) for h, key in zip(hashes, self._keys, strict=True)]
            found.append(hashes)
        return np.array(found, np.uint32)

    @staticmethod
    def _hashed(h: int, length: int, words: list[int], tail: int, last: int) -> int:
        factor = int(_M)
        h ^= length
        for word in words:
            h = h * factor & _MASK ^ word
        h = (h ^ tail) * last & _MASK
        h = (h ^ h >> 13) * factor & _MASK
        return h ^ h >> 15


class _Jenkins:
    """Bob Jenkins' lookup3 on little-endian words, the hash of filters from before they carried a version."""

    def __init__(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        lengths = np.diff(offsets)
        blocks = (lengths + 11) // 12
        # Keys are laid out again, each zero-padded to whole blocks of three words.
        starts = np.concatenate([[0], np.cumsum(blocks * 12)])
        laid = np.zeros(int(starts[-1]), np.uint8)
        laid[np.arange(len(data)) + np.repeat(starts[:-1] - offsets[:-1], lengths)] = data
        words = self._words = _Words(starts, laid, blocks * 3)
        self._columns = words.columns
        self._start = words.sorted(lengths).astype(np.uint32) + _GOLDEN

    def hash(self, seeds: U32) -> U32:
        a = self._words.sorted(seeds) + self._start
        b, c = a.copy(), a.copy()
        columns = self._columns
        for j in range(0, len(columns), 3):
            mixed = len(columns[j + 3]) if j + 3 < len(columns) else 0  # keys that have a further block
            n = len(columns[j])
            a[:n] += columns[j]
            b[:n] += columns[j + 1]
            c[:n] += columns[j + 2]
            _mix(a[:mixed], b[:mixed], c[:mixed])
            _finish(a[mixed:n], b[mixed:n], c[mixed:n])
        return self._words.given(c)


def _rotated(x: U32, bits: int) -> U32:
    rotated: U32 = (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
    return rotated


def _mix(a: U32, b: U32, c: U32) -> None:
    for bits in ((4, 6, 8), (16, 19, 4)):
        a -= c
        a ^= _rotated(c, bits[0])
        c += b
        b -= a
        b ^= _rotated(a, bits[1])
        a += c
        c -= b
        c ^= _rotated(b, bits[2])
        b += a


def _finish(a: U32, b: U32, c: U32) -> None:
    for x, y, bits in ((c, b, 14), (a, c, 11), (b, a, 25), (c, b, 16), (a, c, 4), (b, a, 14), (c, b, 24)):
        x ^= y
        x -= _rotated(y, bits)
