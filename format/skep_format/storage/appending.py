"""Storage in which files can grow: logs of table version 6 go on in the file that the slice has."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import IO, Protocol, runtime_checkable


@runtime_checkable
class AppendingStorage(Protocol):
    """Local files and HDFS. Object stores write files as a whole."""

    def open_append(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file that is there, to write behind its end. Bytes are durable after `sync`; after a failure some may stay.

        FileNotFoundError for a missing file, StorageError where another writer has it open, as HDFS knows it.
        """
