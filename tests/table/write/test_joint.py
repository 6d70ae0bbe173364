"""Writes of several callers as one commit: the rows are those of one write after the other, and so are the counts."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting_storage import CountingStorage
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.errors import CommitConflictError, InputError, KeyFieldError, StorageError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import WriteOperation
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import DELETED, PARTIAL
from skep_table.query import ReadRequest, read
from skep_table.query.unwritten import UnwrittenRowsError
from skep_table.table import HudiTable, Unwritten
from skep_table.write.input.source import matching
from skep_table.write.joint import ChangePart, FramePart, Part, RemovalPart
from skep_table.write.local import LocalWriter
from skep_table.write.result import RowCounts, WriteResult
from skep_table.write.turns import WriteTurns, turns_of

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("part", pa.string())])
SHARED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": "3",
}
META = (RECORD_KEY, PARTITION_PATH, FILE_NAME)
UPSERT, INSERT, DELETE = WriteOperation.UPSERT, WriteOperation.INSERT, WriteOperation.DELETE


def make(folder: Path, **spec: Any) -> HudiTable:
    given: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), **spec}
    return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, **given))


def rows(*ids: int, n: int = 0) -> pa.Table:
    return pa.table({"id": ids, "n": [n] * len(ids), "part": [f"p{at % 2}" for at in ids]}, schema=SCHEMA)


def stored(table: HudiTable) -> dict[int, int]:
    found = read(table.reload(), ReadRequest(columns=("id", "n"))).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key is stored twice"
    return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def updating(where: str, add: int) -> Callable[[HudiTable], pa.Table]:
    """Adds to `n` where a condition holds, as UPDATE does it."""

    def compute(table: HudiTable) -> pa.Table:
        columns = (*META, *to_arrow(table.schema()).names)
        found = read(table, ReadRequest(columns=columns, where=where)).to_arrow().select(columns)
        found = found.set_column(found.schema.get_field_index("n"), "n", pc.add(found["n"], add))
        for name, value in ((DELETED, False), (PARTIAL, True)):
            found = found.append_column(name, pa.array([value] * found.num_rows, pa.bool_()))
        return found

    return compute


def together(table: HudiTable, parts: Sequence[Part]) -> list[Any]:
    """The counts, the error, or None of each part, by one commit."""
    return [
        each if each is None or isinstance(each, Exception) else (each.inserted, each.updated, each.deleted)
        for each in LocalWriter(table.reload()).together(parts)
    ]


def commits(table: HudiTable) -> int:
    return len(table.reload().timeline.data().completed())


KINDS = pytest.mark.parametrize(
    "spec",
    [
        {"type": TableType.COPY_ON_WRITE},
        {"type": TableType.MERGE_ON_READ},
        {"type": TableType.MERGE_ON_READ, "version": 9},
    ],
    ids=["cow6", "mor6", "mor9"],
)


class TestStatements:
    @KINDS
    def test_each_sees_what_those_before_it_change(self, tmp_path: Path, spec: dict[str, Any]) -> None:
        table = make(tmp_path, **spec)
        LocalWriter(table).upsert(rows(*range(8)))
        raises = [
            ChangePart(updating("id = 3", 1)),
            ChangePart(updating("id <= 3", 10)),
            ChangePart(updating("n = 11", 5)),
        ]
        assert together(table, raises) == [(0, 1, 0), (0, 4, 0), (0, 1, 0)]
        assert stored(table) == {0: 10, 1: 10, 2: 10, 3: 16, 4: 0, 5: 0, 6: 0, 7: 0}
        assert commits(table) == 2

    @KINDS
    def test_deletes_in_one_commit(self, tmp_path: Path, spec: dict[str, Any]) -> None:
        table = make(tmp_path, **spec)
        LocalWriter(table).upsert(rows(*range(8)))

        def odd(snapshot: HudiTable) -> pa.Table:
            found = read(snapshot, ReadRequest(columns=(*META, "id"))).to_arrow()
            return found.filter(pc.equal(pc.bit_wise_and(found["id"], 1), 1)).select(META)

        parts = [RemovalPart(matching("id > 4")), RemovalPart(odd), RemovalPart(matching("id = 6"))]
        assert together(table, parts) == [(0, 0, 3), (0, 0, 2), (0, 0, 0)]
        assert stored(table) == {0: 0, 2: 0, 4: 0}
        assert commits(table) == 2

    def test_an_error_is_that_of_its_part_alone(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        LocalWriter(table).upsert(rows(1, 2))

        def wrong(_table: HudiTable) -> pa.Table:
            raise InputError("wrong")

        parts = [ChangePart(updating("id = 1", 1)), ChangePart(wrong), ChangePart(updating("id = 2", 2))]
        first, error, last = together(table, parts)
        assert (first, last) == ((0, 1, 0), (0, 1, 0))
        assert isinstance(error, InputError)
        assert stored(table) == {1: 1, 2: 2}

    def test_where_all_parts_fail_there_is_no_commit(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        LocalWriter(table).upsert(rows(1))

        def wrong(_table: HudiTable) -> pa.Table:
            raise InputError("wrong")

        assert all(isinstance(each, InputError) for each in together(table, [ChangePart(wrong), ChangePart(wrong)]))
        assert len(table.reload().timeline.instants) == 1

    @pytest.mark.parametrize("partitions", [("part",), ()])
    def test_what_depends_on_the_commit_waits_for_the_next_one(
        self, tmp_path: Path, partitions: tuple[str, ...]
    ) -> None:
        table = make(tmp_path, partition_by=partitions)
        LocalWriter(table).upsert(rows(1, 2))

        def by_time(snapshot: HudiTable) -> pa.Table:
            read(snapshot, ReadRequest(columns=("_hoodie_commit_time",))).to_arrow()
            return updating("id = 2", 1)(snapshot)

        first, second = ChangePart(updating("id = 1", 1)), ChangePart(by_time)
        assert together(table, [first, second]) == [(0, 1, 0), None]
        assert together(table, [second, first]) == [(0, 1, 0), (0, 1, 0)]
        assert stored(table) == {1: 2, 2: 1}

    def test_computed_again_after_a_conflict(self, tmp_path: Path) -> None:
        table = make(tmp_path, type=TableType.COPY_ON_WRITE)
        LocalWriter(table).upsert(rows(1, 2))
        shared = table.reload().with_options(
            {
                "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
                "hoodie.write.num.retries.on.conflict.failures": "3",
            }
        )
        tries = []

        def late(snapshot: HudiTable) -> pa.Table:
            tries.append(snapshot)
            if len(tries) == 1:  # another process is faster
                LocalWriter(shared.reload()).change(updating("id = 1", 100))
            return updating("id = 1", 1)(snapshot)

        found = LocalWriter(shared).together([ChangePart(late), ChangePart(updating("id <= 2", 10))])
        assert [each.own for each in found if isinstance(each, WriteResult)] == [
            RowCounts(updated=1),
            RowCounts(updated=2),
        ]
        assert len(tries) == 2
        assert stored(table) == {1: 111, 2: 10}

    @given(st.data())
    @settings(max_examples=15, deadline=None)
    def test_as_one_after_the_other(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        spec: dict[str, Any] = {
            "type": data.draw(st.sampled_from(list(TableType))),
            "version": data.draw(st.sampled_from([6, 9])),
            "partition_by": data.draw(st.sampled_from([("part",), ()])),
        }
        statements = data.draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["id", "n"]),
                    st.sampled_from(["=", "<=", ">"]),
                    st.integers(0, 9),
                    st.integers(1, 5),
                ),
                min_size=2,
                max_size=6,
            )
        )
        found = []
        for joint in (True, False):
            table = make(tmp_path_factory.mktemp("t"), **spec)
            LocalWriter(table).upsert(rows(*range(10)))
            parts = [ChangePart(updating(f"{column} {sign} {value}", add)) for column, sign, value, add in statements]
            counts = together(table, parts) if joint else [together(table, [part])[0] for part in parts]
            found.append((counts, stored(table)))
        assert found[0] == found[1]


class TestFrames:
    @KINDS
    def test_counts_are_those_of_each(self, tmp_path: Path, spec: dict[str, Any]) -> None:
        table = make(tmp_path, **spec)
        LocalWriter(table).upsert(rows(1, 2, 3))
        parts = [
            FramePart(UPSERT, rows(2, 10, n=1)),
            FramePart(UPSERT, rows(3, 1, n=2)),
            FramePart(UPSERT, rows(11, n=3)),
        ]
        assert together(table, parts) == [(1, 1, 0), (0, 2, 0), (1, 0, 0)]
        assert stored(table) == {1: 2, 2: 1, 3: 2, 10: 1, 11: 3}
        assert commits(table) == 2

    def test_of_two_with_a_key_the_second_waits(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        parts = [FramePart(UPSERT, rows(1, 2, n=1)), FramePart(UPSERT, rows(2, n=2)), FramePart(UPSERT, rows(3, n=3))]
        assert together(table, parts) == [(2, 0, 0), None, (1, 0, 0)]
        assert together(table, parts[1:2]) == [(0, 1, 0)]
        assert stored(table) == {1: 1, 2: 2, 3: 3}

    def test_a_frame_with_a_key_twice_is_alone(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        twice, other = FramePart(UPSERT, rows(1, 1, n=1)), FramePart(UPSERT, rows(2, n=2))
        assert together(table, [twice, other]) == [(1, 0, 0), None]
        assert together(table, [other, twice]) == [(1, 0, 0), None]

    def test_inserts_and_deletes(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        assert together(table, [FramePart(INSERT, rows(1, 2)), FramePart(INSERT, rows(3))]) == [(2, 0, 0), (1, 0, 0)]
        keys = [FramePart(DELETE, rows(1, 9)), FramePart(DELETE, rows(3))]
        assert together(table, keys) == [(0, 0, 1), (0, 0, 1)]
        assert stored(table) == {2: 0}

    def test_rows_that_do_not_fit_fail_alone(self, tmp_path: Path) -> None:
        table = make(tmp_path)
        empty = pa.table({"id": [None], "n": [1], "part": ["p1"]}, schema=SCHEMA)
        first, error, last = together(table, [FramePart(UPSERT, each) for each in (rows(1), empty, rows(2))])
        assert (first, last) == ((1, 0, 0), (1, 0, 0))
        assert isinstance(error, KeyFieldError)
        assert stored(table) == {1: 0, 2: 0}

    def test_a_global_index_takes_one(self, tmp_path: Path) -> None:
        """Which moves rows to other partitions."""
        table = make(tmp_path).with_options({"hoodie.index.type": "GLOBAL_BLOOM"})
        LocalWriter(table).upsert(rows(1))
        moved = pa.table({"id": [1], "n": [5], "part": ["p0"]}, schema=SCHEMA)
        found = LocalWriter(table).together([FramePart(UPSERT, moved), FramePart(UPSERT, rows(2))])
        assert [each is None for each in found] == [False, True]
        assert stored(table) == {1: 5}

    def test_other_columns_are_another_kind(self) -> None:
        assert FramePart(UPSERT, rows(1)).kind == FramePart(UPSERT, rows(2)).kind
        assert FramePart(UPSERT, rows(1)).kind != FramePart(INSERT, rows(1)).kind
        assert FramePart(UPSERT, rows(1)).kind != FramePart(UPSERT, rows(1).drop_columns("n")).kind
        assert FramePart(UPSERT, iter(rows(1).to_batches())).kind is None
        assert FramePart(WriteOperation.BULK_INSERT, rows(1)).kind is None


class TestUnwritten:
    def changed(self, table: HudiTable) -> HudiTable:
        changes = updating("id = 1", 7)(table).drop_columns(PARTIAL)
        deleted = updating("id = 2", 0)(table).drop_columns([PARTIAL, DELETED])
        deleted = deleted.append_column(DELETED, pa.array([True]))
        return table.with_unwritten(Unwritten(pa.concat_tables([changes, deleted])))

    @KINDS
    def test_reads_of_the_snapshot_see_changes(self, tmp_path: Path, spec: dict[str, Any]) -> None:
        LocalWriter(table := make(tmp_path, **spec)).upsert(rows(1, 2, 3))
        table = self.changed(table.reload())
        assert sorted(
            read(table, ReadRequest(columns=("n", "id"))).to_arrow().to_pylist(), key=lambda row: row["id"]
        ) == [
            {"id": 1, "n": 7},
            {"id": 3, "n": 0},
        ]
        filtered = read(table, ReadRequest(columns=("id",), where="n > 5"))
        assert filtered.to_arrow()["id"].to_pylist() == [1]
        assert filtered.count() == 1
        assert read(table, ReadRequest(columns=("id",), limit=1)).to_arrow().num_rows == 1
        assert read(table.with_options({"hoodie.metadata.enable": "false"}), ReadRequest(columns=("id",))).count() == 2
        assert read(table.reload(), ReadRequest(columns=("id",))).count() == 3

    def test_what_is_not_known_yet_is_refused(self, tmp_path: Path) -> None:
        LocalWriter(table := make(tmp_path)).upsert(rows(1, 2))
        table = self.changed(table.reload())
        requests: list[dict[str, Any]] = [{}, {"query": "incremental", "columns": ("id",)}, {"as_of": "2020-01-01"}]
        for request in requests:
            with pytest.raises(UnwrittenRowsError):
                read(table, ReadRequest(**request)).to_arrow()
        with pytest.raises(TypeError, match="another process"):
            table.__reduce__()


class Recorded:
    """`together` and `alone` of a queue's calls, which note what was committed."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.turns = WriteTurns()
        self.fails: dict[str, BaseException] = {}
        self.waits: Callable[[], object] = lambda: None

    def result(self, name: str) -> Any:
        if name in self.fails:
            raise self.fails[name]
        return f"result of {name}"

    def alone(self, name: str) -> Any:
        self.groups.append([name])
        self.waits()
        return self.result(name)

    def together(self, parts: Sequence[Any]) -> list[Any]:
        self.groups.append([each.compute for each in parts])
        self.waits()
        if "joint" in self.fails:
            raise self.fails["joint"]
        return [self.result(each.compute) for each in parts]

    def take(self, name: str, *, joins: bool = True, owner: object = None) -> Any:
        part = RemovalPart(name) if joins else None  # type: ignore[arg-type]  # it is not computed here
        return self.turns.take(part, owner, lambda: self.alone(name), self.together)

    def queued(self, *names: str, **given: Any) -> list[Any]:
        """The outcomes of calls that come one after the other, while a first one commits."""
        started, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            self.waits = lambda: None
            started.set()
            assert go_on.wait(60)

        self.waits = wait
        with ThreadPoolExecutor(len(names) + 1) as pool:
            first = pool.submit(self.take, "first", joins=False)
            assert started.wait(60)
            futures = []
            for name in names:
                futures.append(pool.submit(self.take, name, **given.get(name, {})))
                while len(self.turns._waiting) < len(futures):
                    threading.Event().wait(0.001)
            go_on.set()
            first.result()
            return [future.exception() or future.result() for future in futures]


class TestTurns:
    def test_what_waits_is_one_commit(self) -> None:
        recorded = Recorded()
        assert recorded.queued("a", "b", "c") == ["result of a", "result of b", "result of c"]
        assert recorded.groups == [["first"], ["a", "b", "c"]]

    def test_others_keep_their_places(self) -> None:
        recorded = Recorded()
        recorded.queued("a", "b", "c", "d", b={"joins": False}, c={"owner": "other"})
        assert recorded.groups == [["first"], ["a", "d"], ["b"], ["c"]]

    def test_an_error_of_one_is_not_that_of_the_others(self) -> None:
        recorded = Recorded()
        recorded.fails = {"joint": InputError("one of them"), "b": InputError("b")}
        a, b, c = recorded.queued("a", "b", "c")
        assert (a, c) == ("result of a", "result of c")
        assert str(b) == "b"
        assert recorded.groups == [["first"], ["a", "b", "c"], ["a"], ["b"], ["c"]]

    @pytest.mark.parametrize("error", [StorageError("the disk is full"), CommitConflictError("another process")])
    def test_an_error_of_the_commit_is_that_of_all(self, error: Exception) -> None:
        recorded = Recorded()
        recorded.fails = {"joint": error}
        assert recorded.queued("a", "b") == [error, error]
        assert recorded.take("c") == "result of c"

    def test_those_without_an_outcome_come_next(self) -> None:
        recorded = Recorded()
        given = recorded.together

        def once(parts: Sequence[Any]) -> list[Any]:
            found = given(parts)
            return [None if len(parts) == 2 else found[0], *[None] * (len(parts) - 1)]

        recorded.together = once  # type: ignore[method-assign]
        assert recorded.queued("a", "b", "c") == ["result of a", "result of b", "result of c"]
        assert recorded.groups == [["first"], ["a", "b", "c"], ["b", "c"], ["b"], ["c"]]

    def test_an_interrupted_writer_leaves_no_call_waiting(self) -> None:
        recorded = Recorded()
        recorded.fails = {"joint": KeyboardInterrupt()}
        a, b = recorded.queued("a", "b")
        assert isinstance(a, KeyboardInterrupt)
        assert "interrupted" in str(b)
        del recorded.fails["joint"]
        assert recorded.take("c") == "result of c"

    def test_a_write_of_a_write_does_not_wait_for_itself(self) -> None:
        recorded = Recorded()
        recorded.waits = lambda: (setattr(recorded, "waits", lambda: None), recorded.take("inner"))
        assert recorded.take("outer") == "result of outer"
        assert recorded.groups == [["outer"], ["inner"]]

    def test_the_code_of_a_call_runs_in_its_context(self, tmp_path: Path) -> None:
        LocalWriter(table := make(tmp_path)).upsert(rows(1, 2))
        caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="none")
        seen = []

        def part(name: str) -> ChangePart:
            def compute(snapshot: HudiTable) -> pa.Table:
                seen.append(caller.get())
                return updating("id = 1", 1)(snapshot)

            caller.set(name)
            return ChangePart(compute)

        parts = [part("a"), part("b")]
        caller.set("the thread that commits")
        together(table, parts)
        assert seen == ["a", "b"]

    def test_a_table_has_one_queue_while_it_is_used(self) -> None:
        queue = turns_of("/a")
        assert turns_of("/a") is queue
        assert turns_of("/b") is not queue


def test_many_are_one_commit_for_the_storage(tmp_path: Path) -> None:
    """A joint commit costs what one costs."""
    LocalWriter(table := make(tmp_path)).upsert(rows(*range(20)))
    calls = []
    for count in (1, 10):
        storage = CountingStorage(LocalStorage(str(tmp_path)))
        writer = LocalWriter(HudiTable.open(storage))
        parts = [FramePart(UPSERT, rows(2 * at, n=count)) for at in range(count)]
        storage.calls.clear()
        assert len([each for each in writer.together(parts) if isinstance(each, WriteResult)]) == count
        calls.append(len([call for call in storage.calls if call.method.startswith(("write", "create", "sync"))]))
    assert calls[0] == calls[1]
    assert stored(table)[18] == 10
