"""Watches the timelines of many tables: one listing each and no call to a metastore as long as nothing is new."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skep_sync.queue import table_key
from skep_table.errors import NotATableError, SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.runner import Runner, ThreadRunner
from skep_table.storage import Storage, open_storage
from skep_table.table_config import load_table_config
from skep_table.timeline.layout import Layout, layout_of

log = logging.getLogger("skep.sync")


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A table to watch. `entry` is `database.table` where it is known by a metastore."""

    base_path: str
    entry: str | None = None


_VIEWS = ("_ro", "_rt")


def table_of_view(entry: str, table_name: str) -> str:
    """`d.t` for an entry `d.t_ro` or `d.t_rt` of the table `t`; any other entry is its own."""
    database, _, name = entry.rpartition(".")
    known = table_name.lower()
    return f"{database}.{known}" if name in {known + view for view in _VIEWS} else entry


@dataclass
class _Look:
    """What is known of a table from the looks before. `seen` is None before the first."""

    table: WatchedTable
    storage: Storage
    name: str = ""
    database: str | None = None
    layout: Layout | None = None
    seen: set[str] | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class News:
    """A table that has completed instants which were not there before, or that is seen for the first time."""

    table: WatchedTable
    name: str
    instant: str | None


Submit = Callable[[News], None]


Dropped = Callable[[Sequence[tuple[WatchedTable, str | None, str]]], list[WatchedTable]]
"""Of tables that were looked at, each with its own database and name, those that have lost an entry in a metastore."""


@dataclass
class Watcher:
    """Looks at tables in rounds. `tables` says which there are, and is asked again each `refresh_seconds`; so is
    `dropped`, whose tables are news again."""

    tables: Callable[[], Iterable[WatchedTable]]
    submit: Submit
    options: Mapping[str, str] = field(default_factory=dict)
    interval_seconds: float = 5.0
    refresh_seconds: float = 60.0
    runner: Runner = field(default_factory=lambda: ThreadRunner(16))
    events: Events = NO_EVENTS
    dropped: Dropped | None = None
    _looks: dict[str, _Look] = field(default_factory=dict, init=False)

    def run(self, ended: threading.Event) -> None:
        """Round after round until `ended` is set. Errors of storage or metastore are told, and tried again."""
        rounds_a_refresh = max(1, round(self.refresh_seconds / max(self.interval_seconds, 0.001)))
        count = 0
        while not ended.is_set():
            if count % rounds_a_refresh == 0:
                self._refresh_or_tell()
            try:
                self.round()
            except Exception:  # a fault of one round must not end the watch
                log.exception("a round of the watcher failed")
            count += 1
            ended.wait(self.interval_seconds)

    def refresh(self) -> None:
        """Asks which tables there are."""
        wanted = {table_key(table.base_path): table for table in self.tables()}
        for key in self._looks.keys() - wanted.keys():
            del self._looks[key]
        for key, table in wanted.items():
            if key not in self._looks:
                self._looks[key] = _Look(table, open_storage(table.base_path, self.options))
        if self.dropped is not None:
            looked = [look for look in self._looks.values() if look.seen is not None]
            for table in self.dropped([(look.table, look.database, look.name) for look in looked]):
                log.warning("%s has lost an entry in a metastore: it is synced again", table.entry or table.base_path)
                self._looks[table_key(table.base_path)].seen = None

    def round(self) -> list[News]:
        """One look at each table; what is new is submitted, and counts as seen only when that went well."""
        looks = list(self._looks.values())
        found = [news for news in self.runner.map(self._look, looks) if news is not None]
        self.events.emit("watch.round", tables=len(looks), new=len(found))
        return found

    # -- how

    def _refresh_or_tell(self) -> None:
        try:
            self.refresh()
        except (SkepError, OSError) as error:
            log.warning("which tables there are can't be told: %s", error)
            self.events.emit("watch.refresh_failed", error=error)

    def _look(self, look: _Look) -> News | None:
        try:
            if look.layout is None:
                config = load_table_config(look.storage)
                look.layout, look.name, look.database = layout_of(config), config.name, config.database
                if look.table.entry is not None:
                    look.table = replace(look.table, entry=table_of_view(look.table.entry, config.name))
            completed = _completed(look.storage, look.layout)
            if look.seen and not completed:
                # Another layout now: the table was upgraded, or another one lies there.
                look.layout = look.seen = None
                return self._look(look)
            if look.seen is not None and completed <= look.seen:
                look.seen &= completed  # what was archived need not be remembered
                look.failed = False
                return None
            latest = max((name.partition(".")[0].partition("_")[0] for name in completed), default=None)
            news = News(look.table, look.name, latest)
            self.submit(news)
            look.seen, look.failed = completed, False
        except NotATableError:
            look.layout = look.seen = None  # gone, or not there yet
        except (SkepError, OSError) as error:
            if not look.failed:
                log.warning("%s can't be looked at: %s", look.table.base_path, error)
            look.failed = True
            self.events.emit("watch.failed", table=look.table.entry or look.name, error=error)
        else:
            return news
        return None


def _completed(storage: Storage, layout: Layout) -> set[str]:
    """The names of the completed instants' files."""
    return {
        file.name
        for file in storage.list_prefix(layout.folder)
        if (instant := layout.parse(file.name)) is not None and instant.is_completed
    }
