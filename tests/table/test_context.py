"""The context of a table: which options, credentials and lock reach what reads and writes it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from skep_format.errors import LockError, StorageError
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.context import TableContext
from skep_table.events import Event, Events
from skep_table.lock import GuardedLock, InProcessLock, NoLock
from skep_table.merge.rule import DELETE_FIELD, DELETE_MARKER
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.write.indexes import registry
from skep_table.write.indexes.bloom_lookup import BloomIndex
from skep_table.write.local import LocalWriter
from tests.tables_at import create_at

SOURCE = "hoodie.bootstrap.base.path"
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts"}
ROWS = pa.table({"id": ["a", "b"], "part": ["p", "q"], "ts": [1, 1]})
SPEC = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), partition_by=("part",), ordering="ts")


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_table(LocalStorage(str(tmp_path / "t")), SPEC)


def test_a_created_table_has_the_options_that_it_was_created_with(tmp_path: Path) -> None:
    options = {METADATA_ENABLE.key: "false"}
    assert dict(create_table(LocalStorage(str(tmp_path / "a")), SPEC, options).options) == options
    assert dict(create_at(tmp_path / "b", ROWS, options, key="id").hudi.options) == options


def test_options_are_added_and_contexts_replaced(table: HudiTable) -> None:
    runner = ThreadRunner(1)
    first = table.with_options({"a": 1, "b": 1}).with_context(runner=runner)
    assert dict(first.with_options({"b": 2, "c": True}).options) == {"a": "1", "b": "2", "c": "true"}
    assert dict(first.with_context(options={"c": 3}).options) == {"c": "3"}
    reloaded = first.reload()
    assert (reloaded.context.runner, dict(reloaded.options)) == (runner, {"a": "1", "b": "1"})
    assert table.options == {}


def test_a_pickled_table_reads_with_its_options_and_can_not_take_its_lock(table: HudiTable) -> None:
    locked = table.with_options({"a": 1}).with_context(lock=InProcessLock(table.storage.root))
    LocalWriter(locked).upsert(ROWS)
    other: HudiTable = pickle.loads(pickle.dumps(locked.reload()))
    assert dict(other.options) == {"a": "1"}
    assert read(other, ReadRequest()).count() == 2
    with pytest.raises(LockError, match="another process"):
        LocalWriter(other).upsert(ROWS)
    assert len(table.reload().timeline) == 1
    LocalWriter(pickle.loads(pickle.dumps(table))).upsert(ROWS)  # without a lock it is the same single writer


def test_an_index_reads_with_the_options_of_the_write(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them is the field that marks deletes in logs, and where the sources of a bootstrap are."""
    seen = []

    class Recorded(BloomIndex):
        def look_up(self, table: HudiTable, files: Any) -> Any:
            seen.append(table.options.get(DELETE_FIELD.key))
            return super().look_up(table, files)

    entry = EntryPoint("mine", "unused:unused", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: lambda _config, _options: Recorded())
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry])
    LocalWriter(table.with_options({"hoodie.index.class": "mine", DELETE_FIELD.key: "ts"})).upsert(ROWS)
    assert seen == ["ts"]


def test_what_counts_as_deleted_in_logs_is_decided_by_the_options_of_the_write(tmp_path: Path) -> None:
    """The option comes with the calls only. A key that is deleted in one partition may arrive in another."""
    rows = pa.table({"id": ["a"], "part": ["p"], "ts": [1], "removed": ["no"]})
    spec = TableSpec(
        name="t",
        schema=rows.schema,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
    )
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(table).insert(rows)
    given = {
        DELETE_FIELD.key: "removed",
        DELETE_MARKER.key: "yes",
        "hoodie.index.type": "GLOBAL_BLOOM",
        "hoodie.bloom.index.update.partition.path": "false",
    }
    deleted = pa.table({"id": ["a"], "part": ["p"], "ts": [2], "removed": ["yes"]})
    LocalWriter(table.reload().with_options(given)).upsert(deleted)
    result = LocalWriter(table.reload().with_options(given)).upsert(
        pa.table({"id": ["a"], "part": ["q"], "ts": [3], "removed": ["no"]})
    )
    assert result.partitions == ("q",)
    found = read(table.reload().with_options(given), ReadRequest(columns=("id", "part", "ts"))).to_arrow()
    assert found.to_pylist() == [{"id": "a", "part": "q", "ts": 3}]


def bucket_of(folder: Path, s3_options: dict[str, str]) -> str:
    """Copies a folder into a new bucket, and returns its address."""
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["fs.s3a.endpoint"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="sources")
    for file in folder.rglob("*.parquet"):
        client.put_object(Bucket="sources", Key=f"s/{file.relative_to(folder)}", Body=file.read_bytes())
    return "s3a://sources/s"


@pytest.mark.parametrize(
    "change", [lambda t, r: LocalWriter(t).upsert(r), lambda t, _: cluster(t.with_options(SORTED))]
)
def test_bootstrap_sources_are_opened_with_the_credentials_of_the_call(
    change: Callable[[HudiTable, pa.Table], Any], golden: Path, tmp_path: Path, s3_options: dict[str, str]
) -> None:
    case = golden / "0.15.0" / "cow_bootstrap_metadata_only"
    shutil.copytree(case / "table", tmp_path / "t")
    options = {SOURCE: bucket_of(case / "source", s3_options), **s3_options}
    opened = HudiTable.open(tmp_path / "t", options)
    rows = read(opened, ReadRequest()).to_arrow()
    given = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie")])
    plain = HudiTable.open(tmp_path / "t")
    with pytest.raises(StorageError):
        read(plain, ReadRequest()).to_arrow()
    assert change(plain.with_options(options), given)
    assert read(HudiTable.open(tmp_path / "t", options), ReadRequest()).count() == rows.num_rows


def test_a_lock_that_is_held_already_stays_held(tmp_path: Path) -> None:
    class HeldOnce(NoLock):
        releases = 0

        def acquire(self, timeout_seconds: float) -> str:
            raise LockError("held already")

        def release(self) -> None:
            self.releases += 1

    inner = HeldOnce()
    events: list[Event] = []
    lock = GuardedLock(inner, lambda: None)
    context = TableContext(LocalStorage(str(tmp_path)), lock=lock, events=Events(events.append))
    with pytest.raises(LockError, match="held already"), context.locked():
        pass
    assert inner.releases == 0
    assert [event.name for event in events] == ["lock.wait.start", "lock.wait.failed"]
