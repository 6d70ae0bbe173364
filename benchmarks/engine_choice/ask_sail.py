"""A process with Sail: its answers to the queries of a task."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyarrow.parquet as pq  # noqa: E402

from benchmarks.engine_choice.answers import answered, save, task  # noqa: E402
from benchmarks.engine_choice.sail_client import Sail  # noqa: E402


def main() -> None:
    given = task()
    sail = Sail(given["settings"])
    found = {}
    for folder, queries in given["queries"].items():
        for file in sorted(Path(folder).glob("*.parquet")):
            sail.register(file.stem, pq.read_table(file))
        found |= answered(queries, sail.rows)
    save(found, given["out"])


if __name__ == "__main__":
    main()
