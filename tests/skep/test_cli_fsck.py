"""`skep fsck` as a command: a table with lost settings, what is repaired, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table
from tests.tables_at import create_at

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 2]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = create_at(str(tmp_path / "t"), ROWS.schema, {}, key="id", partition_by="part", ordering="v")
    table.upsert(ROWS)
    return tmp_path / "t"


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["fsck", *map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code in (0, 1) and result.stdout else []


def test_lost_settings(folder: Path, table_version: int) -> None:
    (folder / ".hoodie" / "hoodie.properties").unlink()
    (found,) = {row["problem"] for row in run(folder, code=1)}
    assert found == "settings"
    left = run(folder, "--repair", code=1)
    assert not any(row["repaired"] for row in left)
    merging = (
        ("hoodie.table.ordering.fields=v", "hoodie.record.merge.mode=EVENT_TIME_ORDERING")
        if table_version == 9
        else ("hoodie.table.precombine.field=v", "hoodie.compaction.payload.class=")
    )
    given = [word for each in merging for word in ("--property", each)]
    zone = ["--property", "hoodie.table.timeline.timezone=UTC", "--property", f"hoodie.table.version={table_version}"]
    repaired = run(folder, "--repair", *given, *zone)
    assert all(row["repaired"] for row in repaired)
    assert run(folder, "--deep") == []
    assert open_table(folder).read().to_arrow().sort_by("id").column("v").to_pylist() == [1, 2]


def test_a_flipped_byte_needs_deep(folder: Path) -> None:
    import pyarrow.parquet as pq

    (file,) = (folder / "p").glob("*.parquet")
    chunk = pq.read_metadata(file).row_group(0).column(7)
    data = bytearray(file.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(data)
    assert run(folder) == []
    (row,) = run(folder, "--deep", code=1)
    assert (row["problem"], row["path"]) == ("damaged", f"p/{file.name}")
    (row,) = run(folder, "--deep", "--repair", code=1)
    assert not row["repaired"]
    assert "savepoint" in row["repair"]


def test_a_repair_of_everything_exits_with_success(folder: Path) -> None:
    (folder / "q" / ".hoodie_partition_metadata").unlink()
    assert [row["repaired"] for row in run(folder, "--repair")] == [True]
    assert run(folder, "--repair") == []


def test_a_folder_that_is_no_table(tmp_path: Path) -> None:
    run(tmp_path / "nowhere", code=1)
    run(tmp_path / "nowhere", "--repair", code=1)
