"""Whole writes without Spark: what is in the table afterwards, and in the commit's metadata."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.basefile import BaseFileFooter, read_footer
from skep_format.bloom import BloomKind
from skep_format.errors import InputError, KeyFieldError, OptionError, SchemaError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.hooks import Committed
from skep_table.table import HudiTable
from skep_table.write.flow import EmptyPartitionWarning
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.indexes.tagging import Tagging, locate
from skep_table.write.local import LocalWriter
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles
from tests.blooms import build_bloom

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
Make = Callable[..., HudiTable]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(schema: pa.Schema = SCHEMA, **spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        folder = tmp_path / f"t{len(list(tmp_path.iterdir()))}"
        return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=schema, **wanted))

    return table


def rows(*values: tuple[str, str, int, int | None]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True)) if values else [[]] * 4
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def read(table: HudiTable) -> list[dict[str, Any]]:
    table = table.reload()
    view = table.view()
    files = [
        Path(table.storage.root) / slice_.base_file.path
        for partition in view.partitions()
        for slice_ in view.slices(partition)
        if slice_.base_file
    ]
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def content(table: HudiTable) -> dict[str, tuple[int, int | None]]:
    found = read(table)
    assert max(Counter(row["id"] for row in found).values(), default=1) == 1
    return {row["id"]: (row["ts"], row["v"]) for row in found}


def options(**given: Any) -> dict[str, Any]:
    return {"options": Options({key.replace("__", "."): value for key, value in given.items()})}


def test_insert_keeps_equal_keys_and_fills_the_small_file(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    first = writer.insert(rows(("a", "p", 1, 1)))
    second = writer.insert(rows(("a", "p", 1, 2), ("b", "p", 1, 3)))
    assert Counter(row["id"] for row in read(table)) == {"a": 2, "b": 1}
    assert {stat.file_id for stat in first.metadata.stats} == {stat.file_id for stat in second.metadata.stats}
    (stat,) = second.metadata.stats
    assert (stat.prev_commit, stat.num_writes, stat.num_inserts) == (first.instant.requested_time, 3, 2)
    assert repr(second) == f"<insert {second.instant.requested_time}: 2 inserted, 1 files>"


def test_bulk_insert_makes_files_of_its_own_and_rolls_over(make: Make) -> None:
    table = make()
    many = rows(*[(f"k{at:05d}", "p", 1, at) for at in range(3000)])
    setting = options(hoodie__parquet__max__file__size=40_000, hoodie__copyonwrite__record__size__estimate=40)
    result = LocalWriter(table.with_context(**setting)).bulk_insert(many)
    assert result.files > 1
    sizes = [stat.file_size_in_bytes for stat in result.metadata.stats]
    assert 30_000 < sizes[0] < 46_000  # measured, not by the size of a record that the options give
    LocalWriter(table).bulk_insert(rows(("x", "p", 1, 1)))
    assert len(table.reload().view().slices("p")) == result.files + 1
    assert len(content(table)) == 3001


def test_small_files_are_left_alone_when_the_limit_is_zero(make: Make) -> None:
    table = make()
    writer = LocalWriter(table.with_context(**options(hoodie__parquet__small__file__limit=0)))
    written = [writer.insert(rows((key, "p", 1, 1))).metadata.stats[0] for key in "abc"]
    assert len({stat.file_id for stat in written}) == 3
    assert all(stat.num_writes == 1 for stat in written)
    assert set(content(table)) == {"a", "b", "c"}


def test_a_number_of_rows_makes_files_only_where_sizes_do_not(make: Make) -> None:
    many = rows(*[(f"k{at}", "p", 1, at) for at in range(10)])
    for by_size, files in ((True, 1), (False, 4)):
        setting = options(hoodie__copyonwrite__insert__split__size=3, hoodie__copyonwrite__insert__auto__split=by_size)
        assert LocalWriter(make().with_context(**setting)).insert(many).files == files


@pytest.mark.parametrize(
    ("hooked", "codec"), [("", "SNAPPY"), ("gzip", "GZIP"), ("ZSTD", "ZSTD"), ("uncompressed", "UNCOMPRESSED")]
)
def test_files_are_compressed_as_chosen_with_dictionaries_or_without(make: Make, hooked: str, codec: str) -> None:
    table = make()
    given = {"hoodie__parquet__compression__codec": hooked} if hooked else {}
    for more in ({}, {"hoodie__parquet__dictionary__enabled": False}):
        LocalWriter(table.with_context(**options(**given, **more))).bulk_insert(rows(*[("k", "p", 1, 7)] * 2000))
    chunks = [
        pq.ParquetFile(file).metadata.row_group(0).column(SCHEMA.get_field_index("v") + 5)
        for file in Path(table.storage.root).glob("p/*.parquet")
    ]
    assert [(chunk.path_in_schema, chunk.compression) for chunk in chunks] == [("v", codec)] * 2
    assert sorted(chunk.has_dictionary_page for chunk in chunks) == [False, True]


def test_an_update_in_another_partition_is_a_row_of_its_own(make: Make) -> None:
    """The index is not global: a key is unique within its partition."""
    table = make()
    writer = LocalWriter(table)
    writer.upsert(rows(("a", "p", 1, 1)))
    writer.upsert(rows(("a", "q", 2, 2)))
    assert sorted((row["part"], row["v"]) for row in read(table)) == [("p", 1), ("q", 2)]


def test_a_file_whose_rows_are_all_deleted_is_written_empty(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1)))
    result = writer.delete(pa.table({"id": ["a", "a", "nowhere"], "part": ["p", "p", "p"]}))
    (stat,) = result.metadata.stats
    assert (stat.num_deletes, stat.num_writes) == (1, 0)
    assert read(table) == []
    assert writer.delete(pa.table({"id": ["a"], "part": ["p"]})).files == 0
    assert result.metadata.schema_json == table.reload().commit_metadata(result.instant).schema_json


def test_rows_marked_deleted(make: Make) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = make(schema)
    writer = LocalWriter(table)
    marked = [pa.array([False, None]), pa.array([True, True])]
    writer.upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 1)).append_column("_hoodie_is_deleted", marked[0]))
    writer.upsert(rows(("a", "p", 2, 1), ("new", "p", 2, 1)).append_column("_hoodie_is_deleted", marked[1]))
    assert content(table) == {"b": (1, 1)}


def test_without_ordering_the_last_row_and_the_last_write_win(make: Make) -> None:
    table = make(ordering=None)
    writer = LocalWriter(table)
    writer.upsert(rows(("a", "p", 9, 1), ("a", "p", 1, 2)))
    assert content(table) == {"a": (1, 2)}
    writer.upsert(rows(("a", "p", 0, 3)))
    assert content(table) == {"a": (0, 3)}


def test_a_table_without_partitions(make: Make) -> None:
    table = make(partition_by=(), record_key=("id", "part"))
    writer = LocalWriter(table)
    writer.upsert(rows(("a", "p", 1, 1), ("a", "q", 1, 2)))
    writer.upsert(rows(("a", "q", 2, 3)))
    assert sorted(row["_hoodie_record_key"] for row in read(table)) == ["id:a,part:p", "id:a,part:q"]
    metafile = (Path(table.storage.root) / ".hoodie_partition_metadata").read_text()
    assert "partitionDepth=0" in metafile


def test_partition_folders_are_hive_style_and_escaped_by_setting(make: Make) -> None:
    table = make(hive_style=True, url_encode=True)
    with pytest.warns(EmptyPartitionWarning):
        LocalWriter(table).upsert(rows(("a", "x/y=z", 1, 1), ("b", "", 1, 1)))
    assert table.reload().view().partitions() == ["part=__HIVE_DEFAULT_PARTITION__", "part=x%2Fy%3Dz"]


def test_a_table_without_record_key_gets_keys_made_and_takes_inserts_only(make: Make) -> None:
    table = make(record_key=(), ordering=None)
    writer = LocalWriter(table)
    writer.insert(rows(("a", "p", 1, 1), ("a", "p", 1, 1)))
    writer.bulk_insert(rows(("a", "p", 1, 1)))
    keys = [row["_hoodie_record_key"] for row in read(table)]
    assert len(set(keys)) == 3
    assert all(row["_hoodie_record_key"] == row["_hoodie_commit_seqno"] for row in read(table))
    with pytest.raises(KeyFieldError, match="no record key"):
        writer.upsert(rows(("a", "p", 1, 1)))
    with pytest.raises(KeyFieldError, match="no record key"):
        writer.delete(rows(("a", "p", 1, 1)))


def test_types_widen_and_columns_are_added(make: Make) -> None:
    table = make(SCHEMA.set(3, pa.field("v", pa.int32())))
    writer = LocalWriter(table)
    writer.upsert(rows(("a", "p", 1, 1)).cast(SCHEMA.set(3, pa.field("v", pa.int32()))))
    writer.upsert(rows(("b", "p", 1, 2**40)).append_column("new", pa.array([["x"]])))
    assert content(table) == {"a": (1, 1), "b": (1, 2**40)}
    nulls = LocalWriter(table.with_context(**options(hoodie__write__set__null__for__missing__columns=True)))
    nulls.upsert(pa.table({"part": ["p"], "id": ["c"], "ts": pa.array([1], pa.int32()), "new": [["y"]]}))
    assert content(table)["c"] == (1, None)
    with pytest.raises(SchemaError, match="column v"):
        writer.upsert(rows(("d", "p", 1, 1)).set_column(3, "v", pa.array([[1]])))


@pytest.mark.parametrize("kind", BloomKind)
def test_footers_hold_filter_and_range(kind: BloomKind, make: Make) -> None:
    table = make()
    setting = options(hoodie__bloom__index__filter__type=kind.value)
    LocalWriter(table.with_context(**setting)).insert(rows(*[(f"k{at}", "p", 1, at) for at in range(50)]))
    (slice_,) = table.reload().view().slices("p")
    assert slice_.base_file is not None
    footer = read_footer(table.storage, slice_.base_file.path)
    assert (footer.min_key, footer.max_key) == ("k0", "k9")
    assert footer.bloom is not None
    assert footer.bloom.might_contain(pa.array(["k0", "k31"])).to_pylist() == [True, True]
    assert footer.schema.names()[:2] == ("_hoodie_commit_time", "_hoodie_commit_seqno")


@pytest.mark.parametrize("entries", [20, 60_000], ids=["full", "roomy"])
def test_a_filter_goes_on_over_versions_of_a_file_as_if_built_again(entries: int, make: Make) -> None:
    """Updates and inserts: the same bits as of a filter over all keys. A deleted key stays in a filter that goes on,
    until a fifth of its keys are of deleted rows; a small filter is built from the rows of each version.
    """
    table = make()
    setting = options(hoodie__index__bloom__num_entries=entries, hoodie__bloom__index__filter__dynamic__max__entries=60)
    writer = LocalWriter(table.with_context(**setting))
    keys = [f"k{at:02d}" for at in range(50)]
    for step in range(5):
        writer.upsert(rows(*[(key, "p", step, step) for key in keys[: 10 * (step + 1)]]))

    def footer() -> BaseFileFooter:
        (slice_,) = table.reload().view().slices("p")
        assert slice_.base_file is not None
        return read_footer(table.storage, slice_.base_file.path)

    def filter_bits() -> bytes:
        found = footer()
        assert found.bloom is not None
        assert (found.min_key, found.max_key) == ("k00", "k49")
        return found.bloom.to_bytes()

    again = build_bloom(pa.array(keys), entries=entries, max_entries=60)
    assert filter_bits() == again.to_bytes()
    goes_on = entries == 20
    writer.delete(pa.table({"id": ["k10"], "part": ["p"]}))
    left = keys if goes_on else keys[:10] + keys[11:]
    assert filter_bits() == build_bloom(pa.array(left), entries=entries, max_entries=60).to_bytes()
    for key in keys[11:20]:
        writer.delete(pa.table({"id": [key], "part": ["p"]}))
    found = footer().bloom
    assert found is not None
    assert found.might_contain(pa.array(keys[10:20])).to_pylist() == [goes_on] * 10
    for key in keys[20:22]:
        writer.delete(pa.table({"id": [key], "part": ["p"]}))
    found = footer().bloom
    assert found is not None
    assert not any(found.might_contain(pa.array(keys[10:21])).to_pylist())
    assert all(found.might_contain(pa.array(keys[22:])).to_pylist())


def test_hooks_are_called_and_can_not_undo_the_commit(make: Make) -> None:
    table = make()
    hooked: list[Committed] = []

    def breaks(_: Committed) -> None:
        raise RuntimeError("sync is down")

    result = LocalWriter(table, hooks=(breaks, hooked.append)).insert(rows(("a", "p", 1, 1)))
    assert [(event.table_name, event.instant) for event in hooked] == [("t", result.instant)]
    assert content(table) == {"a": (1, 1)}


def test_what_is_no_frame_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match=r"builtins\.list"):
        LocalWriter(make()).insert([1, 2])
    with pytest.raises(OptionError, match="FLINK_STATE"):
        Options({"hoodie.index.type": "FLINK_STATE"}).value(
            __import__("skep_table.write.planning.options").write.planning.options.INDEX_TYPE
        )


def test_a_golden_table_is_written_on(golden: Path, tmp_path: Path) -> None:
    """Rows that Hudi 0.15 wrote are found by its footers, updated in their files, and keep their keys."""
    shutil.copytree(golden / "0.15.0/cow_bloom_index/table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    before = {row["_hoodie_record_key"]: row for row in read(table)}
    names = table.schema().names()
    chosen = [{name: row[name] for name in names} for row in list(before.values())[::2]]
    bumped = [{**row, "ts": row["ts"] + 1_000_000} for row in chosen]
    from skep_format.schema.arrow import to_arrow

    result = LocalWriter(table).upsert(pa.Table.from_pylist(bumped, to_arrow(table.schema())))
    assert (result.updated, result.inserted) == (len(chosen), 0)
    after = {row["_hoodie_record_key"]: row for row in read(table)}
    assert after.keys() == before.keys()
    changed = {key for key in after if after[key]["ts"] != before[key]["ts"]}
    assert len(changed) == len(chosen)
    for key in after.keys() - changed:
        assert after[key] == {**before[key], "_hoodie_file_name": after[key]["_hoodie_file_name"]}


KEYS = st.sampled_from(["a", "b", "c", "d", "é", "\U0001f41d", "z" * 40])
BATCH = st.lists(st.tuples(KEYS, st.sampled_from(["p", "q"]), st.integers(0, 5), st.integers(0, 9)), max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["upsert", "delete"]), BATCH), max_size=5))
def test_any_run_of_writes_ends_as_a_dict_would(tmp_path_factory: Any, steps: list[tuple[str, list[Any]]]) -> None:
    """The model: per partition and key the row with the greatest ordering value stays, the later one of equals."""
    folder = tmp_path_factory.mktemp("model") / "t"
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(folder)), spec)
    writer = LocalWriter(table)
    model: dict[tuple[str, str], tuple[int, int]] = {}
    for operation, batch in steps:
        if operation == "upsert":
            writer.upsert(rows(*batch))
            for key, part, ts, value in batch:
                if ts >= model.get((part, key), (-1, 0))[0]:
                    model[part, key] = ts, value
        else:
            writer.delete(rows(*batch).select(["part", "id"]))
            for key, part, _, _ in batch:
                model.pop((part, key), None)
    assert {(row["part"], row["id"]): (row["ts"], row["v"]) for row in read(table)} == model


def test_tags_name_the_file_that_holds_a_key(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    for low in (0, 100, 200):
        writer.bulk_insert(rows(*[(f"k{at:03d}", "p", 1, at) for at in range(low, low + 100, 2)]))
    files = [
        CandidateFile(slice_.file_id, slice_.base_file.path, slice_.base_instant, slice_.base_file.size_bytes)
        for slice_ in table.reload().view().slices("p")
        if slice_.base_file
    ]
    asked = [f"k{at:03d}" for at in range(300)] + ["k000", "zzz", "", "\U0001f41d"]
    candidates = CandidateFiles({"p": files})
    keyed = pa.table({"_hoodie_record_key": asked, "_hoodie_partition_path": ["p"] * len(asked)})
    look_up = BloomLookUp(table.reload(), candidates)
    tags = locate(Tagging(look_up, candidates), keyed, ThreadRunner()).numbers
    pruned = locate(Tagging(look_up.with_ranges(ThreadRunner()), candidates), keyed, ThreadRunner()).numbers
    assert pruned.tolist() == tags.tolist()
    held = [set(pq.ParquetFile(Path(table.storage.root) / f.path).read(["id"]).column(0).to_pylist()) for f in files]
    assert tags.tolist() == [next((at for at, keys in enumerate(held) if key in keys), -1) for key in asked]
