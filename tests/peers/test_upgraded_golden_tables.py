"""Tables that Hudi wrote, brought by skep through all versions: at each step JVM Hudi reads the same rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference
from skep_format.errors import VersionChangeError
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.upgrade import change_version

# Release that wrote the table → the versions that it passes.
WAYS: Final = {"0.15.0": (8, 9, 8, 6), "1.0.2": (9, 8, 6, 8), "1.1.1": (8, 6, 8, 9)}
# Release that reads → the versions in which it is asked.
READS: Final = {"1.2.0": (6, 8, 9), "1.1.1": (9,), "1.0.2": (8,), "0.15.0": (6,)}
SAMPLE: Final = {
    "0.15.0": ("cow_insert_overwrite", "mor_clustering"),
    "1.0.2": ("cow_archive",),
    "1.1.1": ("mor_log_rollback",),
}
# Written at each step of a compaction, or read from other places by other releases (docs/versions.md).
NOT_COMPARED: Final = {"_hoodie_file_name", "_hoodie_commit_seqno"}
BY_RELEASE: Final = {"cow_timestamp_keygen_date_string": {"event_ms"}, "cow_custom_keygen": {"event_ms"}}
# One key column, several partition columns: from version 9 on the keys have another form.
REFUSED: Final = {"cow_multi_partition_hive": 9}
# The data of this one lies in a folder of the machine that wrote it.
ELSEWHERE: Final = "cow_bootstrap_metadata_only"


def rows(path: Path, names: list[str]) -> list[dict[str, Any]]:
    found = read(HudiTable.open(str(path)), ReadRequest(columns=tuple(names))).to_arrow()
    text = b"".join(bytes(json_lines(batch)) for batch in found.to_batches()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def compared(path: Path, without: Collection[str]) -> list[str]:
    found = read(HudiTable.open(str(path)), ReadRequest(limit=0)).to_arrow().schema.names
    return [name for name in found if name not in {*NOT_COMPARED, *without}]


def differences(golden: Path, release: str, case: str, hudi: Jvm, folder: Path) -> dict[str, str]:
    """Step → what Hudi reads otherwise than the table had it before."""
    path = folder / case
    shutil.copytree(golden / release / case / "table", path)
    names = compared(path, BY_RELEASE.get(case, ()))
    expected, found = rows(path, names), {}
    for step, version in enumerate(WAYS[release], 1):
        table = HudiTable.open(str(path))
        if REFUSED.get(case) in (version, table.config.version):
            with pytest.raises(VersionChangeError, match="COMPLEX"):
                change_version(table, version)
            break
        change_version(table, version)
        if version in READS[hudi.release]:
            try:
                found[f"{case}, step {step}, version {version}"] = difference(
                    hudi.read(path, columns=names).rows, expected
                )
            except HudiRefused as refused:
                found[f"{case}, step {step}, version {version}"] = str(refused)[:300]
    shutil.rmtree(path)
    return {where: text for where, text in found.items() if text}


@pytest.mark.peer("hudi-1.2.0")
@pytest.mark.parametrize("release", WAYS)
def test_hudi_reads_golden_tables_in_every_version(
    golden: Path, release: str, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    for case in SAMPLE[release]:
        assert not differences(golden, release, case, jvm("1.2.0"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("release", WAYS)
@pytest.mark.parametrize("reader", [pytest.param(name, marks=pytest.mark.peer(f"hudi-{name}")) for name in READS])
def test_hudi_reads_all_golden_tables_in_every_version(
    golden: Path, reader: str, release: str, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    cases = sorted(folder.name for folder in (golden / release).iterdir() if folder.name != ELSEWHERE)
    assert len(cases) > 30
    found: dict[str, str] = {}
    for case in cases:
        found |= differences(golden, release, case, jvm(reader), tmp_path)
    assert not found, "\n".join(f"{where}: {text}" for where, text in found.items())
