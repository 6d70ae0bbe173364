"""The entries of an embedded metastore while no server runs: databases and tables, kept when it was stopped in order.

A server that ends lets no call through any more, leaves its entries as `entries.left`, and closes its database. The
process that stopped it completes the file as `entries`, with the state of the database's files. Entries are answered
from it as long as these files are in that state: whatever opens the database, in any process, changes them. A process
that is killed at any point leaves no such file, or one of another state.

The file: a digest of the rest, the state, the server's address, each on a line; then for each database its name, its
entry, the number of its tables, and name and entry of each, all of them after their length. Entries are Thrift's bytes,
as the server writes them.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing_extensions import Self

_FILE, _LEFT = "entries", "entries.left"
_DATABASE: Final = "derby"
_OPEN: Final = "db.lck"  # Derby's, while the database is open, or was not closed in order
_NAME: Final = re.compile(r"[!-~]+")  # of other names the server knows what it makes of them


class NotKeptError(Exception):
    """A call that only the server answers."""


@dataclass(frozen=True, slots=True)
class _KeptDatabase:
    entry: bytes
    tables: dict[str, bytes] = field(default_factory=dict)


class KeptEntries:
    """Answers calls of Thrift's client for entries, as the server would: with the same values and errors. NotKeptError
    for all others."""

    def __init__(self, folder: Path, state: str, uri: str, contents: Iterator[bytes]) -> None:
        self.uri = uri
        """Where the server listened."""
        self._folder = folder
        self._state = state
        self._databases: dict[str, _KeptDatabase] = {}
        for name in contents:
            database = self._databases[name.decode()] = _KeptDatabase(next(contents))
            for _ in range(int(next(contents))):
                table = next(contents).decode()
                database.tables[table] = next(contents)

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Those of a state folder. None where there are none, or the file is damaged."""
        try:
            digest, _, rest = (folder / _FILE).read_bytes().partition(b"\n")
            if digest.decode() != hashlib.sha256(rest).hexdigest():
                return None
            state, uri, contents = rest.split(b"\n", 2)
        except (OSError, ValueError):
            return None
        return cls(folder, state.decode(), uri.decode(), _parts(contents))

    def fit(self) -> bool:
        """Whether the database is as it was when they were kept."""
        return _state_of(self._folder) == self._state

    # -- the calls

    def get_all_databases(self) -> list[str]:
        return list(self._databases)

    def get_database(self, name: str) -> Any:
        return _decoded("Database", self._database(name).entry)

    def get_all_tables(self, database: str) -> list[str]:
        return sorted(self._database(database).tables)

    def get_table(self, database: str, name: str) -> Any:
        from hmsclient.genthrift.hive_metastore import ttypes

        found = self._databases.get(_normal(database))
        entry = found.tables.get(_normal(name)) if found is not None else None
        if entry is None:
            raise ttypes.NoSuchObjectException(f"{database}.{name} table not found")
        return _decoded("Table", entry)

    def get_table_req(self, request: Any) -> Any:
        from hmsclient.genthrift.hive_metastore import ttypes

        return ttypes.GetTableResult(self.get_table(request.dbName, request.tblName))

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        from hmsclient.genthrift.hive_metastore import ttypes

        wanted = set(map(_normal, request.tblNames))
        tables = self._database(request.dbName).tables
        return ttypes.GetTablesResult([_decoded("Table", tables[name]) for name in tables if name in wanted])

    def __getattr__(self, name: str) -> Any:
        raise NotKeptError(name)

    def _database(self, name: str) -> _KeptDatabase:
        found = self._databases.get(_normal(name))
        if found is None:
            raise NotKeptError(name)
        return found


def keep(folder: Path, uri: str) -> None:
    """Completes what a server has left that was just stopped. The caller holds the start lock, since before it stopped.

    Where the server left nothing, or the file can't be written, the next call starts the server.
    """
    with suppress(OSError):
        contents = (folder / _LEFT).read_bytes()
        (folder / _LEFT).unlink()
        state = _state_of(folder)
        if state is None:
            return
        rest = f"{state}\n{uri}\n".encode() + contents
        made = folder / f"{_FILE}.new"
        with made.open("wb") as file:
            file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
            file.flush()
            os.fsync(file.fileno())
        made.replace(folder / _FILE)


def forget(folder: Path) -> None:
    """Before a server starts, and before it is stopped."""
    for name in (_FILE, _LEFT):
        (folder / name).unlink(missing_ok=True)


def _state_of(folder: Path) -> str | None:
    """What is different once a file of the database has changed. None while it is open, and where there is none."""
    try:
        found = sorted(_files(folder, _DATABASE))
    except OSError:
        return None
    if any(name == f"{_DATABASE}/{_OPEN}" for name, *_ in found):
        return None
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _files(folder: Path, name: str) -> Iterator[tuple[str, int, int, int]]:
    """Files and folders, each with size and times."""
    there = (folder / name).stat()
    yield name, there.st_size, there.st_mtime_ns, there.st_ctime_ns
    with os.scandir(folder / name) as found:
        for each in found:
            path = f"{name}/{each.name}"
            if each.is_dir(follow_symlinks=False):
                yield from _files(folder, path)
            else:
                facts = each.stat(follow_symlinks=False)
                yield path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _parts(contents: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(contents):
        (length,) = struct.unpack_from(">i", contents, position)
        position += 4 + length
        yield contents[position - length : position]


def _normal(name: str) -> str:
    """As Hive has names."""
    if not _NAME.fullmatch(name):
        raise NotKeptError(name)
    return name.lower()


def _decoded(kind: str, entry: bytes) -> Any:
    from hmsclient.genthrift.hive_metastore import ttypes
    from thrift.transport.TTransport import TMemoryBuffer

    from skep_catalog.thrift_codec import MetastoreProtocol, ThriftTable

    value = ThriftTable() if kind == "Table" else getattr(ttypes, kind)()
    value.read(MetastoreProtocol(TMemoryBuffer(entry)))
    return value
