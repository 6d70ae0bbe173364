"""What the stats of a commit state: the base file before, where readers of change data look, and the time it took."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import WriteStat
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def made(path: Path, kind: TableType) -> HudiTable:
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), type=kind)
    table = create_table(LocalStorage(str(path)), spec)
    LocalWriter(table).bulk_insert(ROWS)
    LocalWriter(table.reload()).upsert(ROWS.slice(1))
    return table.reload()


def last_stat(path: Path) -> WriteStat:
    """As it is in the file."""
    table = HudiTable.open(str(path))
    last = table.timeline.data().completed().last()
    assert last is not None
    (stat,) = table.commit_metadata(last).stats
    return stat


def base_files(path: Path) -> list[str]:
    return sorted((file.name for file in path.glob("*.parquet")), key=lambda name: name.rpartition("_")[2])


def test_an_update_names_the_file_that_it_replaces(tmp_path: Path, table_version: int) -> None:
    made(tmp_path, TableType.COPY_ON_WRITE)
    stat = last_stat(tmp_path)
    first, second = base_files(tmp_path)
    assert stat.path == second
    assert stat.prev_base_file == (None if table_version == 6 else first)


def test_a_compaction_names_the_file_that_it_replaces(tmp_path: Path, table_version: int) -> None:
    table = made(tmp_path, TableType.MERGE_ON_READ)
    assert compact(table)
    stat = last_stat(tmp_path)
    first, second = base_files(tmp_path)
    assert stat.path == second
    assert stat.prev_base_file == (None if table_version == 6 else first)


def test_version_6_has_no_such_member(tmp_path: Path, table_version: int) -> None:
    made(tmp_path, TableType.COPY_ON_WRITE)
    files = list(tmp_path.glob(".hoodie/*.commit"))
    assert bool(files) == (table_version == 6)
    assert not any("prevBaseFile" in json.dumps(json.loads(file.read_text())) for file in files)


def test_the_time_that_a_file_took(tmp_path: Path) -> None:
    """As Hudi states it: of a new file group, of one that is there, and of reading the logs of a compaction."""

    def untouched() -> list[str]:
        stated = last_stat(tmp_path).runtime_stats
        assert stated is not None
        assert all(value >= 0 for value in stated.values())
        names = ("totalScanTime", "totalUpsertTime", "totalCreateTime")
        assert set(stated) == set(names)
        return [name for name in names if not stated[name]]

    table = create_table(
        LocalStorage(str(tmp_path)),
        TableSpec(name="t", schema=ROWS.schema, record_key=("id",), type=TableType.MERGE_ON_READ),
    )
    LocalWriter(table).bulk_insert(ROWS)
    assert untouched()[:2] == ["totalScanTime", "totalUpsertTime"]
    LocalWriter(table.reload()).upsert(ROWS)
    assert {"totalScanTime", "totalCreateTime"} <= {*untouched()}
    assert compact(table.reload())
    assert "totalCreateTime" in untouched()
