"""What fsck reports of sound tables, and of tables with missing or additional files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_archives as archives
import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.fsck import Problem, fsck
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """Inserts, updates, and a partition that was overwritten."""
    rows = pa.table({"id": ["a", "b"], "part": ["p", "q"], "v": [1, 1]})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), type=request.param)
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    writer = LocalWriter(made)
    writer.insert(rows)
    writer.upsert(rows)
    writer.insert_overwrite(rows.slice(1))
    return made.reload()


def problems(table: HudiTable) -> list[tuple[Problem, str]]:
    return [(finding.problem, finding.path) for finding in fsck(table.reload())]


def newest_base(table: HudiTable, partition: str = "p") -> Path:
    (slice_,) = table.reload().view().slices(partition)
    assert slice_.base_file is not None
    return Path(table.storage.root) / slice_.base_file.path


def test_a_table_that_is_well_has_no_findings(table: HudiTable) -> None:
    assert problems(table) == []


@pytest.mark.parametrize("version", archives.VERSIONS)
def test_tables_that_hudi_wrote_are_well(golden: Path, version: str) -> None:
    """All but those whose timeline begins after their files do."""
    seen = 0
    for folder in sorted((golden / version).iterdir()):
        table = HudiTable.open(str(folder / "table"))
        found = [finding for finding in fsck(table) if finding.problem not in (Problem.LEFTOVER, Problem.DOUBLE)]
        assert not found, f"{folder.name}: {found}"
        seen += 1
    assert seen > 10


def test_files_without_instant(table: HudiTable) -> None:
    base = newest_base(table)
    time = base.name.removesuffix(".parquet").rpartition("_")[2]
    stray = base.with_name(base.name.replace(time, str(int(time) + 1)))
    stray.write_bytes(base.read_bytes())
    assert problems(table) == [(Problem.ORPHAN, f"p/{stray.name}")]


def test_files_of_a_write_that_is_pending(table: HudiTable) -> None:
    instant = table.timeline.completed().data().last()
    assert instant is not None
    (Path(table.storage.root) / table.layout.path(instant)).unlink()
    assert {problem for problem, _ in problems(table)} == {Problem.LEFTOVER}


def test_a_second_file_of_one_write(table: HudiTable) -> None:
    base = newest_base(table)
    first, token, rest = base.name.split("_")
    twin = base.with_name(f"{first}_9{token}_{rest}")
    twin.write_bytes(base.read_bytes())
    assert problems(table) == [(Problem.DOUBLE, f"p/{twin.name}")]


def test_files_that_are_missing(table: HudiTable) -> None:
    base = newest_base(table)
    base.unlink()
    assert problems(table) == [(Problem.MISSING, f"p/{base.name}")]


def test_files_that_are_cut_or_exchanged(table: HudiTable) -> None:
    base, other = newest_base(table), newest_base(table, "q")
    base.write_bytes(base.read_bytes()[:-9])
    assert {problem for problem, _ in problems(table)} == {Problem.SIZE, Problem.DAMAGED}
    import pyarrow.parquet as pq

    twice = pq.read_table(other)
    pq.write_table(pa.concat_tables([twice, twice]), base)
    assert Problem.ROWS in {problem for problem, _ in problems(table)}


def test_the_command_shows_and_fails(table: HudiTable) -> None:
    from typer.testing import CliRunner

    from skep.cli.main import app

    run: Callable[..., Any] = CliRunner().invoke
    assert run(app, ["fsck", table.storage.root]).exit_code == 0
    base = newest_base(table)
    base.unlink()
    result = run(app, ["fsck", table.storage.root, "-o", "json"])
    assert result.exit_code == 1
    assert [row["problem"] for row in json.loads(result.stdout)] == ["missing"]
