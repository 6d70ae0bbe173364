"""Random access to a file by ranged reads, for storages that have no file of their own to open."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

# Holds the footer of a base file: one row of Hudi's default bloom filter (base64 of 323,496 bytes) and a wide schema.
TAIL_BYTES: Final = 512 << 10


def span(offset: int, length: int, size: int) -> tuple[int, int]:
    """Start and end of the part of a range that a file of `size` bytes has; a negative offset counts from the end."""
    start = max(0, size + offset) if offset < 0 else offset
    return start, min(size, start + length)


class RangedFile(io.RawIOBase):
    """A file of `size` bytes, of which `fetch(start, end)` returns a range in one request.

    The last TAIL_BYTES are fetched together and kept: footers are read in small steps, and small files as a whole.
    `tail`: they are known.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, tail: bytes = b"") -> None:
        self._fetch, self._size, self._at = fetch, size, 0
        self._tail_at, self._tail = max(0, size - TAIL_BYTES), tail

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; nothing is fetched."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """At most `size` bytes from the position, all that are left for a negative one."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        if self._at == 0 < self._tail_at:
            self._tail = b""  # a log, which is read from its start: many of them may be open
        data = self._of_tail(end) if self._at >= self._tail_at else self._fetch(self._at, end)
        self._at = end
        return data

    def _of_tail(self, end: int) -> bytes:
        if not self._tail:
            self._tail = self._fetch(self._tail_at, self._size)
        return self._tail[self._at - self._tail_at : end - self._tail_at]

    def size(self) -> int:
        """The size of the file in bytes."""
        return self._size
