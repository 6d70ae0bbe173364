"""Change data: what commits write of their changes leads, replayed, from one snapshot to the next."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_table.commit.create import TableSpec, create_table
from skep_table.errors import InputError, OptionError, TableMismatchError
from skep_table.logfile import BlockType, HeaderKey, read_blocks
from skep_table.logfile.changes import change_block
from skep_table.options import Options
from skep_table.query import ReadRequest, read
from skep_table.runner import ThreadRunner
from skep_table.services.clean import clean
from skep_table.services.cluster import cluster
from skep_table.services.compact import compact, schedule_compaction
from skep_table.services.rollback import roll_back_instant
from skep_table.storage import LocalStorage
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.table_config.keys import CdcMode
from skep_table.timeline.metadata import WriteStat
from skep_table.write.change_log import FIELDS
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))])
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
ON, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
KEYED = ("op", "record_key")
Row = tuple[str, int, tuple[str, ...] | None]
State = dict[str, Row]


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=False)) for value in values], SCHEMA)


@dataclass
class Captured:
    """A table with change data, and what is done to it."""

    folder: str

    @classmethod
    def make(cls, folder: Path | str, mode: str, kind: TableType = COW, version: int = 9) -> Captured:
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=kind,
            version=version,
            properties={ON: "true", MODE: mode},
        )
        create_table(LocalStorage(str(folder)), spec)
        return cls(str(folder))

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(self.folder)

    def writer(self, **options: str) -> LocalWriter:
        setting = {"runner": ThreadRunner(1), "options": Options(options)}
        return LocalWriter(self.table.with_context(**setting))

    def snapshot(self) -> State:
        return {row["id"]: row_of(row) for row in read(self.table, ReadRequest()).to_arrow().to_pylist()}

    def changes(self, **request: Any) -> list[dict[str, str | None]]:
        return read(self.table, ReadRequest(query="cdc", **request)).to_arrow().to_pylist()  # type: ignore[arg-type]

    def stats(self) -> tuple[WriteStat, ...]:
        """Of the last commit."""
        last = self.table.timeline.data().completed().last()
        assert last is not None
        return self.table.commit_metadata(last).stats

    def files(self) -> list[Path]:
        return sorted(Path(self.folder).rglob("*.cdc"))


def row_of(row: dict[str, Any]) -> Row:
    return row["part"], row["ts"], None if row.get("tags") is None else tuple(row["tags"])


def image(text: str | None) -> dict[str, Any] | None:
    parsed: dict[str, Any] | None = json.loads(text or "null")
    return parsed


def replayed(changes: list[dict[str, str | None]]) -> State:
    """The rows after all changes; each image before has to be the row that is there."""
    state: State = {}
    for time in sorted({str(change["ts_ms"]) for change in changes}):
        here = [change for change in changes if change["ts_ms"] == time]
        for change in sorted(here, key=lambda each: each["op"] != "d"):
            before, after = image(change["before"]), image(change["after"])
            if change["op"] != "i":
                assert before is not None
                assert state.pop(before["id"]) == row_of(before)
            if change["op"] != "d":
                assert after is not None
                assert after["id"] not in state
                state[after["id"]] = row_of(after)
            assert (before is None, after is None) == (change["op"] == "i", change["op"] == "d")
    return state


KEYS = st.sampled_from("abcdef")
PARTS = {key: "pq"[at % 2] for at, key in enumerate("abcdef")}
TAGS = st.none() | st.lists(st.text(max_size=2), max_size=2)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 4), TAGS), min_size=1, max_size=4, unique_by=lambda row: row[0])


@st.composite
def steps(draw: st.DrawFn, kind: TableType) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("upsert", draw(ROWS))]
    names = ["upsert", "update", "update", "delete", "insert", "overwrite", "drop", "partial", "cluster", "roll back"]
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
        case "compact":
            compact(table.table)
        case "cluster":
            cluster(table.table)
        case "roll back":
            instants = table.table.timeline.data().completed().instants
            if len(instants) > 1 and not table.table.commit_metadata(instants[-1]).compacted:
                roll_back_instant(table.table, instants[-1].requested_time)


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


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.1.1"])
def test_blocks_are_those_that_hudi_writes(golden: Path, version: str) -> None:
    """Records and schema byte by byte; only the order of the headers differs from one release to the next."""
    table = HudiTable.open(golden / version / "cow_cdc" / "table")
    schema, compared = table.schema(), 0
    for stat in (
        stat for instant in table.timeline.data().completed() for stat in table.commit_metadata(instant).stats
    ):
        for path in stat.cdc_stats or ():
            with table.storage.open_input(path) as file:
                (theirs,) = read_blocks(file, path)
                expected, headers = theirs.content(), theirs.headers
                fields = FIELDS[CdcMode.DATA_BEFORE_AFTER]
                ours = change_block(theirs.instant_time, schema, fields, theirs.records())
            (block,) = read_blocks(pa.BufferReader(ours), path, len(ours))
            assert block.content() == expected
            assert block.headers == headers
            compared += 1
    assert compared > 2


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (
            "OP_KEY_ONLY",
            {
                "type": "record",
                "name": "Record",
                "fields": [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")],
            },
        ),
        (
            "DATA_BEFORE",
            {
                "type": "record",
                "name": "CDC",
                "namespace": "hoodie.t",
                "fields": [
                    *({"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in KEYED),
                    {"name": "before", "type": ["null", "t_record"], "doc": "", "default": None},
                ],
            },
        ),
    ],
)
def test_records_of_the_other_modes(tmp_path: Path, mode: str, text: dict[str, Any]) -> None:
    table = Captured.make(tmp_path, mode)
    table.writer().upsert(rows(("a", "p", 1, ["x"]), ("b", "p", 1, None)))
    table.writer().upsert(rows(("a", "p", 2, []), ("c", "p", 1, None)))
    table.writer().delete(rows(("b", "p")))
    (block,) = blocks(table.files()[-1])
    assert set(block.headers) == {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
    found = json.loads(block.schema_text)
    if mode == "DATA_BEFORE":
        assert found["fields"][2]["type"][1].pop("fields")[0]["name"] == "id"
        found["fields"][2]["type"][1] = found["fields"][2]["type"][1].pop("name")
    assert found == text
    changed = block.records().to_pylist()
    assert [(each["op"], each["record_key"]) for each in changed] == [("d", "b")]


def blocks(path: Path) -> list[Any]:
    with pa.memory_map(str(path)) as file:
        return [
            block for block in read_blocks(pa.BufferReader(file.read()), str(path)) if block.type is BlockType.CDC_DATA
        ]


@pytest.mark.parametrize("version", [6, 9])
def test_the_stat_of_the_base_file_names_its_log(tmp_path: Path, version: int) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", version=version)
    table.writer().upsert(rows(("a", "p", 1), ("b", "q", 1)))
    assert not table.files(), "new file groups need none"
    assert [stat.cdc_stats for stat in table.stats()] == [None, None]
    table.writer().upsert(rows(("a", "p", 2), ("c", "p", 1)))
    (stat,) = table.stats()
    (log,) = table.files()
    base = stat.path.rpartition("/")[2]
    file_id, token, instant = base.removesuffix(".parquet").split("_")
    assert stat.cdc_stats == {f"p/{log.name}": log.stat().st_size}
    assert log.name == f".{file_id}_{instant}.log.1_{token}.cdc"
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (2, 1, 1, 0)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_stat_of_a_log_names_the_slice_before_it(tmp_path: Path, version: int) -> None:
    """Without it Hudi takes every update for an insert."""
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR, version)
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)))
    (base,) = table.stats()
    table.writer().upsert(rows(("a", "p", 2)))
    table.writer().upsert(rows(("a", "p", 3)))
    (stat,) = table.stats()
    logs = sorted(path.name for path in tmp_path.rglob(".*.log.*") if ".hoodie" not in path.parts)
    assert stat.base_file == base.path.rpartition("/")[2]
    assert sorted(stat.log_files or ()) == logs
    assert len(logs) == 2
    assert stat.prev_commit == base.path.rpartition("_")[2].removesuffix(".parquet")


def test_a_log_behind_a_planned_compaction_names_what_that_reads(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR)
    table.writer().upsert(rows(("a", "p", 1), ("b", "p", 1)))
    (base,) = table.stats()
    table.writer().upsert(rows(("a", "p", 2)))
    assert schedule_compaction(table.table) is not None
    table.writer().upsert(rows(("a", "p", 3)))
    (stat,) = table.stats()
    assert stat.base_file == base.path.rpartition("/")[2]
    assert len(stat.log_files or ()) == 2
    assert replayed(table.changes()) == table.snapshot()


def test_rows_that_lose_and_keys_that_are_not_there_change_nothing(tmp_path: Path) -> None:
    """The log is there, without entries: Hudi takes a rewritten file without one for an error."""
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    table.writer().upsert(rows(("a", "p", 5), ("b", "p", 5)))
    table.writer().upsert(rows(("a", "p", 1)))
    ((path, size),) = (table.stats()[0].cdc_stats or {}).items()
    (block,) = blocks(tmp_path / path)
    assert block.records().num_rows == 0
    assert (tmp_path / path).stat().st_size == size
    assert len(table.changes()) == 2


def test_an_insert_into_a_small_file_is_logged(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE")
    table.writer().insert(rows(("a", "p", 1)))
    table.writer().insert(rows(("b", "p", 1), ("c", "p", 1)))
    assert len(table.files()) == 1
    assert replayed(table.changes()) == table.snapshot()


def test_many_changes_make_several_blocks(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    every = [(f"k{number:04}", "p", 1, ["x" * 50]) for number in range(2000)]
    table.writer().upsert(rows(*every))
    newer = [(key, part, 2, tags) for key, part, _, tags in every]
    table.writer(**{"hoodie.logfile.data.block.max.size": "20000"}).upsert(rows(*newer))
    found = blocks(table.files()[0])
    assert len(found) > 5
    assert sum(block.records().num_rows for block in found) == 2000
    assert replayed(table.changes()) == table.snapshot()


@pytest.mark.parametrize("version", [6, 9])
def test_rollbacks_delete_change_logs(tmp_path: Path, version: int) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER", version=version)
    table.writer().upsert(rows(("a", "p", 1)))
    result = table.writer().upsert(rows(("a", "p", 2)))
    assert len(table.files()) == 1
    roll_back_instant(table.table, result.instant.requested_time)
    assert not table.files()
    assert [change["op"] for change in table.changes()] == ["i"]


def test_the_metadata_table_lists_change_logs(tmp_path: Path) -> None:
    table = Captured.make(tmp_path, "DATA_BEFORE_AFTER")
    on = {"hoodie.metadata.enable": "true"}
    table.writer(**on).upsert(rows(("a", "p", 1)))
    table.writer(**on).upsert(rows(("a", "p", 2)))
    (log,) = table.files()
    listed = {file.name for file in table.table.view(metadata=True).listing.files("p")}
    assert log.name in listed


@pytest.mark.parametrize("mode", MODES)
def test_a_clean_takes_the_logs_of_the_slices_that_it_deletes(tmp_path: Path, mode: str) -> None:
    table = Captured.make(tmp_path, mode)
    for ts in range(1, 6):
        table.writer().upsert(rows(("a", "p", ts)))
    instants = table.table.timeline.data().completed().instants
    clean(table.table.with_options({"hoodie.cleaner.commits.retained": "2"}))
    assert len(table.files()) == 3, "as many as there are slices"
    kept = table.changes(since=table.table.format.reads.time_in_range(instants[-3]))
    assert [(change["op"], image(change["before"])["ts"], image(change["after"])["ts"]) for change in kept] == [  # type: ignore[index]
        ("u", 3, 4),
        ("u", 4, 5),
    ]
    with pytest.raises(InputError, match="cleaner"):
        table.changes()


def test_switching_it_on_later_is_refused(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path)), spec)
    with pytest.raises(TableMismatchError, match=r"cdc\.enabled False, not True"):
        LocalWriter(table.with_options({ON: "true"})).upsert(rows(("a", "p", 1)))


@pytest.mark.parametrize(
    ("properties", "option"),
    [({ON: "true", MODE: "everything"}, MODE), ({ON: "true", "hoodie.populate.meta.fields": "false"}, ON)],
)
def test_what_no_table_can_have_is_refused(tmp_path: Path, properties: dict[str, str], option: str) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", properties=properties)
    with pytest.raises(OptionError) as refused:
        create_table(LocalStorage(str(tmp_path)), spec)
    assert refused.value.fields["option"] == option


def test_a_late_row_that_fills_what_the_stored_one_lacks_is_an_update(tmp_path: Path) -> None:
    """The stored row keeps its commit then: what the commit wrote does not show it."""
    table = Captured.make(tmp_path, "OP_KEY_ONLY", MOR)
    table.writer().upsert(rows(("a", "p", 0)))
    table.writer().upsert(rows(("a", "p", 2)).select(["id", "part", "ts"]), partial=True)
    table.writer().upsert(rows(("a", "p", 1, ["late"])))
    assert table.snapshot() == {"a": ("p", 2, ("late",))}
    assert replayed(table.changes()) == table.snapshot()
