"""Files come out at the size that is asked for, from the first commit on, whatever the rows are like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

KEYS = {"hoodie.index.bloom.num_entries": "2000", "hoodie.bloom.index.filter.dynamic.max.entries": "2000"}
SORTED = {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}


def sizes(
    folder: Path,
    rows: pa.Table,
    operation: str,
    target: int,
    *,
    commits: int = 1,
    options: Mapping[str, str],
) -> dict[str, list[float]]:
    """The files of each partition as shares of the target size, ascending, after the rows came in some commits."""
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",))
    table = create_table(LocalStorage(str(folder)), spec)
    given = {
        "hoodie.parquet.max.file.size": str(target),
        "hoodie.parquet.small.file.limit": str(target * 5 // 6),
        **options,
    }
    for number in range(commits):
        some = rows.take(pa.array(np.arange(number, rows.num_rows, commits)))
        getattr(LocalWriter(table.reload().with_context(options=Options(given))), operation)(some)
    view = HudiTable.open(str(folder)).view()
    files = {path: [found.base_file for found in view.slices(path)] for path in view.partitions()}
    return {path: sorted(file.size_bytes / target for file in files[path] if file) for path in files}


def made(count: int, width: int) -> pa.Table:
    """Rows of which a file needs about `width` bytes each, beside what the meta columns take."""
    noise = np.random.default_rng(1)
    text = noise.integers(33, 126, (count, width), np.uint8)
    return pa.table(
        {
            "id": pa.array(np.arange(count)).cast(pa.string()),
            "part": pa.array(np.where(np.arange(count) % 4 == 0, "small", "large")),
            "v": pa.array(text.view(f"S{width}").ravel()).cast(pa.string()),
        }
    )


@pytest.mark.parametrize(("operation", "commits"), [("insert", 1), ("bulk_insert", 1), ("upsert", 4)])
@pytest.mark.parametrize("width", [8, 900])
def test_all_files_but_the_last_of_a_partition_are_near_the_target(
    operation: str, commits: int, width: int, tmp_path: Path
) -> None:
    rows = made(24_000_000 // (width + 40) // 20, width)
    options = {**KEYS, **(SORTED if operation == "bulk_insert" else {})}
    found = sizes(tmp_path, rows, operation, 200_000, commits=commits, options=options)
    assert len(found["large"]) >= 3
    for path, (_, *full) in found.items():
        assert all(0.8 <= share <= 1.2 for share in full), (path, found)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "commits"), [("insert", 1), ("insert", 12), ("bulk_insert", 1), ("upsert", 4)])
@pytest.mark.parametrize("target", [1_500_000, 4_000_000])
def test_flights(operation: str, commits: int, target: int, tmp_path: Path) -> None:
    """Filters of Hudi's own size, which are much of such small files."""
    from skep.demo import load_flights

    flights = load_flights()
    numbers = pa.array(np.arange(flights.num_rows)).cast(pa.string())
    rows = flights.append_column("id", numbers).append_column("part", flights["origin"])
    found = sizes(tmp_path, rows, operation, target, commits=commits, options=SORTED)
    assert sum(map(len, found.values())) >= 3
    for path, (_, *full) in found.items():
        assert all(0.8 <= share <= 1.2 for share in full), (path, found)


def test_an_estimate_that_is_given_counts(tmp_path: Path) -> None:
    """As in Hudi, until commits show better: files are as small as it makes them."""
    given = {**KEYS, "hoodie.copyonwrite.record.size.estimate": "2000"}
    found = sizes(tmp_path, made(2_000, 8), "insert", 200_000, options=given)
    assert len(found["large"]) > 10
