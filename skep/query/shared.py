"""Rows of small tables that Sail keeps as views while their snapshot is the newest one: many queries read them once.

A table is kept from the second query of a snapshot on, whole, so that all queries of it read the same view.
"""

from __future__ import annotations

import atexit
import os
import shutil
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Final

import pyarrow as pa

from skep.query.rows import SHARED_BYTES, Rows
from skep.query.sail_server import SERVER, SailMissingError, run
from skep_format.schema.types import quoted
from skep_format.timeline.instant import Instant

_MOST_VIEWS: Final = 32
_MOST_BYTES: Final = 512 << 20  # of the files of all views
_MOST_FOLDERS: Final = 32
_NUMBERS: Final = count(1)


@dataclass(frozen=True, eq=False)
class SharedView:
    """The rows of a read as a view of Sail, which is dropped once no query uses it any more."""

    name: str
    rows: Rows
    bytes_read: int
    file: Path
    generation: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of the read."""
        return self.rows.schema


@dataclass
class _Entry:
    """`completed`: the instants of the snapshot. Pending ones change no row of it."""

    completed: tuple[Instant, ...]
    view: SharedView | None = None
    bytes: int = 0
    is_refused: bool = False


@dataclass
class SharedViews:
    """The views of this process, by path, kind of query and options. Threads share them."""

    _guard: Lock = field(default_factory=Lock)
    _entries: OrderedDict[tuple[object, ...], _Entry] = field(default_factory=OrderedDict)
    _left: deque[tuple[str, Path]] = field(default_factory=deque)  # views that nobody uses
    _folder: Path | None = None

    def view_of(self, rows: Rows, write: Callable[[Path, Rows], None]) -> SharedView | None:
        """The view of a read of a whole table, which `write` puts into a file; None where there is none, or not yet."""
        key = rows.whole_of()
        if key is None:
            return None
        completed = tuple(rows.snapshot.timeline.completed())
        with self._guard:
            entry = self._entries.get(key)
            if entry is None or entry.completed != completed:
                self._entries[key] = _Entry(completed)  # the next query of it makes the view
                self._entries.move_to_end(key)
                self._drop_old()
                return None
            if entry.is_refused or (entry.view is not None and entry.view.generation == SERVER.generation):
                return entry.view
            entry.is_refused, entry.view = True, None  # to other threads, while this one makes the view
        self._drop_left()
        most = rows.snapshot.options.value(SHARED_BYTES)
        if _has_few_folders(rows) and (size := rows.bytes_read()) <= most:
            view = self._made(rows, size, write)
            with self._guard:
                entry.view, entry.bytes, entry.is_refused = view, view.file.stat().st_size, False
                self._entries.move_to_end(key)
                self._drop_old()
            return view
        return None

    def clear(self) -> None:
        """Drops the views that no query uses."""
        with self._guard:
            self._entries.clear()
        self._drop_left()
        with self._guard, suppress(OSError):  # a view that is in use has its file in the folder
            if self._folder is not None:
                self._folder.rmdir()

    def _made(self, rows: Rows, bytes_read: int, write: Callable[[Path, Rows], None]) -> SharedView:
        name = f"shared_{next(_NUMBERS)}"
        file = self._own_folder() / f"{name}.arrow"
        write(file, rows)
        SERVER.client()
        generation = SERVER.generation
        run(f"CREATE TEMPORARY VIEW {quoted(name)} USING arrow OPTIONS (path '{file.as_uri()}')")
        view = SharedView(name, rows, bytes_read, file, generation)
        weakref.finalize(view, self._left.append, (name, file)).atexit = False
        return view

    def _drop_old(self) -> None:
        """Forgets those that were used least recently, beyond the bounds."""
        while len(self._entries) > _MOST_VIEWS or (
            len(self._entries) > 1 and sum(each.bytes for each in self._entries.values()) > _MOST_BYTES
        ):
            self._entries.popitem(last=False)

    def _drop_left(self) -> None:
        while self._left:
            name, file = self._left.popleft()
            with suppress(pa.ArrowException, SailMissingError):
                run(f"DROP VIEW IF EXISTS {quoted(name)}")
            file.unlink(missing_ok=True)

    def _own_folder(self) -> Path:
        with self._guard:
            if self._folder is None or not self._folder.exists():
                self._folder = Path(mkdtemp(prefix="skep-shared-"))
                removed_at_exit(self._folder)
            return self._folder


def _has_few_folders(rows: Rows) -> bool:
    """Whether listing the whole table is as cheap as one query: a query may name one of very many partitions."""
    table = rows.snapshot
    fields = table.config.partition_fields
    return not fields or (len(fields) == 1 and len(table.storage.list_folder("").folders) <= _MOST_FOLDERS)


def removed_at_exit(folder: Path) -> Callable[[], None]:
    """Has a folder removed when this process ends, not by a fork of it; the function that is returned does it now."""
    remove = partial(_removed, folder, os.getpid())
    atexit.register(remove)

    def now() -> None:
        atexit.unregister(remove)
        remove()

    return now


def _removed(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


SHARED: Final = SharedViews()
