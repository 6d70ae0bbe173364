"""Reading log files block by block with small ranged reads; contents are left where they are until asked for.

A block that its own lengths contradict is corrupt, by Hudi's rule: it is passed over up to the next magic number, and
comes out as a block of type CORRUPT, so that a file cut by a crash reads as far as it was written (format guide 6.2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from skep_format.errors import CorruptFileError, UnsupportedError
from skep_format.logfile.block import MAGIC, BlockType, HeaderKey, LogBlock
from skep_format.storage import Storage

_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_FORMAT_VERSION: Final = 1
_WINDOW: Final = 64 << 10
_SCAN: Final = 1 << 20
_LEAST: Final = 4 + 4 + 4 + 8 + 4 + 8  # what a block without headers, content and footers has behind its size


def read_blocks(file: Any, path: str, size: int | None = None) -> Iterator[LogBlock]:
    """The blocks of a log file in order. `file` is a seekable pa.NativeFile that must stay open while blocks are used.

    Raises CorruptFileError for a file that does not begin with a block, or whose
    block is well framed and broken inside; UnsupportedError for a log format that skep can't read.
    """
    return _Scanner(file, path, file.size() if size is None else size).blocks()


def ends_whole(storage: Storage, path: str, size: int) -> bool:
    """Whether a log file has this size and ends with a whole block.

    Behind anything else, what a crash left for instance, no block may follow: readers would take the one before it for
    a corrupt one.
    """
    if size < len(MAGIC) + _LONG.size + _LEAST or storage.size(path) != size:
        return False
    (length,) = _LONG.unpack(storage.read_suffix(path, _LONG.size))
    if not len(MAGIC) + _LONG.size + _LEAST <= length + _LONG.size <= size:
        return False
    start = storage.read_range(path, size - length - _LONG.size, len(MAGIC) + _LONG.size)
    return start == MAGIC + _LONG.pack(length - len(MAGIC))


class _Scanner:
    def __init__(self, file: Any, path: str, size: int) -> None:
        self._file, self._path, self._size = file, path, size
        self._window, self._window_at = b"", 0

    def blocks(self) -> Iterator[LogBlock]:
        at = 0
        # Fewer bytes than a magic number at the end are nothing: Hudi's readers stop there too.
        while at + len(MAGIC) <= self._size:
            if self._bytes(at, len(MAGIC)) != MAGIC:
                raise self._corrupt(at, "no block begins here", self._bytes(at, len(MAGIC)), MAGIC)
            end = self._end(at)
            block = self._corrupt_block(at) if end is None else self._block(at, end)
            yield block
            at = block.offset + block.size

    def _bytes(self, at: int, count: int) -> bytes:
        """At most `count` bytes, fewer at the end of the file, by way of a window, so that small reads are few."""
        start = at - self._window_at
        if start < 0 or start + count > len(self._window):
            self._window = self._file.read_at(max(count, min(_WINDOW, self._size - at)), at)
            self._window_at, start = at, 0
        return self._window[start : start + count]

    def _end(self, at: int) -> int | None:
        """Where the block ends by its length in front, if the length behind and what follows agree; else None."""
        start = at + len(MAGIC) + _LONG.size
        if start > self._size:
            return None
        (length,) = _LONG.unpack(self._bytes(at + len(MAGIC), _LONG.size))
        if length < _LONG.size or start + length > self._size:
            return None
        end: int = start + length
        behind = self._bytes(end - _LONG.size, _LONG.size + len(MAGIC))
        if _LONG.unpack_from(behind)[0] != length + len(MAGIC):
            return None
        following = behind[_LONG.size :]
        return end if len(following) < len(MAGIC) or following == MAGIC else None

    def _corrupt_block(self, at: int) -> LogBlock:
        """Everything up to the next magic number, or to the end of the file."""
        scan, end = at + len(MAGIC), self._size
        while scan < self._size:
            chunk = self._file.read_at(_SCAN + len(MAGIC) - 1, scan)
            found = chunk.find(MAGIC)
            if found >= 0:
                end = scan + found
                break
            scan += _SCAN
        content = at + len(MAGIC)
        return LogBlock(BlockType.CORRUPT, {}, self._path, at, end - at, content, end - content, self._file)

    def _block(self, at: int, end: int) -> LogBlock:
        if end - at < len(MAGIC) + _LONG.size + _LEAST:
            raise self._corrupt(at, "a block too small for its parts", end - at, _LEAST)
        place = at + len(MAGIC) + _LONG.size
        version, place = self._int(place, end)
        if version != _FORMAT_VERSION:
            problem = f"block at byte {at} is of log format {version}; skep reads format {_FORMAT_VERSION}"
            raise UnsupportedError.of_file(self._path, problem, offset=at, found=version)
        kind, place = self._int(place, end)
        if kind not in BlockType._value2member_map_:
            raise self._corrupt(at, "unknown type of block", kind, f"0 to {max(BlockType)}")
        headers, place = self._headers(at, place, end)
        (size,) = _LONG.unpack(self._within(place, _LONG.size, end))
        content = place + _LONG.size
        if not 0 <= size <= end - content:
            raise self._corrupt(at, "content longer than its block", size, end - content)
        _, place = self._headers(at, content + size, end)
        if place + _LONG.size != end:
            raise self._corrupt(at, "parts that don't fill the block", place + _LONG.size - at, end - at)
        return LogBlock(BlockType(kind), headers, self._path, at, end - at, content, size, self._file)

    def _headers(self, block: int, at: int, end: int) -> tuple[dict[HeaderKey, str], int]:
        count, at = self._int(at, end)
        if not 0 <= count <= (end - at) // 8:
            raise self._corrupt(block, "more headers than the block can hold", count, (end - at) // 8)
        headers: dict[HeaderKey, str] = {}
        for _ in range(count):
            key, at = self._int(at, end)
            size, at = self._int(at, end)
            if key not in HeaderKey._value2member_map_:
                raise self._corrupt(block, "unknown header", key, f"0 to {max(HeaderKey)}")
            if size < 0:
                raise self._corrupt(block, "a header of negative length", size, 0)
            try:
                headers[HeaderKey(key)] = self._within(at, size, end).decode()
            except UnicodeDecodeError as error:
                raise self._corrupt(block, f"header {HeaderKey(key).name} is not UTF-8", str(error), "UTF-8") from error
            at += size
        return headers, at

    def _int(self, at: int, end: int) -> tuple[int, int]:
        return _INT.unpack(self._within(at, _INT.size, end))[0], at + _INT.size

    def _within(self, at: int, count: int, end: int) -> bytes:
        data = self._bytes(at, count) if at + count <= end else b""
        if len(data) != count:
            raise self._corrupt(at, "a block that ends within a value", end - at, count)
        return data

    def _corrupt(self, at: int, what: str, found: object, expected: object) -> CorruptFileError:
        problem = f"{what} at byte {at}: found {found!r}, expected {expected!r}"
        return CorruptFileError.of_file(self._path, problem, offset=at, found=found, expected=expected)
