"""The watcher: one listing a table and round, and news exactly when something was completed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skep_catalog.client import Metastore
from skep_format.errors import StorageError
from skep_format.runner import ThreadRunner
from skep_format.storage import FileStatus
from skep_format.storage.local import LocalStorage
from skep_sync.following.pending import DroppedEntries
from skep_sync.following.watch import News, WatchedTable, Watcher, table_of_view
from skep_sync.sync import sync_table
from skep_sync.targets import Clients, targets_of
from skep_table.table import HudiTable

Write = Callable[..., HudiTable]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of local storage."""
    counted: Counter[str] = Counter()
    for name in ("list_prefix", "list_folder", "read", "open_input", "exists", "size"):
        monkeypatch.setattr(LocalStorage, name, _counting(getattr(LocalStorage, name), name, counted))
    return counted


def _counting(plain: Callable[..., Any], name: str, counted: Counter[str]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        counted[name] += 1
        return plain(*given, **more)

    return call


def watcher(tables: list[WatchedTable], heard: list[News]) -> Watcher:
    made = Watcher(lambda: tables, heard.append, runner=ThreadRunner(1))
    made.refresh()
    return made


def test_a_round_without_news_is_one_listing_a_table(write: Write, calls: Counter[str]) -> None:
    tables = [WatchedTable(write(f"t{i}", 1).storage.root) for i in range(5)]
    heard: list[News] = []
    watch = watcher(tables, heard)
    assert len(watch.round()) == 5, "everything is new in the first round"
    calls.clear()
    assert watch.round() == []
    assert calls == {"list_prefix": 5}


def test_a_commit_is_news_once_and_names_the_instant(write: Write) -> None:
    table = write("t", 1)
    heard: list[News] = []
    watch = watcher([WatchedTable(table.storage.root, "d.t")], heard)
    watch.round()
    table = write("t", 2)
    watch.round()
    watch.round()
    first, second = heard
    last = table.timeline.last()
    assert last is not None
    assert (second.table.entry, second.name, second.instant) == ("d.t", "t", last.requested_time)
    assert first.instant is not None
    assert first.instant < last.requested_time


@pytest.mark.parametrize(("version", "case"), [("0.15.0", "cow_upsert"), ("1.1.1", "mor_upsert")])
def test_both_layouts_are_watched(golden_copy: Callable[..., HudiTable], version: str, case: str) -> None:
    table = golden_copy(version, case)
    heard: list[News] = []
    watch = watcher([WatchedTable(table.storage.root)], heard)
    watch.round()
    last = table.timeline.data().completed().instants[-1]
    (news,) = heard
    assert news.instant is not None
    assert news.instant >= last.requested_time
    folder = Path(table.storage.root, table.timeline.layout.folder)
    pending = folder / f"29990101000000000.{'commit' if version == '0.15.0' else 'deltacommit'}.requested"
    pending.write_bytes(b"")
    assert watch.round() == [], "an instant that is not completed is no news"


def test_archived_instants_are_no_news(write: Write) -> None:
    write("t", 1)
    table = write("t", 2)
    heard: list[News] = []
    watch = watcher([WatchedTable(table.storage.root)], heard)
    watch.round()
    first = table.timeline.instants[0].requested_time
    for file in Path(table.storage.root, ".hoodie").glob(f"{first}*"):
        file.unlink()
    assert watch.round() == []


def test_an_upgraded_table_is_watched_on(golden_copy: Callable[..., HudiTable], tmp_path: Path) -> None:
    """Another layout at the same path: the old folder lists nothing any more."""
    old = golden_copy("0.15.0", "cow_upsert", "t")
    new = golden_copy("1.1.1", "cow_upsert", "newer")
    heard: list[News] = []
    watch = watcher([WatchedTable(old.storage.root)], heard)
    watch.round()
    place = Path(old.storage.root)
    place.rename(tmp_path / "before")
    Path(new.storage.root).rename(place)
    assert len(watch.round()) == 1
    assert watch.round() == []


def test_a_table_that_lost_its_entry_is_news_again(write: Write) -> None:
    table = write("t", 1)
    heard: list[News] = []
    lost: list[WatchedTable] = []
    watched = WatchedTable(table.storage.root, "d.t")
    watch = Watcher(lambda: [watched], heard.append, runner=ThreadRunner(1), dropped=lambda _: lost)
    watch.refresh()
    watch.round()
    watch.refresh()
    assert watch.round() == []
    lost.append(watched)
    watch.refresh()
    assert len(watch.round()) == 1, "without any commit"


@pytest.mark.metastore
def test_entries_that_were_dropped(
    write: Write, golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str
) -> None:
    (main,) = targets_of({})
    dropped = DroppedEntries([main], Clients(metastore))
    plain, views = write("t", 1), golden_copy("0.15.0", "mor_upsert")
    tables = [
        (WatchedTable(plain.storage.root, f"{database}.t"), None, "t"),
        (WatchedTable(views.storage.root), database, "mor_upsert"),
    ]
    for table in (plain, views):
        sync_table(table, metastore, database)
    calls = metastore.calls
    assert dropped(tables) == []
    assert metastore.calls - calls == 1, "one call a database"
    metastore.drop_table(database, "t")
    metastore.drop_table(database, "mor_upsert_rt")
    assert {table.base_path for table in dropped(tables)} == {plain.storage.root, views.storage.root}
    assert dropped(tables) == [], "once: what fails is tried again by the queue"
    for table in (plain, views):
        sync_table(table, metastore, database)
    assert dropped(tables) == []


def test_what_could_not_be_submitted_is_news_again(write: Write) -> None:
    table = write("t", 1)
    refused = [True]

    def submit(news: News) -> None:
        if refused:
            refused.pop()
            raise StorageError("the queue is full")

    watch = Watcher(lambda: [WatchedTable(table.storage.root)], submit, runner=ThreadRunner(1))
    watch.refresh()
    assert watch.round() == []
    assert len(watch.round()) == 1
    assert watch.round() == []


def test_one_table_that_fails_or_is_missing_stops_no_other(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = write("good", 1), write("bad", 1)
    heard: list[News] = []
    watch = watcher(
        [WatchedTable(bad.storage.root), WatchedTable(str(tmp_path / "none")), WatchedTable(good.storage.root)], heard
    )
    plain = LocalStorage.list_prefix

    def failing(self: LocalStorage, path: str, *, recursive: bool = False) -> list[FileStatus]:
        if self.root == bad.storage.root:
            raise StorageError("denied", path=path)
        return plain(self, path, recursive=recursive)

    monkeypatch.setattr(LocalStorage, "list_prefix", failing)
    assert [news.name for news in watch.round()] == ["good"]
    monkeypatch.undo()
    assert [news.name for news in watch.round()] == ["bad"]


def test_tables_that_come_and_go_are_followed(write: Write) -> None:
    tables = [WatchedTable(write("a", 1).storage.root)]
    heard: list[News] = []
    watch = watcher(tables, heard)
    watch.round()
    tables[:] = [WatchedTable(write("b", 1).storage.root)]
    watch.refresh()
    watch.round()
    assert [news.name for news in heard] == ["a", "b"]


def test_it_runs_until_it_is_ended(write: Write) -> None:
    table = write("t", 1)
    heard: list[News] = []
    new = threading.Event()
    ended = threading.Event()

    def submit(news: News) -> None:
        heard.append(news)
        new.set()

    watch = Watcher(lambda: [WatchedTable(table.storage.root)], submit, interval_seconds=0.02)
    thread = threading.Thread(target=watch.run, args=(ended,))
    thread.start()
    assert new.wait(30)
    new.clear()
    write("t", 2)
    assert new.wait(30)
    ended.set()
    thread.join(30)
    assert not thread.is_alive()
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("entry", "name", "table"),
    [("t_ro", "t", "t"), ("t_rt", "T", "t"), ("t", "t", "t"), ("x_ro", "t", "x_ro"), ("renamed", "t", "renamed")],
)
def test_views_stand_for_their_table(entry: str, name: str, table: str) -> None:
    assert table_of_view(f"d.{entry}", name) == f"d.{table}"
