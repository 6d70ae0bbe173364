"""Tables of versions 8 and 9 that skep and JVM Hudi archive in turns: queries of both, and one history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.peers.jvm import Jvm
from skep_format.instant_time import CompletionTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import DATA_ACTIONS
from skep_format.timeline.lsm_files import current_manifest
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
COLUMNS = "id string, part string, ts bigint"
SHORT = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.timeline.compaction.batch.size": "2",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.metadata.enable": "false",
}
PEERS = [
    pytest.param(
        release, version, kind, id=f"{release}-{kind.value}", marks=[pytest.mark.peer(f"hudi-{release}"), *slow]
    )
    for release, version, slow in (
        ("1.2.0", 9, []),
        ("1.1.1", 9, [pytest.mark.slow]),
        ("1.0.2", 8, [pytest.mark.slow]),
    )
    for kind in TableType
]


class Turns:
    """One table whose writers take turns; row n is that of write n, and row 0 changes with each."""

    def __init__(self, path: Path, version: int, kind: TableType, hudi: Jvm) -> None:
        self.path, self.version, self.kind, self.hudi = path, version, kind, hudi
        self.written = 0
        self.instants: set[tuple[str, str]] = set()

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.path))

    def rows(self) -> list[dict[str, Any]]:
        self.written += 1
        return [{"id": str(at), "part": "p", "ts": self.written} for at in (0, self.written)]

    def ours(self, times: int) -> None:
        table = self.table.with_context(options=Options(SHORT))
        for _ in range(times):
            LocalWriter(table).upsert(pa.Table.from_pylist(self.rows(), SCHEMA))
            table = table.reload()
            archive(table)

    def theirs(self, times: int) -> None:
        options = {
            **SHORT,
            "hoodie.table.name": "t",
            "hoodie.datasource.write.table.type": self.kind.value,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.archive.automatic": "true",
            "hoodie.write.table.version": str(self.version),
            "hoodie.write.auto.upgrade": "false",
        }
        for _ in range(times):
            self.hudi.write(self.path, self.rows(), COLUMNS, options, operation="upsert")

    def check(self) -> None:
        """Both read every row: of the whole table, and of the range from its first commit, which is archived, on."""
        expected = sorted((str(at), at or self.written) for at in range(self.written + 1))
        ours = read(self.table, ReadRequest()).to_arrow().to_pylist()
        assert sorted((row["id"], row["ts"]) for row in ours) == expected
        assert sorted((row["id"], int(row["ts"])) for row in self.hudi.read(self.path).rows) == expected
        timeline = self.table.timeline
        writes = sorted(
            (i.completion_time, i) for i in (*timeline.archived(), *timeline.completed()) if i.action in DATA_ACTIONS
        )
        first = writes[0][0]
        assert len(writes) == self.written
        assert timeline.is_archived(writes[0][1].requested_time)
        later = [row for row in expected if row[0] != "1"]
        changed = read(self.table, ReadRequest(query="incremental", since=first)).to_arrow().to_pylist()
        assert sorted((row["id"], row["ts"]) for row in changed) == later
        # The moment after: Hudi 1.0 includes the begin of a range.
        begin = CompletionTime(str(first)).plus_milliseconds(1)
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        found = self.hudi.read(self.path, options).rows
        assert sorted((row["id"], int(row["ts"])) for row in found) == later

    def check_history(self) -> None:
        """Each instant once, and levels that were merged."""
        table = self.table
        storage, folder = table.storage, table.layout.archive_folder
        files = current_manifest(storage, folder).files
        rows = [
            (row["instantTime"], row["action"])
            for file in files
            for row in pq.read_table(self.path / folder / file.name).select(["instantTime", "action"]).to_pylist()
        ]
        assert len(rows) == len(set(rows))
        assert max(file.level for file in files) >= 1
        for instant in table.timeline.archived():
            assert table.timeline.archive is not None
            assert table.timeline.archive.completed_content(instant) is not None


@pytest.mark.parametrize(("release", "version", "kind"), PEERS)
def test_each_archives_on_from_the_other(
    release: str, version: int, kind: TableType, tmp_path: Path, jvm: Callable[[str], Jvm]
) -> None:
    path = tmp_path / "t"
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, version=version
    )
    create_table(LocalStorage(str(path)), spec)
    turns = Turns(path, version, kind, jvm(release))
    turns.ours(9)
    turns.check_history()
    turns.check()
    turns.theirs(5)
    turns.check_history()
    turns.check()
    turns.ours(4)
    turns.check_history()
    turns.check()
