"""A process with skep's engine, Sail by the translator of Spark's SQL: its answers to the queries of a task."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks.engine_choice.allow_list import query_of  # noqa: E402
from benchmarks.engine_choice.answers import LEFT, answered, save, task  # noqa: E402
from skep.query.sail import LeftToSpark, SailEngine  # noqa: E402


def main() -> None:
    given = task()
    tables: dict[str, pa.Table] = {}

    def ask(text: str) -> pa.Table:
        try:
            return SailEngine().rows(query_of(text), tables)
        except LeftToSpark as error:
            raise LeftToSpark(f"{LEFT}{error}") from error

    found = {}
    for folder, queries in given["queries"].items():
        tables |= {file.stem: pq.read_table(file) for file in sorted(Path(folder).glob("*.parquet"))}
        found |= answered(queries, ask)
    save(found, given["out"])


if __name__ == "__main__":
    main()
