"""What a new table's folder holds before its first commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.errors import FolderInUseError, TableExistsError
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, check_empty, create_table

SPEC = TableSpec(name="t", schema=pa.schema([("id", pa.int64())]), record_key=("id",))


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("table_version", "expected"),
    [
        (6, [".hoodie/hoodie.properties"]),
        (8, [".hoodie/hoodie.properties", ".hoodie/timeline/history/.keep"]),
        (9, [".hoodie/hoodie.properties", ".hoodie/timeline/history/.keep"]),
    ],
    indirect=["table_version"],
)
def test_the_folders_that_hudi_lists_are_there(tmp_path: Path, expected: list[str]) -> None:
    """Hudi 1.x fails to open a table without the folder of its timeline."""
    spec = TableSpec(name="t", schema=SPEC.schema, record_key=("id",))
    table = create_table(LocalStorage(str(tmp_path)), spec)
    assert files(tmp_path) == expected
    assert table.timeline.instants == ()
    assert list(table.timeline.archived()) == []
    with pytest.raises(TableExistsError):
        create_table(LocalStorage(str(tmp_path)), spec)
    assert files(tmp_path) == expected


def test_a_creation_that_died_is_made_again(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=SPEC.schema, record_key=("id",), version=9)
    create_table(LocalStorage(str(tmp_path)), spec)
    (tmp_path / ".hoodie/hoodie.properties").unlink()
    assert create_table(LocalStorage(str(tmp_path)), spec).config.version == 9


@pytest.mark.parametrize(
    "name", [".hoodie/20260101000000000.deltacommit", ".hoodie/timeline/20260101000000000_20260101000000001.commit"]
)
def test_commits_without_settings_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    with pytest.raises(FolderInUseError, match=rf"table t: .* holds {name}, and no settings") as refused:
        create_table(LocalStorage(str(tmp_path)), SPEC)
    assert refused.value.fields["found"] == name
    assert files(tmp_path) == [name]


def test_other_files_count_where_they_are_to_be_none(tmp_path: Path) -> None:
    """Not checkpoints of Spark's streams, and what a first write left that was taken back."""
    for name in ("_checkpoint/offsets/0", ".DS_Store", "day=1/.hoodie_partition_metadata", ".hoodie/1.inflight"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    check_empty(LocalStorage(str(tmp_path)), "t")
    (tmp_path / "day=1/part-0.parquet").touch()
    with pytest.raises(FolderInUseError, match=r"is not empty and no Hudi table: it holds day=1/part-0\.parquet\n"):
        check_empty(LocalStorage(str(tmp_path)), "t")
    assert create_table(LocalStorage(str(tmp_path)), SPEC).config.name == "t"
    check_empty(LocalStorage(str(tmp_path)), "t")
