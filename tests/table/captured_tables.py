"""Tables with change data, and a replay of their changes, which has to lead to the snapshot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from skep_format.logfile import BlockType, read_blocks
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.metadata import WriteStat
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))])
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
ON, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
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


def change_blocks(path: Path) -> list[Any]:
    """The blocks of a change log."""
    with pa.memory_map(str(path)) as file:
        return [
            block for block in read_blocks(pa.BufferReader(file.read()), str(path)) if block.type is BlockType.CDC_DATA
        ]
