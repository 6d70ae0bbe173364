"""A table of which another process changes the version while writers, services and readers of it run.

They notice it, and nothing that is in the table is damaged: what they had started is undone, or refused by name.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError, TableVersionError
from skep_format.instant_time import CompletionTime
from skep_format.storage import LocalStorage
from skep_format.table_config import update_table_config
from skep_format.timeline.instant import Action, State
from skep_format.timeline.layout import layout_2
from skep_format.timeline.write import transition_to_inflight
from skep_table.commit import transaction
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import schedule_clean
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.execution import Execution
from skep_table.services.undo.rollback import create_savepoint, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
SMALL = {"hoodie.clustering.plan.strategy.small.file.limit": 10**9, "hoodie.cleaner.commits.retained": 1}
OPTIMISTIC: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": 2,
    "skep.write.instant.lag.seconds": 0,
}
EARLY: dict[str, object] = {
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.concurrency.early.conflict.check.commit.conflict": "true",
}
UPGRADED = {"hoodie.table.version": "9", "hoodie.timeline.layout.version": "2", "hoodie.timeline.path": "timeline"}


def moved(table: HudiTable) -> Iterator[None]:
    """Instants move to the folder of layout 2 one by one, as Hudi moves them; the properties follow last."""
    root, newer = Path(table.storage.root), layout_2()
    (root / newer.folder / "history").mkdir(parents=True)
    now = table.reload()
    for instant in now.timeline.instants:
        states = [state for state in State if state <= instant.state]
        for state in states:
            old = root / now.layout.path(replace(instant, state=state))
            content = old.read_bytes()
            if state is State.COMPLETED and instant.action in (Action.COMMIT, Action.REPLACE_COMMIT):
                content = newer.encode_commit(now.commit_metadata(instant))
            completed = CompletionTime(instant.requested_time) if state is State.COMPLETED else None
            kind = replace(instant, state=state, completion_time=completed)
            (root / newer.path(kind)).write_bytes(content)
            old.unlink()
            yield
    mode = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "ts"}
    update_table_config(table.storage, {**UPGRADED, **mode})


def upgrade(table: HudiTable) -> None:
    for _ in moved(table):
        pass


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    """Copy-on-write, of version 6, with two files in one partition."""
    spec = TableSpec(
        name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts", version=6
    )
    made = create_table(LocalStorage(f"{tmp_path}/t"), spec)
    for ts in (1, 2):
        LocalWriter(made.with_options({"hoodie.parquet.small.file.limit": "0"})).upsert(rows(["a", f"k{ts}"], ts))
    return made.reload().with_options(SMALL)


BEFORE = {"a": 2, "k1": 1, "k2": 2}


def content(table: HudiTable) -> dict[str, int]:
    found = read(HudiTable.open(table.storage), ReadRequest()).to_arrow().to_pylist()
    return {row["id"]: row["ts"] for row in found}


def leased(table: HudiTable, options: dict[str, object]) -> HudiTable:
    """The table for a writer that shares it with others."""
    return table.reload().with_options({**SMALL, **options}).with_context(lock=StorageLock(table.storage))


def unharmed(table: HudiTable, rows: Rows) -> None:
    """It reads as before, nothing is pending in it, and it can be written."""
    now = HudiTable.open(table.storage)
    assert now.config.version == 9
    assert content(table) == BEFORE
    assert not now.timeline.pending().instants
    assert not list((Path(table.storage.root) / ".hoodie").glob("2*")), "files of the former layout"
    LocalWriter(now).upsert(rows(["new"], 9))
    assert content(table) == {**BEFORE, "new": 9}
    completed = {instant.requested_time for instant in now.reload().timeline.completed()}
    files = [file.name for file in table.storage.list_prefix("p") if file.name.endswith(".parquet")]
    assert {name.removesuffix(".parquet").rpartition("_")[2] for name in files} <= completed


def upgrade_before_completion(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch, of: type[Transaction | Execution] = Transaction
) -> None:
    """The next write, or service, finds the table upgraded when it is about to complete."""
    complete = of.complete

    def upgraded(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(of, "complete", complete)
        upgrade(table)
        return complete(*given, **more)

    monkeypatch.setattr(of, "complete", upgraded)


class TestWriters:
    @pytest.mark.parametrize("options", [None, {}, OPTIMISTIC], ids=["alone", "leased", "optimistic"])
    def test_between_its_files_and_its_completion(
        self, options: dict[str, object] | None, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the version its completed commits have other times: no conflict is made of that, and no retry."""
        upgrade_before_completion(table, monkeypatch)
        writer = LocalWriter(table if options is None else leased(table, options))
        with pytest.raises(TableVersionError, match="was version 6 when this operation began"):
            writer.upsert(rows(["a", "z"], 5))
        unharmed(table, rows)

    def test_before_it_is_tried_again(self, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
        complete, retry = Transaction.complete, Transaction.retry

        def another_first(*given: Any, **more: Any) -> Any:
            monkeypatch.setattr(Transaction, "complete", complete)
            LocalWriter(leased(table, OPTIMISTIC)).upsert(rows(["a"], 2))
            return complete(*given, **more)

        def upgraded(write: Transaction) -> Any:
            upgrade(table)
            return retry(write)

        monkeypatch.setattr(Transaction, "complete", another_first)
        monkeypatch.setattr(Transaction, "retry", upgraded)
        with pytest.raises(TableVersionError):
            LocalWriter(leased(table, OPTIMISTIC)).upsert(rows(["a", "z"], 5))
        unharmed(table, rows)

    def test_before_it_looks_for_conflicts_early(
        self, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def then_upgrade(*given: Any) -> Any:
            monkeypatch.setattr(transaction, "transition_to_inflight", transition_to_inflight)
            done = transition_to_inflight(*given)
            upgrade(table)
            return done

        monkeypatch.setattr(transaction, "transition_to_inflight", then_upgrade)
        with pytest.raises(TableVersionError):
            LocalWriter(leased(table, {**OPTIMISTIC, **EARLY})).upsert(rows(["a", "z"], 5))
        unharmed(table, rows)

    def test_that_opened_the_table_before(self, table: HudiTable, rows: Rows) -> None:
        upgrade(table)
        with pytest.raises(TableVersionError):
            Transaction.begin(table, Action.COMMIT)
        unharmed(table, rows)

    @pytest.mark.parametrize("operation", ["insert_overwrite", "delete_partitions"])
    def test_that_replace(self, operation: str, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
        upgrade_before_completion(table, monkeypatch)
        with pytest.raises(TableVersionError):
            getattr(LocalWriter(table), operation)(["p"] if operation == "delete_partitions" else rows(["z"]))
        unharmed(table, rows)


class TestServices:
    def test_a_clustering_that_runs(self, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
        upgrade_before_completion(table, monkeypatch, Execution)
        assert schedule_clustering(table) is not None
        with pytest.raises(TableVersionError):
            execute_pending_clusterings(table.reload())
        assert content(table) == BEFORE

    @pytest.mark.parametrize(
        "service",
        [
            cluster,
            archive,
            schedule_clean,
            lambda table: create_savepoint(table, table.timeline.instants[-1].requested_time),
            lambda table: roll_back_instant(table, table.timeline.instants[-1].requested_time),
        ],
        ids=["cluster", "archive", "clean", "savepoint", "rollback"],
    )
    def test_with_a_snapshot_of_before(self, service: Callable[[HudiTable], Any], table: HudiTable) -> None:
        """They take a new one under the lock, and work on the table as it is."""
        upgrade(table)
        with contextlib.suppress(TableVersionError):
            service(table)
        assert not list((Path(table.storage.root) / ".hoodie").glob("2*")), "files of the former layout"
        assert set(content(table)) <= set(BEFORE)


class TestReaders:
    def test_a_snapshot_of_before(self, table: HudiTable) -> None:
        """The files are where they were. What is read from the timeline only now is an error, not fewer rows."""
        upgrade(table)
        try:
            found = read(table, ReadRequest()).to_arrow().to_pylist()
        except SkepError:
            found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
        assert {row["id"]: row["ts"] for row in found} == BEFORE

    def test_at_each_step_of_it(self, table: HudiTable, rows: Rows) -> None:
        """While instants move, the timeline that is left is shorter: no row is missing without a word."""
        before, refused = table.reload(), []
        for _ in moved(table):
            for look in (lambda: HudiTable.open(table.storage), before.reload):
                try:
                    now = look()
                except TableVersionError as error:
                    refused.append(error.message)
                    continue
                found = read(now, ReadRequest()).to_arrow().to_pylist()
                assert {row["id"]: row["ts"] for row in found} == BEFORE
        assert len(refused) == 8, "all but the steps at which the first instant is not completed in the new layout"
        assert all("is being upgraded or downgraded" in message for message in refused)
        unharmed(table, rows)

    def test_of_one_that_was_interrupted_nothing_is_written(self, table: HudiTable, rows: Rows) -> None:
        steps = list(itertools.islice(moved(table), 4))
        files = table.storage.list_prefix("", recursive=True)
        with pytest.raises(TableVersionError, match="was interrupted"):
            LocalWriter(table).upsert(rows(["z"]))
        assert len(steps) == 4
        assert table.storage.list_prefix("", recursive=True) == files

    def test_the_settings_were_read_before_and_the_timeline_after(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from skep_table import table as module

        load = module.load_table_config

        def upgraded(storage: Any) -> Any:
            monkeypatch.setattr(module, "load_table_config", load)
            found = load(storage)
            upgrade(table)
            return found

        monkeypatch.setattr(module, "load_table_config", upgraded)
        assert HudiTable.open(table.storage).config.version == 9

    def test_what_a_downgrade_leaves_is_no_upgrade(self, table: HudiTable) -> None:
        (Path(table.storage.root) / ".hoodie/timeline/history").mkdir(parents=True)
        assert content(table) == BEFORE


def test_a_copy_that_is_upgraded_is_another_table(table: HudiTable, tmp_path: Path) -> None:
    shutil.copytree(table.storage.root, tmp_path / "copy")
    upgrade(HudiTable.open(str(tmp_path / "copy")))
    assert content(table) == content(HudiTable.open(str(tmp_path / "copy"))) == BEFORE
