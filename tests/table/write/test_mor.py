"""Writing merge-on-read tables: what goes to log files and what to base files, and what readers make of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.errors import CommitConflictError, OptionError
from skep_format.logfile import BlockType, LogBlock, read_blocks
from skep_format.names import LogFileName
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, State
from skep_table.commit.concurrency.changes import completed_since
from skep_table.commit.concurrency.conflict import simple
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.keys.buckets import GroupNames
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
)
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
MARKED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
Make = Callable[..., HudiTable]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(schema: pa.Schema = SCHEMA, **spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        folder = tmp_path / f"t{len(list(tmp_path.iterdir()))}"
        wanted["type"] = TableType.MERGE_ON_READ
        return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=schema, **wanted))

    return table


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)


def setting(**given: Any) -> dict[str, Any]:
    options = Options({f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()})
    return {"options": options, "runner": ThreadRunner(1)}


def found(table: HudiTable, **how: Any) -> dict[str, tuple[int, int]]:
    listed = read(table.reload(), ReadRequest(**how)).to_arrow().to_pylist()
    assert max(Counter(row["id"] for row in listed).values(), default=1) == 1
    return {row["id"]: (row["ts"], row["v"]) for row in listed}


def blocks(table: HudiTable, path: str) -> list[LogBlock]:
    return list(read_blocks(pa.OSFile(f"{table.storage.root}/{path}"), path))


def kinds(result: WriteResult) -> list[str]:
    return ["log" if stat.is_log else "base" for stat in result.metadata.stats]


# -- what goes where ---------------------------------------------------------------------------------------------------


def test_updates_go_to_the_log_of_the_newest_slice_and_inserts_to_base_files(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    first = writer.upsert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    assert (first.instant.action, kinds(first)) == (Action.DELTA_COMMIT, ["base", "base"])
    second = writer.upsert(rows(("a", "p", 2, 2)))
    (stat,) = second.metadata.stats
    (base,) = [each for each in first.metadata.stats if each.partition_path == "p"]
    name = LogFileName.parse(stat.path.rpartition("/")[2])
    assert name is not None
    names_delta_commit = table.format.logs.of_delta_commit
    named_by = (second if names_delta_commit else first).instant.requested_time
    assert (name.file_id, name.instant_time, name.version) == (base.file_id, named_by, 1)
    assert (stat.prev_commit, stat.base_file) == (named_by, "" if names_delta_commit else base.path.rpartition("/")[2])
    assert (stat.log_version, stat.log_offset, stat.log_files) == (1, 0, (str(name),))
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts, stat.num_deletes) == (1, 1, 0, 0)
    assert stat.file_size_in_bytes == stat.total_write_bytes == table.storage.size(stat.path)
    third = writer.upsert(rows(("a", "p", 3, 3), ("new", "p", 1, 1)))
    logs = [each for each in third.metadata.stats if each.is_log]
    assert [(each.log_version, len(each.log_files or ())) for each in logs] == [
        (1, 1) if names_delta_commit else (2, 2)
    ]
    assert found(table) == {"a": (3, 3), "b": (1, 1), "new": (1, 1)}
    assert found(table, query="read_optimized") == {"a": (1, 1), "b": (1, 1), "new": (1, 1)}


def test_rows_of_a_log_bear_their_commit_and_the_file_id_for_a_file_name(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1)))
    result = writer.upsert(rows(("a", "p", 2, 2)))
    (stat,) = result.metadata.stats
    (block,) = blocks(table, stat.path)
    assert block.instant_time == result.instant.requested_time
    assert block.schema == table.reload().schema().with_meta()
    (row,) = block.records().to_pylist()
    assert row["_hoodie_commit_time"] == result.instant.requested_time
    assert row["_hoodie_commit_seqno"].startswith(f"{result.instant.requested_time}_")
    assert (row["_hoodie_record_key"], row["_hoodie_partition_path"]) == ("a", "p")
    assert row["_hoodie_file_name"] == stat.file_id


def test_inserts_rewrite_the_smallest_file_that_has_no_logs(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    small = writer.bulk_insert(rows(("a", "p", 1, 1))).metadata.stats[0].file_id
    writer.bulk_insert(rows(*[(f"b{at:04d}", "p", 1, 1) for at in range(2000)]))
    result = writer.upsert(rows(("n1", "p", 1, 1), ("a", "p", 2, 2)))
    assert [(each.file_id, each.is_log) for each in result.metadata.stats] == [(small, False)]
    writer.upsert(rows(("a", "p", 3, 3), ("b0000", "p", 3, 3)))
    after = writer.upsert(rows(("n2", "p", 1, 1)))
    assert (after.files, kinds(after)) == (1, ["base"])
    assert after.metadata.stats[0].prev_commit == "null", "both files have logs by now"
    assert len(found(table)) == 2003


@pytest.mark.parametrize(("limit", "rewritten"), [(0, 0), (1, 1), (2, 2)])
def test_so_many_small_files_of_a_partition_take_inserts(limit: int, rewritten: int, make: Make) -> None:
    table = make()
    for name in "abc":
        LocalWriter(table).bulk_insert(rows((name, "p", 1, 1)))
    sizes = setting(
        merge__small__file__group__candidates__limit=limit,
        parquet__small__file__limit=200_000,
        parquet__max__file__size=200_000,
        copyonwrite__record__size__estimate=50_000,
    )
    result = LocalWriter(table.with_context(**sizes)).insert(rows(*[(f"n{at}", "p", 1, 1) for at in range(6)]))
    assert sum(stat.prev_commit != "null" for stat in result.metadata.stats) == rewritten


def test_a_log_file_that_is_full_is_followed_by_another(make: Make) -> None:
    table = make()
    many = [(f"k{at:04d}", "p", 1, at) for at in range(1000)]
    LocalWriter(table).insert(rows(*many))
    small = setting(logfile__data__block__max__size=8_000, logfile__max__size=20_000)
    result = LocalWriter(table.with_context(**small)).upsert(rows(*[(key, part, 2, -v) for key, part, _, v in many]))
    stats = sorted(result.metadata.stats, key=lambda stat: stat.log_version or 0)
    assert [stat.log_version for stat in stats] == list(range(1, len(stats) + 1))
    assert len(stats) > 2
    assert all(len(blocks(table, stat.path)) > 1 for stat in stats[:-1])
    assert all(stat.file_size_in_bytes < 40_000 for stat in stats)
    assert sum(stat.num_writes for stat in stats) == result.updated == 1000
    if table.format.logs.of_delta_commit:
        assert [stat.log_files for stat in stats] == [(stat.path.rpartition("/")[2],) for stat in stats]
    else:
        assert [len(stat.log_files or ()) for stat in stats] == [stat.log_version for stat in stats]
    LocalWriter(table).upsert(rows(("k0000", "p", 3, 7)))
    assert found(table)["k0000"] == (3, 7)
    assert {value for _, (_, value) in found(table).items()} == {7, *(-at for at in range(1, 1000))}


def test_one_row_larger_than_a_block_has_one_of_its_own(make: Make) -> None:
    schema = SCHEMA.set(3, pa.field("v", pa.string()))
    table = make(schema)
    LocalWriter(table).insert(rows(("a", "p", 1, ""), ("b", "p", 1, ""), ("c", "p", 1, ""), schema=schema))
    small = setting(logfile__data__block__max__size=1_000)
    result = LocalWriter(table.with_context(**small)).upsert(
        rows(("a", "p", 2, "x"), ("b", "p", 2, "y" * 5000), ("c", "p", 2, "z"), schema=schema)
    )
    (stat,) = result.metadata.stats
    assert [block.records().num_rows for block in blocks(table, stat.path)] == [1, 1, 1]
    assert len(found(table)["b"][1]) == 5000  # type: ignore[arg-type]


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_data_blocks_in_either_format_read_alike(block_format: str, make: Make) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string()))).append(
        pa.field("more", pa.struct([("n", pa.int16()), ("at", pa.timestamp("us", "UTC"))]))
    )
    table = make(schema)
    writer = LocalWriter(table.with_context(**setting(logfile__data__block__format=block_format)))
    writer.insert(rows(("a", "p", 1, 1, None, None), schema=schema))
    changed = {"id": "a", "part": "p", "ts": 2, "v": 2, "tags": ["x", "y"], "more": {"n": 7, "at": None}}
    result = writer.upsert(pa.Table.from_pylist([changed], schema))
    (block,) = blocks(table, result.metadata.stats[0].path)
    assert block.type is {"avro": BlockType.AVRO_DATA, "parquet": BlockType.PARQUET_DATA}[block_format]
    (row,) = read(table.reload(), ReadRequest(columns=tuple(schema.names))).to_arrow().to_pylist()
    assert row == changed


def test_an_unknown_block_format_is_refused(make: Make) -> None:
    with pytest.raises(OptionError, match=r"hoodie\.logfile\.data\.block\.format"):
        LocalWriter(make().with_context(**setting(logfile__data__block__format="hfile"))).insert(rows(("a", "p", 1, 1)))


# -- deletes -----------------------------------------------------------------------------------------------------------


def test_a_delete_by_key_applies_whatever_the_order(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 9, 1), ("b", "p", 1, 1)))
    keys = pa.table({"id": ["a", "a", "nowhere"], "part": ["p", "p", "p"]})
    result = writer.delete(keys)
    (stat,) = result.metadata.stats
    assert (stat.num_deletes, stat.num_writes, result.deleted) == (1, 0, 1)
    (block,) = blocks(table, stat.path)
    assert block.type is BlockType.DELETE
    assert block.deletes().to_pylist() == [{"record_key": "a", "partition_path": "p", "ordering_value": None}]
    assert found(table) == {"b": (1, 1)}
    writer.upsert(rows(("a", "p", 9, 2)))
    assert found(table) == {"a": (9, 2), "b": (1, 1)}


def test_a_row_marked_deleted_competes_by_its_ordering_value(make: Make) -> None:
    table = make(MARKED)
    writer = LocalWriter(table)
    writer.insert(rows(("old", "p", 5, 1, None), ("new", "p", 5, 1, False), schema=MARKED))
    result = writer.upsert(rows(("old", "p", 4, 2, True), ("new", "p", 6, 2, True), schema=MARKED))
    assert (result.updated, result.deleted) == (0, 2)
    assert found(table) == {"old": (5, 1)}


def test_without_ordering_such_a_row_is_an_entry_of_the_delete_block(make: Make) -> None:
    table = make(MARKED, ordering=None)
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 5, 1, None), ("b", "p", 5, 1, None), schema=MARKED))
    result = writer.upsert(rows(("b", "p", 1, 2, None), ("a", "p", 1, 2, True), schema=MARKED))
    (stat,) = result.metadata.stats
    data, deletes = blocks(table, stat.path)
    assert (data.type, deletes.type) == (BlockType.AVRO_DATA, BlockType.DELETE)
    assert (stat.num_writes, stat.num_deletes) == (1, 1)
    assert found(table) == {"b": (1, 2)}


def test_a_delete_field_makes_entries_with_the_ordering_value(make: Make) -> None:
    """Readers that do not know the field see the delete all the same."""
    table = make(SCHEMA.append(pa.field("op", pa.string())))
    schema = SCHEMA.append(pa.field("op", pa.string()))
    writer = LocalWriter(table.with_context(**setting(payload__delete__field="op", payload__delete__marker="D")))
    writer.insert(rows(("a", "p", 5, 1, "I"), ("b", "p", 5, 1, "I"), schema=schema))
    result = writer.upsert(rows(("a", "p", 6, 2, "D"), ("b", "p", 6, 2, "U"), schema=schema))
    deletes = blocks(table, result.metadata.stats[0].path)[-1].deletes()
    assert deletes.to_pylist() == [{"record_key": "a", "partition_path": "p", "ordering_value": 6}]
    assert found(table) == {"b": (6, 2)}


def test_keys_that_are_nowhere_are_not_deleted_from_anywhere(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1)))
    assert writer.delete(pa.table({"id": ["x"], "part": ["p"]})).files == 0
    assert found(table) == {"a": (1, 1)}


# -- several writes ----------------------------------------------------------------------------------------------------


def test_the_past_stays_readable(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    states = []
    for step in range(4):
        result = writer.upsert(rows(("a", "p", step, step), (f"n{step}", "q", 1, 1)))
        states.append((result.instant, found(table)))
    for instant, state in states:
        assert found(table, as_of=instant.requested_time) == state
    changed = found(table, query="incremental", since=table.format.reads.time_in_range(states[1][0]))
    assert changed == {"a": (3, 3), "n2": (1, 1), "n3": (1, 1)}


def test_a_rolled_back_write_leaves_no_rows(make: Make) -> None:
    """Its log files are deleted; where commits share log files, a command block follows its rows."""
    table = make()
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))
    writer.upsert(rows(("a", "p", 2, 2)))
    before = found(table)
    undone = writer.upsert(rows(("a", "p", 3, 3), ("b", "p", 3, 3)))
    roll_back_instant(table.with_context(**setting()), undone.instant.requested_time)
    assert found(table) == before
    (slice_,) = table.reload().view().slices("p")
    after = writer.upsert(rows(("b", "p", 4, 4)))
    if table.format.logs.rolled_back_by_deletion:
        assert [log.name.version for log in slice_.log_files] == [after.metadata.stats[0].log_version] == [1]
        assert not any(table.storage.exists(stat.path) for stat in undone.metadata.stats)
    else:
        assert [log.name.version for log in slice_.log_files] == [1, 2, 3]
        (command,) = blocks(table, slice_.log_files[-1].path)
        assert command.target_instant_time == undone.instant.requested_time
        assert after.metadata.stats[0].log_version == 4
    assert found(table) == {"a": (2, 2), "b": (4, 4)}


def test_new_columns_and_wider_types_meet_older_base_files(make: Make) -> None:
    narrow = SCHEMA.set(3, pa.field("v", pa.int32()))
    table = make(narrow)
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1), schema=narrow))
    writer.upsert(rows(("a", "p", 2, 2), schema=narrow))
    writer.upsert(rows(("a", "p", 3, 2**40)).append_column("more", pa.array([["x"]])))
    assert found(table) == {"a": (3, 2**40), "b": (1, 1)}
    listed = read(table.reload(), ReadRequest(columns=("id", "more"))).to_arrow().to_pylist()
    assert sorted((row["id"], row["more"]) for row in listed) == [("a", ["x"]), ("b", None)]


# -- attempts and other writers ----------------------------------------------------------------------------------------


class TwiceRunner(ThreadRunner):
    """Runs each task twice, as Spark does when it speculates; the second answer counts."""

    def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
        return [[function(task), function(task)][1] for task in tasks]


def test_log_files_of_losing_attempts_are_deleted_when_the_commit_is_there(make: Make) -> None:
    table = make()
    LocalWriter(table).insert(rows(("a", "p", 1, 1), ("b", "q", 1, 1)))
    doubled = {"runner": TwiceRunner(1)}
    result = LocalWriter(table.with_context(**doubled)).upsert(rows(("a", "p", 2, 2), ("b", "q", 2, 2)))
    logs = {str(path.relative_to(table.storage.root)) for path in Path(table.storage.root).rglob(".*.log.*")}
    assert logs == {stat.path for stat in result.metadata.stats}
    assert found(table) == {"a": (2, 2), "b": (2, 2)}


class Announced(LocalStorage):
    """Remembers which paths were created and opened, in their order."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def create_exclusive(self, path: str, data: bytes, **how: Any) -> None:
        self.paths.append(path)
        super().create_exclusive(path, data, **how)

    def open_write(self, path: str) -> Any:
        self.paths.append(path)
        return super().open_write(path)


def test_each_log_file_is_announced_before_it_is_opened(make: Make) -> None:
    table = make()
    LocalWriter(table).insert(rows(("a", "p", 1, 1)))
    storage = Announced(table.storage.root)
    result = LocalWriter(HudiTable.open(storage).with_context(**setting())).upsert(rows(("a", "p", 2, 2)))
    (stat,) = result.metadata.stats
    kind = table.format.logs.marker_type.value
    marker = f".hoodie/.temp/{result.instant.requested_time}/{stat.path}.marker.{kind}"
    assert storage.paths.index(marker) < storage.paths.index(stat.path)


def test_two_writers_at_one_slice_choose_different_names(make: Make) -> None:
    """The one that loses must not have written over the other's file."""
    table = make()
    LocalWriter(table).insert(rows(("a", "p", 1, 1)))
    with Transaction.begin(table.with_context(**setting()), Action.DELTA_COMMIT) as other:
        result = LocalWriter(table.with_context(**setting())).upsert(rows(("a", "p", 2, 2)))
        name = LogFileName.parse(result.metadata.stats[0].path.rpartition("/")[2])
        assert name is not None
        assert name.write_token is not None
        if table.format.logs.of_delta_commit:
            assert name.instant_time == result.instant.requested_time != other.instant.requested_time
        else:
            assert result.instant.requested_time.endswith(name.write_token.split("-")[1].zfill(9))
            assert not other.instant.requested_time.endswith(name.write_token.split("-")[1].zfill(9))
        other.abort(None)
    assert found(table) == {"a": (2, 2)}


def test_the_blocks_of_a_write_that_lost_are_taken_back(make: Make) -> None:
    """Two writers append to one slice: the second to complete is refused, and only the first one's rows are there."""
    table = make()
    LocalWriter(table).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))

    def other_first(ending: Any) -> None:
        LocalWriter(table.with_context(**setting())).upsert(rows(("a", "p", 2, 2)))
        found_now = HudiTable.open(table.storage.root)
        simple(replace(ending, table=found_now, completed=completed_since(ending.table, found_now)))

    losing = dict(setting(), conflict_check=other_first)
    with pytest.raises(CommitConflictError):
        LocalWriter(table.with_context(**losing)).upsert(rows(("a", "p", 9, 9), ("b", "p", 9, 9)))
    assert found(table) == {"a": (2, 2), "b": (1, 1)}
    LocalWriter(table).upsert(rows(("b", "p", 3, 3)))
    assert found(table) == {"a": (2, 2), "b": (3, 3)}
    assert not table.reload().timeline.pending().instants


# -- tables of Hudi ----------------------------------------------------------------------------------------------------

GOLDEN = ["mor_upsert", "mor_event_time", "mor_delete", "mor_compaction", "mor_log_rollback", "mor_parquet_log"]


@pytest.mark.parametrize("case", GOLDEN)
def test_a_table_of_hudis_is_written_on(case: str, golden: Path, tmp_path: Path) -> None:
    """Its rows are found, updated in its logs, deleted, and all others stay as they are."""
    shutil.copytree(golden / "0.15.0" / case / "table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    before = {row["_hoodie_record_key"]: row for row in read(table, ReadRequest()).to_arrow().to_pylist()}
    schema = to_arrow(table.schema())
    chosen = list(before.values())[::3]
    bumped = [{**{name: row[name] for name in schema.names}, "ts": row["ts"] + 10**12} for row in chosen]
    writer = LocalWriter(table.with_context(**setting()))
    result = writer.upsert(pa.Table.from_pylist(bumped, schema))
    assert (result.updated, result.inserted) == (len(chosen), 0)
    assert set(kinds(result)) == {"log"}
    changed = {row["_hoodie_record_key"]: row for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()}
    assert changed.keys() == before.keys()
    assert {key for key in before if changed[key]["ts"] != before[key]["ts"]} == {
        row["_hoodie_record_key"] for row in chosen
    }
    removed = list(before.values())[::4]
    writer.delete(pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in removed], schema))
    after = {row["_hoodie_record_key"] for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()}
    assert after == before.keys() - {row["_hoodie_record_key"] for row in removed}


# -- indexes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BLOOM", "SIMPLE", "BUCKET", "INMEMORY", "GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_every_index_finds_what_others_wrote_to_logs(kind: str, make: Make) -> None:
    table = make()
    given = setting(index__type=kind, bucket__index__num__buckets=2)
    states: dict[str, tuple[int, int]] = {}
    for step in range(4):
        keys = [f"k{at}" for at in range(step, step + 5)]
        LocalWriter(table.with_context(**given)).upsert(rows(*[(key, "p", step, step) for key in keys]))
        states.update(dict.fromkeys(keys, (step, step)))
        assert found(table) == states
    removed = ["k1", "k7"]
    LocalWriter(table.with_context(**given)).delete(pa.table({"id": removed, "part": ["p"] * 2}))
    assert found(table) == {key: state for key, state in states.items() if key not in removed}
    compact(table.with_context(**setting()))
    assert found(table) == found(table, query="read_optimized")
    LocalWriter(table.with_context(**given)).upsert(rows(("k0", "p", 9, 9), ("k1", "p", 9, 9)))
    assert found(table)["k0"] == found(table)["k1"] == (9, 9)


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_inserts_go_to_logs_where_the_index_knows_them(make: Make) -> None:
    """A group of log files alone begins with its first commit; small groups take more, with logs or not."""
    table = make()
    writer = LocalWriter(table.with_context(**setting(index__type="INMEMORY")))
    first = writer.upsert(rows(("a", "p", 1, 1)))
    (stat,) = first.metadata.stats
    assert (stat.is_log, stat.prev_commit, stat.base_file) == (True, first.instant.requested_time, "")
    assert (stat.num_inserts, stat.num_update_writes) == (1, 0)
    assert f".{stat.file_id}_{first.instant.requested_time}.log.1_" in stat.path
    second = writer.upsert(rows(("a", "p", 2, 2), ("b", "p", 1, 1)))
    version = 1 if table.format.logs.of_delta_commit else 2
    assert [(each.file_id, each.log_version) for each in second.metadata.stats] == [(stat.file_id, version)]
    assert found(table) == {"a": (2, 2), "b": (1, 1)}
    assert found(table, query="read_optimized") == {}
    compact(table.with_context(**setting()))
    assert found(table) == found(table, query="read_optimized") == {"a": (2, 2), "b": (1, 1)}


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("kind", ["BLOOM", "GLOBAL_SIMPLE"])
def test_keys_that_only_logs_hold_are_found(kind: str, make: Make) -> None:
    """Hudi's indexes of base files do not look there: its upserts write such keys a second time."""
    table = make()
    memory = LocalWriter(table.with_context(**setting(index__type="INMEMORY")))
    memory.upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 1), ("d", "p", 1, 1)))
    memory.delete(pa.table({"id": ["d"], "part": ["p"]}))
    writer = LocalWriter(table.with_context(**setting(index__type=kind)))
    result = writer.upsert(rows(("a", "p", 2, 2), ("c", "p", 2, 2), ("d", "p", 2, 2)))
    assert (result.updated, result.inserted) == (1, 2)
    assert found(table) == {"a": (2, 2), "b": (1, 1), "c": (2, 2), "d": (2, 2)}
    assert writer.delete(pa.table({"id": ["b"], "part": ["p"]})).deleted == 1
    compact(table.with_context(**setting()))
    assert found(table) == found(table, query="read_optimized") == {"a": (2, 2), "c": (2, 2), "d": (2, 2)}


def with_new_keys_in_logs(table: HudiTable, of: str) -> WriteResult:
    """A base file of a, b and d, and a log over it with c and e as new keys: by skep, or as Flink states them."""
    memory = LocalWriter(table.with_context(**setting(index__type="INMEMORY")))
    memory.upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 1), ("d", "p", 1, 1)))
    compact(table.with_context(**setting()))
    result = memory.upsert(rows(("a", "p", 2, 2), ("c", "p", 2, 2), ("e", "p", 2, 2)))
    assert (result.updated, result.inserted) == (1, 2)
    assert [(stat.num_update_writes, stat.num_inserts) for stat in result.metadata.stats] == [(1, 2)]
    if of == "Flink":
        state_as_flink(table, result)
    return result


def state_as_flink(table: HudiTable, result: WriteResult) -> None:
    """Rewrites a commit as Flink states it: new keys count as updates, and no workload was planned."""
    stats = {
        path: tuple(replace(stat, num_update_writes=stat.num_writes, num_inserts=0) for stat in of_path)
        for path, of_path in result.metadata.partition_to_write_stats.items()
    }
    stated = replace(result.metadata, partition_to_write_stats=stats)
    planned = table.layout.path(replace(result.instant, state=State.INFLIGHT, completion_time=None))
    assert table.storage.size(planned) > 0
    table.storage.replace_atomic(planned, b"")
    table.storage.replace_atomic(table.layout.path(result.instant), table.layout.encode_commit(stated))


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("of", ["skep", "Flink"])
@pytest.mark.parametrize("kind", ["BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE"])
def test_keys_that_only_logs_over_a_base_file_hold_are_found(
    kind: str, of: str, table_version: int, make: Make
) -> None:
    table = make()
    with_new_keys_in_logs(table, of)
    writer = LocalWriter(HudiTable.open(table.storage.root, setting(index__type=kind)["options"]))
    result = writer.upsert(rows(("a", "p", 3, 3), ("c", "p", 3, 3), ("f", "p", 3, 3)))
    assert (result.updated, result.inserted) == (2, 1)
    assert writer.delete(pa.table({"id": ["e", "x"], "part": ["p", "p"]})).deleted == 1
    assert writer.upsert(rows(("d", "p", 4, 4), ("c", "p", 4, 4))).updated == 2
    expected = {"a": (3, 3), "b": (1, 1), "c": (4, 4), "d": (4, 4), "f": (3, 3)}
    assert found(table) == expected
    compact(table.with_context(**setting()))
    assert found(table) == found(table, query="read_optimized") == expected


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("moves", [True, False])
def test_a_key_that_only_a_log_holds_arrives_for_another_partition(moves: bool, table_version: int, make: Make) -> None:
    table = make()
    with_new_keys_in_logs(table, "Flink")
    options = setting(index__type="GLOBAL_BLOOM", bloom__index__update__partition__path=moves)
    LocalWriter(table.with_context(**options)).upsert(rows(("c", "q", 3, 3)))
    listed = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    assert [row["_hoodie_partition_path"] for row in listed if row["id"] == "c"] == ["q" if moves else "p"]


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_logs_of_archived_commits_are_read(table_version: int, make: Make) -> None:
    """The archive of a commit has not all that shows who wrote its logs."""
    table = make()
    wrote = with_new_keys_in_logs(table, "skep").instant
    writer = LocalWriter(table.with_context(**setting(index__type="BLOOM")))
    for ts in range(8):
        writer.upsert(rows(("k", "q", ts, ts)))
    kept = {"keep__min__commits": 2, "keep__max__commits": 3, "commits__archival__batch": 1}
    archive(table.reload().with_context(**setting(cleaner__commits__retained=1, **kept)))
    assert table.reload().timeline.is_archived(wrote.requested_time)
    assert writer.upsert(rows(("a", "p", 3, 3), ("c", "p", 3, 3))).updated == 2
    assert found(table)["c"] == (3, 3)


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_keys_are_found_after_a_compaction_of_logs(table_version: int, make: Make) -> None:
    """It states updates alone, and the logs that it merges stay."""
    table = make()
    with_new_keys_in_logs(table, "skep")
    writer = LocalWriter(table.with_context(**setting(index__type="BLOOM")))
    writer.upsert(rows(("b", "p", 2, 2)))
    assert compact_logs(table.reload().with_context(**setting(log__compaction__blocks__threshold=2)))
    assert writer.upsert(rows(("a", "p", 3, 3), ("c", "p", 3, 3))).updated == 2
    assert found(table) == {"a": (3, 3), "b": (2, 2), "c": (3, 3), "d": (1, 1), "e": (2, 2)}


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("based", [True, False])
def test_a_key_that_a_pending_compaction_takes_from_logs_is_in_its_group(
    based: bool, table_version: int, make: Make
) -> None:
    """A log over the compaction deletes it. The base file that the compaction writes holds it, where it is looked up
    from then on: it may not be in another group as well."""
    table = make()
    memory = LocalWriter(table.with_context(**setting(index__type="INMEMORY")))
    memory.upsert(rows(("a", "p", 1, 1)))
    if based:
        compact(table.with_context(**setting()))
    memory.upsert(rows(("a", "p", 2, 2), ("c", "p", 2, 2)))
    pending = schedule_compaction(table.reload().with_context(**setting(compact__inline__max__delta__commits=1)))
    assert pending is not None
    writer = LocalWriter(table.with_context(**setting(index__type="BLOOM")))
    writer.delete(pa.table({"id": ["c"], "part": ["p"]}))
    writer.upsert(rows(("c", "p", 3, 3)))
    execute_pending_compactions(table.reload())
    writer.upsert(rows(("c", "p", 4, 4)))
    assert found(table) == {"a": (2, 2), "c": (4, 4)}


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_logs_with_updates_alone_are_not_read_for_keys(table_version: int, make: Make) -> None:
    """Nor commits, where the snapshot has read them: what a look-up costs does not depend on the logs."""
    table = make()
    LocalWriter(table).upsert(rows(*((f"k{n}", "p", 1, n) for n in range(5))))
    for ts in range(2, 14):
        LocalWriter(table).upsert(rows(("k1", "p", ts, ts)))
    storage = CountingStorage(table.storage)
    opened = HudiTable.open(storage, setting(parquet__small__file__limit=0)["options"])
    writer = LocalWriter(opened)
    for new in ("new", "newer"):
        storage.calls.clear()
        result = writer.upsert(rows(("k2", "p", 20, 20), (new, "p", 20, 20)))
        assert (result.updated, result.inserted) == (1, 1)
        assert not [path for path in storage.calls.paths("read", "open_input") if ".log." in path]
        commits = [path for path in storage.calls.paths("read") if path.endswith(".deltacommit")]
        assert len(commits) == len(set(commits)) <= (13 if new == "new" else 0)


@pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_a_key_that_a_log_deletes_is_where_it_came_back(
    ids: tuple[int, int], table_version: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two groups comes first."""
    names = iter([f"a000000{number}-0000-0000-0000-000000000000-0" for number in ids])
    monkeypatch.setattr(GroupNames, "new_file_id", lambda *_: next(names))
    table = make()
    apart = LocalWriter(table.with_context(**setting(parquet__small__file__limit=0)))
    apart.insert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))
    apart.delete(pa.table({"id": ["a"], "part": ["p"]}))
    apart.insert(rows(("a", "p", 2, 2)))  # does not look where it was
    writer = LocalWriter(table)
    assert writer.upsert(rows(("a", "p", 3, 3), ("b", "p", 3, 3))).updated == 2
    assert found(table) == {"a": (3, 3), "b": (3, 3)}
    assert writer.delete(pa.table({"id": ["a"], "part": ["p"]})).deleted == 1
    assert found(table) == {"b": (3, 3)}
    assert writer.upsert(rows(("a", "p", 4, 4))).updated == 1
    assert found(table) == {"a": (4, 4), "b": (3, 3)}
    compact(table.with_context(**setting()))
    assert found(table) == found(table, query="read_optimized") == {"a": (4, 4), "b": (3, 3)}


KEYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)
WRITES = st.tuples(st.sampled_from(["into logs", "as Flink", "by files", "by files", "delete"]), KEYS)
SERVICES = st.tuples(st.sampled_from(["compact", "schedule", "execute"]), st.just([]))


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["BLOOM", "GLOBAL_BLOOM"]),
    st.sampled_from([6, 9]),
    st.lists(st.one_of(WRITES, WRITES, SERVICES), min_size=4, max_size=10),
)
def test_a_key_is_in_one_place_whatever_index_put_it_there(
    tmp_path_factory: pytest.TempPathFactory, kind: str, version: int, steps: list[tuple[str, list[str]]]
) -> None:
    """Writes with an index that puts new keys into logs, and with one of base files, in turn."""
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
        version=version,
    )
    table = create_table(LocalStorage(str(tmp_path_factory.mktemp("history") / "t")), spec)
    by_files = LocalWriter(table.with_context(**setting(index__type=kind)))
    into_logs = LocalWriter(table.with_context(**setting(index__type="INMEMORY")))
    services = {"compact": compact, "schedule": schedule_compaction, "execute": execute_pending_compactions}
    held: dict[str, tuple[int, int]] = {}
    for ts, (step, keys) in enumerate(steps):
        given_rows = rows(*((key, "p", ts, ts) for key in keys))
        if step in services:
            services[step](table.reload().with_context(**setting(compact__inline__max__delta__commits=1)))
        elif step == "delete":
            by_files.delete(given_rows.select(["id", "part"]))
            held = {key: row for key, row in held.items() if key not in keys}
        elif step == "by files":
            assert by_files.upsert(given_rows).inserted <= len({*keys} - {*held})
            held |= dict.fromkeys(keys, (ts, ts))
        else:
            result = into_logs.upsert(given_rows)
            held |= dict.fromkeys(keys, (ts, ts))
            if step == "as Flink":
                state_as_flink(table, result)
        assert found(table) == held


@pytest.mark.parametrize("moves", [True, False])
def test_a_key_that_arrives_for_another_partition(moves: bool, make: Make) -> None:
    """It is deleted from the log of the old one and inserted in the new, or stays where it was."""
    table = make()
    options = setting(index__type="GLOBAL_BLOOM", bloom__index__update__partition__path=moves)
    writer = LocalWriter(table.with_context(**options))
    writer.upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)))
    result = writer.upsert(rows(("a", "q", 2, 2)))
    assert found(table) == {"a": (2, 2), "b": (1, 1)}
    (row,) = [row for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist() if row["id"] == "a"]
    assert row["_hoodie_partition_path"] == ("q" if moves else "p")
    assert sorted(kinds(result)) == (["base", "log"] if moves else ["log"])
