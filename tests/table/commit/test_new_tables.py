"""What a new table's folder holds before its first commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.errors import FolderInUseError, TableExistsError
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table

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
    ("name", "what"),
    [
        ("day=1/part-0.parquet", "table t: .* is not empty and no Hudi table: it holds day=1/part-0.parquet\n"),
        (".hoodie/20260101000000000.deltacommit", "it holds .hoodie/20260101000000000.deltacommit, and no settings"),
        (".hoodie/timeline/20260101000000000_20260101000000001.commit", "it holds .hoodie/timeline/"),
    ],
)
def test_a_folder_with_other_files_is_refused(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    with pytest.raises(FolderInUseError, match=what) as refused:
        create_table(LocalStorage(str(tmp_path)), SPEC)
    assert refused.value.fields["found"] == name
    assert files(tmp_path) == [name]


def test_files_that_readers_pass_over_are_in_nobodys_way(tmp_path: Path) -> None:
    """Checkpoints of Spark's streams, and what a first write left that was taken back."""
    for name in ("_checkpoint/offsets/0", ".DS_Store", "day=1/.hoodie_partition_metadata", ".hoodie/1.inflight"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert create_table(LocalStorage(str(tmp_path)), SPEC).config.name == "t"
