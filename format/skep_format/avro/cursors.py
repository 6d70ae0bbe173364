"""Reading Avro's binary primitives at many places at once: one cursor a record, moved together.

Every move is checked against the end of the cursor's record before anything is read there, so damaged bytes end in a
CorruptFileError and never reach beyond their record.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import CorruptFileError

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

PADDING = 16  # bytes behind the last record, so that words can be read at its last byte

_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)


class Bytes:
    """A padded stretch of a file that cursors walk over. `offset` is where it begins in the file `path`."""

    def __init__(self, data: U8, path: str | None = None, offset: int = 0) -> None:
        self.data = np.empty(len(data) + PADDING, np.uint8)
        self.data[: len(data)] = data
        self.data[len(data) :] = 0
        self.buffer = pa.py_buffer(self.data)
        self.path, self.offset = path, offset

    def words(self, kind: str) -> npt.NDArray[Any]:
        """A little-endian number at every byte, not only at aligned ones."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))


class Cursors:
    """Positions `at` in `source`, one a record, each not beyond its `end`. Records are in the order of their bytes."""

    __slots__ = ("at", "end", "source")

    def __init__(self, source: Bytes, at: I64, end: I64) -> None:
        self.source, self.at, self.end = source, at, end

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: I64) -> Cursors:
        """The cursors of some records. They move on their own: `put_back` brings the move home."""
        return Cursors(self.source, self.at[rows], self.end[rows])

    def put_back(self, rows: I64, moved: Cursors) -> None:
        """Takes over the offsets of `moved`, the cursors of `rows` alone (from `take`)."""
        self.at[rows] = moved.at

    def fail(self, what: str, bad: npt.NDArray[np.bool_]) -> NoReturn:
        """Raises CorruptFileError with `what` and the offset of the first bad cursor."""
        offset = self.source.offset + int(self.at[int(np.argmax(bad))])
        raise CorruptFileError(
            f"{self.source.path or 'Avro data'}: {what} at byte {offset}", path=self.source.path, offset=offset
        )

    def move(self, size: I64 | int) -> None:
        """Advances each cursor by `size` bytes. CorruptFileError beyond the end of a record."""
        moved = self.at + size
        beyond = moved > self.end
        if beyond.any():
            self.fail("a value reaches beyond the end of its record", beyond)
        self.at = moved

    def byte(self) -> U8:
        """One byte each."""
        at = self.at
        self.move(1)
        return self.source.data[at]

    def number(self, kind: str) -> npt.NDArray[Any]:
        """A little-endian number of numpy's `kind` each."""
        at = self.at
        self.move(np.dtype(kind).itemsize)
        return self.source.words(kind)[at]

    def fixed(self, size: int) -> U8:
        """`size` bytes each, as rows of a matrix."""
        at = self.at
        self.move(size)
        return self.source.data[at[:, None] + np.arange(size)]

    def long(self) -> I64:
        """A zig-zag varint each."""
        at = self.at
        empty = at >= self.end
        if empty.any():
            self.fail("a value reaches beyond the end of its record", empty)
        first = self.source.data[at]
        if len(first) == 0 or int(first.max()) < 0x80:
            self.at = at + 1
            return _unzigzag(first.astype(np.uint64))
        word, size, unfinished = _press(self.source.words("<u8")[at])
        longer = np.nonzero(unfinished)[0]
        if len(longer):
            self._finish_long(at, word, size, longer)
        self.move(size)
        return _unzigzag(word)

    def _finish_long(self, at: I64, word: npt.NDArray[np.uint64], size: I64, rows: I64) -> None:
        """The ninth and tenth byte, which only numbers beyond 2^55 have."""
        ninth = self.source.data[at[rows] + 8].astype(np.uint64)
        word[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        size[rows] = 9
        rows = rows[ninth >= 0x80]
        tenth = self.source.data[at[rows] + 9].astype(np.uint64)
        word[rows] |= tenth << np.uint64(63)
        size[rows] = 10
        if (tenth > 1).any():
            bad = np.zeros(len(self), np.bool_)
            bad[rows[tenth > 1]] = True
            self.fail("a number of more than 64 bits", bad)

    def int(self) -> npt.NDArray[np.int32]:
        """One Avro int (zigzag varint) per cursor. CorruptFileError beyond 32 bits."""
        value = self.long()
        narrow = value.astype(np.int32)
        wrong = narrow != value
        if wrong.any():
            self.fail("a number of more than 32 bits", wrong)
        return narrow

    def span(self) -> tuple[I64, I64]:
        """Start and length of a length-prefixed run of bytes each; the cursors are moved behind it."""
        length = self.long()
        wrong = (length < 0) | (length > self.end - self.at)
        if wrong.any():
            self.fail("a length that its record can't hold", wrong)
        start = self.at
        self.at = start + length
        return start, length

    def gather(self, start: I64, length: I64) -> pa.Array:
        """The bytes of the spans as a binary array.

        All bytes seen as an array in which span, gap, span, gap, … alternate: taking the spans is then one copy.
        """
        count = len(start)
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0 : 2 * count : 2] = start
        offsets[1 : 2 * count : 2] = start + length
        offsets[-1] = offsets[-2] if count else 0
        alternating = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(offsets), self.source.buffer], null_count=0
        )
        return alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def text(self) -> pa.Array:
        """A string each, checked to be UTF-8."""
        before = self.at
        found = self.gather(*self.span())
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid as error:
            offset = self.source.offset + (int(before[0]) if len(before) else 0)
            raise CorruptFileError(
                f"{self.source.path or 'Avro data'}: a string that is not UTF-8 from byte {offset} on",
                path=self.source.path,
                offset=offset,
            ) from error


def _unzigzag(value: npt.NDArray[np.uint64]) -> I64:
    half = (value >> np.uint64(1)).view(np.int64)
    half ^= -((value & np.uint64(1)).view(np.int64))
    return half


def _press(word: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], I64, npt.NDArray[np.bool_]]:
    """Varints in eight bytes each: their value, how many bytes they take, and which don't end within the eight.

    The byte that ends the number is the first without its high bit; what comes behind it is masked away, and the groups
    of seven bits are pressed together.
    """
    stop = ~word & _HIGH
    until = stop & (~stop + np.uint64(1))
    until ^= until - np.uint64(1)
    size = (((until & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
    word &= until & _LOW
    for shift, low in ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF)):
        mask = np.uint64(low)
        word = (word & mask) | ((word & ~mask) >> np.uint64(shift))
    return word, size, stop == 0


def press(word: npt.NDArray[np.uint64]) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
    """As `_press`, the values as the signed numbers that they stand for."""
    value, size, unfinished = _press(word)
    return _unzigzag(value), size, unfinished
