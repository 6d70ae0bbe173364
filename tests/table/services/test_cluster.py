"""Clustering: what is planned, what comes out, and what becomes of a plan beside active writers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import CommitConflictError, OptionError, SchemaError, UnsupportedError
from skep_format.timeline.instant import Action, State
from skep_format.timeline.plans import RequestedReplaceMetadata
from skep_table import plug_ins
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import (
    cluster,
    execute_clustering,
    execute_pending_clusterings,
    pending_clusterings,
    schedule_clustering,
)
from skep_table.services.clustering.plan import commits_since_clustering, plan_clustering
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.write.local import LocalWriter

PLAN = "clustering__plan__strategy__"
SORTED = {f"{PLAN}sort__columns": "ts,id"}
META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]


def fill(maker: Any, commits: int = 3, rows: int = 6, parts: str = "pq") -> None:
    """Commits that leave one new file a partition each: values in no order."""
    for commit in range(commits):
        count = rows * len(parts)
        columns = [
            [f"{commit}-{row}" for row in range(count)],
            [parts[row % len(parts)] for row in range(count)],
            [(row * 7 + commit * 3) % 11 for row in range(count)],
        ]
        frame = pa.table(columns, schema=pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())]))
        LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(frame)


def meta_rows(maker: Any) -> list[tuple[Any, ...]]:
    table = read(maker.table, ReadRequest(columns=(*META, "id", "ts"))).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def files_of(maker: Any, part: str) -> list[Path]:
    return [maker.folder / slice_.base_file.path for slice_ in maker.table.view().slices(part)]


def groups(plan: RequestedReplaceMetadata | None) -> list[list[str]]:
    """Partition paths of the slices, group by group."""
    found = plan.clustering_plan.input_groups if plan and plan.clustering_plan else ()
    return [[slice_.partition_path or "" for slice_ in group.slices] for group in found]


def test_small_files_become_one_and_rows_keep_what_they_are(maker: Any) -> None:
    fill(maker)
    before = meta_rows(maker)
    (done,) = cluster(maker.table.with_context(**maker.setting(**SORTED)))
    assert meta_rows(maker) == before
    assert done.replaced == 6
    assert {part: len(files_of(maker, part)) for part in "pq"} == {"p": 1, "q": 1}
    for part in "pq":
        (file,) = files_of(maker, part)
        rows = pq.read_table(file).to_pylist()
        assert [(row["ts"], row["id"]) for row in rows] == sorted((row["ts"], row["id"]) for row in rows)
        assert {row["_hoodie_file_name"] for row in rows} == {file.name}
    metadata = maker.table.commit_metadata(done.instant)
    assert metadata.operation_type.value == "CLUSTER"
    assert {stat.prev_commit for stat in metadata.stats} == {"null"}
    assert {name: len(ids) for name, ids in metadata.partition_to_replace_file_ids.items()} == {"p": 3, "q": 3}


def test_what_was_read_before_is_read_after(maker: Any) -> None:
    fill(maker)
    commits = [instant.requested_time for instant in maker.table.timeline.data()]
    asked: list[dict[str, Any]] = [{"as_of": time} for time in commits]
    asked += [{"query": "incremental", "since": time} for time in ("000", *commits)]
    before = [maker.rows(**how) for how in asked]
    cluster(maker.table.with_context(**maker.setting(**SORTED)))
    assert [maker.rows(**how) for how in asked] == before


def test_a_second_clustering_finds_nothing(maker: Any) -> None:
    fill(maker)
    assert len(cluster(maker.table.with_context(**maker.setting(**SORTED)))) == 1
    assert cluster(maker.table.with_context(**maker.setting(**SORTED))) == []
    assert cluster(maker.table.with_context(**maker.setting())) == []
    assert len(cluster(maker.table.with_context(**maker.setting(**{f"{PLAN}sort__columns": "id"})))) == 1


def test_single_files_are_left_alone_without_an_order(maker: Any) -> None:
    fill(maker, commits=1)
    assert cluster(maker.table.with_context(**maker.setting())) == []
    again = maker.setting(**{f"{PLAN}single__group__clustering__enabled": True})
    assert len(cluster(maker.table.with_context(**again))) == 1


def test_groups_take_small_files_up_to_the_limit(maker: Any) -> None:
    fill(maker, commits=4, parts="p")
    size = max(file.stat().st_size for file in files_of(maker, "p"))
    limits = {f"{PLAN}max__bytes__per__group": 2 * size + 1, f"{PLAN}target__file__max__bytes": size}
    plan = plan_clustering(maker.table.with_context(**maker.setting(**SORTED, **limits)))
    assert groups(plan) == [["p"] * 2, ["p"] * 2]
    assert [group.num_output_file_groups for group in plan.clustering_plan.input_groups] == [2, 2]
    few = plan_clustering(
        maker.table.with_context(**maker.setting(**SORTED, **limits, **{f"{PLAN}max__num__groups": 1}))
    )
    assert groups(few) == [["p"] * 2]
    assert (
        plan_clustering(maker.table.with_context(**maker.setting(**SORTED, **{f"{PLAN}small__file__limit": 10})))
        is None
    )
    cluster(maker.table.with_context(**maker.setting(**SORTED, **limits)))
    assert [pq.read_metadata(file).num_rows for file in files_of(maker, "p")] == [6, 6, 6, 6]


def test_rows_come_out_evenly_and_in_order_from_more_than_memory_holds(maker: Any) -> None:
    fill(maker, commits=3, rows=500, parts="p")
    size = sum(file.stat().st_size for file in files_of(maker, "p"))
    before = meta_rows(maker)
    options = {**SORTED, f"{PLAN}target__file__max__bytes": size // 2 + 1, "memory__merge__max__size": 20_000}
    cluster(maker.table.with_context(**maker.setting(**options)))
    assert meta_rows(maker) == before
    tables = [pq.read_table(file).to_pylist() for file in files_of(maker, "p")]
    assert sorted(map(len, tables)) == [750, 750]
    keys = [[(row["ts"], row["id"]) for row in rows] for rows in tables]
    assert all(part == sorted(part) for part in keys)
    first, second = sorted(keys)
    assert first[-1] < second[0]


@pytest.mark.parametrize("curve", ["z-order", "hilbert"])
def test_along_a_curve_both_columns_of_a_file_span_less(maker: Any, curve: str) -> None:
    columns = [
        [f"{x}-{y}" for x in range(16) for y in range(16)],
        ["p"] * 256,
        [y for _ in range(16) for y in range(16)],
    ]
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
    LocalWriter(maker.table.with_context(**maker.setting())).bulk_insert(pa.table(columns, schema=schema))
    size = files_of(maker, "p")[0].stat().st_size
    options = {f"{PLAN}sort__columns": "ts,id", f"{PLAN}target__file__max__bytes": size // 4 + 1}
    cluster(maker.table.with_context(**maker.setting(**options, layout__optimize__strategy=curve)))
    spans = []
    for file in files_of(maker, "p"):
        rows = pq.read_table(file).to_pylist()
        spans.append((max(r["ts"] for r in rows) - min(r["ts"] for r in rows), len({r["id"][:2] for r in rows})))
    assert len(spans) == 4
    assert all(ts <= 8 and ids <= 12 for ts, ids in spans), spans


def test_partitions_are_chosen(maker: Any) -> None:
    fill(maker, parts="abcd")

    def chosen(**options: Any) -> list[str]:
        plan = plan_clustering(maker.table.with_context(**maker.setting(**options)))
        return [names[0] for names in groups(plan)]

    recent = "org.apache.hudi.client.clustering.plan.strategy.SparkRecentDaysClusteringPlanStrategy"
    assert chosen() == ["a", "b", "c", "d"]
    assert chosen(**{f"{PLAN}class": recent}) == ["d", "c"]
    assert chosen(clustering__plan__partition__filter__mode="RECENT_DAYS") == ["d", "c"]
    days = {f"{PLAN}daybased__lookback__partitions": 1, f"{PLAN}daybased__skipfromlatest__partitions": 1}
    assert chosen(clustering__plan__partition__filter__mode="RECENT_DAYS", **days) == ["c"]
    ends = {f"{PLAN}cluster__begin__partition": "b", f"{PLAN}cluster__end__partition": "c"}
    assert chosen(**{f"{PLAN}class": "SelectedPartitionsClusteringPlanStrategy"}, **ends) == ["b", "c"]
    assert chosen(**{f"{PLAN}partition__regex__pattern": "[ad]"}) == ["a", "d"]
    assert chosen(**{f"{PLAN}partition__selected": "d,a"}) == ["a", "d"]
    with pytest.raises(OptionError, match=r"cluster\.begin\.partition"):
        chosen(clustering__plan__partition__filter__mode="SELECTED_PARTITIONS")
    with pytest.raises(OptionError, match="unterminated"):
        chosen(**{f"{PLAN}partition__regex__pattern": "[a"})
    with pytest.raises(OptionError, match="there is no strategy"):
        chosen(**{f"{PLAN}class": "com.example.Mine"})


def test_sort_columns_are_checked_by_name(maker: Any) -> None:
    fill(maker)
    with pytest.raises(SchemaError, match="sort column nope is not there"):
        schedule_clustering(maker.table.with_context(**maker.setting(**{f"{PLAN}sort__columns": "ts,nope"})))
    assert len(maker.table.timeline.pending()) == 0


def test_a_bucket_index_keeps_its_file_groups(maker: Any) -> None:
    fill(maker)
    with (maker.folder / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write("hoodie.index.type=BUCKET\n")
    with pytest.raises(UnsupportedError, match="bucket index"):
        schedule_clustering(maker.table.with_context(**maker.setting()))


def test_a_planned_slice_is_not_planned_again_nor_written_to(maker: Any) -> None:
    fill(maker)
    assert schedule_clustering(maker.table.with_context(**maker.setting(**SORTED))) is not None
    assert schedule_clustering(maker.table.with_context(**maker.setting(**SORTED))) is None
    with pytest.raises(CommitConflictError, match="pending clustering"):
        maker.upsert(99, "p/0-0")
    maker.upsert(99, "p/new", "r/other")
    before = maker.rows()
    assert len(execute_pending_clusterings(maker.table.with_context(**maker.setting()))) == 1
    assert maker.rows() == before
    maker.upsert(100, "p/0-0")
    assert maker.rows() == before | {"p/0-0": 100}


def test_a_plan_whose_input_was_written_to_is_given_up(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that started before the plan was made may complete after it."""
    fill(maker)
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None
    path = maker.path_of(instant)
    plan = path.read_bytes()
    path.unlink()
    maker.upsert(99, "p/0-0")
    path.write_bytes(plan)
    before = maker.rows()
    with pytest.raises(CommitConflictError, match="was written to or replaced since"):
        execute_clustering(maker.table.with_context(**maker.setting()), instant)
    assert maker.rows() == before
    assert pending_clusterings(maker.table) == []
    maker.upsert(100, "p/0-0")


class Meanwhile:
    """A runner after whose tasks something else happens."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def map(self, function: Any, tasks: Any) -> list[Any]:
        done = [function(task) for task in tasks]
        self._happens()
        return done


@pytest.fixture
def under_way(mor_maker: Any) -> Iterator[Callable[[], object]]:
    """Another client's write of `p/0-0` has written its log file; the function completes it."""
    fill(mor_maker)
    mor_maker.upsert(99, "p/0-0")
    completed = mor_maker.path_of(mor_maker.table.timeline.data().completed().last())
    content = completed.read_bytes()
    completed.unlink()
    yield lambda: completed.write_bytes(content)
    assert mor_maker.rows()["p/0-0"] == 99
    assert pending_clusterings(mor_maker.table) == []


def test_files_that_are_being_written_to_are_left_out(mor_maker: Any, under_way: Callable[[], object]) -> None:
    """They are another time: a clustering of them would give up."""
    setting = mor_maker.setting(**SORTED)
    instant = schedule_clustering(mor_maker.table.with_context(**setting))
    meanwhile = dict(setting, runner=Meanwhile(under_way))
    assert execute_clustering(mor_maker.table.with_context(**meanwhile), instant) is not None
    assert len(mor_maker.table.view().slices("p")) == 2
    assert cluster(mor_maker.table.with_context(**setting)) is not None
    assert len(mor_maker.table.view().slices("p")) == 1


def test_a_write_that_completes_while_its_file_is_clustered_stays(
    mor_maker: Any, under_way: Callable[[], object]
) -> None:
    """Its log file was there when the plan was made, and has the same name now: in version 6 no name states a write."""
    (written,) = mor_maker.table.timeline.pending().data()
    mor_maker.path_of(written).write_bytes(b"")  # of a client that states no files before it completes
    instant = schedule_clustering(mor_maker.table.with_context(**mor_maker.setting(**SORTED)))
    assert instant is not None
    with pytest.raises(CommitConflictError, match="was written to or replaced since"):
        execute_clustering(
            mor_maker.table.with_context(**dict(mor_maker.setting(), runner=Meanwhile(under_way))), instant
        )


def test_an_active_executor_is_left_alone(maker: Any) -> None:
    fill(maker)
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None

    def second() -> None:
        with pytest.raises(CommitConflictError, match="another executor is carrying out"):
            execute_clustering(maker.table.with_context(**maker.setting()), instant)

    assert (
        execute_clustering(maker.table.with_context(**dict(maker.setting(), runner=Meanwhile(second))), instant)
        is not None
    )
    assert execute_clustering(maker.table.with_context(**maker.setting()), instant) is None


def test_of_two_executors_one_wins(maker: Any) -> None:
    """The second takes the first for dead while it runs: its files are deleted, no rows are lost."""
    fill(maker)
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None
    before, there = meta_rows(maker), maker.files()
    winner: list[Any] = []

    def second() -> None:
        os.utime(maker.folder / ".hoodie" / ".heartbeat" / instant.requested_time, (0, 0))
        winner.append(execute_clustering(maker.table.with_context(**maker.setting()), instant))

    with pytest.raises(CommitConflictError, match="another executor took"):
        execute_clustering(maker.table.with_context(**dict(maker.setting(), runner=Meanwhile(second))), instant)
    assert meta_rows(maker) == before
    written = {stat.path for stat in maker.table.commit_metadata(winner[0].instant).stats}
    assert maker.files() - there == written
    assert list((maker.folder / ".hoodie" / ".heartbeat").iterdir()) == []


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_execution_that_fails_at_any_call_is_carried_out_by_the_next(
    maker: Any, each_fault: Callable[..., Iterator[Any]], dies: bool
) -> None:
    fill(maker, commits=2, rows=2, parts="p")
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None
    before = meta_rows(maker)
    for number, (copy, table, _) in enumerate(each_fault(maker, dies=dies)):
        try:
            execute_clustering(table.with_context(**copy.setting()), instant)
        except OSError:
            assert meta_rows(copy) == before
            if number % 8 == 0:
                copy.upsert(50, "z/other")
            execute_pending_clusterings(copy.table.with_context(**copy.setting()))
        rows = [row for row in meta_rows(copy) if row[3] != "z"]
        assert rows == before
        assert len(copy.table.timeline.completed().of(Action.REPLACE_COMMIT)) == 1
        assert pending_clusterings(copy.table) == []
        live = {
            stat.path for stat in copy.table.commit_metadata(copy.table.timeline.of(Action.REPLACE_COMMIT).last()).stats
        }
        left = copy.files() - maker.files()
        assert {path for path in left if path[0] != "z"} == live


def test_a_pending_clustering_can_be_rolled_back(maker: Any) -> None:
    fill(maker)
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None
    assert maker.table.timeline.last().state is State.REQUESTED
    roll_back_instant(maker.table.with_context(**maker.setting()), instant.requested_time)
    maker.upsert(99, "p/0-0")
    assert maker.rows()["p/0-0"] == 99


def test_a_completed_clustering_can_be_rolled_back(maker: Any) -> None:
    fill(maker)
    before = maker.rows()
    (done,) = cluster(maker.table.with_context(**maker.setting(**SORTED)))
    roll_back_instant(maker.table.with_context(**maker.setting()), done.instant.requested_time)
    assert maker.rows() == before
    assert {part: len(files_of(maker, part)) for part in "pq"} == {"p": 3, "q": 3}


def test_replaced_files_are_cleaned_when_nobody_needs_them(maker: Any) -> None:
    fill(maker)
    cluster(maker.table.with_context(**maker.setting(**SORTED)))
    assert len(maker.files()) == 8
    maker.upsert(99, "z/other")
    maker.upsert(100, "z/other")
    before = maker.rows()
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert maker.rows() == before
    assert len([path for path in maker.files() if path[0] != "z"]) == 2


def test_commits_since_the_last_clustering_are_counted(maker: Any) -> None:
    fill(maker)
    assert commits_since_clustering(maker.table) == 3
    cluster(maker.table.with_context(**maker.setting(**SORTED)))
    assert commits_since_clustering(maker.table) == 0
    maker.upsert(99, "p/0-0")
    assert commits_since_clustering(maker.table) == 1


def test_strategies_of_others_are_found_by_entry_point(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep_table.services import strategies

    def newest_only(partition: str, slices: Any, options: Any) -> list[list[Any]]:
        return [[max(slices, key=lambda each: each.base_instant)]] if partition == "p" else []

    def backwards(rows: Any, params: Any) -> Any:
        for batch in reversed(list(rows)):
            yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))

    known = {(strategies.PLAN_GROUP, "newest"): newest_only, (strategies.EXECUTION_GROUP, "backwards"): backwards}
    monkeypatch.setattr(plug_ins, "_strategy", lambda group, name: known.get((group, name)))
    fill(maker)
    before, newest = meta_rows(maker), pq.read_table(max(files_of(maker, "p"), key=lambda f: f.name[-25:]))
    options = {f"{PLAN}class": "newest", "clustering__execution__strategy__class": "backwards"}
    (done,) = cluster(maker.table.with_context(**maker.setting(**options)))
    assert meta_rows(maker) == before
    (stat,) = done.metadata.stats
    written = pq.read_table(maker.folder / stat.path)
    assert written.column("id").to_pylist() == newest.column("id").to_pylist()[::-1]


def planned(maker: Any) -> str:
    fill(maker)
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SORTED)))
    assert instant is not None
    return instant.requested_time


def update(maker: Any, **options: Any) -> None:
    frame = pa.table({"id": ["0-0"], "part": ["p"], "ts": [99]})
    LocalWriter(maker.table.with_context(**maker.setting(**options))).upsert(frame)


ALLOW = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"


def test_a_write_that_is_allowed_makes_the_clustering_give_up(maker: Any) -> None:
    time = planned(maker)
    update(maker, clustering__updates__strategy=ALLOW)
    assert [instant.requested_time for instant in pending_clusterings(maker.table)] == [time]
    with pytest.raises(CommitConflictError, match="was written to or replaced since"):
        execute_pending_clusterings(maker.table.with_context(**maker.setting()))
    assert maker.rows()["p/0-0"] == 99
    assert pending_clusterings(maker.table) == []


def test_a_write_may_roll_the_clustering_back(maker: Any) -> None:
    planned(maker)
    update(
        maker,
        clustering__updates__strategy=ALLOW,
        clustering__rollback__pending__replacecommit__on__conflict=True,
    )
    assert maker.rows()["p/0-0"] == 99
    assert pending_clusterings(maker.table) == []


def test_what_refuses_and_what_is_not_there_is_reported_by_name(maker: Any) -> None:
    planned(maker)
    reject = "org.apache.hudi.client.clustering.update.strategy.SparkRejectUpdateStrategy"
    with pytest.raises(CommitConflictError, match="pending clustering"):
        update(maker, clustering__updates__strategy=reject)
    with pytest.raises(OptionError, match="there is no strategy Mine"):
        update(maker, clustering__updates__strategy="com.example.Mine")
    with pytest.raises(CommitConflictError, match="pending clustering"):
        LocalWriter(maker.table.with_context(**maker.setting())).delete_partitions(["p"])
