"""A record index has as many file groups as Hudi's options and reckoning give it."""

from __future__ import annotations

from pathlib import Path

import pytest
from metadata_listings import frame, new_table, writer

from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_write.making.create import started_groups
from skep_table.metadata_write.making.spreading import RecordGroups
from skep_table.metadata_write.own import open_own

PREFIX = "hoodie.metadata.record"
MILLION = 10**6


@pytest.mark.parametrize(
    ("records", "options", "expected"),
    [
        (0, {}, 10),
        (100 * MILLION, {}, 10),
        (1000 * MILLION, {}, 89),  # twice the records, of 48 bytes each, in groups of 1 GiB
        (1000 * MILLION, {f"{PREFIX}.index.growth.factor": "1.0"}, 44),
        (1000 * MILLION, {f"{PREFIX}.index.growth.factor": "4.0"}, 178),
        (1000 * MILLION, {f"{PREFIX}.index.max.filegroup.count": "50"}, 50),
        (1000 * MILLION, {f"{PREFIX}.index.max.filegroup.size": str(1 << 28)}, 357),
        (10**12, {}, 10_000),
        (MILLION, {f"{PREFIX}.index.min.filegroup.count": "3"}, 3),
        (MILLION, {f"{PREFIX}.index.min.filegroup.count": "3", f"{PREFIX}.index.max.filegroup.count": "3"}, 3),
    ],
)
def test_groups_of_a_global_index(records: int, options: dict[str, str], expected: int) -> None:
    assert RecordGroups.of(Options(options), partitioned=False).count(records) == expected


@pytest.mark.parametrize(("records", "expected"), [(0, 1), (MILLION, 1), (100 * MILLION, 8), (1000 * MILLION, 10)])
def test_groups_of_a_partition(records: int, expected: int) -> None:
    assert RecordGroups.of(Options({}), partitioned=True).count(records) == expected


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_a_new_index_has_them(tmp_path: Path, table_version: int) -> None:
    table = new_table(tmp_path / "t", TableType.COPY_ON_WRITE)
    writer(table).insert(frame(*((f"k{number}", "pq"[number % 2], 1) for number in range(10))))
    options = {
        f"{PREFIX}.index.enable": "true",
        f"{PREFIX}.index.min.filegroup.count": "2",
        f"{PREFIX}.index.growth.factor": "3.0",
        f"{PREFIX}.index.max.filegroup.size": "96",
    }
    writer(table, **options).upsert(frame(("k1", "q", 2)))
    assert len(started_groups(open_own(table.reload()), RECORD_INDEX)) == 15
