"""Non-blocking concurrency control: writers of the same keys and file groups, of which none fails and none waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, OptionError, UnsupportedError
from skep_format.names import BaseFileName, LogFileName
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
Meanwhile = Callable[[], object]
MODE = "hoodie.write.concurrency.mode"
ONE_BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1"}
NON_BLOCKING: dict[str, Any] = {MODE: "NON_BLOCKING_CONCURRENCY_CONTROL", **ONE_BUCKET}
OPTIMISTIC: dict[str, Any] = {MODE: "optimistic_concurrency_control", **ONE_BUCKET}
BUCKET_0 = "00000000-0000-0000-0000-000000000000-0"


@pytest.fixture
def make(tmp_path: object, rows: Rows) -> Callable[..., HudiTable]:
    def make(type: TableType = TableType.MERGE_ON_READ, **how: Any) -> HudiTable:
        spec = TableSpec(
            name="t",
            schema=rows([]).schema,
            record_key=("id",),
            partition_by=("part",),
            **{"type": type, "ordering": "ts", "version": 9, **how},
        )
        return create_table(LocalStorage(f"{tmp_path}/t"), spec)

    return make


@pytest.fixture
def table(make: Callable[..., HudiTable], rows: Rows) -> HudiTable:
    return make()


def writer(table: HudiTable, **options: Any) -> LocalWriter:
    setting = Options({**NON_BLOCKING, **options})
    return LocalWriter(table.reload().with_context(lock=StorageLock(table.storage), options=setting))


class Interrupted:
    """A write that stops between its files and its completion, and lets others go first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, write: Callable[[], Any], meanwhile: Meanwhile) -> Any:
        complete = Transaction.complete
        with self._monkeypatch.context() as patched:

            def others_first(*given: Any, **more: Any) -> Any:
                patched.setattr(Transaction, "complete", complete)
                meanwhile()
                return complete(*given, **more)

            patched.setattr(Transaction, "complete", others_first)
            return write()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    return Interrupted(monkeypatch)


def content(table: HudiTable, **request: Any) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in read(table.reload(), ReadRequest(**request)).to_arrow().to_pylist()}


def data_files(table: HudiTable) -> list[str]:
    names = [file.name for file in table.storage.list_prefix("", recursive=True) if not file.path.startswith(".hoodie")]
    return sorted(name for name in names if name != ".hoodie_partition_metadata")


class TestFiles:
    def test_all_rows_go_to_logs_of_groups_with_fixed_names(self, table: HudiTable, rows: Rows) -> None:
        for operation in ("insert", "upsert", "bulk_insert"):
            getattr(writer(table), operation)(rows([operation]))
        writer(table).delete(pa.table({"id": ["insert"], "part": ["p"]}))
        assert content(table) == {"upsert": 1, "bulk_insert": 1}
        names = [LogFileName.parse(name) for name in data_files(table)]
        assert [name.file_id for name in names if name] == [BUCKET_0] * 4

    def test_a_group_that_is_there_keeps_its_name(self, table: HudiTable, rows: Rows) -> None:
        writer(table, **OPTIMISTIC).insert(rows(["a"]))
        writer(table).upsert(rows(["a", "b"], ts=2))
        assert content(table) == {"a": 2, "b": 2}
        base, log = BaseFileName.parse(data_files(table)[1]), LogFileName.parse(data_files(table)[0])
        assert base is not None
        assert log is not None
        assert base.file_id == log.file_id != BUCKET_0

    def test_the_number_of_a_bucket_begins_its_name(self, table: HudiTable, rows: Rows) -> None:
        many = {"hoodie.bucket.index.num.buckets": "4"}
        writer(table, **many).insert(rows([f"k{at}" for at in range(20)]))
        groups = [LogFileName.parse(name) for name in data_files(table)]
        assert {group.file_id for group in groups if group} == {f"0000000{at}{BUCKET_0[8:]}" for at in range(4)}


class TestWithoutConflicts:
    def test_two_first_writers_of_a_bucket(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        first = writer(table)
        interrupted(lambda: first.upsert(rows(["a", "b"], ts=1)), lambda: writer(table).upsert(rows(["b", "c"], ts=2)))
        assert content(table) == {"a": 1, "b": 2, "c": 2}

    @pytest.mark.parametrize(("early", "late"), [(1, 2), (2, 1)])
    def test_the_greater_ordering_value_wins(
        self, early: int, late: int, table: HudiTable, rows: Rows, interrupted: Interrupted
    ) -> None:
        first = writer(table)
        interrupted(lambda: first.upsert(rows(["a"], ts=early)), lambda: writer(table).upsert(rows(["a"], ts=late)))
        assert content(table) == {"a": 2}

    def test_by_commit_time_the_write_that_began_later_wins(
        self, make: Callable[..., HudiTable], rows: Rows, interrupted: Interrupted
    ) -> None:
        table = make(ordering=None)
        first = writer(table)
        interrupted(lambda: first.upsert(rows(["a"], ts=1)), lambda: writer(table).upsert(rows(["a"], ts=2)))
        assert content(table) == {"a": 2}

    def test_a_pull_of_what_completed_since_misses_nothing(
        self, table: HudiTable, rows: Rows, interrupted: Interrupted
    ) -> None:
        seen: list[str] = []

        def meanwhile() -> None:
            seen.append(str(writer(table).upsert(rows(["b"])).instant.completion_time))

        first = writer(table)
        interrupted(lambda: first.upsert(rows(["a"])), meanwhile)
        assert content(table, query="incremental", since=seen[0]) == {"a": 1}

    def test_early_detection_finds_none(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        early = {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}
        first = writer(table)
        interrupted(lambda: first.upsert(rows(["a"])), lambda: writer(table, **early).upsert(rows(["a"], ts=2)))
        assert content(table) == {"a": 2}


class TestCompaction:
    """Its plan takes what completed before it was requested; what completes later is read above its result."""

    @pytest.mark.parametrize("carried_out", ["before the write completes", "after it"])
    def test_beside_a_writer(self, carried_out: str, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        writer(table).upsert(rows(["a", "b"], ts=1))

        def meanwhile() -> None:
            shared = table.reload().with_context(lock=StorageLock(table.storage))
            if carried_out == "after it":
                assert schedule_compaction(shared) is not None
            else:
                assert compact(shared)

        first = writer(table)
        interrupted(lambda: first.upsert(rows(["b", "c"], ts=2)), meanwhile)
        for _ in execute_pending_compactions(table.reload()):
            pass
        assert content(table) == {"a": 1, "b": 2, "c": 2}
        assert content(table, query="read_optimized") == {"a": 1, "b": 1}
        compact(table.reload())
        assert content(table, query="read_optimized") == {"a": 1, "b": 2, "c": 2}


class TestRefused:
    def refused(self, table: HudiTable, rows: pa.Table, reason: str, operation: str = "upsert", **options: Any) -> None:
        before = data_files(table)
        with pytest.raises(UnsupportedError, match=reason):
            getattr(writer(table, **options), operation)(rows)
        assert data_files(table) == before
        assert not table.reload().timeline.pending().instants

    def test_version_6(self, make: Callable[..., HudiTable], rows: Rows) -> None:
        self.refused(make(version=6), rows(["a"]), "version 6 of the table does not know it")

    def test_copy_on_write(self, make: Callable[..., HudiTable], rows: Rows) -> None:
        self.refused(make(TableType.COPY_ON_WRITE), rows(["a"]), "merge-on-read")

    def test_another_index(self, table: HudiTable, rows: Rows) -> None:
        self.refused(table, rows(["a"]), "bucket index", **{"hoodie.index.type": "BLOOM"})

    @pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table"])
    def test_insert_overwrite(self, operation: str, table: HudiTable, rows: Rows) -> None:
        writer(table).insert(rows(["a"]))
        self.refused(table, rows(["a"]), "hidden", operation)

    def test_dropping_partitions(self, table: HudiTable, rows: Rows) -> None:
        writer(table).insert(rows(["a"]))
        with pytest.raises(UnsupportedError, match="hidden"):
            writer(table).delete_partitions(["p"])
        assert content(table) == {"a": 1}

    def test_another_policy_than_lazy(self, table: HudiTable, rows: Rows) -> None:
        with pytest.raises(OptionError, match="LAZY"):
            writer(table, **{"hoodie.clean.failed.writes.policy": "EAGER"}).upsert(rows(["a"]))

    def test_a_name_that_was_replaced(self, table: HudiTable, rows: Rows) -> None:
        writer(table).insert(rows(["a"]))
        writer(table, **OPTIMISTIC).delete_partitions(["p"])
        self.refused(table, rows(["b"]), "was replaced by")
        writer(table, **OPTIMISTIC).insert(rows(["b"]))
        writer(table).upsert(rows(["b"], ts=2))
        assert content(table) == {"b": 2}


class TestBesideOptimisticWriters:
    def test_a_bucket_of_another_name(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        first = writer(table)
        with pytest.raises(CommitConflictError, match="buckets that this write has too"):
            interrupted(lambda: first.upsert(rows(["a"])), lambda: writer(table, **OPTIMISTIC).insert(rows(["b"])))
        assert content(table) == {"b": 1}

    def test_a_group_that_is_replaced_meanwhile(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        writer(table).insert(rows(["a"]))
        first = writer(table)
        with pytest.raises(CommitConflictError, match="replaces 1 of the file groups"):
            interrupted(
                lambda: first.upsert(rows(["a"], ts=2)), lambda: writer(table, **OPTIMISTIC).delete_partitions(["p"])
            )
        assert content(table) == {}

    def test_they_see_the_conflict(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        writer(table).insert(rows(["a"]))
        first = writer(table, **OPTIMISTIC)
        with pytest.raises(CommitConflictError):
            interrupted(lambda: first.upsert(rows(["a"], ts=1)), lambda: writer(table).upsert(rows(["a"], ts=2)))
        assert content(table) == {"a": 2}


class TestColumns:
    """Two writes that add columns: the later one has both, or fails where its own would not be the table's."""

    NULLS: ClassVar = {"hoodie.write.set.null.for.missing.columns": "true"}

    def test_of_the_write_that_began_later(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        writer(table).insert(rows(["a"]))
        waits, go = threading.Event(), threading.Event()

        def pause() -> None:
            waits.set()
            assert go.wait(20)

        earlier = threading.Thread(
            target=lambda: interrupted(lambda: writer(table).upsert(rows(["b"], x=["x"])), pause)
        )
        earlier.start()
        assert waits.wait(20)

        def let_it_complete() -> None:
            go.set()
            earlier.join()

        interrupted(lambda: writer(table).upsert(rows(["c"], y=[1])), let_it_complete)
        assert {"x", "y"} <= set(table.reload().schema().names())
        assert content(table) == {"a": 1, "b": 1, "c": 1}

    def test_of_the_write_that_began_earlier(self, table: HudiTable, rows: Rows, interrupted: Interrupted) -> None:
        """Readers take the columns of the write that was requested last, so it fails, and may be tried again."""
        writer(table).insert(rows(["a"]))
        first = writer(table)
        with pytest.raises(CommitConflictError, match="began later and completed first"):
            interrupted(lambda: first.upsert(rows(["c"], x=["x"])), lambda: writer(table).upsert(rows(["b"], y=[1])))
        retried = writer(table, **self.NULLS, **{"hoodie.write.num.retries.on.conflict.failures": 1})
        other = writer(table, **self.NULLS)
        interrupted(lambda: retried.upsert(rows(["c"], x=["x"])), lambda: other.upsert(rows(["d"], z=[1])))
        assert {"x", "y", "z"} <= set(table.reload().schema().names())
        assert content(table) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_what_dies_is_rolled_back_by_the_next_writer_alone(table: HudiTable, rows: Rows) -> None:
    writer(table).insert(rows(["a"]))
    dead = Transaction.begin(writer(table)._table, Action.DELTA_COMMIT)
    dead.inflight(CommitMetadata())
    dead._release()
    writer(table).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 2}
    assert not table.reload().timeline.pending().instants
