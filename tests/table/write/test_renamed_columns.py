"""Writing to tables whose columns Hudi renamed: older files hold them under the names of then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import instant_files
import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.schema.arrow import from_arrow
from skep_format.schema.avro import avro_text
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade.change import change_version
from skep_table.write.local import LocalWriter

BEFORE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("w", pa.string())])
AFTER = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


def version(number: str, name: str) -> dict[str, Any]:
    types = {"id": "string", "ts": "long", name: "string"}
    fields = [
        {"id": at, "name": field, "optional": True, "type": kind, "doc": ""}
        for at, (field, kind) in enumerate(types.items())
    ]
    return {"max_column_id": 2, "version_id": int(number), "type": "record", "fields": fields}


def rows(schema: pa.Schema, *values: tuple[str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)


def values(table: HudiTable) -> dict[str, str]:
    return {row["id"]: row["v"] for row in read(table.reload()).to_arrow().to_pylist()}


NAMES = {"0.15.0": "{requested}.schemacommit", "1.x": "{requested}_{completed}.schemacommit"}
"""Of history files that Hudi writes, by its release."""


@pytest.fixture(params=list(NAMES))
def name(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def renamed(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> HudiTable:
    """Three rows written with a column `w`, which Hudi's ALTER TABLE has named `v` since."""
    spec = TableSpec(name="t", schema=BEFORE, record_key=("id",), ordering="ts", type=request.param)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(table).bulk_insert(rows(BEFORE, ("a", 1, "a1"), ("b", 1, "b1"), ("c", 1, "c1")))
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    moment = last.latest_time.plus_milliseconds(1)
    schema = avro_text(from_arrow(AFTER, "t_record", "hoodie.t"))
    extra = {"schema": schema, "latest_schema": json.dumps(version(moment, "v"))}
    altered = CommitMetadata(operation_type=WriteOperation.ALTER_SCHEMA, extra_metadata=extra)
    instant_files.add(table, moment, last.action, altered)
    schemas = tmp_path / "t" / ".hoodie" / ".schema"
    schemas.mkdir(exist_ok=True)
    history = {"schemas": [version(moment, "v"), version("0", "w")]}
    for state in ("requested", "inflight"):
        (schemas / f"{moment}.schemacommit.{state}").touch()
    completed = schemas / name.format(requested=moment, completed=moment.plus_milliseconds(2))
    completed.write_text(json.dumps(history))
    table = table.reload()
    assert values(table) == {"a": "a1", "b": "b1", "c": "c1"}
    return table


def latest_schema(table: HudiTable) -> str | None:
    last = table.reload().timeline.data().completed().last()
    assert last is not None
    return table.commit_metadata(last).extra_metadata.get("latest_schema")


def test_rows_that_stay_keep_their_values(renamed: HudiTable) -> None:
    LocalWriter(renamed).upsert(rows(AFTER, ("b", 2, "b2")))
    assert values(renamed) == {"a": "a1", "b": "b2", "c": "c1"}
    LocalWriter(renamed).insert(rows(AFTER, ("d", 1, "d1")))
    assert values(renamed) == {"a": "a1", "b": "b2", "c": "c1", "d": "d1"}
    LocalWriter(renamed).delete(rows(AFTER, ("a", 3, "")).select(["id"]))
    assert values(renamed) == {"b": "b2", "c": "c1", "d": "d1"}


def test_services_keep_them_too(renamed: HudiTable) -> None:
    LocalWriter(renamed).upsert(rows(AFTER, ("b", 2, "b2")))
    if renamed.config.is_mor:
        compact(renamed)
    else:
        cluster(renamed.with_context(options=Options({"hoodie.clustering.plan.strategy.sort.columns": "v"})))
    assert values(renamed) == {"a": "a1", "b": "b2", "c": "c1"}
    assert latest_schema(renamed) is not None


def test_commits_pass_the_columns_ids_on(renamed: HudiTable) -> None:
    """Hudi's readers take them from the last commit."""
    before = latest_schema(renamed)
    assert before is not None
    LocalWriter(renamed).upsert(rows(AFTER, ("b", 2, "b2")))
    assert latest_schema(renamed) == before
    LocalWriter(renamed).insert_overwrite_table(rows(AFTER, ("z", 2, "z2")))
    assert latest_schema(renamed) == before
    LocalWriter(renamed).delete_partitions([""])
    assert latest_schema(renamed) == before


def test_columns_that_a_write_adds_get_ids_of_their_own(renamed: HudiTable) -> None:
    wider = rows(AFTER, ("b", 2, "b2")).append_column("new", pa.array([1], pa.int64()))
    LocalWriter(renamed).upsert(wider)
    assert values(renamed) == {"a": "a1", "b": "b2", "c": "c1"}
    found = latest_schema(renamed)
    assert found is not None
    fields = json.loads(found)["fields"]
    ids = {field["name"]: field["id"] for field in fields}
    assert {name: number for name, number in ids.items() if not name.startswith("_")} == {
        "id": 0,
        "ts": 1,
        "v": 2,
        "new": max(ids.values()),
    }
    assert len(set(ids.values())) == len(ids)
    assert fields[-1]["type"] == "long"


def test_time_travel_and_changes_have_them(renamed: HudiTable) -> None:
    first, altered = renamed.timeline.data().completed()
    LocalWriter(renamed).upsert(rows(AFTER, ("b", 2, "b2")))
    since = read(renamed.reload(), ReadRequest(query="incremental")).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in since} == {"a": "a1", "b": "b2", "c": "c1"}
    for instant, column in ((first, "w"), (altered, "v")):
        then = read(renamed.reload(), ReadRequest(as_of=instant.requested_time)).to_arrow().to_pylist()
        assert {row["id"]: row[column] for row in then} == {"a": "a1", "b": "b1", "c": "c1"}


def test_a_rolled_back_change_leaves_no_file(renamed: HudiTable, tmp_path: Path) -> None:
    last = renamed.timeline.data().completed().last()
    assert last is not None
    roll_back_instant(renamed, last.requested_time)
    assert not any((tmp_path / "t" / ".hoodie" / ".schema").iterdir())


def test_files_of_archived_changes_are_deleted(renamed: HudiTable, tmp_path: Path) -> None:
    for ts in range(2, 6):
        LocalWriter(renamed.reload()).upsert(rows(AFTER, ("b", ts, f"b{ts}")))
        if renamed.config.is_mor:
            compact(renamed.reload())
    kept = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    changed = next((tmp_path / "t" / ".hoodie" / ".schema").glob("*.requested")).name.partition(".")[0]
    archived = archive(renamed.reload().with_context(options=Options(kept)))
    assert archived
    LocalWriter(renamed.reload()).upsert(rows(AFTER, ("c", 7, "c7")))
    assert not [path for path in (tmp_path / "t" / ".hoodie" / ".schema").iterdir() if path.name.startswith(changed)]
    assert values(renamed) == {"a": "a1", "b": "b5", "c": "c7"}


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_readers_of_version_6_find_the_history_after_a_downgrade(renamed: HudiTable, tmp_path: Path) -> None:
    """Hudi 0.15 takes what is before the first dot for the time."""
    change_version(renamed, 6)
    found = [path.name for path in (tmp_path / "t" / ".hoodie" / ".schema").glob("*.schemacommit")]
    assert found
    assert all(name.partition(".")[0].isdigit() for name in found)
    assert values(renamed) == {"a": "a1", "b": "b1", "c": "c1"}
