"""Change logs: what is in them and beside them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar

import pytest
from captured_tables import COW, MODE, MODES, MOR, ON, SCHEMA, Captured, change_blocks, image, replayed, rows

from skep_format.errors import InputError, OptionError, TableMismatchError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.lock import InProcessLock
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.services.fsck import Problem, fsck
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.output.bucket import BucketResult


@pytest.mark.parametrize("version", [6, 9])
def test_the_stat_of_the_base_file_names_its_log(tmp_path: Path, version: int) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", version=version)
    table.writer().upsert(rows(("a", "p", 1), ("b", "q", 1)))
    assert not table.files(), "new file groups need none"
    assert [stat.cdc_stats for stat in table.stats()] == [None, None]
    table.writer().upsert(rows(("a", "p", 2), ("c", "p", 1)))
    (stat,) = table.stats()
    (log,) = table.files()
    base = stat.path.rpartition("/")[2]
    file_id, token, instant = base.removesuffix(".parquet").split("_")
    assert stat.cdc_stats == {f"p/{log.name}": log.stat().st_size}
    assert log.name == f".{file_id}_{instant}.log.1_{token}.cdc"
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (2, 1, 1, 0)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_stat_of_a_log_names_the_slice_before_it(tmp_path: Path, version: int) -> None:
    """Without it Hudi takes every update for an insert."""
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR, version)
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)))
    (base,) = table.stats()
    table.writer().upsert(rows(("a", "p", 2)))
    table.writer().upsert(rows(("a", "p", 3)))
    (stat,) = table.stats()
    logs = sorted(path.name for path in tmp_path.rglob(".*.log.*") if ".hoodie" not in path.parts)
    assert stat.base_file == base.path.rpartition("/")[2]
    assert sorted(stat.log_files or ()) == logs
    assert len(logs) == 2
    assert stat.prev_commit == base.path.rpartition("_")[2].removesuffix(".parquet")


def test_a_log_behind_a_planned_compaction_names_what_that_reads(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR)
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)))
    (base,) = table.stats()
    table.writer().upsert(rows(("a", "p", 2)))
    assert schedule_compaction(table.table) is not None
    table.writer().upsert(rows(("a", "p", 3)))
    (stat,) = table.stats()
    assert stat.base_file == base.path.rpartition("/")[2]
    assert len(stat.log_files or ()) == 2
    assert replayed(table.changes()) == table.snapshot()


def test_rows_that_lose_and_keys_that_are_not_there_change_nothing(tmp_path: Path) -> None:
    """The log is there, without entries: Hudi takes a rewritten file without one for an error."""
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    table.writer().upsert(rows(("a", "p", 5), ("b", "p", 5)))
    table.writer().upsert(rows(("a", "p", 1)))
    ((path, size),) = (table.stats()[0].cdc_stats or {}).items()
    (block,) = change_blocks(tmp_path / path)
    assert block.records().num_rows == 0
    assert (tmp_path / path).stat().st_size == size
    assert len(table.changes()) == 2


def test_an_insert_into_a_small_file_is_logged(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE")
    table.writer().insert(rows(("a", "p", 1)))
    table.writer().insert(rows(("b", "p", 1), ("c", "p", 1)))
    assert len(table.files()) == 1
    assert replayed(table.changes()) == table.snapshot()


def test_many_changes_make_several_change_blocks(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    every = [(f"k{number:04}", "p", 1, ["x" * 50]) for number in range(2000)]
    table.writer().upsert(rows(*every))
    newer = [(key, part, 2, tags) for key, part, _, tags in every]
    table.writer(**{"hoodie.logfile.data.block.max.size": "20000"}).upsert(rows(*newer))
    found = change_blocks(table.files()[0])
    assert len(found) > 5
    assert sum(block.records().num_rows for block in found) == 2000
    assert replayed(table.changes()) == table.snapshot()


@pytest.mark.parametrize("version", [6, 9])
def test_rollbacks_delete_change_logs(tmp_path: Path, version: int) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", version=version)
    table.writer().upsert(rows(("a", "p", 1)))
    result = table.writer().upsert(rows(("a", "p", 2)))
    assert len(table.files()) == 1
    roll_back_instant(table.table, result.instant.requested_time)
    assert not table.files()
    assert [change["op"] for change in table.changes()] == ["i"]


def test_the_metadata_table_lists_change_logs(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    on = {"hoodie.metadata.enable": "true"}
    table.writer(**on).upsert(rows(("a", "p", 1)))
    table.writer(**on).upsert(rows(("a", "p", 2)))
    (log,) = table.files()
    listed = {file.name for file in table.table.view(metadata=True).listing.files("p")}
    assert log.name in listed


@pytest.mark.parametrize("mode", MODES)
def test_a_clean_takes_the_logs_of_the_slices_that_it_deletes(tmp_path: Path, mode: str) -> None:
    table = Captured.make(tmp_path, mode)
    for ts in range(1, 6):
        table.writer().upsert(rows(("a", "p", ts)))
    instants = table.table.timeline.data().completed().instants
    clean(table.table.with_options({"hoodie.cleaner.commits.retained": "2"}))
    assert len(table.files()) == 3, "as many as there are slices"
    kept = table.changes(since=table.table.format.reads.time_in_range(instants[-3]))
    assert [(change["op"], image(change["before"])["ts"], image(change["after"])["ts"]) for change in kept] == [  # type: ignore[index]
        ("u", 3, 4),
        ("u", 4, 5),
    ]
    with pytest.raises(InputError, match="cleaner"):
        table.changes()


def test_switching_it_on_later_is_refused(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path)), spec)
    with pytest.raises(TableMismatchError, match=r"cdc\.enabled False, not True"):
        LocalWriter(table.with_options({ON: "true"})).upsert(rows(("a", "p", 1)))


@pytest.mark.parametrize(
    ("properties", "option"),
    [({ON: "true", MODE: "everything"}, MODE), ({ON: "true", "hoodie.populate.meta.fields": "false"}, ON)],
)
def test_what_no_table_can_have_is_refused(tmp_path: Path, properties: dict[str, str], option: str) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", properties=properties)
    with pytest.raises(OptionError) as refused:
        create_table(LocalStorage(str(tmp_path)), spec)
    assert refused.value.fields["option"] == option


def test_a_late_row_that_fills_what_the_stored_one_lacks_is_an_update(tmp_path: Path) -> None:
    """The stored row keeps its commit then: what the commit wrote does not show it."""
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR)
    table.writer().upsert(rows(("a", "p", 0)))
    table.writer().upsert(rows(("a", "p", 2)).select(["id", "part", "ts"]), partial=True)
    table.writer().upsert(rows(("a", "p", 1, ["late"])))
    assert table.snapshot() == {"a": ("p", 2, ("late",))}
    assert replayed(table.changes()) == table.snapshot()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [COW, MOR], ids=["cow", "mor"])
def test_a_row_that_moves_is_deleted_and_inserted(tmp_path: Path, kind: TableType, mode: str) -> None:
    table = Captured.make(tmp_path, mode, kind)
    index = {"hoodie.index.type": "GLOBAL_BLOOM"}
    table.writer(**index).upsert(rows(("a", "p", 1), ("b", "q", 1)))
    result = table.writer(**index).upsert(rows(("a", "q", 2)))
    moved = [change["op"] for change in table.changes() if change["ts_ms"] == result.instant.requested_time]
    assert sorted(moved) == ["d", "i"]
    assert replayed(table.changes()) == table.snapshot()


@pytest.mark.parametrize("mode", MODES)
def test_buckets_have_their_changes_in_logs(tmp_path: Path, mode: str) -> None:
    table = Captured.make(tmp_path, mode, MOR)
    buckets = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    for ts in (1, 2):
        table.writer(**buckets).upsert(rows(*((key, "p", ts) for key in "abcd")))
    table.writer(**buckets).delete(rows(("a", "p")))
    compact(table.table)
    table.writer(**buckets).upsert(rows(("b", "p", 3), ("a", "p", 3)))
    assert replayed(table.changes()) == table.snapshot()


def test_fsck_finds_change_logs_that_are_missing(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", MOR)
    table.writer().upsert(rows(("a", "p", 1)))
    table.writer().upsert(rows(("b", "p", 1)))
    table.writer().upsert(rows(("a", "p", 2)))
    compact(table.table)
    log = table.files()[-1]
    assert fsck(table.table) == []
    log.unlink()
    assert [(finding.problem, finding.path.rpartition("/")[2]) for finding in fsck(table.table)] == [
        (Problem.MISSING, log.name)
    ]


@pytest.mark.parametrize("version", [6, 9])
def test_a_restore_deletes_the_logs_of_what_it_undoes(tmp_path: Path, version: int) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", version=version)
    for ts in (1, 2):
        saved = table.writer().upsert(rows(("a", "p", ts)))
    create_savepoint(table.table, saved.instant.requested_time)
    kept = table.files()
    for ts in (3, 4):
        table.writer().upsert(rows(("a", "p", ts)))
    clean(table.table.with_options({"hoodie.cleaner.commits.retained": "1"}))
    assert set(kept) <= set(table.files()), "the savepoint keeps its slice whole"
    restore(table.table, saved.instant.requested_time)
    assert table.files() == kept
    table.writer().upsert(rows(("a", "p", 5), ("b", "p", 1)))
    last = table.changes(since=table.table.format.reads.time_in_range(saved.instant))
    assert sorted(str(change["op"]) for change in last) == ["i", "u"]


class Meanwhile(ThreadRunner):
    """Does something else behind the tasks that write files, once."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(1)
        self._action: Callable[[], object] | None = action

    def map(self, function: Any, tasks: Any) -> Any:
        done = super().map(function, tasks)
        if self._action is not None and done and isinstance(done[0], BucketResult):
            action, self._action = self._action, None
            action()
        return done


@pytest.mark.parametrize("kind", [COW, MOR], ids=["cow", "mor"])
def test_what_is_written_again_after_a_conflict_is_logged_once(tmp_path: Path, kind: TableType) -> None:
    """The file group that no other write has changed keeps its files, the other one's are written again."""
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", kind)
    table.writer().upsert(rows(("a", "p", 1), ("b", "q", 1)))
    mode, retries = "optimistic_concurrency_control", "hoodie.write.num.retries.on.conflict.failures"
    options = Options({"hoodie.write.concurrency.mode": mode, retries: "3"})

    def writer(runner: ThreadRunner) -> LocalWriter:
        return LocalWriter(table.table.with_context(lock=InProcessLock("t"), runner=runner, options=options))

    other = writer(ThreadRunner(1))
    writer(Meanwhile(lambda: other.upsert(rows(("a", "p", 2), ("c", "p", 1))))).upsert(
        rows(("a", "p", 3), ("b", "q", 2), ("d", "p", 1))
    )
    assert table.snapshot()["a"] == ("p", 3, None)
    assert replayed(table.changes()) == table.snapshot()
    named = {
        path
        for instant in table.table.timeline.data().completed()
        for stat in table.table.commit_metadata(instant).stats
        for path in stat.paths
    }
    assert {str(file.relative_to(tmp_path)) for file in table.files()} <= named


class Synced(LocalStorage):
    """Notes what is made durable."""

    paths: ClassVar[set[str]] = set()

    def sync(self, paths: Collection[str]) -> None:
        self.paths.update(paths)
        super().sync(paths)


def test_change_logs_are_durable_before_their_commit(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "OP_KEY_ONLY")
    for ts in (1, 2):
        LocalWriter(HudiTable.open(Synced(str(tmp_path)))).upsert(rows(("a", "p", ts)))
    (log,) = table.files()
    assert str(log.relative_to(tmp_path)) in Synced.paths
