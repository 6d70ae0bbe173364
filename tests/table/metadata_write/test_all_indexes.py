"""After each action of a history, every index of the metadata table is what one made from the files would be."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from metadata_listings import assert_alike, frame, new_table
from sleepy_clock import SleepyClock

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import MetadataTableError, StorageError
from skep_format.schema.arrow import arrow_type
from skep_format.schema.change import AddColumn, DropColumn, RenameColumn
from skep_format.schema.types import LongType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.parts.metadata_table import create_missing
from skep_table.events import Events
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_write.definitions import definitions_of
from skep_table.metadata_write.drop import delete_metadata_table
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.query import ReadRequest, read
from skep_table.services.automatic import maintain
from skep_table.services.cleaning.clean import clean
from skep_table.services.cleaning.ttl import expire_partitions
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
)
from skep_table.services.metadata.indexing import drop_metadata, rebuild_metadata_table
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

pytestmark = [
    pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True),
]
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
ALL = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
}
SECONDARY = {
    name: IndexDefinition(name, "secondary_index", "identity", (column,))
    for name, column in {"secondary_index_by_ts": "ts", "secondary_index_part": "part"}.items()
}
SHARED = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
NO_OPTIONS: dict[str, str] = {}
PARTITIONS = ["p", "q", "r", "ü/é", "new2", "new3"]
EVERY_KEY = [*"abcdefghijk", "ä", "key with $ and \\"]


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", request.param)
    writer(made, **ALL).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    if made.config.version > 6:
        create_metadata_table(reopened(made, **ALL), SYSTEM_CLOCK, SECONDARY, SECONDARY)
    return made


def reopened(table: HudiTable, **more: object) -> HudiTable:
    """With no option of the metadata table: a table that has one keeps it."""
    return HudiTable.open(table.storage, more)


def writer(table: HudiTable, **more: object) -> LocalWriter:
    return LocalWriter(reopened(table, **more))


def last_write(table: HudiTable) -> Any:
    last = reopened(table).timeline.data().completed().last()
    assert last is not None
    return last.requested_time


def indexes(table: HudiTable) -> dict[str, Any]:
    """What the indexes state of the files and keys that are there, and of keys that are not."""
    now = HudiTable.open(table.storage)
    metadata = now.metadata_table()
    assert metadata is not None
    files = list(latest_files(now))
    schema = now.stored_schema().with_meta()
    kinds = {name: arrow_type(schema[name].type) for name in ("id", "part", "ts", "_hoodie_record_key")}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        stats = metadata.statistics_of_files(name, kind, files)
        assert stats is not None
        found[f"{COLUMN_STATS} {name}"] = sorted_rows(stats)
        if PARTITION_STATS in metadata.indexes:
            parts = metadata.statistics_of_partitions(name, kind, sorted({path for path, _ in files}))
            assert parts is not None
            found[f"{PARTITION_STATS} {name}"] = sorted_rows(parts)
    blooms = metadata.bloom([file for file in files if not file[1].startswith(".")])
    assert blooms is not None
    found[BLOOM_FILTERS] = {file: bloom.to_base64() for file, bloom in blooms.items()}

    places = metadata.record_index(pa.array(EVERY_KEY))
    assert places is not None
    found[RECORD_INDEX] = sorted(
        (row["record_key"], row["partition_path"], row["file_id"]) for row in places.to_pylist()
    )
    for name, values in {"secondary_index_by_ts": [*map(str, range(25))], "secondary_index_part": PARTITIONS}.items():
        if name in metadata.indexes:
            of_values = {value: metadata.record_keys_of(name, pa.array([value]), 1 << 20) for value in values}
            found[name] = {value: sorted(keys.to_pylist()) for value, keys in of_values.items() if keys is not None}
            assert set(found[name]) == set(values)
    return found


def sorted_rows(stats: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in stats.to_pylist())


def latest_files(table: HudiTable) -> Iterator[tuple[str, str]]:
    view = table.view(metadata=False)
    for partition in view.partitions():
        for slice_ in view.slices(partition):
            yield from ((partition, name) for name in slice_.file_names)


def assert_kept(table: HudiTable, without: Collection[str] = ()) -> None:
    """All indexes are there, and state what those of a copy do whose metadata table is made from its files.

    Statistics of partitions may be wider. In version 6 no metadata table is made while something is pending.
    """
    assert_alike(table)
    now = HudiTable.open(table.storage)
    expected = {FILES, COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX, PARTITION_STATS, *SECONDARY} - set(without)
    if now.config.version == 6:
        expected -= {PARTITION_STATS, *SECONDARY}
    assert set(now.config.metadata_partitions) == expected
    found = check_metadata_table(now)
    assert not found.differences, found.differences
    assert not found.skipped
    kept = indexes(table)
    rows = read(now, ReadRequest(metadata=False)).to_arrow().to_pylist()
    assert {key for key, *_ in kept[RECORD_INDEX]} == {row["id"] for row in rows}
    for name, column in {name: each.source_fields[0] for name, each in SECONDARY.items() if name in expected}.items():
        keys = {value: sorted(row["id"] for row in rows if str(row[column]) == value) for value in kept[name]}
        assert kept[name] == keys, name
    if now.config.version == 6 and now.timeline.pending().instants:
        return
    copy = Path(f"{table.storage.root}.copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table.storage.root, copy)
    again = HudiTable.open(LocalStorage(str(copy))).with_context(clock=table.context.clock)
    delete_metadata_table(again.storage, {name: SECONDARY.get(name) for name in expected})
    create_missing(again.reload())
    for name, entries in indexes(again).items():
        if not name.startswith(PARTITION_STATS):
            assert kept[name] == entries, name


def test_writes_of_all_kinds(table: HudiTable) -> None:
    write: list[Callable[[], object]] = [
        lambda: writer(table).bulk_insert(frame(("d", "p", 1), ("e", "r", 1))),
        lambda: writer(table).insert(frame(("f", "p", 1), ("ä", "ü/é", 1))),
        lambda: writer(table).upsert(frame(("a", "p", 2), ("g", "r", 1))),
        lambda: writer(table).upsert(frame(("a", "p", 1))),
        lambda: writer(table).delete(frame(("b", "q", 2), ("g", "r", 2))),
        lambda: writer(table, **{"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(frame(("a", "q", 5), ("h", "r", 5))),
        lambda: writer(table).insert_overwrite(frame(("i", "p", 3))),
        lambda: writer(table).delete_partitions(["r"]),
        lambda: clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"})),
        lambda: writer(table).insert_overwrite_table(frame(("j", "p", 4), ("key with $ and \\", "q", 4))),
        lambda: clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"})),
        lambda: writer(table).upsert(frame(("j", "p", 5), ("k", "q", 5))),
    ]
    for each in write:
        each()
        assert_kept(table)


def test_services(table: HudiTable) -> None:
    options = {"hoodie.cleaner.commits.retained": "1", "hoodie.log.compaction.blocks.threshold": "2"}
    for number in range(3):
        writer(table).upsert(frame(*((key, "pq"[at % 2], number) for at, key in enumerate("defg"))))
    writer(table).delete(frame(("d", "p", 9)))
    assert_kept(table)
    if table.config.is_mor:
        assert compact_logs(reopened(table, **options))
        assert_kept(table)
        assert compact(reopened(table))
        assert_kept(table)
    assert cluster(reopened(table, **{"hoodie.clustering.plan.strategy.sort.columns": "id"}))
    assert_kept(table)
    writer(table).upsert(frame(("a", "p", 9)))
    assert clean(reopened(table, **options))
    assert_kept(table)
    if table.config.is_mor:
        schedule_compaction(reopened(table))
        writer(table).upsert(frame(("a", "p", 10)))
        assert_kept(table)
        execute_pending_compactions(reopened(table))
        assert_kept(table)


class Meanwhile(LocalStorage):
    """Does something once, before the first data file of a write is opened; may fail where the write completes."""

    def __init__(self, root: str, do: Callable[[], object], *, fails: bool = False) -> None:
        super().__init__(root)
        self._do: Callable[[], object] | None = do
        self._fails = fails

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        if self._do is not None and not path.startswith(".hoodie"):
            do, self._do = self._do, None
            do()
        with super().open_write(path) as file:
            yield file

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if self._fails and re.fullmatch(r"\.hoodie/timeline/\d+_\d+\.(delta)?commit", path):
            raise StorageError("injected", path=path)
        super().create_exclusive(path, data, durable=durable)


def test_a_write_that_is_rolled_back_beside_a_compaction_of_others(table: HudiTable) -> None:
    """The compaction is requested after the write, and has none of its entries: all indexes stay."""
    if table.config.version == 6:
        return  # there it is not compacted while an earlier write is pending
    before = set(reopened(table).config.metadata_partitions)
    every = {"hoodie.metadata.compact.max.delta.commits": "1"}
    compacted = []

    def meanwhile() -> None:
        writer(table, **SHARED).upsert(frame(("b", "q", 5)))
        compacted.append(maintain_metadata_table(reopened(table, **every, **SHARED)))

    late = HudiTable.open(Meanwhile(table.storage.root, meanwhile, fails=True), SHARED)
    dropped = []
    late = late.with_context(events=Events(lambda event: dropped.append(event) if "dropped" in event.name else None))
    with pytest.raises(StorageError, match="injected"):
        LocalWriter(late).upsert(frame(("a", "p", 7)))
    assert compacted != [None]
    assert set(reopened(table).config.metadata_partitions) == before
    assert dropped == []
    assert check_metadata_table(reopened(table)).differences == ()
    assert_kept(table)
    writer(table).upsert(frame(("a", "p", 8)))
    assert_kept(table)


def test_an_index_is_dropped_while_a_write_is_under_way(tmp_path: Path) -> None:
    """As another writer does that completes late: what the write has read of it before does not matter."""
    made = new_table(tmp_path / "t", MOR)
    writer(made, **ALL).insert(frame(("a", "p", 1), ("b", "q", 1)))
    storage = Meanwhile(made.storage.root, lambda: drop_metadata(reopened(made), [RECORD_INDEX]))
    LocalWriter(HudiTable.open(storage)).upsert(frame(("a", "p", 2)))
    assert RECORD_INDEX not in reopened(made).config.metadata_partitions
    assert check_metadata_table(reopened(made)).differences == ()
    assert rows_of(made) == [("a", 2), ("b", 1)]


def rows_of(table: HudiTable) -> list[tuple[object, object]]:
    found = read(reopened(table), ReadRequest()).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


def test_rollbacks_and_restores(table: HudiTable) -> None:
    kept = last_write(table)
    create_savepoint(reopened(table), kept)
    assert_kept(table)
    for number in (2, 3):
        new, more = "hi"[number - 2], "ef"[number - 2]
        writer(table).upsert(frame(("a", "p", number), (new, f"new{number}", number), (more, "q", number)))
    writer(table).delete(frame(("a", "p", 9)))
    roll_back_instant(reopened(table), last_write(table))
    assert_kept(table)
    maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))
    assert_kept(table)
    roll_back_instant(reopened(table), last_write(table))
    assert_kept(table)
    restore(reopened(table), kept)
    assert_kept(table)
    writer(table).upsert(frame(("a", "p", 5)))
    assert_kept(table)


def test_services_of_its_own(table: HudiTable) -> None:
    options = {
        "hoodie.keep.max.commits": "6",
        "hoodie.keep.min.commits": "3",
        "hoodie.cleaner.commits.retained": "2",
        "hoodie.metadata.compact.max.delta.commits": "4",
        "hoodie.compact.inline.max.delta.commits": "2",
    }
    for number in range(20):
        writer(table).upsert(frame(("a", "p", number), ("bcdef"[number % 5], "q", number)))
        if number % 6 == 4:
            writer(table).delete(frame(("bcdef"[number % 5], "q", number)))
        for step in maintain(reopened(table, **options)):
            step.run()
        if number % 5 == 4:
            assert_kept(table)


def test_partitions_that_expire(table: HudiTable) -> None:
    clock = SleepyClock()
    clock.slept += 3 * 24 * 3600
    late = reopened(table, **{"hoodie.partition.ttl.strategy.days.retain": "2"}).with_context(clock=clock)
    LocalWriter(late).insert(frame(("d", "q", 2)))
    assert expire_partitions(late.reload())
    assert_kept(late)
    clean(late.reload().with_options({"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS"}))
    assert_kept(late)


def test_a_change_of_version(table: HudiTable, table_version: int) -> None:
    change_version(reopened(table), 9 if table_version == 6 else 6)
    assert_kept(table, {PARTITION_STATS, *SECONDARY})
    writer(table).upsert(frame(("a", "p", 2)))
    assert_kept(table, {PARTITION_STATS, *SECONDARY})


def test_a_change_of_version_that_keeps_secondary_indexes(table: HudiTable, table_version: int) -> None:
    change_version(reopened(table), 8 if table_version == 9 else 9)
    without = SECONDARY if table_version == 6 else ()
    assert_kept(table, {*without, PARTITION_STATS} if table_version == 6 else without)
    writer(table).upsert(frame(("a", "p", 2)))
    assert_kept(table, {*without, PARTITION_STATS} if table_version == 6 else without)


def test_all_is_made_again_as_it_is_defined(table: HudiTable) -> None:
    before = definitions_of(reopened(table))
    writer(table).upsert(frame(("a", "p", 2), ("d", "q", 3)))
    assert not rebuild_metadata_table(reopened(table)).lost
    assert_kept(table)
    assert definitions_of(reopened(table)) == before


def test_secondary_indexes_go_with_the_record_index(table: HudiTable) -> None:
    dropped = drop_metadata(reopened(table), [RECORD_INDEX])
    secondary = set(SECONDARY) if table.config.version > 6 else set()
    assert set(dropped) == {RECORD_INDEX, *secondary}
    assert not {RECORD_INDEX, *SECONDARY} & set(reopened(table).config.metadata_partitions)
    writer(table).upsert(frame(("a", "p", 2)))
    again = create_metadata_table(reopened(table, **ALL), SYSTEM_CLOCK, SECONDARY, SECONDARY)
    assert secondary <= set(again.config.metadata_partitions)
    assert_kept(table)


def test_false_drops_all_of_it(table: HudiTable) -> None:
    writer(table, **{"hoodie.metadata.enable": "false"}).upsert(frame(("a", "p", 2)))
    assert HudiTable.open(table.storage).config.metadata_partitions == ()
    assert not table.storage.exists(".hoodie/metadata")


def test_a_key_in_two_file_groups_is_refused(table: HudiTable) -> None:
    before = indexes(table)
    with pytest.raises(MetadataTableError, match="'a' lies in two file groups"):
        writer(table).insert(frame(("a", "q", 3)))
    assert indexes(table) == before
    assert_kept(table)


def test_columns_that_are_renamed_dropped_and_added_again(table: HudiTable) -> None:
    """Records of the columns that had these names before leave no row out."""
    writer(table).alter([AddColumn("more", LongType())])
    rows = frame(("a", "p", 2), ("d", "q", 2))
    writer(table).upsert(rows.append_column("more", pa.array([7, 8])))
    assert_kept(table)
    for change in (RenameColumn("more", "less"), AddColumn("more", LongType()), DropColumn("less")):
        writer(table).alter([change])
        assert_kept(table)
    found = read(HudiTable.open(table.storage), ReadRequest(where="more is null")).to_arrow()
    assert len(found) == len(indexes(table)[RECORD_INDEX])


def test_definitions_outlive_what_makes_indexes_again(tmp_path: Path, table_version: int) -> None:
    chosen = {
        **ALL,
        "hoodie.metadata.index.column.stats.column.list": "ts",
        "hoodie.metadata.record.index.enable": "false",
        "hoodie.metadata.record.level.index.enable": str(table_version == 9).lower(),
    }
    table = new_table(tmp_path / "t", COW)
    for key in "ab":  # a partitioned record index is made once there are files
        writer(table, **chosen).insert(frame((key, "p", 1)))
    before = definitions_of(table.reload())
    kept = last_write(table)
    create_savepoint(reopened(table), kept)
    writer(table).upsert(frame(("a", "p", 2)))
    restore(reopened(table), kept)
    assert definitions_of(table.reload()) == before
    assert (RECORD_INDEX in before) == (table_version == 9)
    assert not check_metadata_table(table.reload()).differences
