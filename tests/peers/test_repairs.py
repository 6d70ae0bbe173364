"""After each repair, and each change of settings, JVM Hudi reads the rows that skep reads, and writes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import difference
from skep.handles.by_path import open_table
from skep_format.json_text import json_lines
from skep_format.metafile import PARQUET_METAFILE
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

RELEASE = "0.15.0"
OF_FILES = {"_hoodie_file_name", "_hoodie_commit_seqno"}  # written at each step, or read otherwise from logs


def rows(path: Path, names: list[str]) -> list[dict[str, Any]]:
    found = read(HudiTable.open(str(path)), ReadRequest(columns=tuple(names))).to_arrow()
    return [json.loads(line) for batch in found.to_batches() for line in bytes(json_lines(batch)).splitlines()]


@pytest.mark.peer(f"hudi-{RELEASE}")
def test_hudi_reads_a_table_after_each_repair(golden: Path, jvm: Callable[[str], Jvm], tmp_path: Path) -> None:
    hudi, path = jvm(RELEASE), tmp_path / "t"
    shutil.copytree(golden / RELEASE / "mor_upsert" / "table", path)
    schema = read(HudiTable.open(str(path)), ReadRequest(limit=0)).to_arrow().schema.names
    names = [name for name in schema if name not in OF_FILES]
    before = rows(path, names)

    def reads_the_same(expected: list[dict[str, Any]]) -> None:
        assert not difference(rows(path, names), expected)
        assert not difference(hudi.read(path, columns=names).rows, expected)

    table = open_table(str(path))
    partition = before[0]["_hoodie_partition_path"]
    (path / partition / ".hoodie_partition_metadata").unlink()
    table.add_partition_metafiles()
    table.migrate_partition_metafiles()
    reads_the_same(before)

    table.change_settings({"hoodie.keep.min.commits": "40"})
    (planned,) = table.compact(schedule=True)
    (first, *_) = table.validate_compaction(planned.instant)
    table.unschedule_compaction(planned.instant, file_id=first.file_id, partition=first.partition)
    reads_the_same(before)
    table.unschedule_compaction(planned.instant)
    reads_the_same(before)

    data = table.read().to_arrow()
    chosen = [row == partition for row in data["_hoodie_partition_path"].to_pylist()]
    table.bulk_insert(data.filter(chosen).select([name for name in schema if not name.startswith("_hoodie_")]))
    table.deduplicate(partition)
    deduplicated = rows(path, names)
    assert sorted(row["_hoodie_record_key"] for row in deduplicated) == sorted(
        row["_hoodie_record_key"] for row in before
    )
    reads_the_same(deduplicated)

    table.rename_partition(partition, "renamed")
    renamed = rows(path, names)
    assert {row["_hoodie_partition_path"] for row in renamed} == {
        "renamed",
        *(row["_hoodie_partition_path"] for row in deduplicated),
    } - {partition}
    reads_the_same(renamed)
    table.rename_partition("renamed", partition)
    deduplicated = rows(path, names)

    table.change_table_type("COW")
    reads_the_same(deduplicated)
    hudi.sql(f"CREATE TABLE repaired USING hudi LOCATION '{path}'")
    # Hudi's own fails for a table without any commit.
    answer = hudi.sql("CALL repair_migrate_partition_meta(table => 'repaired')").rows
    assert {(row["text_metafile_present"], row["base_metafile_present"]) for row in answer} == {("false", "true")}
    hudi.sql("DELETE FROM repaired WHERE _hoodie_record_key = '" + deduplicated[0]["_hoodie_record_key"] + "'")
    assert HudiTable.open(str(path)).timeline.last().action is Action.COMMIT
    reads_the_same(rows(path, names))
    assert len(rows(path, names)) == len(before) - 1
    assert all((path / name / PARQUET_METAFILE).exists() for name in HudiTable.open(str(path)).view().partitions())
    hudi.sql("DROP TABLE repaired")
