"""What a change of version does: which files it writes, what it refuses, and what those beside it find."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layout_1_names import name_as_in_layout_1

from skep_format.errors import CommitConflictError, SkepError, TableVersionError, UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.storage import LocalStorage, StorageFlags
from skep_format.storage.remote import RemoteStorage
from skep_format.table_config import TableType, TimelineZone
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_format.timeline.timeline import time_of_modification
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean, execute_clean, schedule_clean
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.upgrade import change_version, plan_version_change
from skep_table.upgrade.instants import CompletionTimes, modification_of_time
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables

FEW = {
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.cleaner.commits.retained": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
}
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ


def test_a_plan_changes_nothing(tables: Tables) -> None:
    tables.create(6, MOR)
    tables.upsert(1, "a/1")
    tables.upsert(2, "a/1")
    before = tables.files()
    plan = plan_version_change(tables.opened(), 9)
    assert tables.files() == before
    steps = [each.step for each in plan.steps]
    assert steps[:4] == ["compact", "copy", "copy", "delete"]
    assert "hoodie.table.version=9" in [each.what for each in plan.steps]
    (lost,) = (each.what for each in plan_version_change(tables.opened(), 8).steps if each.step == "lost")
    assert lost.startswith("readers and writers with Hudi before 1.0,")


def test_what_is_lost_is_named(tables: Tables) -> None:
    tables.create(9, MOR)
    tables.upsert(1, "a/1")
    lost = [each.what for each in plan_version_change(tables.opened(), 6).steps if each.step == "lost"]
    assert [text.partition(":")[0].partition(" to before")[0] for text in lost] == ["completion times", "time travel"]


def test_every_archived_instant_is_carried_over(tables: Tables) -> None:
    """Hudi loses each eleventh on the way to version 6."""
    tables.create(6, COW)
    for ts in range(1, 31):
        tables.upsert(ts, "a/1")
    archive(tables.opened(options=FEW))
    before = tables.opened().timeline.archived()
    contents = [tables.opened().commit_metadata(instant) for instant in before]
    assert len(before) == 27
    for version in (9, 6, 8, 6):
        table = tables.to(version)
        found = table.timeline.archived()
        assert [(i.requested_time, i.action) for i in found] == [(i.requested_time, i.action) for i in before]
        assert [table.commit_metadata(instant) for instant in found] == contents
    assert tables.files() >= {".hoodie/hoodie.properties"}
    assert not {path for path in tables.files() if path.startswith(".hoodie/timeline/")}


def test_the_times_of_completion_survive_version_6(tables: Tables) -> None:
    tables.create(9, COW)
    for ts in range(1, 4):
        tables.upsert(ts, "a/1")
    before = tables.opened().timeline.instants
    tables.to(6)
    assert tables.to(9).timeline.instants == before


@pytest.mark.parametrize("kind", [COW, MOR])
def test_files_that_kept_their_names_of_layout_1_are_read_and_archived(tables: Tables, kind: TableType) -> None:
    """Hudi reads them so, and takes the times of modification for times of completion."""
    tables.create(9, kind)
    for ts in range(1, 7):
        tables.upsert(ts, "a/1", f"b/{ts}")
    rows = tables.rows()

    def written(instants: Collection[Instant]) -> list[object]:
        table = tables.opened()
        stats = [(i, [stat.path for stat in table.commit_metadata(i).stats]) for i in instants]
        assert [table.commit_partitions(i) for i in instants] == [("a", "b")] * len(stats)
        return [(i.requested_time, i.completion_time, paths) for i, paths in stats]

    before = written(tables.opened().timeline.instants)
    name_as_in_layout_1(tables.opened())
    assert tables.rows() == rows
    assert written(tables.opened().timeline.instants) == before
    assert not list(fsck(tables.opened()))
    archive(tables.opened(options=FEW))
    archived = tables.opened().timeline.archived()
    assert archived
    assert written(archived) == before[: len(archived)]
    tables.upsert(7, "a/1")
    rows = tables.rows()
    for version in (6, 9):
        tables.to(version)
        assert tables.rows() == rows


def test_the_newest_write_is_rolled_back_also_where_its_file_kept_its_name(tables: Tables) -> None:
    tables.create(9, COW)
    tables.upsert(1, "a/1")
    rows = tables.rows()
    newest = tables.upsert(2, "a/2")
    name_as_in_layout_1(tables.opened())
    roll_back_instant(tables.opened(), InstantTime(newest))
    assert tables.rows() == rows
    assert not any(newest in path and "rollback" not in path for path in tables.files())


def test_copied_tables_get_times_that_slice_their_files(tables: Tables, tmp_path: Path) -> None:
    """Modification times of a copy lie behind all instants: taken as they are, old logs would join new slices."""
    tables.create(9, MOR)
    tables.upsert(1, "a/1", "a/2")
    tables.upsert(2, "a/1")
    tables.to(8)  # compacts
    tables.upsert(3, "a/2")
    tables.to(6)
    for file in (tables.folder / ".hoodie").iterdir():
        file.touch()
    rows = tables.rows()
    upgraded = tables.to(9)
    assert tables.rows() == rows
    view = upgraded.view()
    assert [len(slice_.log_files) for slice_ in view.all_slices("a")] == [0, 1, 1]


@pytest.mark.parametrize("before", [8, 9])
def test_time_travel_to_before_a_change_shows_the_same(tables: Tables, before: int) -> None:
    """Log files of versions 8 and 9 are named by their delta commit; version 6 names them by their slice."""
    tables.create(before, MOR)
    times = [tables.upsert(ts, "a/1", f"b/{ts % 2}") for ts in range(1, 4)]
    tables.to(6)
    tables.to(before)
    times += [tables.upsert(ts, "a/1", f"b/{ts % 2}") for ts in range(4, 6)]
    expected = [tables.rows(as_of=time) for time in times]
    assert len({str(rows) for rows in expected}) == len(times)
    for version in (6, 8, 9, 6):
        tables.to(version)
        assert [tables.rows(as_of=time) for time in times] == expected, f"version {version}"
        for file in tables.folder.rglob("*commit"):
            file.touch()  # as in a copy of the table
        assert [tables.rows(as_of=time) for time in times] == expected, f"version {version}, copied"


def test_log_files_that_began_before_their_slice_have_no_place_in_version_6(tables: Tables) -> None:
    tables.create(9, MOR)
    tables.upsert(1, "a/1")
    began: list[object] = []
    every = {"hoodie.compact.inline.max.delta.commits": 1}

    class Meanwhile(LocalStorage):
        def open_write(self, path: str):  # type: ignore[no-untyped-def]
            if not began and ".log." in path:
                began.append(path)
                assert schedule_compaction(tables.opened(options=every)) is not None
            return super().open_write(path)

    tables.upsert(2, "a/1")
    LocalWriter(tables.opened(Meanwhile(str(tables.folder)))).upsert(tables.frame(3, "a/1"))
    assert began
    rows = tables.rows()
    with pytest.raises(UnsupportedError, match="it began before that slice"):
        tables.to(6)
    assert tables.opened().config.version == 9
    compact(tables.opened(options=every))
    clean(
        tables.opened(
            options={"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.cleaner.fileversions.retained": 1}
        )
    )
    tables.to(6)
    assert tables.rows() == rows


def test_a_planned_clustering_moves_with_the_timeline(tables: Tables) -> None:
    small = {"hoodie.clustering.plan.strategy.small.file.limit": 1 << 30}
    tables.create(6, COW)
    LocalWriter(tables.opened()).bulk_insert(tables.frame(1, "a/1"))
    LocalWriter(tables.opened()).bulk_insert(tables.frame(1, "a/2"))
    planned = schedule_clustering(tables.opened(options=small))
    assert planned is not None
    rows = tables.rows()
    pending = tables.to(9).timeline.pending().instants
    assert [(i.requested_time, i.action, i.state) for i in pending] == [
        (planned.requested_time, Action.CLUSTERING, State.REQUESTED)
    ]
    tables.to(6)
    tables.to(8)
    assert len(execute_pending_clusterings(tables.opened())) == 1
    without = {"_hoodie_commit_time"}
    assert sum(tables.rows(without).values()) == sum(rows.values())
    clustered = tables.to(6)
    names = {path.rpartition("/")[2] for path in tables.files()}
    assert f"{planned.requested_time}.replacecommit.requested" in names
    assert not clustered.timeline.pending().instants


def test_a_clustering_over_log_files_is_finished_first(tables: Tables) -> None:
    tables.create(6, MOR)
    LocalWriter(tables.opened()).bulk_insert(tables.frame(1, "a/1"))
    LocalWriter(tables.opened()).bulk_insert(tables.frame(1, "a/2"))
    tables.upsert(2, "a/1", "a/2")
    assert schedule_clustering(tables.opened(options={"hoodie.clustering.plan.strategy.small.file.limit": 1 << 30}))
    before = tables.files()
    with pytest.raises(CommitConflictError, match="clustering"):
        tables.to(9)
    assert tables.files() == before
    assert tables.opened().config.version == 6


def test_a_write_that_is_pending_is_not_carried_over(tables: Tables) -> None:
    """Its heartbeat shows that its writer is active."""
    tables.create(6, COW)
    tables.upsert(1, "a/1")
    began: list[object] = []

    class Meanwhile(LocalStorage):
        def open_write(self, path: str):  # type: ignore[no-untyped-def]
            if not began and path.endswith(".parquet"):
                began.append(path)
                with pytest.raises(CommitConflictError, match="is active"):
                    tables.to(9)
            return super().open_write(path)

    LocalWriter(tables.opened(Meanwhile(str(tables.folder)))).upsert(tables.frame(2, "a/2"))
    assert began
    assert tables.opened().config.version == 6
    assert len(tables.rows()) == 2


@pytest.mark.parametrize(("before", "after"), [(6, 9), (9, 6), (8, 9)])
def test_a_writer_that_began_before_is_refused(tables: Tables, before: int, after: int) -> None:
    tables.create(before, COW)
    tables.upsert(1, "a/1")
    began = tables.opened()
    tables.to(after)
    with pytest.raises(TableVersionError, match=f"was version {before}"):
        LocalWriter(began).upsert(tables.frame(2, "a/2"))
    assert not tables.opened().timeline.pending().instants
    assert tables.upsert(2, "a/2")
    assert len(tables.rows()) == 2


@pytest.mark.parametrize(("before", "after"), [(6, 9), (9, 6), (8, 9)])
def test_a_clean_that_was_planned_before_leaves_no_file_of_its_version(tables: Tables, before: int, after: int) -> None:
    """Its executor has the plan already when another one carries it out and changes the version."""
    tables.create(before, COW)
    for ts in range(1, 5):
        tables.upsert(ts, "a/1")
    retained = {"hoodie.cleaner.commits.retained": 1}
    planned = schedule_clean(tables.opened(options=retained))
    assert planned is not None
    expected: list[set[str]] = []

    class Meanwhile(LocalStorage):
        def delete_many(self, paths: Collection[str], *, durable: bool = True) -> None:
            tables.to(after)
            expected.append(tables.files())
            super().delete_many(paths, durable=durable)

    began = tables.opened()
    assert execute_clean(tables.opened(Meanwhile(str(tables.folder))), planned) is None
    assert execute_clean(began, planned) is None
    assert [tables.files()] == expected
    assert not list(fsck(tables.opened()))
    assert len(tables.rows()) == 1


@pytest.mark.parametrize(("before", "after"), [(6, 9), (9, 6)])
def test_an_older_snapshot_has_its_rows_or_raises(tables: Tables, before: int, after: int) -> None:
    tables.create(before, COW)
    tables.upsert(1, "a/1")
    LocalWriter(tables.opened()).insert_overwrite(tables.frame(2, "a/2"))
    began, rows = tables.opened(), tables.rows()
    tables.to(after)
    with suppress(SkepError):
        assert tables.rows_in(began) == rows
    assert tables.rows_in(began.reload()) == rows


class OutdatedSettings(LocalStorage):
    """The first read of the settings returns what they were."""

    def __init__(self, root: str, old: bytes) -> None:
        super().__init__(root)
        self._old: bytes | None = old

    def read(self, path: str) -> bytes:
        found = super().read(path)
        if path.endswith("hoodie.properties") and self._old is not None:
            found, self._old = self._old, None
        return found


@pytest.mark.parametrize(("before", "after"), [(6, 9), (9, 6)])
def test_settings_that_were_read_before_the_switch_are_read_again(tables: Tables, before: int, after: int) -> None:
    """A reader that reads the settings of the old version and lists its folder while that is deleted, or after it."""
    tables.create(before, COW)
    tables.upsert(1, "a/1")
    rows = tables.rows()
    old = (tables.folder / ".hoodie/hoodie.properties").read_bytes()
    tables.to(after)
    for sign in (True, False):
        folder = tables.folder / (".hoodie" if before == 6 else ".hoodie/timeline")
        if sign:
            folder.mkdir(exist_ok=True)
            (folder / "timeline.moved").touch()
            (folder / "20200101000000000.commit.requested").touch()

        assert tables.rows_in(tables.opened(OutdatedSettings(str(tables.folder), old))) == rows
        tables.to(after)
        assert not (folder / "timeline.moved").exists()


def test_storage_without_times_refuses_logs_of_older_slices(tables: Tables) -> None:
    class Objects(RemoteStorage):
        flags = StorageFlags(atomic_rename=False)

        def __init__(self, inner: LocalStorage) -> None:
            super().__init__(inner.root)
            self._inner = inner

    for name in ("list_prefix", "list_folder", "exists", "size", "status", "read", "read_range", "read_suffix"):
        setattr(Objects, name, lambda self, *a, _n=name, **k: getattr(self._inner, _n)(*a, **k))
    for name in ("open_input", "open_write", "create_exclusive", "replace_atomic", "rename", "delete", "delete_many"):
        setattr(Objects, name, lambda self, *a, _n=name, **k: getattr(self._inner, _n)(*a, **k))
    Objects.delete_folder = lambda self, *a, **k: self._inner.delete_folder(*a, **k)  # type: ignore[method-assign]
    Objects.uri = lambda self, path: self._inner.uri(path)  # type: ignore[method-assign]
    tables.create(9, MOR)
    tables.upsert(1, "a/1")
    tables.upsert(2, "a/1")
    before = tables.files()
    with pytest.raises(UnsupportedError, match="completion times"):
        change_version(tables.opened(Objects(LocalStorage(str(tables.folder)))), 6)
    assert tables.files() == before
    table = tables.opened(Objects(LocalStorage(str(tables.folder))))
    assert change_version(table, 8).config.version == 8


def test_what_is_written_is_sound(tables: Tables) -> None:
    tables.create(6, MOR)
    for ts in range(1, 8):
        tables.upsert(ts, "a/1", f"b/{ts}")
    archive(tables.opened(options=FEW))
    for version in (8, 9, 8, 6):
        assert not list(fsck(tables.to(version))), f"version {version}"


def test_times_of_completion_are_bounded_by_the_requests_of_the_next_slice() -> None:
    def commit(path: str) -> CommitMetadata:
        return CommitMetadata(
            partition_to_write_stats={"p": (WriteStat(file_id="f-0", path=path, partition_path="p"),)}
        )

    times = CompletionTimes()
    first, second = InstantTime("20260101000000000"), InstantTime("20260101000100000")
    times.add(first, commit(f"p/f-0_0-0-0_{first}.parquet"))
    times.add(second, commit(f"p/f-0_0-0-0_{second}.parquet"))
    late, early = CompletionTime("20270101000000000"), CompletionTime("20251231235959000")
    assert times.bounded(first, late) == "20260101000059999"
    assert times.bounded(first, early) == "20260101000000001"
    assert times.bounded(second, late) == late


@pytest.mark.parametrize("zone", list(TimelineZone))
def test_a_time_of_completion_is_a_time_of_modification(zone: TimelineZone) -> None:
    time = CompletionTime("20260704123456789")
    assert time_of_modification(modification_of_time(time, zone), zone) == time


def test_each_step_sends_an_event(tables: Tables) -> None:
    from skep_table.events import Events

    seen: list[str] = []
    events = Events(lambda event: seen.append(event.name))
    tables.create(6, COW)
    tables.upsert(1, "a/1")
    change_version(tables.opened().with_context(events=events), 9)
    assert [name for name in ("version.settle", "version.copy", "version.delete", "version") if name in seen] == [
        "version.settle",
        "version.copy",
        "version.delete",
        "version",
    ]
