"""Which of two writes at the same time fails, by strategy; what the one that failed may do about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, OptionError, TableMismatchError
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.plans import ClusteringGroup, ClusteringPlan, RequestedReplaceMetadata, SliceInfo
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.commit.concurrency.conflict import strategy_of
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import Heartbeat
from skep_table.commit.transaction import Transaction
from skep_table.events import Event, Events
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
STRATEGY = "hoodie.write.lock.conflict.resolution.strategy"
SHARED: dict[str, object] = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
RETRIES = "hoodie.write.num.retries.on.conflict.failures"


class CountingStorage(LocalStorage):
    """Remembers which base files were written."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.written: list[str] = []

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        if path.endswith(".parquet"):
            self.written.append(path)
        with super().open_write(path) as file:
            yield file


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(made).bulk_insert(pa.concat_tables([rows(["a", "b"]), rows(["c"], part="q")]))
    return made.reload()


def all_rows(table: HudiTable) -> list[dict[str, Any]]:
    return read(table.reload(), ReadRequest()).to_arrow().to_pylist()


def content(table: HudiTable) -> dict[str, tuple[str, int]]:
    found = read(table.reload(), ReadRequest()).to_arrow()
    assert len(found) == len(set(found["id"].to_pylist())), "a key twice"
    return {row["id"]: (row["part"], row["ts"]) for row in found.to_pylist()}


def during(options: dict[str, object], meanwhile: Callable[[], Any], **more: Any) -> dict[str, Any]:
    """A write with these settings, just before whose completion something else happens, the first time."""
    waiting = [meanwhile]

    listener = Events(lambda event: waiting.pop()() if event.name == "write.commit.start" and waiting else None)
    return {"options": Options(options), "events": listener, **more}


def upsert(table: HudiTable, rows: pa.Table, **options: object) -> Any:
    return LocalWriter(table.with_context(options=Options(options))).upsert(rows)


def test_the_same_group(table: HudiTable, rows: Rows) -> None:
    setting = during({}, lambda: upsert(table, rows(["b"], ts=5)))
    with pytest.raises(CommitConflictError, match="changed 1 of the file groups of this write first") as caught:
        LocalWriter(table.with_context(**setting)).upsert(rows(["a"], ts=2))
    assert caught.value.fields["groups"]
    assert content(table) == {"a": ("p", 1), "b": ("p", 5), "c": ("q", 1)}


def test_other_groups_get_along(table: HudiTable, rows: Rows) -> None:
    LocalWriter(table.with_context(**during({}, lambda: upsert(table, rows(["c"], ts=5, part="q"))))).upsert(
        rows(["a"], ts=2)
    )
    assert content(table) == {"a": ("p", 2), "b": ("p", 1), "c": ("q", 5)}


def test_one_bucket_in_two_new_groups_collides_by_its_number(table: HudiTable) -> None:
    ours, theirs = (
        CommitMetadata(
            partition_to_write_stats={"p": (WriteStat(file_id=f"00000007-{who}-0", path="", partition_path="p"),)}
        )
        for who in ("ours", "theirs")
    )
    for options, collides in (({}, False), ({STRATEGY: "bucket"}, True), ({"hoodie.index.type": "BUCKET"}, True)):
        with Transaction.begin(table.with_context(options=Options(options)), Action.COMMIT) as one:
            one.inflight(ours)
            with Transaction.begin(table, Action.COMMIT) as other:
                other.inflight(theirs)
                other.complete(theirs)
            if collides:
                with pytest.raises(CommitConflictError):
                    one.complete(ours)
            else:
                one.complete(ours)


class TestBuckets:
    """A table whose groups are buckets has one group for each, for every writer and all options."""

    INDEX: ClassVar[dict[str, object]] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}

    @pytest.fixture(params=["recorded at creation", "recorded by the first write"])
    def table(self, request: pytest.FixtureRequest, tmp_path: Path, rows: Rows) -> HudiTable:
        at_once = request.param == "recorded at creation"
        spec = TableSpec(
            name="t",
            schema=rows([]).schema,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            properties={key: str(value) for key, value in self.INDEX.items()} if at_once else {},
        )
        made = create_table(LocalStorage(str(tmp_path / "t")), spec)
        if not at_once:
            upsert(made, rows(["x"], part="other"), **self.INDEX)
        return made.reload()

    @pytest.mark.parametrize("strategy", ["", "simple", "prefer_writer", "bucket", "strict"])
    def test_two_first_groups_of_one_bucket_collide(self, strategy: str, table: HudiTable, rows: Rows) -> None:
        options = {STRATEGY: strategy} if strategy else {}
        with pytest.raises(CommitConflictError, match="00000000"):
            LocalWriter(table.with_context(**during(options, lambda: upsert(table, rows(["b"]))))).upsert(rows(["a"]))
        upsert(table, rows(["a", "c"]))
        assert {"a", "b", "c"} <= content(table).keys()
        assert len(table.reload().view().file_groups("p")) == 1

    def test_the_one_that_lost_writes_on_in_the_group_of_the_other(self, table: HudiTable, rows: Rows) -> None:
        LocalWriter(table.with_context(**during({RETRIES: 1}, lambda: upsert(table, rows(["b"]))))).upsert(rows(["a"]))
        assert {"a", "b"} <= content(table).keys()
        assert len(table.reload().view().file_groups("p")) == 1

    def test_first_writers_with_other_numbers_of_buckets(self, tmp_path: Path, rows: Rows) -> None:
        spec = TableSpec(name="n", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
        made = create_table(LocalStorage(str(tmp_path / "n")), spec)
        waiting = [lambda: upsert(made, rows(["b"]), **self.INDEX)]
        listener = Events(lambda event: waiting.pop()() if event.name == "write.tag.start" and waiting else None)
        other = {**self.INDEX, "hoodie.bucket.index.num.buckets": 2}
        with pytest.raises(TableMismatchError, match=r"num\.buckets=1, not 2"):
            LocalWriter(made.with_context(options=Options(other), events=listener)).upsert(rows(["a"]))
        assert content(made).keys() == {"b"}


class TestNewKeys:
    """Both found a key nowhere, and both insert it: each into a group of its own."""

    def test_an_upsert_loses(self, table: HudiTable, rows: Rows) -> None:
        setting = during({}, lambda: upsert(table, rows(["x", "new"], part="r", ts=3)))
        with pytest.raises(CommitConflictError, match=r"inserted keys that this write inserts, too \(new\)"):
            LocalWriter(table.with_context(**setting)).upsert(rows(["new", "y"], part="r", ts=2))
        assert content(table)["new"] == ("r", 3)

    def test_other_keys_of_the_same_range_get_along(self, table: HudiTable, rows: Rows) -> None:
        small = {"hoodie.parquet.small.file.limit": 0}
        setting = during(small, lambda: upsert(table, rows(["d", "f"], part="r"), **small))
        LocalWriter(table.with_context(**setting)).upsert(rows(["dd", "e", "g"], part="r"))
        assert {"d", "dd", "e", "f", "g"} <= set(content(table))

    def test_rows_that_lay_in_the_files_before_do_not_count(self, table: HudiTable, rows: Rows) -> None:
        """Both take up rows of their group again when they rewrite it; only what they wrote themselves is compared."""
        upsert(table, rows(["k"], part="r"), **{"hoodie.parquet.small.file.limit": 0})
        setting = during({}, lambda: upsert(table, rows(["d"], part="r"), **{"hoodie.parquet.small.file.limit": 0}))
        LocalWriter(table.with_context(**setting)).upsert(rows(["k", "e"], part="r", ts=4))
        assert content(table)["k"] == ("r", 4)

    @pytest.mark.parametrize("strategy", ["simple", "strict"])
    def test_inserts_may_double_a_key_unless_one_is_strict(self, strategy: str, table: HudiTable, rows: Rows) -> None:
        """As Hudi's documents state for several writers: an insert may duplicate."""
        small = {"hoodie.parquet.small.file.limit": 0, STRATEGY: strategy}
        writer = LocalWriter(
            table.with_context(**during(small, lambda: LocalWriter(table).insert(rows(["new"], part="r"))))
        )
        if strategy == "strict":
            with pytest.raises(CommitConflictError, match="inserted keys"):
                writer.insert(rows(["new"], part="r"))
        else:
            writer.insert(rows(["new"], part="r"))
            found = read(table.reload(), ReadRequest()).to_arrow()
            assert found["id"].to_pylist().count("new") == 2


KEPT_INDEX = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 4}
INDEXES: dict[str, dict[str, Any]] = {
    "files": {"hoodie.index.type": "BLOOM"},
    "all files": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "memory": {"hoodie.index.type": "INMEMORY"},
    "record index": {"hoodie.index.type": "RECORD_INDEX", **KEPT_INDEX},
    "buckets": BUCKETS,
    "rings": {**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
    "non-blocking": {**BUCKETS, "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
}
BESIDE = [
    *((index, index, "same") for index in INDEXES),
    ("files", "memory", "same"),
    ("memory", "files", "same"),
    *((index, index, "other") for index in ("all files", "memory", "record index")),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize(
    ("version", "index", "of_other", "part"),
    [(version, *case) for version in (6, 9) for case in BESIDE if (version, case[0]) != (6, "non-blocking")],
)
def test_a_new_key_of_two_writers_is_one_row_or_a_conflict(
    version: int, index: str, of_other: str, part: str, filled: bool, tmp_path: Path, rows: Rows
) -> None:
    """Whether their rows go to base files or to logs, of new groups or others; to another partition, where keys are
    unique in the table."""
    spec = TableSpec(name="n", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    mor = replace(spec, type=TableType.MERGE_ON_READ, version=version)
    made = create_table(LocalStorage(str(tmp_path / "n")), mor)
    if filled:
        upsert(made, rows(["a", "b"]), **INDEXES[index])
    own, other = ({"hoodie.parquet.small.file.limit": 0, **INDEXES[of]} for of in (index, of_other))
    theirs = rows(["new", "x"], ts=3, part="p" if part == "same" else "q")
    writer = LocalWriter(made.reload().with_context(**during(own, lambda: upsert(made, theirs, **other))))
    conflicts = None if index == "non-blocking" else pytest.raises(CommitConflictError)
    with conflicts or nullcontext():
        writer.upsert(rows(["new", "y"], ts=2))
    assert content(made)["new"] == (theirs["part"][0].as_py(), 3)


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_new_keys_that_flink_states_as_updates(tmp_path: Path, rows: Rows) -> None:
    spec = TableSpec(name="n", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    made = create_table(LocalStorage(str(tmp_path / "n")), replace(spec, type=TableType.MERGE_ON_READ))

    def flink() -> None:
        result = upsert(made, rows(["new"], ts=3), **INDEXES["memory"])
        (stat,) = result.metadata.stats
        stated = replace(
            result.metadata, partition_to_write_stats={"p": (replace(stat, num_update_writes=1, num_inserts=0),)}
        )
        planned = made.layout.path(replace(result.instant, state=State.INFLIGHT, completion_time=None))
        made.storage.replace_atomic(planned, b"")
        made.storage.replace_atomic(made.layout.path(result.instant), made.layout.encode_commit(stated))

    with pytest.raises(CommitConflictError, match=r"inserted keys that this write inserts, too \(new\)"):
        LocalWriter(made.with_context(**during({}, flink))).upsert(rows(["new"], ts=2))
    assert content(made)["new"] == ("p", 3)


class TestStrict:
    def test_a_partition_dropped_under_a_writer(self, table: HudiTable, rows: Rows) -> None:
        def drop() -> None:
            LocalWriter(table).delete_partitions(["q"])

        small = {"hoodie.parquet.small.file.limit": 0}
        with pytest.raises(CommitConflictError, match="changed 1 partitions as a whole"):
            LocalWriter(table.with_context(**during({STRATEGY: "strict", **small}, drop))).insert(rows(["n"], part="q"))
        assert set(content(table)) == {"a", "b"}

    def test_two_overwrites_of_an_empty_partition(self, table: HudiTable, rows: Rows) -> None:
        setting = during({STRATEGY: "strict"}, lambda: LocalWriter(table).insert_overwrite(rows(["m"], part="z")))
        with pytest.raises(CommitConflictError):
            LocalWriter(table.with_context(**setting)).insert_overwrite(rows(["n"], part="z"))
        assert set(content(table)) == {"a", "b", "c", "m"}


def plan_clustering(table: HudiTable, partition: str, time: str = "20390101000000000") -> Instant:
    group = table.view().slices(partition)[0]
    assert group.base_file is not None
    slice_ = SliceInfo(data_file_path=group.base_file.path, file_id=group.file_id, partition_path=partition)
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=(slice_,)),))
    content = RequestedReplaceMetadata(operation_type="CLUSTER", clustering_plan=plan)
    return create_requested(table, Instant(InstantTime(time), Action.REPLACE_COMMIT, State.REQUESTED), content)


class TestServices:
    @pytest.mark.parametrize(("strategy", "loses"), [("simple", True), ("prefer_writer", False)])
    def test_a_clustering_planned_meanwhile(self, strategy: str, loses: bool, table: HudiTable, rows: Rows) -> None:
        setting = during({STRATEGY: strategy}, lambda: plan_clustering(table.reload(), "p"))
        writer = LocalWriter(table.with_context(**setting))
        if loses:
            with pytest.raises(CommitConflictError, match="is going to change 1 of the file groups"):
                writer.upsert(rows(["a"], ts=2))
        else:
            writer.upsert(rows(["a"], ts=2))

    def test_a_preferred_writer_that_still_runs_defeats_a_clustering(self, table: HudiTable) -> None:
        group = table.view().slices("p")[0].file_id
        written = CommitMetadata(
            partition_to_write_stats={"p": (WriteStat(file_id=group, path="", partition_path="p"),)}
        )
        ours = CommitMetadata(operation_type=WriteOperation.CLUSTER, partition_to_replace_file_ids={"p": (group,)})
        for strategy, loses in (("simple", False), ("prefer_writer", True)):
            setting = {"options": Options({STRATEGY: strategy})}
            with Transaction.begin(table, Action.COMMIT) as running:
                running.inflight(written)
                with Transaction.begin(table.with_context(**setting), Action.REPLACE_COMMIT) as clustering:
                    clustering.inflight(ours)
                    if loses:
                        with pytest.raises(CommitConflictError, match="is going to change"):
                            clustering.complete(ours)
                    clustering.abort(None)


class TestEarly:
    ON = {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}  # noqa: RUF012

    def test_the_later_one_gives_way_before_it_writes_a_file(self, table: HudiTable, rows: Rows) -> None:
        group = table.view().slices("p")[0].file_id
        written = CommitMetadata(
            partition_to_write_stats={"p": (WriteStat(file_id=group, path="", partition_path="p"),)}
        )
        with Transaction.begin(table, Action.COMMIT) as running:
            running.inflight(written)
            files = sorted(Path(table.storage.root).rglob("*.parquet"))
            with pytest.raises(CommitConflictError, match="is writing 1 of the file groups"):
                upsert(table, rows(["a"], ts=2), **self.ON)
            assert sorted(Path(table.storage.root).rglob("*.parquet")) == files
            upsert(table, rows(["c"], ts=2, part="q"), **self.ON)
            running.complete(CommitMetadata())

    def test_a_jvm_writer_is_seen_by_its_markers(self, table: HudiTable, rows: Rows) -> None:
        base = table.view().slices("p")[0].base_file
        assert base is not None
        heart = Heartbeat(table.context)
        time = str(int(table.timeline.instants[-1].requested_time) + 1)
        heart.announce(time)
        requested = create_requested(table, Instant(InstantTime(time), Action.COMMIT, State.REQUESTED))
        transition_to_inflight(table, requested)
        name = base.path.rpartition("/")[2]
        table.storage.create_exclusive(f".hoodie/.temp/{time}/p/{name}.marker.MERGE", b"")
        with pytest.raises(CommitConflictError, match=time):
            upsert(table, rows(["a"], ts=2), **self.ON)
        complete(table, requested, CommitMetadata())
        heart.stop()


class TestRetries:
    def test_a_write_that_lost_comes_after_the_other(self, table: HudiTable, rows: Rows) -> None:
        events: list[Event] = []
        setting = during({RETRIES: 2}, lambda: upsert(table, rows(["a", "n"], ts=5)))
        setting["events"].listen(events.append)
        result = LocalWriter(table.with_context(**setting)).upsert(rows(["a", "b", "n"], ts=3))
        assert content(table) == {"a": ("p", 5), "b": ("p", 3), "n": ("p", 5), "c": ("q", 1)}
        assert [event.facts["tries"] for event in events if event.name == "write.retried"] == [1]
        assert result.inserted == 0

    def test_as_often_as_the_options_allow(self, table: HudiTable, rows: Rows) -> None:
        def always(ending: Any) -> None:
            raise CommitConflictError("again")

        tries: list[Event] = []
        setting = {
            "options": Options({RETRIES: 2}),
            "conflict_check": always,
            "events": Events(lambda event: tries.append(event) if event.name == "write.retried" else None),
        }
        with pytest.raises(CommitConflictError, match="again"):
            LocalWriter(table.with_context(**setting)).upsert(rows(["a"]))
        assert len(tries) == 2

    def beside_an_earlier_one(
        self, table: HudiTable, theirs: pa.Table, ours: pa.Table, listener: Callable[[Event], None]
    ) -> Any:
        """A write that began earlier completes while ours is about to."""
        at_its_end, go = threading.Event(), threading.Event()

        def waits(event: Event) -> None:
            if event.name == "write.commit.start":
                at_its_end.set()
                assert go.wait(60)

        setting = {"events": Events(waits)}
        earlier = threading.Thread(target=LocalWriter(table.with_context(**setting)).upsert, args=(theirs,))
        earlier.start()
        assert at_its_end.wait(60)

        def meanwhile() -> None:
            go.set()
            earlier.join(60)

        setting = during({RETRIES: 2}, meanwhile)
        setting["events"].listen(listener)
        return LocalWriter(table.with_context(**setting)).upsert(ours)

    def test_only_what_the_other_one_changed_is_written_again(self, tmp_path: Path, rows: Rows) -> None:
        storage = CountingStorage(str(tmp_path / "t"))
        spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
        table = create_table(storage, spec)
        small = {"hoodie.parquet.small.file.limit": 0}
        for key, part in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "r")):
            upsert(table, rows([key], part=part), **small)  # a group for each
        storage.written.clear()
        retried: list[Event] = []
        ours = [rows(["a", "b"], ts=3), rows(["c"], ts=3, part="q"), rows(["d"], ts=3, part="r")]
        listener = lambda event: retried.append(event) if event.name == "write.retried" else None  # noqa: E731
        result = self.beside_an_earlier_one(table, rows(["a"], ts=9), pa.concat_tables(ours), listener)
        mine = [path for path in storage.written if result.instant.requested_time in path]
        assert len(mine) == 5, "four groups, and the one that the other writer changed once more"
        assert [event.facts["kept"] for event in retried] == [3]
        assert content(table) == {"a": ("p", 9), "b": ("p", 3), "c": ("q", 3), "d": ("r", 3)}
        left = {file.relative_to(storage.root).as_posix() for file in Path(storage.root).rglob("*.parquet")}
        ours_left = {path for path in left if result.instant.requested_time in path}
        assert ours_left == {stat.path for stat in result.metadata.stats}

    def test_new_keys_of_a_partition_where_the_other_one_wrote_are_looked_up_again(
        self, table: HudiTable, rows: Rows
    ) -> None:
        before = content(table)
        ours = pa.concat_tables([rows(["n", "m"], ts=3), rows(["x"], ts=3, part="z")])
        tries: list[Event] = []
        listener = lambda event: tries.append(event) if event.name == "write.retried" else None  # noqa: E731
        result = self.beside_an_earlier_one(table, rows(["n"], ts=9), ours, listener)
        assert [event.facts["kept"] for event in tries] == [1], "the new partition"
        assert content(table) == {**before, "n": ("p", 9), "m": ("p", 3), "x": ("z", 3)}
        assert result.inserted == 2

    def test_rows_of_a_reader_are_there_for_a_second_try(self, table: HudiTable, rows: Rows) -> None:
        setting = during({RETRIES: 1}, lambda: upsert(table, rows(["a"], ts=5)))
        LocalWriter(table.with_context(**setting)).upsert(rows(["b"], ts=9).to_reader())
        assert content(table)["b"] == ("p", 9)


class TestColumns:
    FILLED = {"hoodie.write.set.null.for.missing.columns": "true"}  # noqa: RUF012

    def test_a_column_that_came_meanwhile_stays(self, table: HudiTable, rows: Rows) -> None:
        """The other one began earlier, and completes first."""
        result = upsert(table, rows(["c"], ts=5, part="q", extra=["x"]))
        earlier = Transaction.begin(table, Action.COMMIT)
        setting = during({**self.FILLED}, lambda: earlier.complete(result.metadata))
        earlier.inflight(CommitMetadata())
        LocalWriter(table.with_context(**setting)).upsert(rows(["a"], ts=2, other=[7]))
        assert table.reload().schema().names() == ("id", "part", "ts", "extra", "other")

    def test_a_column_that_readers_would_not_see(self, table: HudiTable, rows: Rows) -> None:
        """The newest instant determines the columns: a write that adds some has to be the newest."""
        meanwhile = lambda: upsert(table, rows(["c"], ts=5, part="q", extra=["x"]))  # noqa: E731
        with pytest.raises(CommitConflictError, match="began later and completed first"):
            LocalWriter(table.with_context(**during({**self.FILLED}, meanwhile))).upsert(rows(["a"], ts=2, other=[7]))
        LocalWriter(
            table.with_context(
                **during({RETRIES: 1, **self.FILLED}, lambda: upsert(table, rows(["c"], ts=6, part="q"), **self.FILLED))
            )
        ).upsert(rows(["a"], ts=2, other=[7]))
        assert table.reload().schema().names() == ("id", "part", "ts", "extra", "other")
        found = {row["id"]: (row["extra"], row["other"]) for row in all_rows(table)}
        assert found == {"a": (None, 7), "b": (None, None), "c": (None, None)}

    def test_one_type_against_another(self, table: HudiTable, rows: Rows) -> None:
        setting = during({**self.FILLED}, lambda: upsert(table, rows(["c"], part="q", extra=[b"x"])))
        with pytest.raises(CommitConflictError, match="column extra"):
            LocalWriter(table.with_context(**setting)).upsert(rows(["a"], ts=2, extra=[7]))
        assert table.reload().schema().names() == ("id", "part", "ts", "extra")

    def test_a_rewrite_keeps_columns_that_came_after_it_was_planned(self, table: HudiTable, rows: Rows) -> None:
        """The other one completed between the plan and the instant of this write, in the very group that it merges."""
        other = [lambda: upsert(table, rows(["b"], ts=5, extra=["x"]))]

        class Lock:
            leased = False

            def acquire(self, timeout_seconds: float) -> str:
                if other:
                    other.pop()()
                return "id"

            def release(self) -> None: ...

            def ensure_held(self) -> None: ...

        LocalWriter(table.with_context(lock=Lock(), options=Options(self.FILLED))).upsert(rows(["a"], ts=2))
        found = {row["id"]: row["extra"] for row in all_rows(table)}
        assert found == {"a": None, "b": "x", "c": None}


@pytest.mark.parametrize(
    ("named", "function"),
    [
        ("org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy", "simple"),
        ("org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy", "prefer_writer"),
        ("org.apache.hudi.client.transaction.BucketIndexConcurrentFileWritesConflictResolutionStrategy", "bucket"),
        ("strict", "strict"),
        ("", "simple"),
    ],
)
def test_strategies_by_their_names(named: str, function: str) -> None:
    assert strategy_of(Options({STRATEGY: named})).__name__ == function
    with pytest.raises(OptionError, match="there are simple, prefer_writer, bucket, strict"):
        strategy_of(Options({STRATEGY: "no.such.Class"}))


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
class TestCompactionOfLogsByTheirCommits:
    """A log file belongs to the slice on which its delta commit completes: a compaction takes none from a write."""

    @pytest.fixture
    def table(self, tmp_path: object, rows: Rows) -> HudiTable:
        spec = TableSpec(
            name="t",
            schema=rows([]).schema,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=TableType.MERGE_ON_READ,
        )
        made = create_table(LocalStorage(f"{tmp_path}/mor"), spec)
        for ts in (1, 2):
            upsert(made, rows(["a", "b"], ts=ts))
        return made.reload()

    @pytest.mark.parametrize("strategy", ["simple", "prefer_writer", "bucket", "strict"])
    @pytest.mark.parametrize("service", [compact, schedule_compaction], ids=["carried out", "planned"])
    def test_does_not_conflict(
        self, service: Callable[[HudiTable], Any], strategy: str, table: HudiTable, rows: Rows
    ) -> None:
        setting = during({**SHARED, STRATEGY: strategy}, lambda: service(table.reload()))
        LocalWriter(table.with_context(**setting)).upsert(rows(["a"], ts=3))
        assert content(table) == {"a": ("p", 3), "b": ("p", 2)}
        execute_pending_compactions(table.reload())
        assert content(table) == {"a": ("p", 3), "b": ("p", 2)}

    def test_of_two_writes_one_loses(self, table: HudiTable, rows: Rows) -> None:
        """Beside a compaction as without one."""

        def meanwhile() -> None:
            compact(table.reload())
            upsert(table, rows(["a"], ts=5))

        with pytest.raises(CommitConflictError):
            LocalWriter(table.with_context(**during(SHARED, meanwhile))).upsert(rows(["a"], ts=3))
        assert content(table) == {"a": ("p", 5), "b": ("p", 2)}


def since(table: HudiTable, instant: str) -> set[str]:
    found = read(table.reload(), ReadRequest(query="incremental", since=instant)).to_arrow()
    return set(found["id"].to_pylist())


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_an_incremental_pull_by_completion_times_misses_nothing(table: HudiTable, rows: Rows) -> None:
    """A write that began before another one and completed after it is pulled after it."""
    last = str(table.timeline.instants[-1].completion_time)
    read_until: list[str] = []

    def meanwhile() -> None:
        result = upsert(table, rows(["n"], part="z"))
        assert since(table, last) == {"n"}
        read_until.append(str(result.instant.completion_time))

    late = LocalWriter(table.with_context(**during({}, meanwhile))).upsert(rows(["m"], part="y")).instant
    assert late.requested_time < read_until[0] < str(late.completion_time)
    assert since(table, read_until[0]) == {"m"}


@pytest.mark.parametrize("table_version", [6], indirect=True)
class TestIncrementalPull:
    """By instant times, as table version 6 has it, which are the times of the beginnings."""

    def test_of_one_writer_it_misses_nothing(self, table: HudiTable, rows: Rows) -> None:
        seen: set[str] = set()
        last = table.timeline.instants[-1].requested_time
        for key in ("k", "l", "m"):
            result = upsert(table, rows([key], part=key))
            seen |= since(table, last)
            last = result.instant.requested_time
        assert seen == {"k", "l", "m"}

    def test_of_several_it_misses_a_write_that_began_before_and_completed_after(
        self, table: HudiTable, rows: Rows
    ) -> None:
        first = table.timeline.instants[-1].requested_time
        read_until: list[str] = []

        def meanwhile() -> None:
            result = upsert(table, rows(["n"], part="z"))
            assert since(table, first) == {"n"}
            read_until.append(result.instant.requested_time)

        late = LocalWriter(table.with_context(**during({}, meanwhile))).upsert(rows(["m"], part="y"))
        assert late.instant.requested_time < read_until[0]
        assert since(table, read_until[0]) == set()
        assert since(table, first) == {"m", "n"}
