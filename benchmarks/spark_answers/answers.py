"""Answers of an engine to many queries as one file. Workers in environments with little more than pyarrow import it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Answer:
    """The rows of a query, or why there are none."""

    rows: pa.Table | None
    error: str
    seconds: float


def answered(queries: Iterable[str], ask: Callable[[str], pa.Table], progress: int = 200) -> dict[str, Answer]:
    """Each query with the answer of `ask`, whose errors are kept."""
    found: dict[str, Answer] = {}
    for query in queries:
        begin = time.perf_counter()
        try:
            rows, error = ask(query), ""
        except Exception as failed:
            rows, error = None, f"{type(failed).__name__}: {failed}"
        found[query] = Answer(rows, error, time.perf_counter() - begin)
        if len(found) % progress == 0:
            print(len(found), "answered", file=sys.stderr, flush=True)
    return found


def save(answers: dict[str, Answer], path: str | Path) -> None:
    """Writes them."""
    packed = [None if each.rows is None else _packed(each.rows) for each in answers.values()]
    table = pa.table(
        {
            "query": list(answers),
            "rows": pa.array(packed, pa.binary()),
            "error": [each.error for each in answers.values()],
            "seconds": [each.seconds for each in answers.values()],
        }
    )
    Path(path).write_bytes(_packed(table, pa.ipc.IpcWriteOptions(compression="zstd")))


def load(path: str | Path) -> dict[str, Answer]:
    """Those that were written."""
    with pa.ipc.open_stream(Path(path).read_bytes()) as reader:
        table = reader.read_all()
    columns = (table[name].to_pylist() for name in ("query", "rows", "error", "seconds"))
    return {
        query: Answer(None if rows is None else pa.ipc.open_stream(rows).read_all(), error, seconds)
        for query, rows, error, seconds in zip(*columns, strict=True)
    }


def task() -> dict[str, Any]:
    """What a worker has to do: the JSON file that its one argument names."""
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found


def _packed(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
