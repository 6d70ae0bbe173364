"""A table over files of another table format, read by JVM Hudi and here."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers.jvm import Jvm
from skep_table.query.read import read
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable

ARCHIVE = Path(__file__).parents[1] / "golden" / "external.tar.gz"


@pytest.mark.parametrize("release", [pytest.param("0.15.0", marks=pytest.mark.peer("hudi-0.15.0"))])
def test_rows_are_those_that_hudi_reads(release: str, jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    path = str(tmp_path / "external")
    theirs = jvm(release).read(path, {"hoodie.metadata.enable": "true"}).rows
    ours = read(HudiTable.open(path), ReadRequest()).to_arrow().to_pylist()
    columns = ("id", "name", "day")
    assert sorted(tuple(row[c] for c in columns) for row in theirs) == sorted(
        tuple(row[c] for c in columns) for row in ours
    )
