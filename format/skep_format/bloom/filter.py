"""Bloom filters as base file footers and the metadata table hold them: SIMPLE and DYNAMIC_V0 (format guide 5.5)."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.bloom.hashes import HashKind, KeyHashes
from skep_format.errors import CorruptFileError, OptionError, UnsupportedError

Bits = npt.NDArray[np.uint8]

_VERSION: Final = -1
_INT: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">iibi")  # version, k, hash type, m
_UNVERSIONED: Final = struct.Struct(">ii")  # k, m
_GROWTH: Final = struct.Struct(">iii")  # row capacity, keys in the last row, rows
_FEW_OF: Final = 8  # few keys are at most this part of the entries
_LEAST_ENTRIES: Final = 100
_FEW_BITS: Final = 4_096  # that are set in a row: up to here they are kept by themselves
_BATCH: Final = 65_536  # keys hashed at once where nobody keeps the hashes: the passes stay in the cache
# The smallest false-positive rate a double can hold needs 1,075 hash functions; a greater number is damage.
_MAX_HASHES: Final = 1_100
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NO_BITS: Final = np.zeros(0, np.uint8)


class BloomKind(str, Enum):
    """`hoodie_bloom_filter_type_code`. The footer leaves the key out for SIMPLE."""

    SIMPLE = "SIMPLE"
    DYNAMIC_V0 = "DYNAMIC_V0"


@dataclass(frozen=True, slots=True, eq=False)
class BloomRow:
    """One plain filter: `m` bits, bit i in byte i >> 3 under mask 1 << (i & 7), and `k` hash rounds."""

    k: int
    m: int
    bits: Bits
    hash: HashKind = HashKind.MURMUR
    versioned: bool = True

    def might_contain(self, hashes: KeyHashes) -> npt.NDArray[np.bool_]:
        """For each key, false when it is surely not in the row."""
        found = np.zeros(len(hashes), np.bool_)
        left = np.arange(len(hashes))
        # Half of the absent keys of a well-filled filter drop out in each round.
        for number in range(self.k):
            at = hashes.positions(self.hash, number, self.m)
            if len(left) < len(at):
                at = at[left]
            hit = (self.bits[at >> np.uint32(3)] >> (at & np.uint32(7)).astype(np.uint8)) & np.uint8(1)
            left = left[hit.view(np.bool_)]
            if not len(left):
                break
        found[left] = True
        return found

    def header(self) -> bytes:
        """What comes before the bits."""
        if not self.versioned:
            return _UNVERSIONED.pack(self.k, self.m)
        return _HEADER.pack(_VERSION, self.k, self.hash, self.m)

    def to_bytes(self) -> bytes:
        """As Hadoop's BloomFilter serialises itself."""
        return self.header() + self.bits.tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """A filter of one (SIMPLE) or several rows (DYNAMIC_V0); a key may be in the file when any row contains it.

    `capacity` is the number of keys per dynamic row, `last_row_keys` the number of keys in the last row.
    """

    kind: BloomKind
    rows: tuple[BloomRow, ...]
    capacity: int = 0
    last_row_keys: int = 0

    @classmethod
    def parse(cls, text: str | bytes, type_code: str | None = None, *, path: str | None = None) -> BloomFilter:
        """From the footer's base64 text; `type_code` None means SIMPLE. `path` is named in errors.

        Raises CorruptFileError when the text is cut or contradicts itself, UnsupportedError for an unknown type.
        """
        try:
            kind = BloomKind(type_code or BloomKind.SIMPLE)
        except ValueError:
            raise UnsupportedError(
                f"{path or 'bloom filter'}: bloom filter type {type_code!r} is not known", path=path, found=type_code
            ) from None
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptFileError(f"{path or 'bloom filter'}: not base64: {error}", path=path, offset=0) from error
        return cls.read(_Reader(data, path), kind)

    @classmethod
    def read(cls, reader: _Reader, kind: BloomKind) -> BloomFilter:
        """From its bytes, all of them."""
        size = len(reader.data)
        if kind is BloomKind.SIMPLE:
            parsed = cls(kind, (reader.row(),))
        else:
            reader.header()
            capacity, last, count = reader.unpack(_GROWTH)
            # Each row takes 13 bytes at least, so a false count fails at the end of the data, not in memory.
            if capacity < 1 or last < 0 or not 0 < count <= size // _HEADER.size:
                raise reader.corrupt("dynamic filter of impossible size", (capacity, last, count))
            parsed = cls(kind, tuple(reader.row() for _ in range(count)), capacity, last)
        if reader.at != size:
            raise reader.corrupt("bytes after the end of the filter", size - reader.at)
        return parsed

    def to_base64(self) -> bytes:
        """The footer's text."""
        return base64.b64encode(self.to_bytes())

    def to_bytes(self) -> bytes:
        """As Hadoop's BloomFilter, or Hudi's dynamic one, serialises itself."""
        parts: list[bytes | memoryview] = []
        if self.kind is not BloomKind.SIMPLE:
            first = self.rows[0]
            parts.append(_HEADER.pack(_VERSION, first.k, first.hash, first.m))
            parts.append(_GROWTH.pack(self.capacity, self.last_row_keys, len(self.rows)))
        for row in self.rows:
            parts += row.header(), row.bits.data
        return b"".join(parts)

    @property
    def keys(self) -> int:
        """How many keys were added; of a filter that does not count them, about how many its bits are of."""
        if self.kind is not BloomKind.SIMPLE:
            return (len(self.rows) - 1) * self.capacity + self.last_row_keys
        (row,) = self.rows
        unset = 1 - np.unpackbits(row.bits).sum() / row.m
        return round(-row.m / row.k * math.log(max(unset, 1 / row.m)))

    @property
    def type_code(self) -> str | None:
        """The footer's `hoodie_bloom_filter_type_code`: None for SIMPLE."""
        return None if self.kind is BloomKind.SIMPLE else self.kind.value

    def might_contain(self, keys: pa.Array | pa.ChunkedArray | KeyHashes) -> pa.BooleanArray:
        """For each key, false when it is surely not in. Give `KeyHashes` to ask several filters about the same keys.

        No filter holds an empty text, so that it does not show whether one was among its values.
        """
        if not isinstance(keys, KeyHashes):
            found = np.array(pc.equal(pc.binary_length(keys), 0) if len(keys) else [], np.bool_)
            if found.any():
                found[~found] = np.array(self.might_contain(keys.filter(pa.array(~found))))
                return pa.array(found)
            parts = [self._test(KeyHashes(keys[at : at + _BATCH])) for at in range(0, len(keys), _BATCH)]
            return pa.array(np.concatenate(parts) if parts else np.zeros(0, np.bool_))
        return pa.array(self._test(keys))

    def lacking(self, keys: pa.Array) -> pa.Array:
        """The keys that are surely not in."""
        return keys.filter(pc.invert(self.might_contain(keys)))

    def _test(self, hashes: KeyHashes) -> npt.NDArray[np.bool_]:
        found = self.rows[0].might_contain(hashes)
        for row in self.rows[1:]:
            found |= row.might_contain(hashes)
        return found


@dataclass(frozen=True, slots=True)
class StoredBloom:
    """A filter as a footer has it, for what stores it elsewhere: its bits are decoded where they are needed.

    `path` is named in errors.
    """

    text: bytes
    type_code: str | None = None
    path: str | None = None

    def to_base64(self) -> bytes:
        """The footer's text."""
        return self.text

    def parsed(self) -> BloomFilter:
        """Raises as `BloomFilter.parse`."""
        return BloomFilter.parse(self.text, self.type_code, path=self.path)

    def without_bits(self) -> BloomFilter:
        """The filter by the headers of its rows alone; with its bits where these are needed to count its keys.

        Raises as `parsed`.
        """
        try:
            data = _Encoded(self.text)
            if self.type_code == BloomKind.DYNAMIC_V0:
                return BloomFilter.read(_Reader(data, self.path, skips_bits=True), BloomKind.DYNAMIC_V0)
        except ValueError:  # the decoder states what is wrong
            pass
        return self.parsed()


class _Encoded:
    """The bytes behind base64 text, decoded where they are read. ValueError for other characters, wherever they are."""

    def __init__(self, text: bytes) -> None:
        padding = text[-2:].count(b"=")
        if len(text) % 4 or text.translate(None, _BASE64) != b"=" * padding:
            raise ValueError("not base64")
        self._text, self._size = text, len(text) // 4 * 3 - padding

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        low = part.start // 3
        return binascii.a2b_base64(self._text[low * 4 : -(-part.stop // 3) * 4])[part.start - low * 3 :][
            : part.stop - part.start
        ]


class _Reader:
    """Walks over a filter's bytes, big-endian. `skips_bits`: rows come without theirs."""

    def __init__(self, data: bytes | _Encoded, path: str | None, *, skips_bits: bool = False) -> None:
        self._skips_bits = skips_bits
        self.data, self.at, self.path = data, 0, path

    def corrupt(self, what: str, found: object) -> CorruptFileError:
        return CorruptFileError(
            f"{self.path or 'bloom filter'}: {what} at byte {self.at}: {found}",
            path=self.path, offset=self.at, found=found,
        )  # fmt: skip

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        if self.at + layout.size > len(self.data):
            raise self.corrupt(f"cut short, {layout.size} bytes expected", len(self.data) - self.at)
        values = layout.unpack(self.data[self.at : self.at + layout.size])
        self.at += layout.size
        return values

    def header(self) -> tuple[int, int, HashKind, bool]:
        """k, m, hash type, and whether the header has a version; the old form without one starts with k itself."""
        (version,) = self.unpack(_INT)
        self.at -= _INT.size
        if version > 0:
            k, m = self.unpack(_UNVERSIONED)
            code, versioned = int(HashKind.JENKINS), False
        else:
            version, k, code, m = self.unpack(_HEADER)
            versioned = True
            if version != _VERSION:
                raise self.corrupt("unknown version of a bloom filter", version)
        if not 0 < k <= _MAX_HASHES or m < 1 or code not in HashKind._value2member_map_:
            raise self.corrupt("impossible bloom filter: hash functions, bits, hash type", (k, m, code))
        return k, m, HashKind(code), versioned

    def row(self) -> BloomRow:
        k, m, kind, versioned = self.header()
        size = (m + 7) // 8
        if self.at + size > len(self.data):
            raise self.corrupt(f"cut short, {size} bytes of bits expected", len(self.data) - self.at)
        bits = _NO_BITS if self._skips_bits else np.frombuffer(self.data, np.uint8, size, self.at)  # type: ignore[arg-type]
        self.at += size
        return BloomRow(k, m, bits, kind, versioned)


def bits_for(entries: int, fpp: float) -> int:
    """Bits of a row that keeps the false-positive rate `fpp` for `entries` keys."""
    return math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))


def hashes_for(entries: int, bits: int) -> int:
    """Hash functions of a filter of `bits` bits for `entries` keys, as Hudi's BloomFilterUtils computes them."""
    return math.ceil(math.log(2) * bits / entries)


def fitted(keys: int, entries: int) -> int:
    """For how many entries a filter over `keys` is made that may be smaller than one for `entries`.

    That of a file with few keys would be hundreds of times as large as its rows. Any reader takes a filter of any size.
    """
    return max(keys, _LEAST_ENTRIES) if keys <= entries // _FEW_OF else entries


class _Row:
    """The bits of a row while keys are added: a byte each, or only those that are set while these are few."""

    def __init__(self, bits: int, packed: Bits | None = None) -> None:
        self._size, self._packed = bits, packed
        self._few: list[npt.NDArray[np.intp]] = []
        self._left = _FEW_BITS
        self._every: npt.NDArray[np.bool_] | None = None

    def set(self, positions: npt.NDArray[np.intp]) -> None:
        """Sets these bits. numpy scatters by integers of another size at a fifth of the speed."""
        self._left -= len(positions)
        if self._left >= 0:
            self._few.append(positions)
            return
        if self._every is None:
            self._every = np.unpackbits(self.packed(), count=self._size, bitorder="little").view(np.bool_)
        self._every[positions] = True

    def packed(self) -> Bits:
        if self._every is not None:
            return np.packbits(self._every, bitorder="little")
        packed = np.zeros(-(-self._size // 8), np.uint8) if self._packed is None else self._packed.copy()
        if self._few:
            set_ = np.concatenate(self._few)
            np.bitwise_or.at(packed, set_ >> 3, np.uint8(1) << (set_ & 7).astype(np.uint8))
        return packed


@dataclass(slots=True)
class BloomBuilder:
    """Fills a filter batch by batch. A dynamic filter gets a new row each `entries` keys, up to `max_entries`; then
    further keys go round the rows in turn, in Hudi's order, so that the bytes are the same as Hudi's.

    `fits`: a filter over few keys is made for as many entries; see `fitted`.
    """

    kind: BloomKind = BloomKind.DYNAMIC_V0
    entries: int = 60_000
    fpp: float = 1e-9
    max_entries: int = 100_000
    fits: bool = False
    _held: list[KeyHashes] | None = field(default=None, init=False)  # the keys so far, while they are few
    _held_keys: int = field(default=0, init=False)
    _rows: list[_Row] = field(default_factory=list, init=False)
    _last_row_keys: int = field(default=0, init=False)
    _overflow: int = field(default=0, init=False)  # keys that came after the last row was full
    _stored: StoredBloom | None = field(default=None, init=False)  # what is in it so far, not decoded
    _m: int = field(default=0, init=False)
    _k: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.entries < 1 or not 0 < self.fpp < 1:
            raise OptionError(
                f"a bloom filter needs at least 1 entry and a rate between 0 and 1: {self.entries}, {self.fpp:g}",
                option="hoodie.index.bloom.num_entries", found=self.entries,
            )  # fmt: skip
        self._m = bits_for(self.entries, self.fpp)
        self._k = hashes_for(self.entries, self._m)
        if self._m > 0x7FFFFFFF:
            raise OptionError(
                f"a bloom filter of {self._m} bits is too large", option="hoodie.index.bloom.num_entries",
                found=self.entries,
            )  # fmt: skip
        self._rows.append(_Row(self._m))
        self._held = [] if self.fits else None

    def resume(self, filter: BloomFilter, stored: StoredBloom | None = None) -> bool:
        """Goes on where `filter` was left, before any key is added: the filter of both, without hashing its keys again.

        False, and nothing done, for a filter of another kind or size. `stored`: the same one; `filter` may lack its
        bits then, which are decoded with the first key.
        """
        like = all(
            (row.k, row.m, row.hash, row.versioned) == (self._k, self._m, HashKind.MURMUR, True) for row in filter.rows
        )
        if filter.kind is not self.kind or not like:
            return False
        if self.kind is not BloomKind.SIMPLE:
            if filter.capacity != self.entries:
                return False
            self._last_row_keys = filter.last_row_keys
            self._overflow = max(0, filter.last_row_keys - self.entries)
        self._rows = [_Row(self._m, row.bits) for row in filter.rows]
        self._held, self._stored = None, stored
        return True

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Adds record keys; one that is there already counts again."""
        for at in range(0, len(keys), _BATCH):
            self._hold_or_set(KeyHashes(keys[at : at + _BATCH]))

    def _hold_or_set(self, hashes: KeyHashes) -> None:
        if self._held is None:
            self._set(hashes)
            return
        self._held.append(hashes)
        self._held_keys += len(hashes)
        if fitted(self._held_keys, self.entries) == self.entries:
            held, self._held = self._held, None
            for each in held:
                self._set(each)

    def _set(self, hashes: KeyHashes) -> None:
        if self._stored is not None:
            self.resume(self._stored.parsed())
        rows = self._rows_of(len(hashes))
        for positions in hashes.positions_of_rounds(self._k, self._m):
            for row, some in rows:
                self._rows[row].set(positions[..., some].ravel())

    def _rows_of(self, count: int) -> list[tuple[int, slice | npt.NDArray[np.int64]]]:
        """Which rows the next `count` keys go to, in parts: (row, the keys' places in the batch)."""
        if self.kind is BloomKind.SIMPLE:
            return [(0, slice(None))]
        parts: list[tuple[int, slice | npt.NDArray[np.int64]]] = []
        at = 0
        while at < count and not self._overflow:
            if self._last_row_keys >= self.entries:
                if len(self._rows) * self.entries >= self.max_entries:
                    break
                self._rows.append(_Row(self._m))
                self._last_row_keys = 0
            some = min(count - at, self.entries - self._last_row_keys)
            parts.append((len(self._rows) - 1, slice(at, at + some)))
            self._last_row_keys += some
            at += some
        if at < count:
            # The key that finds the last row full goes to row 0, the next ones to rows 0, 1, 2, … 0, 1, …
            turn = np.maximum(np.arange(self._overflow, self._overflow + count - at) - 1, 0) % len(self._rows)
            parts += [(row, at + np.nonzero(turn == row)[0]) for row in range(len(self._rows))]
            self._overflow += count - at
            self._last_row_keys += count - at
        return parts

    def finished(self) -> BloomFilter | StoredBloom:
        """As `finish`; what it goes on from where no key was added to that."""
        return self.finish() if self._stored is None else self._stored

    def finish(self) -> BloomFilter:
        """The filter over all added keys, made smaller where there were few."""
        if self._stored is not None:
            return self._stored.parsed()
        if self._held is not None:
            entries = fitted(self._held_keys, self.entries)
            small = BloomBuilder(self.kind, entries, self.fpp, max(entries, self.max_entries))
            for hashes in self._held:
                small._set(hashes)
            return small.finish()
        rows = tuple(BloomRow(self._k, self._m, row.packed()) for row in self._rows)
        if self.kind is BloomKind.SIMPLE:
            return BloomFilter(self.kind, rows)
        return BloomFilter(self.kind, rows, self.entries, self._last_row_keys)
