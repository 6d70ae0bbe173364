"""Tables that skep brings from version to version, beside JVM Hudi: read there, written on, and upgraded there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from layout_1_names import name_as_in_layout_1

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
COLUMNS = "id string, part string, ts long, v string"
NAMES = tuple(SCHEMA.names)
FEW = {
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.cleaner.commits.retained": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
}
WAYS = [("1.2.0", 6, 9), ("1.1.1", 6, 9), ("1.0.2", 9, 8), ("0.15.0", 9, 6)]
Rows = list[dict[str, object]]


def rows(ts: int, *keys: int) -> Rows:
    return [{"id": f"k{key}", "part": "ab"[key % 2], "ts": ts, "v": f"{key}-{ts}"} for key in keys]


def make(path: Path, version: int, kind: TableType) -> HudiTable:
    """Commits, one that replaces file groups, archived ones and, merge-on-read, log files on base files."""
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, version=version
    )
    create_table(LocalStorage(str(path)), spec)

    def ours(operation: str, found: Rows) -> None:
        getattr(LocalWriter(HudiTable.open(str(path))), operation)(pa.Table.from_pylist(found, SCHEMA))

    ours("insert", rows(1, *range(10)))
    for ts in range(2, 6):
        ours("upsert", rows(ts, ts, ts + 1, 20 + ts))
    ours("insert_overwrite", rows(6, 1, 3, 5))
    ours("upsert", rows(7, 1, 2))
    archive(HudiTable.open(str(path), FEW))
    ours("upsert", rows(8, 3, 4))
    return HudiTable.open(str(path))


def options(table: HudiTable, release: str, **more: str) -> dict[str, str]:
    given = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": table.config.type.value,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.index.type": "BLOOM",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        **more,
    }
    if release == "0.15.0":
        return {**given, "hoodie.datasource.write.payload.class": table.config.payload_class or ""}
    version = {"hoodie.write.table.version": str(table.config.version), "hoodie.write.auto.upgrade": "false"}
    return {**given, **version, **more}


def ours(path: Path) -> Rows:
    found: Rows = read(HudiTable.open(str(path)), ReadRequest(columns=NAMES)).to_arrow().to_pylist()
    return found


def agree(path: Path, hudi: Jvm, expected: Rows) -> None:
    theirs = hudi.read(path, columns=list(NAMES)).rows
    assert not (found := difference(theirs, expected)), f"Hudi reads other rows: {found}"
    assert not (found := difference(ours(path), expected)), f"skep reads other rows: {found}"


@pytest.mark.parametrize(
    "kind", [TableType.MERGE_ON_READ, pytest.param(TableType.COPY_ON_WRITE, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("release", "before", "after"),
    [
        pytest.param(
            *way,
            id=f"{way[0]}-{way[1]}-{way[2]}",
            marks=[pytest.mark.peer(f"hudi-{way[0]}"), *([] if number in (0, 3) else [pytest.mark.slow])],
        )
        for number, way in enumerate(WAYS)
    ],
)
def test_hudi_reads_and_writes_a_table_that_skep_has_brought_to_its_version(
    release: str, before: int, after: int, kind: TableType, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    hudi, path = jvm(release), tmp_path / "t"
    table = make(path, before, kind)
    expected = ours(path)
    changed = change_version(table, after)
    assert changed.config.version == after
    agree(path, hudi, expected)
    hudi.write(path, rows(9, 1, 30), COLUMNS, options(changed, release), operation="upsert")
    assert HudiTable.open(str(path)).config.version == after
    by_key: dict[Any, dict[str, object]] = {row["id"]: row for row in [*expected, *rows(9, 1, 30)]}
    agree(path, hudi, list(by_key.values()))
    LocalWriter(HudiTable.open(str(path))).upsert(pa.Table.from_pylist(rows(10, 2, 40), SCHEMA))
    by_key |= {row["id"]: row for row in rows(10, 2, 40)}
    agree(path, hudi, list(by_key.values()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize(
    ("release", "version"),
    [
        pytest.param(release, version, id=release, marks=pytest.mark.peer(f"hudi-{release}"))
        for release, version in (("1.2.0", 9), ("1.1.1", 9), ("1.0.2", 8))
    ],
)
def test_files_that_kept_their_names_of_layout_1_are_read_on_both_sides(
    release: str, version: int, kind: TableType, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    hudi, path = jvm(release), tmp_path / "t"
    table = make(path, version, kind)
    expected = ours(path)
    name_as_in_layout_1(table)
    agree(path, hudi, expected)
    hudi.write(path, rows(9, 1, 30), COLUMNS, options(table, release), operation="upsert")
    by_key: dict[Any, dict[str, object]] = {row["id"]: row for row in [*expected, *rows(9, 1, 30)]}
    agree(path, hudi, list(by_key.values()))
    archive(HudiTable.open(str(path), FEW))
    agree(path, hudi, list(by_key.values()))


# What Hudi 1.1.1 and 1.2.0 leave otherwise when they upgrade a table of version 6 to 9, and why skep does not.
OTHER_PROPERTIES: Final = {
    "hoodie.archivelog.folder": "Hudi leaves `archived`, which version 9 does not use",
    "hoodie.compaction.record.merger.strategy": "a setting of version 6, which Hudi leaves",
    "hoodie.table.keygenerator.class": "Hudi leaves the class beside the type",
    "hoodie.table.format": "Hudi sets it for new tables only",
    "hoodie.timeline.history.path": "Hudi leaves the default unsaid",
    "hoodie.table.metadata.partitions": "Hudi's writer keeps an empty list",
    "hoodie.table.multiple.base.file.formats.enable": "Hudi's writer adds it",
    "hoodie.database.name": "Hudi's writer adds an empty one",
}


# What Hudi's stats of log files lack after the upgrade: it reads their JSON as that of base files.
LOST_OF_LOG_FILES: Final = ("log_version", "log_offset", "base_file", "log_files")


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize(
    "release", [pytest.param(release, marks=pytest.mark.peer(f"hudi-{release}")) for release in ("1.1.1", "1.2.0")]
)
def test_the_upgrade_is_that_of_hudi_but_for_a_list(
    release: str, kind: TableType, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    hudi, path, theirs = jvm(release), tmp_path / "t", tmp_path / "theirs"
    table = make(path, 6, kind)
    shutil.copytree(path, theirs)  # with the times of files
    again = {"hoodie.write.auto.upgrade": "true", "hoodie.write.table.version": "9"}
    hudi.write(theirs, rows(9, 1), COLUMNS, options(table, release, **again), operation="upsert")
    change_version(table, 9)
    LocalWriter(HudiTable.open(str(path))).upsert(pa.Table.from_pylist(rows(9, 1), SCHEMA))
    mine, other = HudiTable.open(str(path)), HudiTable.open(str(theirs))
    assert other.config.version == 9
    differing = {
        key
        for key in mine.config.raw.keys() | other.config.raw.keys()
        if mine.config.raw.get(key) != other.config.raw.get(key)
    }
    assert differing <= OTHER_PROPERTIES.keys(), {
        key: (mine.config.raw.get(key), other.config.raw.get(key)) for key in differing - OTHER_PROPERTIES.keys()
    }
    assert not (found := difference(ours(path), ours(theirs))), found
    before = {instant.requested_time for instant in table.timeline.instants}
    moved = [i for i in mine.timeline.instants if i.requested_time in before]
    assert moved == [i for i in other.timeline.instants if i.requested_time in before]
    for instant in moved:
        if instant.action.value in ("commit", "deltacommit", "replacecommit"):
            found = differing_members(mine.commit_metadata(instant), other.commit_metadata(instant))
            assert not found, f"{instant.requested_time}: {found}"
    archived = mine.timeline.archived()
    assert archived
    assert [i.requested_time for i in archived] == [i.requested_time for i in other.timeline.archived()]


def differing_members(mine: CommitMetadata, other: CommitMetadata) -> list[str]:
    """The members that differ, of stats each; Hudi counts a replaced group of none as no entry."""

    def members(commit: CommitMetadata) -> dict[str, object]:
        found: dict[str, object] = {**asdict(commit), "partition_to_write_stats": None}
        found["partition_to_replace_file_ids"] = dict(commit.partition_to_replace_file_ids or {})
        for stat in commit.stats:
            kept = {name: value for name, value in asdict(stat).items() if name not in LOST_OF_LOG_FILES}
            found |= {f"{stat.path}: {name}": value for name, value in kept.items()}
        return found

    ours, theirs = members(mine), members(other)
    return [
        f"{name}: {ours.get(name)!r}, not {theirs.get(name)!r}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
