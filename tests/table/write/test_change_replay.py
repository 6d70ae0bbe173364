"""Change data: what commits write of their changes leads, replayed, from one snapshot to the next."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from captured_tables import COW, MODES, MOR, SCHEMA, Captured, replayed, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.table_config import TableType
from skep_table.merge.rows import DELETED
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable

KEYS = st.sampled_from("abcdef")
PARTS = {key: "pq"[at % 2] for at, key in enumerate("abcdef")}
TAGS = st.none() | st.lists(st.text(max_size=2), max_size=2)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 4), TAGS), min_size=1, max_size=4, unique_by=lambda row: row[0])


@st.composite
def steps(draw: st.DrawFn, kind: TableType) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("upsert", draw(ROWS))]
    names = ["upsert", "update", "update", "delete", "insert", "overwrite", "drop", "partial", "statement"]
    names += ["cluster", "roll back", "back"]
    chosen = draw(st.lists(st.sampled_from([*names, *(["compact"] if kind is MOR else [])]), max_size=6))
    return [*found, *((name, draw(ROWS)) for name in chosen)]


def take(table: Captured, name: str, given_rows: Any) -> None:
    full = rows(*((key, PARTS[key], ts, tags) for key, ts, tags in given_rows))
    state = table.snapshot()
    match name:
        case "upsert":
            table.writer().upsert(full)
        case "update":
            known = [row for row in given_rows if row[0] in state]
            table.writer().upsert(rows(*((key, PARTS[key], ts, tags) for key, ts, tags in known)))
        case "delete":
            table.writer().delete(full.select(["id", "part"]))
        case "insert":
            table.writer(**{"hoodie.datasource.insert.dup.policy": "drop"}).insert(full)
        case "overwrite":
            table.writer().insert_overwrite(full)
        case "drop":
            table.writer().delete_partitions(["p"])
        case "partial":
            known = [row for row in given_rows if row[0] in state]
            if known and table.table.config.version > 6:
                frame = rows(*((key, PARTS[key], ts) for key, ts, _ in known)).select(["id", "part", "ts"])
                table.writer().upsert(frame, partial=True)
        case "statement":
            table.writer().change(partial(merged, given_rows=given_rows))
        case "back":  # keys that a base file holds, and its logs deleted
            for each in ("delete", "statement", "upsert"):
                take(table, each, given_rows)
        case "compact":
            compact(table.table)
        case "cluster":
            cluster(table.table)
        case "roll back":
            instants = table.table.timeline.data().completed().instants
            if len(instants) > 1 and not table.table.commit_metadata(instants[-1]).compacted:
                roll_back_instant(table.table, instants[-1].requested_time)


def merged(table: HudiTable, given_rows: Any) -> pa.Table:
    """What a MERGE makes of some rows: of those stored the first is deleted, the others are updated; others are new."""
    chosen = pa.array([key for key, _, _ in given_rows])
    stored = read(table, ReadRequest()).to_arrow().filter(pc.is_in(pc.field("id"), chosen))
    stored = stored.set_column(stored.schema.get_field_index("ts"), SCHEMA.field("ts"), pc.add(stored["ts"], 1))
    stored = stored.append_column(DELETED, pc.equal(stored["id"], chosen[0]))
    keys = set(read(table, ReadRequest()).to_arrow()["id"].to_pylist())
    new = rows(*((key, PARTS[key], ts, tags) for key, ts, tags in given_rows if key not in keys))
    new = new.append_column(DELETED, pa.array([False] * new.num_rows, pa.bool_()))
    return pa.concat_tables([stored, new], promote_options="default").cast(stored.schema)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [COW, MOR], ids=["cow", "mor"])
@given(data=st.data())
@settings(max_examples=8)
def test_a_replay_of_the_changes_gives_the_snapshot(
    kind: TableType, mode: str, version: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = Captured.make(tmp_path_factory.mktemp("t"), mode, kind, version)
    for name, given_rows in data.draw(steps(kind)):
        take(table, name, given_rows)
        assert replayed(table.changes()) == table.snapshot(), name
