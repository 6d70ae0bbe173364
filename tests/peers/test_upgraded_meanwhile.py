"""JVM Hudi upgrades a table of version 6 while a write of skep is under way: it is noticed, and no row is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.peers.jvm import Jvm
from skep_format.errors import TableVersionError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.locks.filesystem import FileSystemLock
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
COLUMNS = "id string, part string, ts bigint"
HUDI = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
}
SEVERAL = Options({"hoodie.write.concurrency.mode": "optimistic_concurrency_control"})


def row(key: str, ts: int) -> dict[str, Any]:
    return {"id": key, "part": "p", "ts": ts}


def rows(*found: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(found), SCHEMA)


def content(table: HudiTable) -> dict[str, int]:
    return {each["id"]: each["ts"] for each in read(table, ReadRequest()).to_arrow().to_pylist()}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", TableType, ids=["cow", "mor"])
@pytest.mark.parametrize(
    ("release", "version"),
    [pytest.param(release, version, marks=pytest.mark.peer(f"hudi-{release}")) for release, version in (("1.1.1", 9),)],
)
def test_a_write_that_was_under_way(
    release: str,
    version: int,
    kind: TableType,
    jvm: Callable[[str], Jvm],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind, version=6
    )
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    table = table.with_context(lock=FileSystemLock(table.storage), options=SEVERAL)
    LocalWriter(table).upsert(rows(row("a", 1), row("b", 1)))
    LocalWriter(table).upsert(rows(row("a", 2)))
    before = table.reload()
    complete = Transaction.complete

    def upgraded(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Transaction, "complete", complete)
        options = {**HUDI, "hoodie.datasource.write.table.type": kind.value}
        jvm(release).write(
            tmp_path / "t", [row("h", 1)], "id string, part string, ts bigint", options, operation="upsert"
        )
        return complete(*given, **more)

    monkeypatch.setattr(Transaction, "complete", upgraded)
    with pytest.raises(TableVersionError, match=f"another writer made it version {version}"):
        LocalWriter(before).upsert(rows(row("b", 5), row("z", 5)))
    now = before.reload()
    assert now.config.version == version
    assert content(now) == {"a": 2, "b": 1, "h": 1}
    LocalWriter(now).upsert(rows(row("b", 6), row("z", 6)))
    assert not now.reload().timeline.pending().instants
    expected = {"a": 2, "b": 6, "h": 1, "z": 6}
    assert content(now.reload()) == expected
    theirs = jvm(release).read(tmp_path / "t", columns=["id", "ts"]).rows
    assert {str(each["id"]): int(str(each["ts"])) for each in theirs} == expected
