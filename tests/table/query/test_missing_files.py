"""Data files that were lost: a read that needs one is an error which names it, never fewer rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage

from skep_format.errors import SkepError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 1]})
WITH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """One row in each of two partitions, of which that in `q` was updated."""
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), partition_by=("part",), type=request.param)
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(made).insert(ROWS)
    LocalWriter(made.reload()).upsert(ROWS.slice(1))
    return made.reload()


def opened(table: HudiTable) -> HudiTable:
    """As another process finds it: none of its commits is in memory."""
    return HudiTable.open(table.storage.root)


def files(table: HudiTable, partition: str, pattern: str) -> list[Path]:
    return sorted((Path(table.storage.root) / partition).glob(pattern))


def ids(table: HudiTable, **request: Any) -> list[str]:
    return sorted(read(opened(table), ReadRequest(**request)).to_arrow().column("id").to_pylist())


@pytest.mark.parametrize(
    "request_",
    [{}, {"where": "id = 'a'"}, {"where": "part = 'p'"}, {"query": "incremental"}, {"query": "read_optimized"}],
    ids=str,
)
def test_a_lost_base_file_is_named(table: HudiTable, request_: dict[str, Any]) -> None:
    (base,) = files(table, "p", "*.parquet")
    base.unlink()
    with pytest.raises(SkepError, match=re.escape(base.name)):
        ids(table, **request_)
    assert ids(table, where="part = 'q'") == ["b"]


def test_a_count_and_time_travel_name_it(table: HudiTable) -> None:
    first = table.timeline.data().completed().instants[0]
    (base,) = files(table, "p", "*.parquet")
    base.unlink()
    with pytest.raises(SkepError, match=re.escape(base.name)):
        read(opened(table)).count()
    with pytest.raises(SkepError, match=re.escape(base.name)):
        ids(table, as_of=first.requested_time)


def test_the_newest_version_is_not_replaced_by_the_one_before(table: HudiTable) -> None:
    """The older file holds the key too, with older values."""
    if table.config.is_mor:
        (log,) = files(table, "q", ".*.log.*")
        log.unlink()
        lost = log
    else:
        time = table.timeline.data().completed().instants[-1].requested_time
        (lost,) = files(table, "q", f"*_{time}.parquet")
        lost.unlink()
    with pytest.raises(SkepError, match=re.escape(lost.name)):
        ids(table)


def test_a_partition_without_metafile_is_named(table: HudiTable) -> None:
    (Path(table.storage.root) / "p" / ".hoodie_partition_metadata").unlink()
    with pytest.raises(SkepError, match=r"partition 'p'.*has lost its metafile"):
        ids(table)


def test_what_a_metadata_table_lists_is_opened(table: HudiTable) -> None:
    LocalWriter(table.with_context(options=Options(WITH_METADATA))).upsert(ROWS.slice(1))
    base = files(table, "p", "*.parquet")[-1]
    base.unlink()
    for request in ({}, {"where": "v = 1"}):
        with pytest.raises(SkepError, match=re.escape(base.name)):
            ids(table, **request)
    with pytest.raises(SkepError, match=re.escape(base.name)):
        read(opened(table)).count()


def test_what_cleans_and_overwrites_delete_is_not_missed(table: HudiTable) -> None:
    for _ in range(3):
        LocalWriter(table.reload()).upsert(ROWS)
        if table.config.is_mor:
            compact(table.reload())
    LocalWriter(table.reload()).insert_overwrite(ROWS.slice(0, 1))
    least = table.reload().with_context(options=Options({"hoodie.clean.commits.retained": "1"}))
    assert clean(least)
    assert ids(table) == ["a", "b"]
    LocalWriter(table.reload()).delete_partitions(["p"])
    LocalWriter(table.reload()).upsert(ROWS.slice(1))
    LocalWriter(table.reload()).upsert(ROWS.slice(1))
    clean(table.reload().with_context(options=Options({"hoodie.clean.commits.retained": "1"})))
    assert ids(table) == ["b"]


def test_the_check_takes_no_request_for_a_file(table: HudiTable) -> None:
    """The commits are read once, and what later snapshots read of them stays."""
    storage = CountingStorage(table.storage)
    now = HudiTable.open(storage)
    read(now).count()
    metafolder = [call for call in storage.calls if call.path.startswith(".hoodie/") and call.method == "read"]
    assert len(metafolder) <= 3  # the settings and the two commits
    storage.calls.clear()
    read(now.reload()).count()
    assert not [call for call in storage.calls if call.method == "read" and "commit" in call.path]
    assert not [call for call in storage.calls if call.method in ("exists", "status", "size")]
