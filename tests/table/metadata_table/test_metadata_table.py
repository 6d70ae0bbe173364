"""The metadata table (format guide 7) against what lies in storage, footers and rows of the tables it describes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from golden_metadata import opened
from hypothesis import example, given
from hypothesis import strategies as st

from skep_format.errors import CorruptFileError, FormatError, SkepError
from skep_format.hfile import format_hfile
from skep_format.logfile import read_blocks
from skep_format.names import PARTITION_METAFILE
from skep_format.schema.arrow import to_arrow
from skep_format.storage import FolderStorage, LocalStorage
from skep_table.metadata_table import FOLDER, MetadataTable, java_hashes
from skep_table.metadata_table.entries import Entries, latest, since_reset
from skep_table.metadata_table.keys import column_key, file_key, group_numbers, partition_key, path_key
from skep_table.metadata_table.partitions import FILES_MEMBER
from skep_table.metadata_table.records.files import merged_files
from skep_table.metadata_table.values import statistics, unwrap
from skep_table.table import HudiTable

# -- keys --------------------------------------------------------------------------------------------------------------


class TestKeys:
    @pytest.mark.parametrize(
        ("text", "key"), [("a", "BFHqp2KLzrM="), ("b", "Ikp1UxohNwU="), ("ok", "DLXtYGXLzb4="), ("", "DW/eaNVbRdo=")]
    )
    def test_vectors_of_the_guide(self, text: str, key: str) -> None:
        assert column_key(text) == key

    def test_a_table_without_partitions_has_a_dot(self) -> None:
        assert partition_key("") == "."
        assert path_key("") == column_key(".")

    def test_file_names_are_md5(self) -> None:
        assert file_key("a") == "DMF1ucDxtqgxw5niaXcmYQ=="

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8))
    def test_javas_hash_of_strings(self, texts: list[str]) -> None:
        def one(text: str) -> int:
            value = 0
            units = text.encode("utf-16-be")
            for at in range(0, len(units), 2):
                value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
            return value

        assert java_hashes(pa.array(texts, pa.string())).tolist() == [one(text) for text in texts]
        assert java_hashes(pa.array(["x", *texts], pa.string())[1:]).tolist() == [one(text) for text in texts]

    def test_the_smallest_integer_has_no_positive_counterpart(self) -> None:
        worst = "polygenelubricants"  # hashes to -2^31
        assert java_hashes(pa.array([worst])).tolist() == [2**31]
        assert group_numbers(pa.array([worst]), 10).tolist() == [8]


# -- merging -----------------------------------------------------------------------------------------------------------

INFO = pa.struct([pa.field("size", pa.int64()), pa.field("isDeleted", pa.bool_())])
MAPS = pa.map_(pa.string(), INFO)
NAMES = st.sampled_from(["f1", "f2", "f3"])
SOURCES = st.lists(
    st.one_of(
        st.dictionaries(
            st.sampled_from(["p", "q"]), st.none() | st.dictionaries(NAMES, st.none() | st.integers(0, 9)), max_size=2
        ),
        st.sets(st.sampled_from(["p", "q"]), min_size=1),
    ),
    max_size=5,
)


def as_entries(source: Any) -> Entries:
    """A dict is records (None for a deleted file's size), a set is keys that a delete block deletes."""
    if isinstance(source, set):
        return Entries(pa.array(sorted(source), pa.string()), None)
    maps = [
        None
        if files is None
        else [(name, {"size": size or 0, "isDeleted": size is None}) for name, size in files.items()]
        for files in source.values()
    ]
    return Entries(
        pa.array(list(source), pa.string()), pa.RecordBatch.from_arrays([pa.array(maps, MAPS)], [FILES_MEMBER])
    )


RESETTABLE = pa.struct([("n", pa.int64()), ("again", pa.bool_())])
KEYS = st.sampled_from(["a", "b", "c", "ü"])
HISTORIES = st.lists(
    st.one_of(
        st.dictionaries(KEYS, st.tuples(st.integers(0, 99), st.none() | st.booleans()), max_size=4),
        st.sets(KEYS, min_size=1),
    ),
    max_size=6,
)


def numbers(records: pa.Array) -> list[int]:
    return [] if pa.types.is_null(records.type) else pc.struct_field(records, "n").to_pylist()


class TestMerging:
    @given(SOURCES)
    @example([{"p": {"f1": 3}}, {"p": {"f1": 1}}])
    def test_files_are_added_taken_away_and_grow(self, sources: list[Any]) -> None:
        expected: dict[str, dict[str, int]] = {"p": {}, "q": {}}
        for source in sources:
            if isinstance(source, set):
                for key in source:
                    expected[key].clear()
                continue
            for key, files in source.items():
                for name, size in (files or {}).items():
                    if size is None:
                        expected[key].pop(name, None)
                    else:
                        expected[key][name] = max(size, expected[key].get(name, 0))
        rows = merged_files([as_entries(source) for source in sources]).to_pylist()
        flat = [{"key": k, "name": n, "size": s} for k, files in expected.items() for n, s in sorted(files.items())]
        assert rows == flat

    def test_the_newest_record_of_a_key_holds_until_it_is_deleted(self) -> None:
        def records(**values: int) -> Entries:
            batch = pa.RecordBatch.from_arrays([pa.array(list(values.values()))], ["v"])
            return Entries(pa.array(list(values)), batch)

        removed = Entries(pa.array(["a", "x"]), None)
        keys, found = latest([records(a=1, b=2), removed, records(b=3, c=4)], "v")
        assert dict(zip(keys.to_pylist(), found.to_pylist(), strict=True)) == {"b": 3, "c": 4}

    @given(HISTORIES)
    def test_records_count_from_a_reset_or_delete_on(self, history: list[Any]) -> None:
        newest: dict[str, int] = {}
        since: dict[str, list[int]] = {}
        sources = []
        for source in history:
            if isinstance(source, set):
                sources.append(Entries(pa.array(sorted(source), pa.string()), None))
                for key in source:
                    newest.pop(key, None)
                    since.pop(key, None)
                continue
            records = [{"n": number, "again": again} for number, again in source.values()]
            batch = pa.RecordBatch.from_arrays([pa.array(records, RESETTABLE)], ["v"])
            sources.append(Entries(pa.array(list(source), pa.string()), batch))
            for key, (number, again) in source.items():
                newest[key] = number
                since[key] = [number] if again else [*since.get(key, []), number]
        keys, found = latest(sources, "v")
        assert dict(zip(keys.to_pylist(), numbers(found), strict=True)) == newest
        keys, found = since_reset(sources, "v", ("again", "unknown"))
        rows = list(zip(keys.to_pylist(), numbers(found), strict=True))
        assert {key: [n for k, n in rows if k == key] for key, _ in rows} == since

    def test_records_of_two_releases_have_the_members_of_both(self) -> None:
        old = pa.RecordBatch.from_arrays([pa.array([{"x": 1}])], ["v"])
        new = pa.RecordBatch.from_arrays([pa.array([{"x": 2, "y": "z"}])], ["v"])
        keys = pa.array(["a"]), pa.array(["b"])
        _, found = latest([Entries(keys[0], old), Entries(keys[1], new)], "v")
        assert found.to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": "z"}]


# -- whole tables ------------------------------------------------------------------------------------------------------


def base_files(table: HudiTable) -> Iterator[tuple[str, str, str, pa.Table]]:
    """Partition path, file id, file name and rows of each live base file, by storage."""
    view = table.view(metadata=False)
    for partition in view.partitions():
        for slice_ in view.slices(partition):
            assert slice_.base_file is not None
            path = Path(str(table.storage.root)) / slice_.base_file.path
            yield partition, slice_.file_id, path.name, pq.read_table(path, partitioning=None)


class TestFiles:
    @pytest.mark.parametrize("case", ["cow_upsert_mdt", "cow_record_index", "cow_column_stats"])
    def test_listing_is_that_of_storage(self, golden: Path, release: str, case: str) -> None:
        table, metadata = opened(golden, release, case)
        stored = table.view(metadata=False)
        assert metadata.partitions() == sorted(stored.partitions())
        for partition in metadata.partitions():
            there = {f.path: f.size_bytes for f in stored.listing.files(partition) if f.name != PARTITION_METAFILE}
            assert {f.path: f.size_bytes for f in metadata.files(partition)} == there
        assert metadata.files("not/there") == []

    def test_many_partitions_are_read_in_one_go(self, golden: Path, release: str) -> None:
        _, metadata = opened(golden, release, "cow_upsert_mdt")
        one_by_one = {partition: metadata.files(partition) for partition in metadata.partitions()}
        for number in range(20):
            assert metadata.files(f"none{number}") == []
        assert {partition: metadata.files(partition) for partition in metadata.partitions()} == one_by_one

    def test_a_table_without_one_has_none(self, golden: Path) -> None:
        assert MetadataTable.open(HudiTable.open(golden / "0.15.0/cow_upsert/table")) is None

    def test_what_the_data_table_has_not_completed_does_not_count(self, golden: Path, tmp_path: Path) -> None:
        source = golden / "0.15.0/cow_upsert_mdt/table"
        copy = copied(source, tmp_path)
        last = max(copy.glob(".hoodie/*.commit"), key=lambda path: path.name)
        instant = last.name.partition(".")[0]
        (copy / ".hoodie" / f"{instant}.inflight").touch()
        last.unlink()
        _, metadata = HudiTable.open(copy), MetadataTable.open(HudiTable.open(copy))
        assert metadata is not None
        names = {file.name for partition in metadata.partitions() for file in metadata.files(partition)}
        whole = MetadataTable.open(HudiTable.open(source))
        assert whole is not None
        all_names = {file.name for partition in whole.partitions() for file in whole.files(partition)}
        assert names == {name for name in all_names if f"_{instant}." not in name}
        assert names < all_names

    def test_a_write_that_the_metadata_table_lacks_makes_it_stale(self, golden: Path, tmp_path: Path) -> None:
        copy = copied(golden / "0.15.0/cow_upsert_mdt/table", tmp_path)
        metadata = MetadataTable.open(HudiTable.open(copy))
        assert metadata is not None
        assert metadata.is_current()
        (copy / ".hoodie/20991231235959999.commit").write_text("{}")
        stale = MetadataTable.open(HudiTable.open(copy))
        assert stale is not None
        assert not stale.is_current()


class TestIndexes:
    def test_column_stats_are_those_of_the_files(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        schema = to_arrow(table.schema())
        for name in ("order_id", "ts", "ship_date", "qty", "amount", "price"):
            kind = schema.field(name).type
            files = [(partition, file_name) for partition, _, file_name, _ in base_files(table)]
            every = metadata.statistics_of_files(name, kind, files)
            assert every is not None
            for partition, _, file_name, rows in base_files(table):
                stats = metadata.statistics_of_files(name, kind, [(partition, file_name)])
                assert stats is not None
                (found,) = stats.to_pylist()
                bounds = pc.min_max(rows.column(name)).as_py()
                assert found == {
                    "file_name": file_name, "min_value": bounds["min"], "max_value": bounds["max"],
                    "value_count": len(rows), "null_count": rows.column(name).null_count,
                }  # fmt: skip
                assert found in every.to_pylist()

    def test_columns_and_files_without_statistics(self, golden: Path, release: str) -> None:
        _, metadata = opened(golden, release, "cow_column_stats")
        for column, files in (("no_such", [("x", "y")]), ("ts", [("x", "y")]), ("ts", [])):
            stats = metadata.statistics_of_files(column, pa.int64(), files)
            assert stats is not None
            assert [set(row.values()) for row in stats.to_pylist()] == [{None}] * len(files)
            assert stats.schema.field("min_value").type == pa.int64()
        _, without = opened(golden, "0.15.0", "cow_upsert_mdt")
        assert without.statistics_of_files("ts", pa.int64(), []) is None
        assert without.bloom([]) is None
        assert without.record_index(pa.array(["a"])) is None
        assert without.statistics_of_partitions("ts", pa.int64(), []) is None

    @pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
    def test_partition_stats_hold_those_of_the_partitions_files(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        for partition, _, _, rows in base_files(table):
            stats = metadata.statistics_of_partitions("ts", pa.int64(), [partition])
            assert stats is not None
            (found,) = stats.to_pylist()
            bounds = pc.min_max(rows.column("ts")).as_py()
            assert found["file_name"] == partition
            assert found["min_value"] <= bounds["min"] <= bounds["max"] <= found["max_value"]
        every = metadata.statistics_of_partitions("ts", pa.int64(), metadata.partitions())
        assert every is not None
        assert every["file_name"].to_pylist() == metadata.partitions()

    def test_bloom_filters_are_those_of_the_footers(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        listed = [(partition, name) for partition, _, name, _ in base_files(table)]
        filters = metadata.bloom([*listed, ("x", "not-there.parquet")])
        assert filters is not None
        assert sorted(filters) == sorted(listed)
        for partition, _, name, _ in base_files(table):
            footer = pq.read_metadata(Path(str(table.storage.root)) / partition / name).metadata
            assert filters[partition, name].to_base64() == footer[b"org.apache.hudi.bloomfilter"]

    def test_the_record_index_finds_every_live_key_and_no_other(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_record_index")
        expected = {
            key: (partition, file_id)
            for partition, file_id, _, rows in base_files(table)
            for key in rows.column("_hoodie_record_key").to_pylist()
        }
        found = metadata.record_index(pa.array([*expected, "no such key", "ord-000578"]))
        assert found is not None
        listed = zip(*(found.column(name).to_pylist() for name in found.column_names[:3]), strict=True)
        assert {key: (partition, file_id) for key, partition, file_id in listed} == expected
        assert len(found) == len(expected)


def test_a_partitioned_record_index_has_groups_for_each_partition(golden: Path, tmp_path: Path) -> None:
    """`record-index-<data partition>-0000-0`: keys are spread over the groups of one data partition."""
    folder = copied(golden / "1.1.1" / "cow_record_index" / "table", tmp_path)
    for file in sorted((folder / FOLDER / "record_index").glob(".record-index-*")):
        for partition in ("north-1", "south"):
            shutil.copy(file, file.with_name(file.name.replace("record-index-", f"record-index-{partition}-")))
        file.unlink()
    table = HudiTable.open(folder)
    metadata = MetadataTable.open(table)
    assert metadata is not None
    live = sorted(key for *_, rows in base_files(table) for key in rows.column("_hoodie_record_key").to_pylist())
    found = metadata.record_index(pa.array(live))
    assert found is not None
    assert sorted(found["record_key"].to_pylist()) == sorted(live * 2)


def stated(key: str, low: int | None, high: int | None, *, deleted: bool = False, tight: bool = False) -> Entries:
    """One record of statistics, of ten rows and one null."""
    values = {"minValue": low, "maxValue": high}
    wrapped = {name: None if value is None else {"L": {"value": value}} for name, value in values.items()}
    record = {"fileName": f"{key}.log", **wrapped, "valueCount": 10, "nullCount": 1}
    kind = pa.struct([("L", pa.struct([("value", pa.int64())]))])
    members = [("fileName", pa.string()), ("minValue", kind), ("maxValue", kind), ("valueCount", pa.int64()),
               ("nullCount", pa.int64()), ("isDeleted", pa.bool_()), ("isTightBound", pa.bool_())]  # fmt: skip
    records = pa.array([{**record, "isDeleted": deleted, "isTightBound": tight}], pa.struct(members))
    return Entries(pa.array([key]), pa.RecordBatch.from_arrays([records], ["ColumnStatsMetadata"]))


class TestStatistics:
    """A commit that appends to a log file adds a record for what it appended."""

    @pytest.mark.parametrize(
        ("entries", "expected"),
        [
            ([stated("a", 1, 3)], [("a.log", 1, 3, 10, 1)]),
            (
                [stated("a", 1, 3), stated("a", 2, 9), stated("b", 5, 5)],
                [("a.log", 1, 9, 20, 2), ("b.log", 5, 5, 10, 1)],
            ),
            ([stated("a", 1, 3), stated("a", None, None)], [("a.log", None, None, 20, 2)]),
            ([stated("a", 1, 3), stated("a", None, None, deleted=True)], []),
            ([stated("a", 1, 3), stated("a", 0, 0, deleted=True), stated("a", 4, 5)], [("a.log", 4, 5, 10, 1)]),
            ([stated("a", 1, 9), stated("a", 2, 3, tight=True)], [("a.log", 2, 3, 10, 1)]),
            ([stated("a", 1, 9), Entries(pa.array(["a"]), None), stated("a", 2, 3)], [("a.log", 2, 3, 10, 1)]),
            ([], []),
        ],
    )
    def test_records_of_a_file_add_up_until_one_begins_again(self, entries: list[Entries], expected: list[Any]) -> None:
        found = statistics(entries, pa.int64()).drop_columns(["key"])
        assert [tuple(row.values()) for row in found.to_pylist()] == expected


class TestValues:
    def test_what_does_not_convert_for_sure_is_null(self) -> None:
        wrapped = pa.array(
            [{"S": {"value": "x"}}, {"S": {"value": None}}, None],
            pa.struct([("S", pa.struct([("value", pa.string())]))]),
        )
        assert unwrap(wrapped, pa.int64()).to_pylist() == [None, None, None]
        assert unwrap(wrapped, pa.string()).to_pylist() == ["x", None, None]

    def test_decimals_of_bytes_and_of_another_scale(self) -> None:
        raw = pa.array([{"B": {"value": (-12345).to_bytes(3, "big", signed=True)}}],
                       pa.struct([("B", pa.struct([("value", pa.binary())]))]))  # fmt: skip
        assert str(unwrap(raw, pa.decimal128(10, 2))[0].as_py()) == "-123.45"


# -- damage ------------------------------------------------------------------------------------------------------------


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target / "table"))


def everything(folder: Path) -> None:
    table = HudiTable.open(folder)
    metadata = MetadataTable.open(table)
    assert metadata is not None
    files = []
    for partition in metadata.partitions():
        files += [(partition, file.name) for file in metadata.files(partition)]
    metadata.record_index(pa.array([f"ord-{i:06d}" for i in range(550, 700)]))
    metadata.statistics_of_files("ts", pa.int64(), files)


class TestDamage:
    @pytest.mark.parametrize("release", ["0.15.0", "1.1.1"])
    def test_files_cut_or_bent_are_errors_that_name_a_file(self, golden: Path, tmp_path: Path, release: str) -> None:
        copy = copied(golden / release / "cow_record_index" / "table", tmp_path)
        files = [path for path in sorted((copy / FOLDER).glob("*/*")) if path.is_file() and path.stat().st_size > 200]
        files += [path for path in sorted((copy / FOLDER).glob("*/.*.log.*")) if path.stat().st_size > 200]
        problems = 0
        for path in files[::5]:
            data = path.read_bytes()
            for at in range(20, len(data), len(data) // 4):
                for hostile in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
                    path.write_bytes(hostile)
                    problem: SkepError | None = None
                    try:
                        everything(copy)
                    except SkepError as error:
                        problem = error
                    problems += problem is not None
                    assert problem is None or problem.fields.get("path"), problem
            path.write_bytes(data)
        assert problems > 5

    def test_a_named_partition_without_files_is_an_error(self, golden: Path, tmp_path: Path) -> None:
        copy = copied(golden / "0.15.0/cow_record_index/table", tmp_path)
        for path in (copy / FOLDER / "record_index").iterdir():
            path.unlink()
        metadata = MetadataTable.open(HudiTable.open(copy))
        assert metadata is not None
        with pytest.raises(FormatError, match="record_index"):
            metadata.record_index(pa.array(["a"]))

    def test_a_key_that_is_no_text_is_corrupt(self, golden: Path, tmp_path: Path) -> None:
        copy = copied(golden / "0.15.0/cow_upsert_mdt/table", tmp_path)
        (base,) = (copy / FOLDER / "files").glob("*.hfile")
        (log,) = list((copy / FOLDER / "files").glob(".*.log.2_*"))
        (block,) = list(read_blocks(pa.OSFile(str(log)), log.name))
        base.write_bytes(
            format_hfile(pa.array([b"\xff\xfe"]), pa.array([b"\x00"]), {"schema": block.schema_text.encode()})
        )
        metadata = MetadataTable.open(HudiTable.open(copy))
        assert metadata is not None
        for number in range(16):
            metadata.files(f"p{number}")
        with pytest.raises(CorruptFileError, match="hfile"):
            metadata.files("all")


def test_a_folder_of_a_storage_is_a_storage(tmp_path: Path) -> None:
    outer = LocalStorage(str(tmp_path))
    folder = FolderStorage(outer, "in/ner")
    folder.create_exclusive("a/b", b"12345")
    assert outer.read("in/ner/a/b") == folder.read("a/b") == b"12345"
    assert folder.root == f"{tmp_path}/in/ner"
    assert [status.path for status in folder.list_prefix("", recursive=True)] == ["a/b"]
    assert folder.list_folder("").folders == ["a"]
    assert folder.read_range("a/b", 1, 2) == b"23"
    folder.rename("a/b", "c")
    folder.replace_atomic("c", b"x")
    with folder.open_write("d") as file:
        file.write(b"y")
    assert folder.open_input("d").read() == b"y"
    assert folder.read_suffix("d", 5) == b"y"
    folder.delete_many(["c", "nothing"])
    assert not folder.exists("c")
    folder.delete_folder("")
    assert outer.list_prefix("in", recursive=True) == []
    assert folder.flags == outer.flags
    assert folder.uri("x") == outer.uri("in/ner/x")
