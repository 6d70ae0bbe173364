"""Indexes: which row of the table an arriving one meets, for each kind of index and table type."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from own_record_index import KEPT, MadeRecordIndex

from skep_format.bucket_rules import BucketRules, rules_path
from skep_format.errors import (
    CommitConflictError,
    CorruptFileError,
    DuplicateKeyError,
    OptionError,
    TableMismatchError,
    UnsupportedError,
)
from skep_format.hashing_metadata import FIRST, GREATEST_HASH, HashingMetadata, metadata_path
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import LocalStorage
from skep_format.table_config import TableConfig, TableType, update_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.keys.buckets import BUCKETS_BY_PARTITION, GroupNames, bucket_numbers, ring_hashes
from skep_table.keys.hash_rings import ring_for_writing, ring_of
from skep_table.keys.hashes import xxhash32
from skep_table.merge.rows import DELETED
from skep_table.metadata_table import java_hashes
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.fsck import fsck_at
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.indexes import Index, registry
from skep_table.write.indexes.bloom_lookup import BloomIndex
from skep_table.write.indexes.bucket import BucketIndex, newest_rules
from skep_table.write.indexes.consistent import ConsistentIndex
from skep_table.write.local import LocalWriter
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.options import RECORD_INDEX_MOVES

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
Make = Callable[..., HudiTable]
Content = list[tuple[str, str, int | None]]
pytestmark = [
    pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning"),
    pytest.mark.filterwarnings("ignore::skep_table.write.indexes.bloom_lookup.MetadataIndexWarning"),
    pytest.mark.filterwarnings("ignore:option hoodie.record.index.update.partition.path:UserWarning"),
]
MOVES = "hoodie.bloom.index.update.partition.path"
MOR = TableType.MERGE_ON_READ
RINGS: dict[str, Any] = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 4,
}
WHERE_A_ROW_IS = (RECORD_KEY, PARTITION_PATH, FILE_NAME)
RECORD_MOVES = "hoodie.record.index.update.partition.path"


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def table(**spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        storage = LocalStorage(str(tmp_path / f"t{len(list(tmp_path.iterdir()))}"))
        return create_table(storage, TableSpec(name="t", schema=SCHEMA, type=request.param, **wanted))

    return table


def rows(*values: tuple[str, str, int, int | None]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True)) if values else [[]] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def content(table: HudiTable) -> Content:
    """Key, partition path, value."""
    found = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["_hoodie_partition_path"], row["v"]) for row in found)


def keys(*names: str, part: str = "p") -> pa.Table:
    return pa.table({"id": list(names), "part": [part] * len(names)})


def new_rows(*values: tuple[str, str, int, int | None]) -> pa.Table:
    """Rows of a change that name no file, as a MERGE inserts them."""
    found = rows(*values)
    for name in reversed(WHERE_A_ROW_IS):
        found = found.add_column(0, name, pa.nulls(found.num_rows, pa.string()))
    return found.append_column(DELETED, pa.repeat(False, found.num_rows))


class IndexContract:
    """What holds whichever index finds the keys. `options` name it."""

    options: ClassVar[dict[str, Any]]

    def writer(self, table: HudiTable, **more: Any) -> LocalWriter:
        given_options = {**self.options, **{key.replace("__", "."): value for key, value in more.items()}}
        return LocalWriter(table.with_context(options=Options(given_options)))

    def test_keys_are_found_again(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(*[(f"k{at}", f"p{at % 3}", 1, at) for at in range(60)]))
        result = self.writer(table).upsert(rows(*[(f"k{at}", f"p{at % 3}", 2, -at) for at in range(30, 90)]))
        assert content(table) == sorted((f"k{at}", f"p{at % 3}", at if at < 30 else -at) for at in range(90))
        assert result.inserted + result.updated == 60
        self.writer(table).delete(rows(*[(f"k{at}", f"p{at % 3}", 3, 0) for at in range(0, 90, 2)]))
        assert [key for key, _, _ in content(table)] == sorted(f"k{at}" for at in range(1, 90, 2))

    def test_a_key_never_changes_its_file_group(self, make: Make) -> None:
        table = make()
        groups: dict[str, str] = {}
        for turn in range(5):
            self.writer(table).upsert(rows(*[(f"k{at}", "p", turn, turn) for at in range(turn * 5, turn * 5 + 20)]))
            for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist():
                group = row["_hoodie_file_name"].partition("_")[0]
                assert groups.setdefault(row["id"], group) == group

    def test_late_rows_lose(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 5, 5), ("a", "p", 4, 4)))
        self.writer(table).upsert(rows(("a", "p", 3, 3)))
        assert content(table) == [("a", "p", 5)]

    def test_deletes_of_keys_that_are_not_there_change_nothing(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(("a", "p", 1, 1)))
        assert self.writer(table).delete(keys("b")).deleted == 0
        assert content(table) == [("a", "p", 1)]

    def test_a_deleted_key_can_come_back(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(("a", "p", 1, 1), ("b", "p", 1, 2)))
        self.writer(table).delete(keys("a"))
        self.writer(table).upsert(rows(("a", "p", 2, 3)))
        assert content(table) == [("a", "p", 3), ("b", "p", 2)]

    def test_a_new_row_of_a_change_goes_where_an_upsert_finds_its_key(self, make: Make) -> None:
        """Their keys were deleted in logs, and base files hold them still: they would be in two file groups each, of
        which an upsert finds the first."""
        table, names = make(), [f"k{at}" for at in range(8)]

        def each(ts: int, v: int) -> list[tuple[str, str, int, int | None]]:
            return [(name, f"p{name}", ts, v) for name in names]

        self.writer(table).upsert(rows(*each(1, 1), ("b", "p", 1, 1)))
        self.writer(table).delete(rows(*each(1, 0)))

        def changed(now: HudiTable) -> pa.Table:
            stored = read(now, ReadRequest(where="id = 'b'")).to_arrow().append_column(DELETED, pa.array([False]))
            new = new_rows(*each(2, 2), ("c", "q", 2, 2))
            return pa.concat_tables([stored.select(new.schema.names), new])

        self.writer(table).change(changed)
        others = [("b", "p", 1), ("c", "q", 2)]
        assert content(table) == [*others, *((name, f"p{name}", 2) for name in names)]
        self.writer(table).upsert(rows(*each(3, 3)))
        assert content(table) == [*others, *((name, f"p{name}", 3) for name in names)]


class LocalContract(IndexContract):
    """A key is unique in its partition."""

    def test_a_key_may_be_in_two_partitions(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        self.writer(table).upsert(rows(("a", "q", 2, 2)))
        self.writer(table).delete(keys("a", part="p"))
        assert content(table) == [("a", "q", 2)]


class GlobalContract(IndexContract):
    """A key is unique in the table."""

    moves: ClassVar[str] = MOVES

    def test_rows_of_a_batch_are_one_a_key_whatever_their_partitions(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1), ("a", "q", 3, 3), ("a", "r", 2, 2)))
        assert content(table) == [("a", "q", 3)]

    def test_a_row_moves_to_the_partition_in_which_it_arrives(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 2)))
        result = self.writer(table).upsert(rows(("a", "q", 2, 3), ("b", "p", 2, 4)))
        assert content(table) == [("a", "q", 3), ("b", "p", 4)]
        assert set(result.metadata.partitions) == {"p", "q"}
        self.writer(table).upsert(rows(("a", "p", 3, 5)))
        self.writer(table).upsert(rows(("a", "q", 4, 6)))
        assert content(table) == [("a", "q", 6), ("b", "p", 4)]

    def test_a_new_row_of_a_change_moves_as_one_of_an_upsert(self, make: Make) -> None:
        """Beside rows that name their file, which stay there."""
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1), ("b", "p", 1, 2), ("d", "p", 9, 6)))

        def changed(now: HudiTable) -> pa.Table:
            stored = read(now, ReadRequest(where="id = 'b'")).to_arrow().append_column(DELETED, pa.array([True]))
            new = new_rows(("a", "q", 2, 3), ("c", "q", 2, 4), ("d", "q", 8, 5))
            return pa.concat_tables([stored.select(new.schema.names), new])

        self.writer(table).change(changed)
        assert content(table) == [("a", "q", 3), ("c", "q", 4), ("d", "p", 6)]

    def test_a_late_row_does_not_move(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 5, 1)))
        self.writer(table).upsert(rows(("a", "q", 4, 2)))
        assert content(table) == [("a", "p", 1)]

    def test_without_ordering_every_row_moves(self, make: Make) -> None:
        table = make(ordering=None)
        self.writer(table).upsert(rows(("a", "p", 5, 1)))
        self.writer(table).upsert(rows(("a", "q", 4, 2)))
        assert content(table) == [("a", "q", 2)]

    def test_partial_updates_take_over_what_the_moved_row_lacks(self, make: Make) -> None:
        table = make(payload_class="org.apache.hudi.common.model.PartialUpdateAvroPayload")
        self.writer(table).upsert(rows(("a", "p", 1, 7), ("b", "p", 9, None)))
        self.writer(table).upsert(rows(("a", "q", 2, None), ("b", "q", 3, 8)))
        assert content(table) == [("a", "q", 7), ("b", "p", 8)]

    def test_a_row_stays_where_its_key_was_first_on_request(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        self.writer(table, **{self.moves: False}).upsert(rows(("a", "q", 2, 2), ("b", "q", 1, 3)))
        assert content(table) == [("a", "p", 2), ("b", "q", 3)]

    def test_a_delete_finds_the_key_in_any_partition(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1), ("b", "q", 1, 2)))
        assert self.writer(table).delete(keys("a", "b", part="nowhere")).files == 2
        assert content(table) == []

    def test_a_row_marked_deleted_deletes_where_the_key_is(self, make: Make) -> None:
        table = make()
        marked = rows(("a", "q", 2, 0)).append_column("_hoodie_is_deleted", pa.array([True]))
        alive = rows(("a", "p", 1, 1)).append_column("_hoodie_is_deleted", pa.array([False]))
        self.writer(table).upsert(alive)
        self.writer(table).upsert(marked)
        assert content(table) == []

    def test_an_insert_without_duplicates_looks_into_all_partitions(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(("a", "p", 1, 1)))
        failing = self.writer(table, hoodie__datasource__insert__dup__policy="fail")
        with pytest.raises(DuplicateKeyError):
            failing.insert(rows(("a", "q", 2, 2)))


class TestBloom(LocalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "BLOOM"}


class TestBucket(LocalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 4}

    def test_a_partition_has_a_group_for_each_bucket(self, make: Make) -> None:
        """Whatever is written: the group's name begins with the number that the key's hash comes to."""
        table = make()
        for operation in ("insert", "bulk_insert", "upsert"):
            some = rows(*[(f"k{at}", "p", 1, at) for at in range(40)])
            getattr(self.writer(table, hoodie__parquet__max__file__size=1), operation)(some)
        found = read(table.reload(), ReadRequest()).to_arrow()
        numbers = [int(name[:8]) for name in found["_hoodie_file_name"].to_pylist()]
        assert numbers == bucket_numbers(found["id"].combine_chunks(), ["id"], 4).tolist()
        assert len(table.reload().view().slices("p")) == 4

    def test_values_are_hashed_in_the_order_of_the_key(self, make: Make) -> None:
        """Whatever the order of the hash fields, as in Hudi: and filters leave out files by the same buckets."""
        table = make(record_key=("id", "v"))
        self.writer(table, hoodie__bucket__index__hash__field="v,id").insert(
            rows(*[(f"k{at}", "p", 1, at) for at in range(40)])
        )
        found = read(table.reload(), ReadRequest()).to_arrow()
        numbers = [int(name[:8]) for name in found["_hoodie_file_name"].to_pylist()]
        assert numbers == bucket_numbers(found["_hoodie_record_key"].combine_chunks(), ["id", "v"], 4).tolist()
        one = read(table.reload(), ReadRequest(where="id = 'k7' and v = 7")).to_arrow()
        assert one["id"].to_pylist() == ["k7"]

    def test_an_overwrite_makes_new_groups_of_the_same_numbers(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(*[(f"k{at}", "p", 1, at) for at in range(20)]))
        before = {slice_.file_id for slice_ in table.reload().view().slices("p")}
        self.writer(table).insert_overwrite(rows(*[(f"k{at}", "p", 1, at) for at in range(20)]))
        after = {slice_.file_id for slice_ in table.reload().view().slices("p")}
        assert not before & after
        assert sorted(name[:8] for name in before) == sorted(name[:8] for name in after)
        self.writer(table).upsert(rows(("k1", "p", 2, 100)))
        assert ("k1", "p", 100) in content(table)

    def test_the_table_remembers_its_buckets(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(("a", "p", 1, 1)))
        LocalWriter(table).upsert(rows(("a", "p", 2, 2)))
        assert content(table) == [("a", "p", 2)]
        with pytest.raises(TableMismatchError, match=r"num.buckets=4, not 8"):
            self.writer(table, hoodie__bucket__index__num__buckets=8).upsert(rows(("a", "p", 3, 3)))
        with pytest.raises(TableMismatchError, match=r"index.type=BUCKET, not BLOOM"):
            self.writer(table, hoodie__index__type="BLOOM").upsert(rows(("a", "p", 3, 3)))

    def test_a_table_of_hudi_needs_the_options_of_its_writers(self, make: Make) -> None:
        """Which record no index. New keys are in the logs of buckets, where other indexes would not find them."""
        table = make()
        for at in range(2):
            self.writer(table).upsert(rows(*[(f"k{at}{n}", part, 1, n) for n in range(9) for part in ("p", "q")]))
            before = content(table)
        update_table_config(table.storage, {key: None for key in table.reload().config.raw if ".index." in key})
        for options in ({}, {"hoodie.index.type": "SIMPLE"}, {"hoodie.index.type": "GLOBAL_BLOOM"}):
            for operation in ("upsert", "bulk_insert", "delete"):
                writer = LocalWriter(table.reload().with_options(options))
                with pytest.raises(TableMismatchError, match=r"file group 0000000\d-.* is a bucket") as refused:
                    getattr(writer, operation)(rows(("k00", "p", 2, 2)))
                assert "give hoodie.index.type=BUCKET" in str(refused.value.hint)
        with pytest.raises(UnsupportedError, match="has a simple bucket index"):
            cluster(table.reload())
        for other in (1, 3, 8, 256):
            with pytest.raises(TableMismatchError, match=r"is not that of|group 0000000\d-.* holds key"):
                self.writer(table, hoodie__bucket__index__num__buckets=other).upsert(rows(("k00", "p", 2, 2)))
        assert content(table) == before
        assert not table.reload().timeline.pending().instants
        self.writer(table).upsert(rows(("k11", "p", 2, 2)))
        assert content(table) == sorted([*(row for row in before if row[:2] != ("k11", "p")), ("k11", "p", 2)])

    @pytest.mark.parametrize("release", ["0.15.0", "1.1.1"])
    def test_a_bucket_table_that_hudi_wrote(self, release: str, golden: Path, tmp_path: Path) -> None:
        shutil.copytree(golden / release / "mor_bucket_index" / "table", tmp_path / "t")
        table = HudiTable.open(str(tmp_path / "t"))
        stored = read(table, ReadRequest()).to_arrow()
        rows = stored.select([name for name in stored.schema.names if not name.startswith("_hoodie_")])
        with pytest.raises(TableMismatchError, match=r"file group 0000000\d-.* is a bucket"):
            LocalWriter(table).upsert(rows)
        with pytest.raises(TableMismatchError, match=r"holds key"):
            self.writer(table, hoodie__bucket__index__num__buckets=8).upsert(rows)
        self.writer(table).upsert(rows)
        assert read(table.reload(), ReadRequest()).to_arrow().num_rows == stored.num_rows

    def test_a_name_that_begins_with_zeros_by_chance_is_no_bucket(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = iter(["ab000000-0000-0000-0000-000000000000-0", "00000000-0000-0000-0000-000000000000-0"])
        monkeypatch.setattr(GroupNames, "new_file_id", lambda *_: next(names))
        table = make()
        for at in range(2):
            LocalWriter(table).bulk_insert(rows((f"k{at}", "p", 1, 1)))
        LocalWriter(table).upsert(rows(("k0", "p", 2, 2), ("k1", "p", 2, 2)))
        assert content(table) == [("k0", "p", 2), ("k1", "p", 2)]

    def test_a_table_of_another_index_is_refused(self, make: Make) -> None:
        table = make()
        LocalWriter(table).insert(rows(("a", "p", 1, 1)))
        with pytest.raises(TableMismatchError, match="partition p: group"):
            self.writer(table).upsert(rows(("a", "p", 2, 2)))
        assert content(table) == [("a", "p", 1)]
        assert not table.reload().timeline.pending().instants

    def test_fields_that_are_no_key_can_not_be_hashed(self, make: Make) -> None:
        with pytest.raises(OptionError, match="names v, the record key is id"):
            self.writer(make(), hoodie__bucket__index__hash__field="v").insert(rows(("a", "p", 1, 1)))

    def test_part_of_the_key_decides(self, make: Make) -> None:
        table = make(record_key=("id", "v"))
        writer = self.writer(table, hoodie__bucket__index__hash__field="id")
        writer.upsert(rows(*[("same", "p", 1, at) for at in range(20)]))
        assert len(table.reload().view().slices("p")) == 1

    def test_a_partition_has_the_number_of_buckets_of_the_first_rule_found_in_its_path(self, make: Make) -> None:
        table = make()
        by = {"hoodie__bucket__index__partition__expressions": "^q,1;r,2"}
        some = [(f"k{at}", part, 1, at) for at in range(40) for part in ("p", "q", "pr")]
        self.writer(table, **by).insert(rows(*some))
        view = table.reload().view()
        assert [len(view.slices(part)) for part in ("p", "q", "pr")] == [4, 1, 2]
        path = rules_path()
        assert BucketRules.decode(table.storage.read(path), path) == BucketRules.parse(4, "^q,1;r,2")
        LocalWriter(table).upsert(rows(*[(key, part, 2, -v) for key, part, _, v in some], ("k", "new r", 2, 7)))
        assert content(table) == sorted([("k", "new r", 7), *((key, part, -v) for key, part, _, v in some)])
        with pytest.raises(TableMismatchError, match=r"expressions=\^q,1;r,2, not q,1"):
            self.writer(table, hoodie__bucket__index__partition__expressions="q,1").upsert(rows(("a", "p", 1, 1)))

    def test_a_table_with_one_number_of_buckets_gets_no_rules(self, make: Make) -> None:
        table = make()
        self.writer(table).insert(rows(("a", "p", 1, 1)))
        with pytest.raises(TableMismatchError, match=r"partition\.expressions=, not p,1"):
            self.writer(table, hoodie__bucket__index__partition__expressions="p,1").upsert(rows(("a", "p", 1, 1)))
        assert not table.storage.exists(rules_path())

    @pytest.mark.parametrize("text", ["p", "p,0", "p,x", "p,1,2", "[a&&b],1", "[[a]b],1", r"\Qp,1", ",;"])
    def test_what_are_no_rules_is_refused_by_name(self, make: Make, text: str) -> None:
        with pytest.raises(OptionError, match=r"hoodie\.bucket\.index\.partition\.expressions"):
            self.writer(make(), hoodie__bucket__index__partition__expressions=text).insert(rows(("a", "p", 1, 1)))
        with pytest.raises(OptionError, match="rule"):
            self.writer(make(), hoodie__bucket__index__partition__rule__type="range").insert(rows(("a", "p", 1, 1)))

    def test_the_rules_that_hudi_stored_count_from_the_newest_commit_on(self, make: Make) -> None:
        table = make()
        table.storage.replace_atomic(rules_path(), BucketRules.parse(4, "p,2").encode())
        pending = InstantTime("20300101000000000")
        self.writer(table).insert(rows(*[(f"k{at}", "p", 1, at) for at in range(20)]))
        assert len(table.reload().view().slices("p")) == 2
        table.storage.replace_atomic(rules_path(pending), BucketRules.parse(4, "p,3").encode(pending))
        requested = Instant(pending, Action.REPLACE_COMMIT, State.REQUESTED)
        table.storage.replace_atomic(table.layout.path(requested), b"")
        found = newest_rules(table.reload())
        assert found == rules_path()
        table.storage.delete(table.layout.path(requested))
        assert newest_rules(table.reload()) == rules_path(pending)

    def test_another_default_than_the_stored_one_is_refused(self, make: Make) -> None:
        table = make()
        table.storage.replace_atomic(rules_path(), BucketRules.parse(3, "p,2").encode())
        with pytest.raises(TableMismatchError, match=r"num\.buckets=3, not 4"):
            self.writer(table).insert(rows(("a", "p", 1, 1)))

    @pytest.mark.parametrize("data", [b"", b"{}", b'{"expressions": "p", "defaultBucketNumber": 1, "rule": "regex"}'])
    def test_stored_rules_that_can_not_be_read_are_an_error_with_their_path(self, make: Make, data: bytes) -> None:
        table = make()
        table.storage.replace_atomic(rules_path(), data)
        with pytest.raises(CorruptFileError, match="hashing_config"):
            self.writer(table).insert(rows(("a", "p", 1, 1)))

    def test_racing_writers_use_the_rules_of_the_first(self, make: Make) -> None:
        table = make()
        before = table.reload()
        index = BucketIndex.of(table.config, Options({**self.options, BUCKETS_BY_PARTITION.key: "p,2"}))
        index.look_up(table.reload(), CandidateFiles())
        index.look_up(before, CandidateFiles())
        other = BucketIndex.of(table.config, Options({**self.options, BUCKETS_BY_PARTITION.key: "p,3"}))
        with pytest.raises(TableMismatchError, match=r"expressions=p,2, not p,3"):
            other.look_up(before, CandidateFiles())


class TestConsistentHashing(LocalContract):
    options: ClassVar[dict[str, Any]] = RINGS

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        def table(**spec: Any) -> HudiTable:
            wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
            storage = LocalStorage(str(tmp_path / f"t{len(list(tmp_path.iterdir()))}"))
            return create_table(storage, TableSpec(**{"name": "t", "schema": SCHEMA, "type": MOR, **wanted}))

        return table

    def test_each_operation_writes_logs_of_the_groups_of_the_ring(self, make: Make) -> None:
        table = make(partition_by=())
        for operation in ("insert", "bulk_insert", "upsert"):
            getattr(self.writer(table), operation)(rows(*[(f"k{at}", "p", 1, at) for at in range(40)]))
        nodes = {node.file_id: node.value for node in HashingMetadata.initial("", 4).nodes}
        ends, groups = sorted(nodes.values()), {value: file_id for file_id, value in nodes.items()}
        slices = {slice_.file_id: slice_ for slice_ in table.reload().view().slices("")}
        assert set(slices) <= set(nodes)
        assert all(slice_.base_file is None and len(slice_.log_files) == 3 for slice_ in slices.values())
        for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist():
            value = xxhash.xxh32_intdigest(row["id"].encode()) & GREATEST_HASH
            assert row["_hoodie_file_name"] == groups[next(end for end in ends if end >= value)]

    def test_the_first_writer_of_a_partition_makes_its_ring(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        path = metadata_path("p", FIRST)
        assert HashingMetadata.decode(table.storage.read(path), path) == HashingMetadata.initial("p", 4)
        table.storage.replace_atomic(path, HashingMetadata.initial("p", 2).encode())  # another writer was first
        table.storage.replace_atomic(metadata_path("q", FIRST), HashingMetadata.initial("q", 2).encode())
        self.writer(table).upsert(rows(*[(f"k{at}", "q", 1, at) for at in range(20)]))
        assert len(table.reload().view().slices("q")) == 2

    def test_racing_writers_use_the_ring_of_the_first(self, make: Make) -> None:
        """The second one finds no folder when it looks, and the file when it makes its own."""
        table = make()
        before = table.reload()
        first = ring_for_writing(table.reload(), "p", 4)
        assert ring_for_writing(before, "p", 8) == first == HashingMetadata.initial("p", 4)

    def test_the_table_remembers_its_engine(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        LocalWriter(table).upsert(rows(("a", "p", 2, 2), ("b", "q", 2, 2)))
        assert content(table) == [("a", "p", 2), ("b", "q", 2)]
        with pytest.raises(TableMismatchError, match="engine=CONSISTENT_HASHING, not SIMPLE"):
            self.writer(table, hoodie__index__bucket__engine="SIMPLE").upsert(rows(("a", "p", 3, 3)))

    def test_tables_of_hudi_need_the_options_of_their_writers(self, make: Make) -> None:
        table = make()
        ring_for_writing(table.reload(), "p", 4)
        with pytest.raises(TableMismatchError, match="by consistent hashing") as caught:
            LocalWriter(table).upsert(rows(("a", "p", 1, 1)))
        assert "CONSISTENT_HASHING" in str(caught.value.hint)
        self.writer(table).upsert(rows(("a", "p", 1, 1)))

    @pytest.mark.parametrize("part", ["p", "q"])
    def test_a_table_of_another_index_is_refused(self, make: Make, part: str) -> None:
        table = make()
        LocalWriter(table).insert(rows(("a", "p", 1, 1)))
        with pytest.raises(TableMismatchError, match=r"partition p: group .* is in no hash ring"):
            self.writer(table).upsert(rows(("a", part, 2, 2)))
        assert content(table) == [("a", "p", 1)]
        assert not table.reload().timeline.pending().instants

    def test_copy_on_write_and_non_blocking_writers_are_refused_by_name(self, make: Make) -> None:
        with pytest.raises(UnsupportedError, match="copy-on-write"):
            self.writer(make(type=TableType.COPY_ON_WRITE)).insert(rows(("a", "p", 1, 1)))
        blocking = {"hoodie__write__concurrency__mode": "non_blocking_concurrency_control"}
        with pytest.raises(UnsupportedError, match="needs simple buckets"):
            self.writer(make(), **blocking).insert(rows(("a", "p", 1, 1)))

    @pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table", "delete_partitions"])
    def test_groups_are_replaced_with_their_ring(self, make: Make, operation: str) -> None:
        table = make()
        keys = [f"k{at}" for at in range(20)]
        self.writer(table).upsert(rows(*[(key, "p", 1, 1) for key in keys], ("b", "q", 1, 1)))
        before = ring_of(table.reload(), "p")
        given: Any = ["p"] if operation == "delete_partitions" else rows(*[(key, "p", 2, 2) for key in keys[:10]])
        result = getattr(self.writer(table), operation)(given)
        now, ring = table.reload(), ring_of(table.reload(), "p")
        assert before is not None
        assert ring == before.renewed(result.instant.requested_time)
        assert [node.value for node in ring.nodes] == [node.value for node in before.nodes]
        assert ring.seq_no == 1
        # the groups that nobody has written to yet, too: a write to one beside conflicts
        assert set(result.metadata.partition_to_replace_file_ids["p"]) == {node.file_id for node in before.nodes}
        slices = now.view().slices("p")
        assert {each.file_id for each in slices} <= {node.file_id for node in ring.nodes}
        assert all(each.base_file is not None and not each.log_files for each in slices)
        kept = [] if operation == "insert_overwrite_table" else [("b", "q", 1)]
        written = [] if operation == "delete_partitions" else [(key, "p", 2) for key in keys[:10]]
        assert content(table) == sorted([*written, *kept])
        assert (ring_of(now, "q") == HashingMetadata.initial("q", 4)) == bool(kept)
        self.writer(table).upsert(rows(*[(key, "p", 3, 3) for key in keys], ("b", "q", 3, 3)))
        assert content(table) == sorted([*[(key, "p", 3) for key in keys], ("b", "q", 3)])
        assert fsck_at(table.reload().context)[1] == []

    def test_a_first_write_may_overwrite(self, make: Make) -> None:
        table = make()
        self.writer(table).insert_overwrite(rows(("a", "p", 1, 1)))
        self.writer(table).upsert(rows(("a", "p", 2, 2)))
        assert content(table) == [("a", "p", 2)]
        assert len(table.reload().view().slices("p")) == 1

    @pytest.mark.parametrize("operation", ["insert_overwrite", "delete_partitions"])
    def test_a_rollback_brings_the_ring_back(self, make: Make, operation: str) -> None:
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        result = getattr(self.writer(table), operation)(
            ["p"] if operation == "delete_partitions" else rows(("b", "p", 1, 1))
        )
        roll_back_instant(table.reload(), result.instant.requested_time)
        assert ring_of(table.reload(), "p") == HashingMetadata.initial("p", 4)
        assert not list(Path(table.storage.root).rglob(f"{result.instant.requested_time}.*"))
        self.writer(table).upsert(rows(("a", "p", 2, 2)))
        assert content(table) == [("a", "p", 2)]

    @pytest.mark.parametrize("operation", ["insert_overwrite", "delete_partitions"])
    def test_a_write_beside_that_makes_a_group_conflicts(self, make: Make, operation: str) -> None:
        """By the ring of before, of which the new group is in no range any more."""
        table = make()
        self.writer(table).upsert(rows(("a", "p", 1, 1)))
        other = {"hoodie__write__concurrency__mode": "optimistic_concurrency_control"}
        beside = self.writer(table, **other)
        found: list[type[Exception]] = []

        def overwritten(table: HudiTable, *_: Any) -> None:
            if not found:
                found.append(CommitConflictError)
                given = ["p"] if operation == "delete_partitions" else rows(("b", "p", 1, 1))
                getattr(self.writer(table, **other), operation)(given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConsistentIndex, "before_writing", lambda _self, table, _time: overwritten(table))
            with pytest.raises(CommitConflictError):
                beside.upsert(rows(*[(f"k{at}", "p", 1, 1) for at in range(20)]))
        assert content(table) == ([] if operation == "delete_partitions" else [("b", "p", 1)])
        self.writer(table).upsert(rows(*[(f"k{at}", "p", 1, 1) for at in range(20)]))
        assert len(content(table)) == (20 if operation == "delete_partitions" else 21)

    def test_part_of_the_key_decides(self, make: Make) -> None:
        table = make(record_key=("id", "v"))
        writer = self.writer(table, hoodie__bucket__index__hash__field="id")
        writer.upsert(rows(*[("same", "p", 1, at) for at in range(20)]))
        assert len(table.reload().view().slices("p")) == 1

    def test_keys_that_are_not_stored_are_hashed(self, make: Make) -> None:
        table = make(properties={"hoodie.populate.meta.fields": "false"})
        self.writer(table).upsert(rows(*[(f"k{at}", "p", 1, at) for at in range(9)]))
        self.writer(table).upsert(rows(("k3", "p", 2, 30)))
        found = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().to_pylist()
        assert sorted(row["v"] for row in found) == [0, 1, 2, 4, 5, 6, 7, 8, 30]

    def test_compacted_groups_take_further_rows(self, make: Make) -> None:
        table = make()
        self.writer(table).upsert(rows(*[(f"k{at}", "p", 1, at) for at in range(9)]))
        compact(table.reload())
        self.writer(table).upsert(rows(*[(f"k{at}", "p", 2, -at) for at in range(9)]))
        assert content(table) == [(f"k{at}", "p", -at) for at in range(9)]


class TestGlobalBloom(GlobalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "GLOBAL_BLOOM"}


class TestGlobalSimple(GlobalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "GLOBAL_SIMPLE"}
    moves: ClassVar[str] = "hoodie.simple.index.update.partition.path"


class TestRecordIndexThatIsMissing(GlobalContract):
    """Keys are looked up in the base files, with a warning."""

    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "RECORD_INDEX", **KEPT, RECORD_MOVES: True}
    moves: ClassVar[str] = RECORD_MOVES


class TestPartitionedRecordIndexThatIsMissing(LocalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "RECORD_LEVEL_INDEX", **KEPT}


class TestRecordIndex(GlobalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.class": "indexed", **KEPT, RECORD_MOVES: True}
    moves: ClassVar[str] = RECORD_MOVES

    @pytest.fixture(autouse=True)
    def plugged_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plug_in(monkeypatch, lambda _config, options: MadeRecordIndex(True, options.value(RECORD_INDEX_MOVES)))


@pytest.mark.parametrize("table_version", [9], indirect=True)
class TestPartitionedRecordIndex(LocalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.class": "indexed", **KEPT}

    @pytest.fixture(autouse=True)
    def plugged_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plug_in(monkeypatch, lambda _config, _options: MadeRecordIndex(False, False))


def plug_in(monkeypatch: pytest.MonkeyPatch, factory: Callable[[TableConfig, Options], Index]) -> None:
    entry = EntryPoint("indexed", f"{__name__}:plug_in", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: factory)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry])


class TestInMemory(GlobalContract):
    options: ClassVar[dict[str, Any]] = {"hoodie.index.type": "INMEMORY"}

    def test_it_warns_once_for_a_table(self, make: Make) -> None:
        table = make()
        with pytest.warns(UserWarning, match="for tests"):
            self.writer(table).upsert(rows(("a", "p", 1, 1)))


def test_rows_that_name_their_file_are_not_looked_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    LocalWriter(table).upsert(rows(("a", "p", 1, 1), ("b", "q", 1, 2)))
    monkeypatch.setattr(BloomIndex, "look_up", lambda *_: pytest.fail("the index is asked"))

    def stored(now: HudiTable) -> pa.Table:
        return read(now, ReadRequest()).to_arrow().append_column(DELETED, pa.array([True, False]))

    LocalWriter(table).upsert(read(table.reload(), ReadRequest()).to_arrow(), prepped=True)
    LocalWriter(table).change(stored)
    assert len(content(table)) == 1
    with pytest.raises(pytest.fail.Exception, match="the index is asked"):
        LocalWriter(table).change(lambda _: new_rows(("c", "p", 1, 3)))


# -- buckets as Hudi counts them ---------------------------------------------------------------------------------------


def java_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=20))
def test_string_hashes_are_those_of_java(texts: list[str]) -> None:
    array = pa.array(["x", *texts], pa.string()).slice(1)
    assert java_hashes(array).tolist() == [java_hash(text) for text in texts]


def test_buckets_of_a_table_that_hudi_wrote() -> None:
    """Keys of a table with four buckets, as they lay in it."""
    found = {0: ["k0", "k4", "k8"], 1: ["k1", "k5", "k9", "k10"], 2: ["k2", "k6", "k11"], 3: ["k3", "k7"]}
    for number, names in found.items():
        assert set(bucket_numbers(pa.array(names), ["id"], 4).tolist()) == {number}


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("a:1,b:2", ["a", "b"], ["1", "2"]),
        ("a:1,b:2", ["b"], ["2"]),
        ("a:1,b:2", ["b", "a"], ["1", "2"]),
        ("a:x,y,b:2", ["a"], ["x,y"]),
        ("a:10:30,b:x", ["a"], ["10:30"]),
        ("a:10:30:00,b:11:00", ["b"], ["11:00"]),
        ("a:__empty__,b:2", ["a"], [""]),
        ("a:__null__,b:2", ["a", "b"], [None, "2"]),
        ("a:1,b:2,c,d", ["b"], ["2,c,d"]),
        ("a:1,b:2", ["other"], ["a:1,b:2"]),
        ("only:colon", ["only"], ["only:colon"]),
        ("only,comma", ["id"], ["only,comma"]),
        ("a:line\nbreak,b:2", ["a"], ["line\nbreak"]),
    ],
)
def test_values_of_composite_keys(key: str, fields: list[str], values: list[str | None]) -> None:
    expected = 1
    ordered = [value for field, value in zip(fields, values, strict=True)] if len(values) > 1 else values
    for value in ordered:
        expected = (31 * expected + (0 if value is None else java_hash(value))) & 0xFFFFFFFF
    in_key_order = sorted(fields, key=lambda field: key.find(field))
    assert bucket_numbers(pa.array([key]), in_key_order, 1 << 20).tolist() == [(expected & 0x7FFFFFFF) % (1 << 20)]


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=20))
def test_hashes_of_rings_are_xxhash32(texts: list[str]) -> None:
    array = pa.array(["x", *texts], pa.string()).slice(1)
    assert xxhash32(array).tolist() == [xxhash.xxh32_intdigest(text.encode()) for text in texts]


def test_long_keys_are_hashed_stripe_by_stripe() -> None:
    texts = ["k" * length for length in range(70)]
    assert xxhash32(pa.array(texts)).tolist() == [xxhash.xxh32_intdigest(text.encode()) for text in texts]


@pytest.mark.parametrize(
    ("key", "fields", "joined"),
    [
        ("plain", ["id"], "plain"),
        ("a:1,b:2", ["a", "b"], "12"),
        ("a:1,b:2", ["b"], "2"),
        ("a:__null__,b:2", ["a", "b"], "null2"),
        ("a:__empty__,b:2", ["a", "b"], "2"),
        ("a:1,b:2", ["other"], "a:1,b:2"),
        ("only:colon", ["only"], "only:colon"),
    ],
)
def test_rings_hash_the_values_of_the_key_side_by_side(key: str, fields: list[str], joined: str) -> None:
    expected = xxhash.xxh32_intdigest(joined.encode()) & GREATEST_HASH
    assert ring_hashes(pa.array([key, "a:9,b:9"]), fields)[0] == expected


# -- plug-ins ----------------------------------------------------------------------------------------------------------


def own_index(config: TableConfig, options: Options) -> Index:
    """A plug-in that finds keys in base files."""
    assert (config.name, options["mine.setting"]) == ("t", "x")
    return BloomIndex()


def test_an_index_of_ones_own(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:own_index", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: own_index)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry] if name == "mine" else [])
    table = make()
    given_options = Options({"hoodie.index.class": "mine", "mine.setting": "x"})
    writer = LocalWriter(table.with_context(options=given_options))
    writer.upsert(rows(("a", "p", 1, 1)))
    writer.upsert(rows(("a", "p", 2, 2)))
    assert content(table) == [("a", "p", 2)]
    with pytest.raises(UnsupportedError, match="no index other"):
        LocalWriter(table.with_context(options=Options({"hoodie.index.class": "other"}))).upsert(rows())


def test_indexes_that_are_not_there_are_refused_by_name(make: Make) -> None:
    for name in ("RADIX_SPLINE", "FLINK_STATE"):
        with pytest.raises(OptionError, match=r"hoodie\.index\.type"):
            LocalWriter(make().with_context(options=Options({"hoodie.index.type": name}))).upsert(rows())


def test_hashes_spread(make: Make) -> None:
    numbers = bucket_numbers(pa.array([f"{at:08d}" for at in range(10_000)]), ["id"], 16)
    counts = np.bincount(numbers, minlength=16)
    assert counts.min() > 400
