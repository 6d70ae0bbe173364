"""Replays of what HoodieStreamer did: a scenario's rounds in a folder, and what came out of each."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import skep
from skep.flows.streams import Streamer
from skep_format.errors import SkepError
from skep_format.json_text import json_lines
from skep_format.timeline.instant import Instant
from skep_table.table import HudiTable

GOLDEN = Path(__file__).parent / "golden"
HIDDEN = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
COUNTED = ("commit", "deltacommit", "replacecommit")
ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "int": pa.int32(), "boolean": pa.bool_()}


@dataclass(frozen=True)
class Outcome:
    """What a round left."""

    exit: int
    error: SkepError | None
    actions: list[str]
    new: list[dict[str, Any]]
    rows: list[dict[str, Any]] | None


def scenarios() -> list[str]:
    return sorted(path.parent.name for path in GOLDEN.glob("*/scenario.json"))


class Replay:
    """One scenario in a folder."""

    def __init__(self, name: str, work: Path) -> None:
        self.folder, self.work = GOLDEN / name, work
        self.scenario = json.loads((self.folder / "scenario.json").read_text())
        self.table, self.source = str(work / "table"), str(work / "source")
        (work / "in").mkdir()
        self._copied(self.folder / "conf")

    def run(self, more: tuple[str, ...] = ()) -> Iterator[tuple[dict[str, Any], Outcome]]:
        """The rounds one by one, each with what it left; `more` flags are given in each."""
        for number, round in enumerate(self.scenario["rounds"], 1):
            yield round, self._round(self.folder / f"round-{number}", round, more)

    def expected_rows(self, number: int) -> list[dict[str, Any]] | None:
        file = self.folder / f"round-{number}" / "expected.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else None

    def place(self, text: str) -> str:
        """A text of the scenario with the folders of this replay."""
        text = text.replace("<in>", str(self.work / "in")).replace("<conf>", str(self.work / "conf"))
        return text.replace("<table>", self.table).replace("<source>", self.source)

    def _copied(self, conf: Path) -> None:
        for file in conf.rglob("*") if conf.is_dir() else ():
            if file.is_file():
                to = self.work / "conf" / file.relative_to(conf)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_text(self.place(file.read_text()))

    def _round(self, folder: Path, round: dict[str, Any], more: tuple[str, ...]) -> Outcome:
        for name in round.get("remove", ()):
            path = self.work / "in" / (name if isinstance(name, str) else name["file"])
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for put in round.get("put", ()):
            path = self.work / "in" / put["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / "in" / put["file"], path)
            os.utime(path, ns=(put["mtime_ms"] * 1_000_000,) * 2)
        self._copied(folder / "conf")
        for base, writes in ((self.source, "source_writes"), (self.table, "table_writes")):
            for write in round.get(writes, ()):
                _upserted(base, folder / write["file"], write)
        before = _instants(self.table)
        error = None
        try:
            for _ in Streamer.of([*map(self.place, round["flags"]), *more]).run():
                pass
        except SkepError as raised:
            error = raised
        after = _instants(self.table)
        new = [instant for instant in after if instant not in before]
        return Outcome(
            0 if error is None else 1,
            error,
            [instant.action.value for instant in after],
            [self._described(instant) for instant in new],
            _rows(self.table),
        )

    def _described(self, instant: Instant) -> dict[str, Any]:
        metadata = HudiTable.open(self.table).commit_metadata(instant)
        operation = metadata.operation_type
        extra = {
            key: text for key, text in metadata.extra_metadata.items() if key not in ("schema",) and "skep" not in key
        }
        return {
            "action": instant.action.value,
            "operation": operation.value if operation else None,
            "extra_metadata": {key: self._named(text) for key, text in extra.items()},
        }

    def _named(self, text: str) -> str:
        times = [str(instant.requested_time) for instant in _instants(self.source)]
        return f"<source:{times.index(text) + 1}>" if text in times else text


def _instants(path: str) -> list[Instant]:
    if not (Path(path) / ".hoodie").exists():
        return []
    return [each for each in HudiTable.open(path).timeline.completed().instants if each.action.value != "clean"]


def _rows(path: str) -> list[dict[str, Any]] | None:
    if not (Path(path) / ".hoodie").exists():
        return None
    rows = skep.load(path).to_arrow()
    lines = bytes(json_lines(rows.to_batches()[0])).splitlines() if rows.num_rows else []
    if rows.num_rows:
        lines = b"".join(bytes(json_lines(batch)) for batch in rows.to_batches()).splitlines()
    found = [json.loads(line) for line in lines]
    return [{key: value for key, value in row.items() if value is not None and key not in HIDDEN} for row in found]


def _upserted(base: str, file: Path, write: dict[str, Any]) -> None:
    kinds = {"bigint": "long"}
    fields = [column.strip().split() for column in write["schema"].split(",")]
    schema = pa.schema([(name, ARROW[kinds.get(kind, kind)]) for name, kind in fields])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    options = {
        "hoodie.table.name": "s",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        **write["options"],
    }
    if (Path(base) / ".hoodie").exists():
        options["hoodie.table.name"] = HudiTable.open(base).config.name
    skep.write(pa.Table.from_pylist(rows, schema)).options(**options).mode("append").save(base)
