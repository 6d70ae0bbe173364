"""Indexes that an action has to drop are there again after it, also where it is killed at any of its calls."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import FaultyStorage, KilledAtChanges
from metadata_listings import frame, new_table
from runs_first import RunsFirst
from sleepy_clock import SleepyClock

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import FormatError, MetadataTableError, SkepError
from skep_format.runner import ThreadRunner
from skep_format.schema.change import AddColumn, RenameColumn
from skep_format.schema.types import LongType
from skep_format.table_config import TableType, update_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_table.commit.parts import participants
from skep_table.commit.parts.metadata_table import drop_overtaken, name_dropped
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_write.definitions import definitions_of
from skep_table.metadata_write.drop import DROPPED_INDEXES, dropped_indexes
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.query import ReadRequest, read
from skep_table.services.automatic import after_commit
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.metadata.indexing import drop_metadata, rebuild_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write import flow
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
ALL = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": "ts",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}
SECONDARY = {"secondary_index_ts": IndexDefinition("secondary_index_ts", "secondary_index", "identity", ("ts",))}
NULLS = {"hoodie.write.set.null.for.missing.columns": "true"}
EVERY = {FILES, COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX}
OF_NEWER = {PARTITION_STATS, *SECONDARY}


def opened(folder: Path | str, **options: object) -> HudiTable:
    """With no option of the metadata table: what it has is what it keeps."""
    return HudiTable.open(str(folder), options)


def seeded(folder: Path, kind: TableType = COW) -> HudiTable:
    table = new_table(folder, kind)
    writer = LocalWriter(opened(folder, **ALL))
    writer.insert(frame(("a", "p", 1), ("b", "q", 1)))
    LocalWriter(opened(folder)).alter([AddColumn("more", LongType())])
    if table.config.version > 6:
        create_metadata_table(opened(folder), SYSTEM_CLOCK, SECONDARY, SECONDARY)
    create_savepoint(opened(folder), last(opened(folder)))
    upsert(opened(folder))
    assert set(opened(folder).config.metadata_partitions) == having(table.config.version)
    return table


def having(version: int) -> set[str]:
    return EVERY | (OF_NEWER if version > 6 else set())


def upsert(table: HudiTable) -> None:
    rows = frame(("a", "p", 2), ("c", "p", 2))
    LocalWriter(table.with_options(NULLS)).upsert(rows)


def last(table: HudiTable) -> Any:
    found = table.timeline.data().completed().last()
    assert found is not None
    return found.requested_time


def restores(table: HudiTable) -> None:
    (kept,) = table.savepoints()
    restore(table, kept)


def changes_version(table: HudiTable) -> None:
    change_version(table, 8 if table.config.version == 9 else 9)


def alters(table: HudiTable) -> None:
    LocalWriter(table).alter([RenameColumn("more", "less")])


def rebuilds(table: HudiTable) -> None:
    rebuild_metadata_table(table)


def rolls_back(table: HudiTable) -> None:
    roll_back_instant(table, last(table))


ACTS = (restores, changes_version, alters, rebuilds, rolls_back)


def run(folder: Path, act: Callable[[HudiTable], Any], at: int) -> KilledAtChanges:
    storage = KilledAtChanges(str(folder), at)
    with suppress(SkepError):
        act(HudiTable.open(storage).with_context(runner=ThreadRunner(1)))
    return storage


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_killed_at_a_change(
    act: Callable[[HudiTable], Any], step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    first, work = tmp_path / "first", tmp_path / "work"
    version = seeded(first).config.version
    shutil.copytree(first, work)
    calls = len(run(work, act, 1 << 30).calls)
    unkilled = set(opened(work).config.metadata_partitions)
    assert unkilled >= EVERY
    columns = set(definitions_of(opened(first))[COLUMN_STATS].source_fields) if version > 6 else set()
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        where = f"killed at change {at} of {calls}: {run(work, act, at).calls[-1]}"
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        upsert(opened(work).with_context(clock=clock))
        now = opened(work)
        assert set(now.config.metadata_partitions) in (unkilled, having(version)), where
        assert not dropped_indexes(now.config), where
        if version > 6:
            assert set(definitions_of(now)[COLUMN_STATS].source_fields) == columns, where
        assert check_metadata_table(now).differences == (), where


@pytest.fixture
def dropped(tmp_path: Path) -> Path:
    """A table whose process was killed after it had dropped the metadata table, before it made it again."""
    folder = tmp_path / "t"
    seeded(folder)
    storage = FaultyStorage(str(folder), 1 << 30, dies=True)

    def dies(path: str, do: Any = storage.delete_folder) -> None:
        storage.at = 0
        do(path)

    storage.delete_folder = dies  # type: ignore[method-assign]
    with pytest.raises(SkepError):
        rebuild_metadata_table(HudiTable.open(storage))
    assert set(dropped_indexes(opened(folder).config)) == having(opened(folder).config.version)
    assert not opened(folder).config.metadata_partitions
    return folder


def test_the_next_writer_makes_it_again(dropped: Path) -> None:
    upsert(opened(dropped))
    now = opened(dropped)
    assert set(now.config.metadata_partitions) == having(now.config.version)
    assert DROPPED_INDEXES not in now.config.raw
    assert check_metadata_table(now).differences == ()


def test_a_rebuild_makes_it_again(dropped: Path) -> None:
    assert rebuild_metadata_table(opened(dropped)).lost == ()
    now = opened(dropped)
    assert set(now.config.metadata_partitions) == having(now.config.version)
    assert DROPPED_INDEXES not in now.config.raw


def test_a_writer_without_a_metadata_table_forgets_it(dropped: Path) -> None:
    upsert(opened(dropped, **{"hoodie.metadata.enable": "false"}))
    upsert(opened(dropped))
    now = opened(dropped)
    assert not now.config.metadata_partitions
    assert DROPPED_INDEXES not in now.config.raw


def test_indexes_that_are_dropped_for_good_are_not_made_again(dropped: Path) -> None:
    assert set(drop_metadata(opened(dropped), [RECORD_INDEX])) == {
        RECORD_INDEX,
        *(name for name in having(opened(dropped).config.version) if name in SECONDARY),
    }
    upsert(opened(dropped))
    now = opened(dropped)
    assert set(now.config.metadata_partitions) == having(now.config.version) - {RECORD_INDEX, *SECONDARY}
    assert set(drop_metadata(now)) == set(now.config.metadata_partitions)


def test_a_dropped_metadata_table_is_dropped_for_good(dropped: Path) -> None:
    assert set(drop_metadata(opened(dropped))) == having(opened(dropped).config.version)
    upsert(opened(dropped))
    assert not opened(dropped).config.metadata_partitions


def test_what_is_built_beside_writers_is_made_by_them(dropped: Path) -> None:
    options = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.async": "true"}
    upsert(opened(dropped, **options))
    now = opened(dropped, **options)
    assert BLOOM_FILTERS not in now.config.metadata_partitions
    assert BLOOM_FILTERS in dropped_indexes(now.config)
    for step in after_commit(now):
        step.run()
    upsert(opened(dropped))
    now = opened(dropped)
    assert set(now.config.metadata_partitions) >= EVERY
    assert DROPPED_INDEXES not in now.config.raw
    assert check_metadata_table(now).differences == ()


def test_an_index_that_can_not_be_made_does_not_stop_writers(dropped: Path, caplog: pytest.LogCaptureFixture) -> None:
    LocalWriter(opened(dropped, **NULLS, **{"hoodie.metadata.enable": "false"})).insert(frame(("a", "q", 3)))
    name_dropped(opened(dropped), {FILES: None, RECORD_INDEX: None})
    upsert(opened(dropped))
    assert "'a' lies in two file groups" in caplog.text
    assert "record_index are not rebuilt" in caplog.text
    assert DROPPED_INDEXES not in opened(dropped).config.raw
    upsert(opened(dropped))


def test_a_key_in_two_file_groups_ends_a_rebuild(dropped: Path) -> None:
    LocalWriter(opened(dropped, **NULLS, **{"hoodie.metadata.enable": "false"})).insert(frame(("a", "q", 3)))
    options = {key: text for key, text in ALL.items() if "record" in key or key.endswith("metadata.enable")}
    with pytest.raises(MetadataTableError, match="'a' lies in two file groups"):
        rebuild_metadata_table(opened(dropped, **options))
    assert DROPPED_INDEXES not in opened(dropped).config.raw


def test_a_damaged_name_is_an_error(dropped: Path) -> None:
    for text in ("{", "[1]", '{"column_stats": 3}'):
        update_table_config(opened(dropped).storage, {DROPPED_INDEXES: text})
        with pytest.raises(FormatError) as raised:
            upsert(opened(dropped))
        assert raised.value.fields["path"] == ".hoodie/hoodie.properties"


def test_it_waits_for_a_pending_compaction(tmp_path: Path, table_version: int) -> None:
    """In version 6 a metadata table is made while nothing is pending: until then the settings name what was dropped."""
    folder = tmp_path / "t"
    seeded(folder, MOR)
    LocalWriter(opened(folder, **NULLS)).upsert(frame(("b", "q", 3)))
    assert schedule_compaction(opened(folder, **{"hoodie.compact.inline.max.delta.commits": "1"}))
    LocalWriter(opened(folder)).alter([RenameColumn("more", "less")])
    now = opened(folder)
    waits = table_version == 6
    assert (COLUMN_STATS not in now.config.metadata_partitions) == waits
    upsert(now)
    execute_pending_compactions(opened(folder))
    upsert(opened(folder))
    now = opened(folder)
    assert set(now.config.metadata_partitions) == having(table_version)
    assert check_metadata_table(now).differences == ()


def test_a_write_that_completes_late_has_them_made_again(table_version: int, tmp_path: Path) -> None:
    """The record index leads to the place of the write that was requested last, and with it secondary indexes end."""
    if table_version == 6:
        return  # there log files are in the order of their versions, not of requests
    table = seeded(tmp_path, MOR)
    early = Instant(last(opened(tmp_path)).plus_milliseconds(-5), Action.DELTA_COMMIT, State.INFLIGHT)
    newest = opened(tmp_path).timeline.data().completed().last()
    assert newest is not None
    left = drop_overtaken(opened(tmp_path), early, table.reload().commit_metadata(newest))
    assert set(left.config.metadata_partitions) == {FILES, COLUMN_STATS, BLOOM_FILTERS}
    upsert(opened(tmp_path))
    assert set(opened(tmp_path).config.metadata_partitions) == having(table_version)
    assert check_metadata_table(opened(tmp_path)).differences == ()


@pytest.mark.parametrize("looks", [True, False], ids=["skep", "as-hudi"])
def test_statistics_of_partitions_leave_room_for_a_write_that_completes_late(
    looks: bool, table_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries count as older than those of writes that were requested later; one of Hudi does not look at these."""
    if not looks:
        monkeypatch.setattr(participants, "drop_overtaken", lambda table, instant, metadata: table)
    seeded(tmp_path)
    caplog.clear()
    apart = {**NULLS, "hoodie.parquet.small.file.limit": "0"}
    beside = RunsFirst(lambda: LocalWriter(opened(tmp_path, **apart)).upsert(frame(("a", "p", 3))))
    LocalWriter(opened(tmp_path, **apart).with_context(runner=beside)).upsert(frame(("z", "p", 99)))
    assert beside.has_run
    assert "are dropped" not in caplog.text
    assert set(opened(tmp_path).config.metadata_partitions) == having(table_version)
    assert check_metadata_table(opened(tmp_path)).differences == ()
    found = read(opened(tmp_path), ReadRequest(where="ts = 99")).to_arrow()
    assert found["id"].to_pylist() == ["z"]


def test_a_compaction_that_completes_first_leaves_the_record_index(table_version: int, tmp_path: Path) -> None:
    """The file groups have the keys that they had."""
    seeded(tmp_path, MOR)
    LocalWriter(opened(tmp_path, **NULLS)).upsert(frame(("a", "p", 3)))
    early = Instant(last(opened(tmp_path)).plus_milliseconds(1), Action.DELTA_COMMIT, State.INFLIGHT)
    written = opened(tmp_path).timeline.data().completed().last()
    assert written is not None
    metadata = opened(tmp_path).commit_metadata(written)
    assert schedule_compaction(opened(tmp_path, **{"hoodie.compact.inline.max.delta.commits": "1"}))
    execute_pending_compactions(opened(tmp_path))
    left = drop_overtaken(opened(tmp_path), early, metadata)
    assert RECORD_INDEX in left.config.metadata_partitions


def test_keys_that_are_deleted_while_a_compaction_runs_leave_the_record_index(
    table_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log file of the write that completes last belongs to the new slice, though it was requested before it."""
    if table_version == 6:
        return  # there a compaction is not planned beside a delta commit
    seeded(tmp_path, MOR)
    LocalWriter(opened(tmp_path, **NULLS)).upsert(frame(("a", "p", 3)))
    workload, compacted = flow.workload, []

    def compacts_first(*given: Any) -> Any:
        """Before it is known which files the write will write to."""
        monkeypatch.undo()
        compacted.append(schedule_compaction(opened(tmp_path, **{"hoodie.compact.inline.max.delta.commits": "1"})))
        execute_pending_compactions(opened(tmp_path))
        return workload(*given)

    monkeypatch.setattr(flow, "workload", compacts_first)
    LocalWriter(opened(tmp_path)).delete(frame(("a", "p", 9)))
    assert None not in compacted
    assert len(compacted) == 1
    assert read(opened(tmp_path), ReadRequest(where="id = 'a'")).to_arrow().num_rows == 0
    assert RECORD_INDEX in opened(tmp_path).config.metadata_partitions
    assert check_metadata_table(opened(tmp_path)).differences == ()
