"""Tables of versions before 6 as their settings are: read, refused to writers, upgraded, with what options know."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_storage import KilledAtChanges

from skep_format.errors import (
    CommitConflictError,
    InputError,
    OptionError,
    StorageError,
    TableMismatchError,
    TableVersionError,
    VersionChangeError,
)
from skep_format.names import MarkerType
from skep_format.properties import format_properties, parse_properties
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.undo.rollback import create_savepoint
from skep_table.upgrade import change_version, plan_version_change, upgrade_to
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
# What tables before a version do not state.
UNSTATED = {
    1: ("hoodie.table.precombine.field", "hoodie.timeline.layout.version"),
    2: ("hoodie.table.recordkey.fields", "hoodie.table.partition.fields", "hoodie.table.base.file.format"),
    3: (
        "hoodie.table.keygenerator.class",
        "hoodie.datasource.write.hive_style_partitioning",
        "hoodie.datasource.write.partitionpath.urlencode",
        "hoodie.table.timeline.timezone",
    ),
    4: ("hoodie.table.checksum", "hoodie.table.metadata.partitions", "hoodie.database.name"),
}
KNOWN_BY_WRITERS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
}


def settings(tables: Tables) -> dict[str, str]:
    path = tables.folder / ".hoodie/hoodie.properties"
    return parse_properties(path.read_bytes(), str(path))


def put(tables: Tables, properties: dict[str, str]) -> None:
    (tables.folder / ".hoodie/hoodie.properties").write_bytes(format_properties(properties))


def aged(tables: Tables, version: int) -> Tables:
    """With the settings that a table of this version has; those of version 0 state no version."""
    found = {**settings(tables), "hoodie.table.version": str(version)}
    for later, keys in UNSTATED.items():
        for key in keys if version < later else ():
            found.pop(key, None)
    if version == 0:
        del found["hoodie.table.version"]
    put(tables, found)
    return tables


def filled(tables: Tables, kind: TableType, version: int, **more: object) -> Tables:
    make(tables, kind, **more)
    for ts in range(1, 4):
        tables.upsert(ts, "a/1", f"b/{ts}")
    return aged(tables, version)


def make(tables: Tables, kind: TableType, **more: object) -> None:
    spec = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **more}
    create_table(LocalStorage(str(tables.folder)), TableSpec(name="t", schema=SCHEMA, type=kind, **spec))  # type: ignore[arg-type]


def upgraded(tables: Tables, to: int, **options: object) -> None:
    change_version(tables.opened(options={**KNOWN_BY_WRITERS, **options}), to)


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize("version", range(6))
def test_every_older_version_is_read_and_upgraded(tables: Tables, kind: TableType, version: int) -> None:
    filled(tables, kind, version)
    rows = tables.rows()
    assert sum(rows.values()) == 4
    first = tables.opened().timeline.data().instants[0].requested_time
    assert sum(tables.rows(as_of=first).values()) == 2
    assert sum(tables.rows(query="incremental", since=first).values()) == 3
    assert sum(tables.rows(query="read_optimized").values()) >= 2
    upgraded(tables, 6 if version % 2 else 9)
    assert tables.rows() == rows
    found = settings(tables)
    if version % 2:
        expected = {"hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"}
        expected |= {"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator"}
        assert expected.items() <= found.items()
    assert found["hoodie.table.recordkey.fields"] == "id"
    assert found["hoodie.table.partition.fields"] == "part"
    assert "hoodie.table.checksum" in found
    tables.upsert(9, "a/1", "c/1")
    assert sum(tables.rows().values()) == 5


@pytest.mark.parametrize(
    "write",
    [
        lambda table: LocalWriter(table).upsert(pa.table({"id": ["1"], "part": ["a"], "ts": [5]})),
        lambda table: LocalWriter(table).delete(pa.table({"id": ["1"], "part": ["a"]})),
        lambda table: clean(table),
        lambda table: archive(table),
        lambda table: create_savepoint(table, table.timeline.data().instants[-1].requested_time),
    ],
)
def test_nothing_else_changes_an_older_table(tables: Tables, write: Callable[..., object]) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 5)
    before = tables.files()
    with pytest.raises(TableVersionError, match="has version 5, which is read") as caught:
        write(tables.opened())
    assert "skep upgrade t --to 6" in str(caught.value.hint)
    assert tables.files() == before


def test_a_write_upgrades_where_it_is_to(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 4)
    assert upgrade_to(tables.opened(), 6).config.version == 6
    assert upgrade_to(tables.opened(), 6).config.version == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"version 1, and its settings do not state which columns identify a row \(hoodie.table.recordkey.fields"),
        ({"hoodie.datasource.write.recordkey.field": "id"}, r"which columns make its folders, such as '[ab]'"),
        ({**KNOWN_BY_WRITERS, "hoodie.datasource.write.recordkey.field": "ts"}, "a row has _hoodie_record_key"),
        ({**KNOWN_BY_WRITERS, "hoodie.datasource.write.recordkey.field": "nothing"}, "nothing"),
        ({**KNOWN_BY_WRITERS, "hoodie.datasource.write.partitionpath.field": "ts"}, "a row has _hoodie_partition_path"),
        (
            {**KNOWN_BY_WRITERS, "hoodie.datasource.write.hive_style_partitioning": "true"},
            "a row has _hoodie_partition_path '[ab]', and these settings make 'part=[ab]'",
        ),
    ],
)
def test_what_an_upgrade_has_to_know_is_stated_and_fits_the_rows(
    tables: Tables, options: dict[str, str], message: str
) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 1)
    before = settings(tables)
    with pytest.raises(VersionChangeError, match=message):
        change_version(tables.opened(options=options), 6)
    with pytest.raises(VersionChangeError, match=message):
        plan_version_change(tables.opened(options=options), 9)
    assert settings(tables) == before


def test_folders_show_whether_they_name_their_column(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 2, hive_style=True)
    (row,) = read(tables.opened(), ReadRequest(where="part = 'a'")).to_arrow().to_pylist()
    assert (row["part"], row["_hoodie_partition_path"]) == ("a", "part=a")
    upgraded(tables, 6)
    assert settings(tables)["hoodie.datasource.write.hive_style_partitioning"] == "true"


def test_a_table_without_partitions_needs_its_key_alone(tables: Tables) -> None:
    filled(tables, TableType.MERGE_ON_READ, 0, partition_by=())
    change_version(tables.opened(options={"hoodie.datasource.write.recordkey.field": "id"}), 6)
    found = settings(tables)
    assert found["hoodie.table.partition.fields"] == ""
    assert found["hoodie.table.keygenerator.class"].endswith(".NonpartitionedKeyGenerator")


def test_an_option_that_contradicts_the_table_is_refused(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 3)
    with pytest.raises(TableMismatchError, match="recordkey"):
        upgraded(tables, 6, **{"hoodie.datasource.write.recordkey.field": "ts"})


def test_the_folder_of_rows_without_partition_value_is_refused_before_version_5(tables: Tables) -> None:
    tables.create(6, TableType.COPY_ON_WRITE).upsert(1, "default/1", "a/1")
    for version in (4, 5):
        aged(tables, version)
        if version == 4:
            with pytest.raises(VersionChangeError, match="folder 'default', in which Hudi put rows without a value"):
                upgraded(tables, 6)
            upgraded(
                tables.copy(tables.folder.parent / "skipped"), 6, **{"hoodie.skip.default.partition.validation": True}
            )
    upgraded(tables, 6)
    assert sum(tables.rows().values()) == 2


def test_rows_of_that_folder_have_no_value(tables: Tables) -> None:
    make(tables, TableType.MERGE_ON_READ)
    rows = pa.table([["1", "2"], [None, "a"], [1, 1]], schema=SCHEMA)
    LocalWriter(tables.opened()).upsert(rows)
    (folder,) = tables.folder.glob("__HIVE*")
    (base,) = folder.glob("*.parquet")
    held = pq.read_table(base)
    at = held.schema.get_field_index("_hoodie_partition_path")
    pq.write_table(held.set_column(at, held.schema.field(at), pa.array(["default"])), base)
    (commit,) = (tables.folder / ".hoodie").glob("*.deltacommit")
    stated = json.loads(commit.read_text().replace(folder.name, "default"))
    for stat in stated["partitionToWriteStats"]["default"]:
        stat["fileSizeInBytes"] = base.stat().st_size
    commit.write_text(json.dumps(stated))
    folder.rename(folder.with_name("default"))
    aged(tables, 4)
    found = tables.rows()
    upgraded(tables, 6, **{"hoodie.skip.default.partition.validation": True})
    assert tables.rows() == found
    assert "'part': None" in str(found)


def test_a_key_generator_of_somebodys_own_stays(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 5)
    put(tables, {**settings(tables), "hoodie.table.keygenerator.class": "com.example.Keys"})
    tables.to(6)
    assert settings(tables)["hoodie.table.keygenerator.class"] == "com.example.Keys"


def test_a_default_below_another_folder_is_like_others(tables: Tables) -> None:
    tables.create(6, TableType.COPY_ON_WRITE, hive_style=True).upsert(1, "default/1")
    aged(tables, 4)
    with pytest.raises(VersionChangeError, match="folder 'part=default'"):
        upgraded(tables, 6)


def test_versions_that_are_not_written_are_refused(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 3)
    for to in (3, 5, 7):
        with pytest.raises(InputError, match=f"can't become version {to}"):
            tables.to(to)
    upgraded(tables, 6)
    with pytest.raises(InputError, match="can't become version 5") as caught:
        tables.to(5)
    assert "Hudi before 1.0" in str(caught.value.hint)
    with pytest.raises(OptionError, match="no table is made in version 5"):
        type(tables)(tables.folder.parent / "new").create(5, TableType.COPY_ON_WRITE)


def archived_beside(tables: Tables) -> list[str]:
    """The times of instants in an archive beside the timeline, as Hudi 0.9 has it."""
    few = {
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.cleaner.commits.retained": 1,
        "hoodie.compact.inline.max.delta.commits": 1,
    }
    archive(tables.opened(options=few))
    archived = [str(i.requested_time) for i in tables.opened().timeline.archived()]
    assert archived
    for file in (tables.folder / ".hoodie/archived").iterdir():
        file.rename(tables.folder / ".hoodie" / file.name)
    return archived


def test_an_archive_beside_the_timeline_is_read_and_moved(tables: Tables) -> None:
    tables.create(6, TableType.COPY_ON_WRITE)
    for ts in range(1, 7):
        tables.upsert(ts, "a/1")
    archived = archived_beside(tables)
    aged(tables, 2)
    assert [i.requested_time for i in tables.opened().timeline.archived()] == archived
    assert ("move", "1 archive files to .hoodie/archived") in {
        (step.step, step.what) for step in plan_version_change(tables.opened(options=KNOWN_BY_WRITERS), 9).steps
    }
    upgraded(tables, 6)
    assert [i.requested_time for i in tables.opened().timeline.archived()] == archived
    assert not [path for path in tables.files() if path.startswith(".hoodie/.commits_")]
    tables.to(9)
    assert {i.requested_time for i in tables.opened().timeline.archived()} >= set(archived)


def pending(tables: Tables, version: int, marker: str | None) -> str:
    """A write that died in a table of this version, with what markers it may have. Returns its time."""
    table = filled(tables, TableType.MERGE_ON_READ, 6).opened()
    last = table.timeline.data().instants[-1]
    folder = tables.folder / ".hoodie"
    stats = table.commit_metadata(last).stats
    (folder / f"{last.requested_time}.deltacommit").unlink()
    assert {stat.is_log for stat in stats} == {True, False}
    for stat in stats if marker is not None else ():
        partition, _, name = stat.path.rpartition("/")
        named = name if not stat.is_log else f"{stat.file_id}_0-1-0_{stat.prev_commit}.parquet"
        at = folder / ".temp" / last.requested_time / partition / f"{named}{marker}"
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
    aged(tables, version)
    return last.requested_time


@pytest.mark.parametrize(("version", "marker"), [(0, ".marker"), (3, f".marker.{MarkerType.APPEND.value}"), (5, None)])
def test_a_failed_write_is_rolled_back_whatever_its_markers_name(
    tables: Tables, version: int, marker: str | None
) -> None:
    time = pending(tables, version, marker)
    rows = tables.rows()
    upgraded(tables, 6)
    assert tables.rows() == rows
    table = tables.opened()
    assert not table.timeline.contains(time)
    (rollback,) = table.timeline.of(Action.ROLLBACK).completed().instants
    written = [path for path in tables.files() if path.endswith(".parquet") and time in path]
    assert written == [], "its base file is deleted"
    blocks = table.plan(rollback)
    assert blocks is not None
    assert not (tables.folder / ".hoodie/.temp" / time).exists()


def test_an_index_that_is_being_built_is_in_the_way(tables: Tables) -> None:
    filled(tables, TableType.COPY_ON_WRITE, 5)
    (tables.folder / ".hoodie/20300101000000000.indexing.requested").write_bytes(b"")
    with pytest.raises(CommitConflictError, match="indexing 20300101000000000 is pending"):
        upgraded(tables, 6)


def test_a_metadata_table_that_no_setting_names_is_not_read_and_is_rebuilt(tables: Tables) -> None:
    tables.create(6, TableType.COPY_ON_WRITE)
    options = {"hoodie.metadata.enable": True}
    for ts in (1, 2):
        LocalWriter(tables.opened(options=options)).upsert(tables.frame(ts, "a/1"))
    aged(tables, 3)
    rows = tables.rows()
    table = tables.opened()
    assert table.metadata_table() is None
    put(tables, {**settings(tables), "hoodie.table.metadata.partitions": "files"})
    assert tables.opened().metadata_table() is None
    aged(tables, 3)
    upgraded(tables, 6)
    assert tables.opened().config.metadata_partitions == ("files",)
    assert tables.opened().metadata_table() is not None
    assert tables.rows() == rows


@pytest.mark.parametrize(("version", "after"), [(1, 6), pytest.param(5, 9, marks=pytest.mark.slow)])
def test_a_kill_at_any_change_leaves_a_whole_table_and_repeating_finishes(
    tables: Tables, tmp_path: Path, version: int, after: int
) -> None:
    """With a failed write, a metadata table, an archive beside the timeline, a second copy of a compaction's plan."""
    tables.create(6, TableType.MERGE_ON_READ)
    for ts in range(1, 6):
        tables.upsert(ts, "a/1", f"b/{ts}")
    archived = archived_beside(tables)
    LocalWriter(tables.opened(options={"hoodie.metadata.enable": True})).upsert(tables.frame(9, "a/1", "b/1"))
    last = tables.opened().timeline.data().instants[-1].requested_time
    (tables.folder / f".hoodie/{last}.deltacommit").unlink()
    aged(tables, version)
    copy = tables.folder / ".hoodie/.aux/20200101000000000.compaction.requested"
    copy.parent.mkdir(exist_ok=True)
    copy.touch()
    rows, at, versions = tables.rows(), 0, [version]
    while True:
        at += 1
        copied = tables.copy(tmp_path / "run")
        storage = KilledAtChanges(str(copied.folder), at)
        with suppress(StorageError):
            change_version(copied.opened(storage, KNOWN_BY_WRITERS), after)
        versions.append(copied.opened().config.version)
        assert copied.rows() == rows, storage.calls[-1]
        upgraded(copied, after)
        assert copied.rows() == rows, storage.calls[-1]
        table = copied.opened()
        assert table.config.version == after
        assert not (copied.folder / ".hoodie/.aux" / copy.name).exists(), storage.calls[-1]
        assert {i.requested_time for i in table.timeline.archived()} >= set(archived), storage.calls[-1]
        assert not [path for path in copied.files() if path.startswith(".hoodie/.commits_")], storage.calls[-1]
        if not storage.hit:
            break
        copied.upsert(20, "a/1")
        assert copied.opened().metadata_table() is not None, f"{storage.calls[-1]}: it is rebuilt by the next write"
    assert versions == sorted(versions)
    assert set(versions) == {version, 6, after}
    copied.upsert(20, "a/1", "c/1")
    assert sum(copied.rows().values()) == sum(rows.values()) + 1


def test_the_plan_states_each_step_and_changes_nothing(tables: Tables) -> None:
    time = pending(tables, 2, None)
    before = tables.files()
    table = tables.opened(options=KNOWN_BY_WRITERS)
    steps = [(step.step, step.what) for step in plan_version_change(table, 6).steps]
    assert ("roll back", f"deltacommit {time}, if its writer is dead") in steps
    assert ("set", "hoodie.table.version=6") in steps
    assert ("set", "hoodie.datasource.write.hive_style_partitioning=false") in steps
    assert ("lost", "writers with Hudi before 0.14") in steps
    further = [(step.step, step.what) for step in plan_version_change(table, 9).steps]
    assert [step for step in further if step in steps] == steps
    assert ("set", "hoodie.table.version=9") in further
    assert tables.files() == before
