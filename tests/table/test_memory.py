"""What is read in passing is given back: memory does not follow the number of files or commits that were looked at."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import instant_files
import many_partitions
import pytest

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteStat
from skep_table.table import HudiTable

# Without the garbage collector, which comes late where few objects hold much.
LOOKS = """
import gc, json, sys
import psutil
import pyarrow as pa
from skep_format.options import Options
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import plan_clean
from skep_table.services.fsck import fsck
from skep_format.instant_time import InstantTime
from skep_table.table import HudiTable
from skep_format.timeline.instant import Action
from skep_table.write.local import LocalWriter

def count(table):
    return read(table).count()

def rows(table):
    return sum(batch.num_rows for batch in read(table, ReadRequest(columns=("id",))).to_batches())

def look_up(table):
    return read(table, ReadRequest(where="id = 1")).count()

def fsck_(table):
    return len(fsck(table))

def clean(table):
    options = Options({"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"})
    return len(plan_clean(table.with_context(options=options)).file_paths_to_be_deleted_per_partition or ())

def delete(table):
    keys = pa.table({"id": pa.array([2], pa.int64()), "day": ["p0000000"]})
    options = Options({"hoodie.index.type": "GLOBAL_BLOOM"})
    return len(LocalWriter(table.with_context(options=options)).delete(keys).partitions)

def show(table):
    # What `skep show` prints, and how it finds it.
    from typer.testing import CliRunner
    from skep.cli.main import app
    printed = CliRunner().invoke(app, ["show", table.storage.root, "--count", "-o", "json"])
    return int(next(row["value"] for row in json.loads(printed.stdout) if row["fact"] == "rows"))

small, large = sys.argv[1:]
process = psutil.Process()
found = {}
for look in (count, rows, look_up, fsck_, clean, delete, show):
    look(HudiTable.open(small))
    gc.collect()
    gc.disable()
    before = process.memory_info().rss
    answer = look(HudiTable.open(large))
    found[look.__name__] = answer, process.memory_info().rss - before
    gc.enable()
print(json.dumps(found))
"""


def growth(folder: Path, small: int, large: int) -> dict[str, tuple[int, int]]:
    """Look → its answer about the large table, and the bytes by which it made the process larger."""
    for name, count in (("small", small), ("large", large)):
        many_partitions.make(folder / name, count)
    command = [sys.executable, "-c", LOOKS, str(folder / "small"), str(folder / "large")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return {name: tuple(found) for name, found in json.loads(ran.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("files", [400, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_footers_are_given_back(files: int, tmp_path: Path) -> None:
    found = growth(tmp_path, 100, files)
    print(files, {name: round(grown / 2**20, 1) for name, (_, grown) in found.items()})
    assert {name: answer for name, (answer, _) in found.items()} == {
        "count": files, "rows": files, "look_up": files, "fsck_": 0, "clean": 0, "delete": 0, "show": files,
    }  # fmt: skip
    # A footer is 0.43 MB, and was twice that in memory. A plan of 5,000 files takes a few kB for each.
    assert {name: grown for name, (_, grown) in found.items() if grown > (40 << 20) + files * 10_000} == {}


def test_cached_commits_are_bounded_by_the_files_that_they_name(tmp_path: Path) -> None:
    table = many_partitions.make(tmp_path / "t", 5_000, empty=True)
    (first,) = table.timeline.completed()
    metadata = table.commit_metadata(first)
    for number in range(24):
        instant_files.add(table, InstantTime(f"20260101{number:09}"), Action.COMMIT, metadata)
    del metadata
    table = HudiTable.open(tmp_path / "t")
    for instant in table.timeline.completed():
        assert len(table.commit_metadata(instant).stats) == 5_000
    gc.collect()
    alive = sum(isinstance(each, WriteStat) for each in gc.get_objects())
    assert 5_000 <= alive <= 105_000
    newest = table.timeline.completed().instants[-1]
    assert table.commit_metadata(newest) is table.commit_metadata(newest)
