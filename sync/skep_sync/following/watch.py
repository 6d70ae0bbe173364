"""Watches the timelines of many tables: one listing each and no call to a metastore as long as nothing is new."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skep_format.errors import NotATableError, SkepError
from skep_format.runner import Runner, ThreadRunner
from skep_format.storage import Storage, open_storage
from skep_format.table_config import load_table_config
from skep_format.timeline.layout import TimelineLayout
from skep_format.versions import format_of
from skep_sync.following.queue import table_key
from skep_table.events import NO_EVENTS, Events

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
class _Watched:
    """The state of a table after the last round. `seen` is None before the first."""

    table: WatchedTable
    storage: Storage
    name: str = ""
    database: str | None = None
    layout: TimelineLayout | None = None
    seen: set[str] | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class News:
    """A table that has new completed instants, or that is seen for the first time."""

    table: WatchedTable
    name: str
    instant: str | None


Submit = Callable[[News], None]


Dropped = Callable[[Sequence[tuple[WatchedTable, str | None, str]]], list[WatchedTable]]
"""Tables of earlier rounds, each with its own database and name → those that have lost an entry in a metastore."""


@dataclass
class Watcher:
    """Lists the timelines of tables in rounds. `tables` returns the tables and is called each `refresh_seconds`; so is
    `dropped`, whose tables are submitted again."""

    tables: Callable[[], Iterable[WatchedTable]]
    submit: Submit
    options: Mapping[str, str] = field(default_factory=dict)
    interval_seconds: float = 5.0
    refresh_seconds: float = 60.0
    runner: Runner = field(default_factory=lambda: ThreadRunner(16))
    events: Events = NO_EVENTS
    dropped: Dropped | None = None
    _watched: dict[str, _Watched] = field(default_factory=dict, init=False)

    def run(self, ended: threading.Event) -> None:
        """Round after round until `ended` is set. Errors of storage or metastore are logged, and tried again."""
        rounds_a_refresh = max(1, round(self.refresh_seconds / max(self.interval_seconds, 0.001)))
        count = 0
        while not ended.is_set():
            if count % rounds_a_refresh == 0:
                self._refresh_or_warn()
            try:
                self.round()
            except Exception:  # a fault of one round must not end the watch
                log.exception("a round of the watcher failed")
            count += 1
            ended.wait(self.interval_seconds)

    def refresh(self) -> None:
        """Reads which tables there are."""
        wanted = {table_key(table.base_path): table for table in self.tables()}
        for key in self._watched.keys() - wanted.keys():
            del self._watched[key]
        for key, table in wanted.items():
            if key not in self._watched:
                self._watched[key] = _Watched(table, open_storage(table.base_path, self.options))
        if self.dropped is not None:
            seen = [each for each in self._watched.values() if each.seen is not None]
            for table in self.dropped([(each.table, each.database, each.name) for each in seen]):
                log.warning("%s has lost an entry in a metastore: it is synced again", table.entry or table.base_path)
                self._watched[table_key(table.base_path)].seen = None

    def round(self) -> list[News]:
        """Lists each timeline once; what is new is submitted, and counts as seen only when that succeeded."""
        watched = list(self._watched.values())
        found = [news for news in self.runner.map(self._check, watched) if news is not None]
        self.events.emit("watch.round", tables=len(watched), new=len(found))
        return found

    # -- how

    def _refresh_or_warn(self) -> None:
        try:
            self.refresh()
        except (SkepError, OSError) as error:
            log.warning("the tables to watch can't be listed: %s", error)
            self.events.emit("watch.refresh_failed", error=error)

    def _check(self, watched: _Watched) -> News | None:
        try:
            if watched.layout is None:
                config = load_table_config(watched.storage)
                watched.layout = format_of(config).timeline_layout(config)
                watched.name, watched.database = config.name, config.database
                if watched.table.entry is not None:
                    watched.table = replace(watched.table, entry=table_of_view(watched.table.entry, config.name))
            completed = _completed(watched.storage, watched.layout)
            if watched.seen and not completed:
                # Another layout now: the table was upgraded, or another one lies there.
                watched.layout = watched.seen = None
                return self._check(watched)
            if watched.seen is not None and completed <= watched.seen:
                watched.seen &= completed  # what was archived need not be remembered
                watched.failed = False
                return None
            latest = max((name.partition(".")[0].partition("_")[0] for name in completed), default=None)
            news = News(watched.table, watched.name, latest)
            self.submit(news)
            watched.seen, watched.failed = completed, False
        except NotATableError:
            watched.layout = watched.seen = None  # dropped, or not created yet
        except (SkepError, OSError) as error:
            if not watched.failed:
                log.warning("%s can't be watched: %s", watched.table.base_path, error)
            watched.failed = True
            self.events.emit("watch.failed", table=watched.table.entry or watched.name, error=error)
        else:
            return news
        return None


def _completed(storage: Storage, layout: TimelineLayout) -> set[str]:
    """The names of the completed instants' files."""
    return {
        file.name
        for file in storage.list_prefix(layout.folder)
        if (instant := layout.parse(file.name)) is not None and instant.is_completed
    }
