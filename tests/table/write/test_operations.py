"""Operations beside insert, upsert and delete: what a table holds after each, and its commit's metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.basefile import read_base
from skep_format.errors import DuplicateKeyError, KeyFieldError, OptionError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import WriteOperation
from skep_format.timeline.plans import RequestedReplaceMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
Make = Callable[..., HudiTable]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(**spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        return create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=SCHEMA, **wanted))

    return table


def rows(*values: tuple[str, str, int, int | None]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True)) if values else [[]] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def content(table: HudiTable) -> list[tuple[str, str, int]]:
    found = read(table.reload(), ReadRequest(columns=("id", "part", "v"))).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["v"]) for row in found)


def writer(table: HudiTable, **options: Any) -> LocalWriter:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return LocalWriter(table.with_context(options=Options(given)))


# -- overwriting -------------------------------------------------------------------------------------------------------


def test_insert_overwrite_replaces_the_partitions_that_it_has_rows_of(make: Make) -> None:
    table = make()
    first = writer(table).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 2), ("c", "q", 1, 3)))
    result = writer(table).insert_overwrite(rows(("d", "p", 1, 4), ("e", "new", 1, 5)))
    assert content(table) == [("c", "q", 3), ("d", "p", 4), ("e", "new", 5)]
    assert result.instant.action is Action.REPLACE_COMMIT
    assert result.metadata.operation_type is WriteOperation.INSERT_OVERWRITE
    (group,) = [stat.file_id for stat in first.metadata.stats if stat.partition_path == "p"]
    assert result.metadata.partition_to_replace_file_ids == {"p": (group,)}
    requested = table.reload().requested_plan(RequestedReplaceMetadata, result.instant)
    assert requested is not None
    assert (requested.operation_type, requested.clustering_plan) == (None, None)


def test_insert_overwrite_table_replaces_all_partitions(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1), ("c", "q", 1, 3)))
    writer(table).insert_overwrite_table(rows(("x", "p", 1, 9)))
    assert content(table) == [("x", "p", 9)]
    writer(table).insert_overwrite_table(rows())
    assert content(table) == []


def test_an_overwrite_can_be_read_as_it_was_before(make: Make) -> None:
    table = make()
    before = writer(table).insert(rows(("a", "p", 1, 1)))
    writer(table).insert_overwrite(rows(("b", "p", 1, 2)))
    request = ReadRequest(as_of=before.instant.requested_time, columns=("id",))
    assert read(table.reload(), request).to_arrow().to_pylist() == [{"id": "a"}]


def test_writes_after_an_overwrite_go_into_the_new_groups(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    overwrite = writer(table).insert_overwrite(rows(("b", "p", 1, 2)))
    result = writer(table).upsert(rows(("b", "p", 2, 3), ("a", "p", 2, 4)))
    assert content(table) == [("a", "p", 4), ("b", "p", 3)]
    assert {stat.file_id for stat in result.metadata.stats} == {stat.file_id for stat in overwrite.metadata.stats}


def test_an_overwrite_of_an_empty_batch_replaces_nothing(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    assert writer(table).insert_overwrite(rows()).metadata.partition_to_replace_file_ids == {}
    assert content(table) == [("a", "p", 1)]


# -- dropping partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["p1"], ["p2", "q1"]),
        (["p*"], ["q1"]),
        (["*1"], ["p2"]),
        (["p1", "q1"], ["p2"]),
        (["p%2A"], ["q1"]),
        (["*"], []),
        (["p"], ["p1", "p2", "q1"]),
        (["p.", "[pq]1"], ["p1", "p2", "q1"]),
    ],
)
def test_partitions_are_dropped_by_path_and_wildcard(make: Make, patterns: list[str], left: list[str]) -> None:
    table = make()
    writer(table).insert(rows(("a", "p1", 1, 1), ("b", "p2", 1, 2), ("c", "q1", 1, 3)))
    result = writer(table).delete_partitions(patterns)
    assert [part for _, part, _ in content(table)] == left
    assert result.metadata.operation_type is WriteOperation.DELETE_PARTITION
    assert not result.metadata.stats
    assert set(result.metadata.partitions) == {"p1", "p2", "q1"} - set(left)
    assert table.reload().schema() == table.schema()


def test_the_request_of_a_drop_states_the_operation(make: Make) -> None:
    """As Hudi 1.x writes it; that of an insert overwrite states nothing."""
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    overwrite = writer(table).insert_overwrite(rows(("b", "p", 1, 1))).instant
    drop = writer(table).delete_partitions(["p"]).instant
    requested = [
        table.reload().requested_plan(RequestedReplaceMetadata, replace(instant, state=State.REQUESTED))
        for instant in (overwrite, drop)
    ]
    assert requested == [
        RequestedReplaceMetadata(),
        RequestedReplaceMetadata(operation_type="DELETE_PARTITION", extra_metadata={}, version=1),
    ]


def test_a_wildcard_spans_folders(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "2024/01/01", 1, 1), ("b", "2024/02/01", 1, 2), ("c", "2025/01/01", 1, 3)))
    writer(table).delete_partitions(["2024/*"])
    assert [part for _, part, _ in content(table)] == ["2025/01/01"]


def test_a_dropped_partition_can_be_written_again(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    writer(table).delete_partitions(["p"])
    writer(table).upsert(rows(("a", "p", 0, 2)))
    assert content(table) == [("a", "p", 2)]


# -- inserts without duplicates ----------------------------------------------------------------------------------------


def test_insert_drops_duplicates_of_the_table_and_of_the_batch(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    dropping = writer(table, hoodie__datasource__write__insert__drop__duplicates=True)
    result = dropping.insert(rows(("a", "p", 9, 2), ("b", "p", 1, 3), ("b", "p", 2, 4), ("a", "q", 1, 5)))
    assert content(table) == [("a", "p", 1), ("a", "q", 5), ("b", "p", 4)]
    assert (result.inserted, result.updated) == (2, 0)


def test_insert_can_be_made_to_fail_on_duplicates(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    failing = writer(table, hoodie__datasource__insert__dup__policy="fail")
    with pytest.raises(DuplicateKeyError, match="partition p: 1 rows"):
        failing.insert(rows(("a", "p", 2, 2), ("b", "p", 1, 3)))
    assert content(table) == [("a", "p", 1)]
    assert not table.reload().timeline.pending().instants
    failing.insert(rows(("b", "p", 1, 3)))
    assert content(table) == [("a", "p", 1), ("b", "p", 3)]


def test_insert_into_a_small_file_updates_equal_keys_when_duplicates_are_not_allowed(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    writer(table, hoodie__merge__allow__duplicate__on__inserts=False).insert(rows(("a", "p", 2, 2), ("b", "p", 1, 3)))
    assert content(table) == [("a", "p", 2), ("b", "p", 3)]


def test_a_frame_of_duplicates_only_leaves_a_commit_without_files(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1)))
    result = writer(table, hoodie__datasource__insert__dup__policy="drop").insert(rows(("a", "p", 2, 2)))
    assert result.files == 0


@pytest.mark.parametrize("combine", [True, False])
@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "insert_overwrite"])
def test_combining_before_an_insert(make: Make, operation: str, combine: bool) -> None:
    table = make()
    combining = writer(table, hoodie__combine__before__insert=combine)
    getattr(combining, operation)(rows(("a", "p", 2, 1), ("a", "p", 1, 2)))
    assert content(table) == ([("a", "p", 1)] if combine else [("a", "p", 1), ("a", "p", 2)])


# -- prepped rows ------------------------------------------------------------------------------------------------------


def prepped(table: HudiTable, where: str) -> pa.Table:
    return read(table.reload(), ReadRequest(where=where)).to_arrow()


def test_prepped_rows_are_updated_and_deleted_where_they_were_read(make: Make) -> None:
    table = make()
    writer(table).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 2), ("c", "q", 1, 3)))
    read_rows = prepped(table, "v >= 2")
    changed = read_rows.set_column(read_rows.schema.get_field_index("v"), "v", pa.array([20, 30]))
    result = writer(table).upsert(changed, prepped=True)
    assert result.metadata.operation_type is WriteOperation.UPSERT_PREPPED
    assert (result.updated, result.inserted) == (2, 0)
    assert sorted(content(table)) == [("a", "p", 1), ("b", "p", 20), ("c", "q", 30)]
    deleted_rows = writer(table).delete(prepped(table, "v = 20"), prepped=True)
    assert (deleted_rows.metadata.operation_type, deleted_rows.deleted) == (WriteOperation.DELETE_PREPPED, 1)
    assert content(table) == [("a", "p", 1), ("c", "q", 30)]


def test_prepped_deletes_reach_rows_whose_keys_were_made(make: Make) -> None:
    table = make(record_key=(), ordering=None)
    writer(table).insert(rows(("a", "p", 1, 1), ("a", "p", 1, 1), ("b", "p", 1, 2)))
    one = prepped(table, "id = 'a'").slice(0, 1)
    writer(table).delete(one, prepped=True)
    assert content(table) == [("a", "p", 1), ("b", "p", 2)]
    with pytest.raises(KeyFieldError, match="has no record key"):
        writer(table).delete(rows(("a", "p", 1, 1)))


def test_prepped_updates_keep_the_keys_that_were_made(make: Make) -> None:
    table = make(record_key=(), ordering=None)
    writer(table).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 2)))
    before = prepped(table, "true")
    changed = before.set_column(before.schema.get_field_index("v"), "v", pa.array([7, 7]))
    writer(table).upsert(changed, prepped=True)
    after = prepped(table, "true")
    assert after["_hoodie_record_key"].to_pylist() == before["_hoodie_record_key"].to_pylist()
    assert [row[2] for row in content(table)] == [7, 7]


def test_keys_that_were_made_are_the_same_in_every_attempt(make: Make) -> None:
    table = make(record_key=(), ordering=None)
    keys: list[list[str]] = []

    class Twice(ThreadRunner):
        def map(self, function: Any, tasks: Any) -> Any:
            tasks = list(tasks)
            for results in (super().map(function, tasks), super().map(function, tasks)):
                for stat in (stat for result in results for stat in getattr(result, "stats", ())):
                    held = read_base(table.storage, stat.path, columns=["_hoodie_record_key"])
                    keys.append([key for batch in held for key in batch.column(0).to_pylist()])
            return results

    many = rows(*[(f"k{at}", "p", 1, at) for at in range(50)])
    result = LocalWriter(table.with_context(runner=Twice())).insert(many)
    first, second = keys
    assert first == second
    assert len(set(first)) == 50
    assert all(key.startswith(f"{result.instant.requested_time}_") for key in first)


def test_prepped_rows_without_meta_columns_are_refused(make: Make) -> None:
    table = make()
    with pytest.raises(KeyFieldError, match="_hoodie_record_key"):
        writer(table).upsert(rows(("a", "p", 1, 1)), prepped=True)


def test_an_upsert_of_rows_without_content_deletes_by_key(make: Make) -> None:
    """Hudi's way to delete for good, by the payload class of one write."""
    table = make()
    writer(table).insert(rows(("a", "p", 5, 1), ("b", "p", 5, 2)))
    empty = {"hoodie__datasource__write__payload__class": "org.apache.hudi.common.model.EmptyHoodieRecordPayload"}
    result = writer(table, **empty).upsert(rows(("a", "p", 1, None), ("nowhere", "p", 1, None)))
    assert (result.deleted, result.inserted) == (1, 0)
    assert content(table) == [("b", "p", 2)]
    assert table.reload().config.payload_class == table.config.payload_class
    with pytest.raises(OptionError, match="by an upsert"):
        writer(table, **empty).insert(rows(("c", "p", 1, 1)))


# -- what a commit records ---------------------------------------------------------------------------------------------


def test_options_with_the_prefix_go_into_the_commit(make: Make) -> None:
    table = make()
    given_options = Options({"_source.offset": "42", "other": "x"})
    result = LocalWriter(table.with_context(options=given_options)).insert(rows(("a", "p", 1, 1)))
    assert {key for key in result.metadata.extra_metadata if key != "schema"} == {"_source.offset"}
    named = Options({"hoodie.datasource.write.commitmeta.key.prefix": "mine.", "mine.id": "7", "_x": "1"})
    result = LocalWriter(table.with_context(options=named)).delete_partitions(["p"])
    assert {k: v for k, v in result.metadata.extra_metadata.items() if k != "schema"} == {"mine.id": "7"}


def test_a_batch_id_makes_any_operation_a_no_op_when_repeated(make: Make) -> None:
    table = make()
    first = writer(table).insert_overwrite(rows(("a", "p", 1, 1)), batch_id="b1")
    again = writer(table).insert_overwrite(rows(("a", "p", 1, 1)), batch_id="b1")
    assert again.repeated
    assert again.instant == first.instant
    assert writer(table).delete_partitions(["p"], batch_id="b2").repeated is False
    assert writer(table).delete_partitions(["p"], batch_id="b2").repeated


def test_a_batch_id_is_found_after_its_commit_was_archived(make: Make) -> None:
    table = make()
    results = [
        writer(table).upsert(rows(("a", "p", n, n)), batch_id=f"batch {n}", extra_metadata={"by": f"me {n}"})
        for n in range(1, 8)
    ]
    small = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.automatic": "false"}
    small["hoodie.cleaner.commits.retained"] = "1"
    clean(table.reload().with_context(options=Options(small)))
    archive(table.reload().with_context(options=Options(small)))
    assert not table.reload().timeline.contains(results[1].instant.requested_time)
    for result, number in ((results[1], 2), (results[6], 7)):
        again = writer(table).upsert(rows(("a", "p", 0, 0)), batch_id=f"batch {number}")
        assert again.repeated
        assert again.metadata.extra_metadata["by"] == f"me {number}"
        assert again.instant.requested_time == result.instant.requested_time
    assert not writer(table).upsert(rows(("b", "p", 0, 0)), batch_id="me 2").repeated  # not an id, though it is there


# -- what is announced -------------------------------------------------------------------------------------------------


def test_the_inflight_file_has_the_groups_that_change_and_the_number_of_new_rows(make: Make) -> None:
    """As Hudi has it: of each partition one stat without a group, and nothing of a bulk insert."""
    table = make()

    def announced(instant: Instant) -> bytes:
        inflight = replace(instant, state=State.INFLIGHT)
        return table.storage.read(table.layout.path(inflight))

    bulk = writer(table).bulk_insert(rows(("a", "p", 1, 1)))
    assert announced(bulk.instant) == b""
    upsert = writer(table).upsert(rows(("a", "p", 2, 2), ("b", "q", 1, 1), ("c", "q", 1, 1)))
    (file,) = bulk.metadata.stats
    planned = table.layout.decode_commit(announced(upsert.instant), "")
    found = {
        partition: [(stat.file_id, stat.prev_commit, stat.num_update_writes, stat.num_inserts) for stat in stats]
        for partition, stats in planned.partition_to_write_stats.items()
    }
    time = bulk.instant.requested_time
    assert found == {"p": [("", "null", 0, 0), (file.file_id, time, 1, 0)], "q": [("", "null", 0, 2)]}
