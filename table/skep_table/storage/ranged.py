"""Random access to a file by ranged reads, for storages that have no file of their own to open."""

from __future__ import annotations

import io
from collections.abc import Callable


def span(offset: int, length: int, size: int) -> tuple[int, int]:
    """Start and end of what a file of `size` bytes has of a range; a negative offset counts from the end."""
    start = max(0, size + offset) if offset < 0 else offset
    return start, min(size, start + length)


class RangedFile(io.RawIOBase):
    """A file of `size` bytes of which `fetch` gets those from a start to an end."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._at = fetch, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = self._fetch(self._at, end)
        self._at = end
        return data

    def size(self) -> int:
        return self._size
