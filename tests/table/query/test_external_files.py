"""Tables over files that another table format wrote, as Apache XTable makes them: read by metadata, never written.

Hudi's own client committed the table in tests/golden/external.tar.gz with the calls of XTable: see PROVENANCE.md.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.errors import FormatError, SkepError, UnsupportedError
from skep_table.query.read import read
from skep_table.query.request import QueryType, ReadRequest
from skep_table.services.cleaning.clean import clean
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

GOLDEN = Path(__file__).parents[2] / "golden" / "external.tar.gz"
FIRST = "20260101000000000"


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return HudiTable.open(str(tmp_path / "external"))


def rows(table: HudiTable, **request: object) -> list[dict[str, object]]:
    return sorted(read(table, ReadRequest(**request)).to_arrow().to_pylist(), key=lambda row: row["id"])  # type: ignore[arg-type, return-value]


def files(table: HudiTable) -> set[str]:
    root = Path(table.storage.root)
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


class TestReads:
    def test_a_snapshot_is_that_of_the_newest_commit(self, table: HudiTable) -> None:
        first, second = "2026-01-01", "2026-01-02"
        assert rows(table) == [
            {"id": 1, "name": "n1", "day": first},
            {"id": 2, "name": "n2", "day": first},
            {"id": 3, "name": "n3", "day": second},
            {"id": 4, "name": "n4", "day": first},
            {"id": 5, "name": "n5", "day": second},
        ]

    def test_files_are_named_as_they_lie_there(self, table: HudiTable) -> None:
        view = table.view()
        assert view.partitions() == ["day=2026-01-01", "day=2026-01-02"]
        assert [found.base_file.path for found in view.slices("day=2026-01-02") if found.base_file] == [
            "day=2026-01-02/part-00001-3f1c.c000.snappy.parquet",
            "day=2026-01-02/part_with_marks_7.parquet",
        ]

    def test_time_travel(self, table: HudiTable) -> None:
        assert [row["id"] for row in rows(table, as_of=FIRST)] == [1, 2, 3]

    def test_filters_and_columns(self, table: HudiTable) -> None:
        assert rows(table, columns=("id",), where="day = '2026-01-01' AND id > 1") == [{"id": 2}, {"id": 4}]
        assert rows(table, columns=("id",), where="name = 'n5'") == [{"id": 5}]

    def test_no_folder_is_listed_instead(self, table: HudiTable) -> None:
        """Folders show files of all commits, and no names that state which commit wrote them."""
        with pytest.raises(UnsupportedError, match=r"external at .* was made of files of another table format"):
            rows(table.with_options({"hoodie.metadata.enable": "false"}))

    def test_incremental_queries_are_refused(self, table: HudiTable) -> None:
        with pytest.raises(UnsupportedError, match="no incremental queries"):
            rows(table, query=QueryType.INCREMENTAL)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: LocalWriter(table).insert(pa.table({"id": [9], "name": ["x"], "day": ["2026-01-01"]})),
        lambda table: LocalWriter(table).delete_partitions(["day=2026-01-01"]),
        clean,
        lambda table: roll_back_instant(table, "20260102000000000"),
    ],
    ids=["insert", "delete partitions", "clean", "rollback"],
)
def test_no_change_is_made(table: HudiTable, change: Callable[[HudiTable], object]) -> None:
    before = files(table)
    with pytest.raises(UnsupportedError, match="can't be written: it is metadata over files of another table format"):
        change(table)
    assert files(table) == before
    assert len(rows(HudiTable.open(table.storage.root))) == 5


def test_folders_are_not_compared_with_commits(table: HudiTable) -> None:
    with pytest.raises(UnsupportedError, match="can't be compared with its commits"):
        fsck(table)


def test_a_file_that_is_not_there_is_an_error(table: HudiTable) -> None:
    (Path(table.storage.root) / "day=2026-01-02" / "part_with_marks_7.parquet").unlink()
    with pytest.raises(SkepError, match="part_with_marks_7"):
        rows(table)


def test_a_table_of_lance_files_is_refused_by_name(table: HudiTable) -> None:
    properties = Path(table.storage.root) / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.table.base.file.format=LANCE\n")
    with pytest.raises(FormatError, match=r"hoodie\.table\.base\.file\.format=LANCE is not understood"):
        HudiTable.open(table.storage.root)
