"""Streams from a folder of files: a job's files, flags, command line and rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import orc, parquet

import skep

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}
KEYS = {"hoodie.datasource.write.recordkey.field": "id"}


class Job:
    """A folder of files, a schema and a target."""

    def __init__(self, work: Path) -> None:
        self.work, self.source, self.table = work, work / "in", str(work / "table")
        self.source.mkdir()
        (work / "order.avsc").write_text(json.dumps(ORDER))

    def put(self, name: str, *rows: dict[str, Any], at: int = 1_700_000_000) -> None:
        target = self.source / name
        path = target.with_name(f".{target.name}")  # no stream reads it before it has its time
        if name.endswith(".parquet"):
            parquet.write_table(pa.Table.from_pylist(list(rows)), path)
        elif name.endswith(".orc"):
            orc.write_table(pa.Table.from_pylist(list(rows)), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (at, at))
        path.rename(target)

    def streamer(self, conf: dict[str, str] | None = None, **flags: Any) -> skep.Streamer:
        given = {
            **KEYS,
            "hoodie.streamer.source.dfs.root": str(self.source),
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.work / "order.avsc"),
            **(conf or {}),
        }
        flags.setdefault("schemaprovider_class", "FilebasedSchemaProvider")
        named = {"target_base_path": self.table, "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
        return skep.Streamer(hoodie_conf=given, **named)

    def rows(self) -> list[dict[str, Any]]:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie_")])
        return sorted(kept.to_pylist(), key=lambda row: str(row["id"]))


def row(key: str, at: int, city: str | None = None) -> dict[str, Any]:
    return {"id": key, "ts": at, "city": city}


def words(job: Job, *more: str) -> list[str]:
    """The command line of a stream, in a process of its own."""
    conf = {
        **KEYS,
        "hoodie.streamer.source.dfs.root": str(job.source),
        "hoodie.streamer.schemaprovider.source.schema.file": str(job.work / "order.avsc"),
    }
    (job.work / "job.properties").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    return [
        *(sys.executable, "-c", "from skep.cli.main import main; main()"),
        *("stream", "--props", str(job.work / "job.properties")),
        *("--target-base-path", job.table, "--target-table", "t", "--table-type", "COPY_ON_WRITE"),
        *("--schemaprovider-class", "FilebasedSchemaProvider", *more),
    ]


def command(job: Job, *more: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    return subprocess.run(words(job, *more), capture_output=True, text=True, timeout=60)


def many(job: Job, names: Iterable[str], **own: str) -> list[str]:
    """The flags of many tables, with properties of one by its name."""
    folder = job.work / "tables"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"default_{name}_config.properties").write_text(own.get(name, "") + "\n")
    tables = f"hoodie.streamer.ingestion.tablesToBeIngested={','.join(names)}"
    return ["--hoodie-conf", tables, "--config-folder", str(folder), "--base-path-prefix", f"{job.work}/lake"]
