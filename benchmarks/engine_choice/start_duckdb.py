"""A process that answers one line by DuckDB and skep's translator."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.engine_choice.allow_list import query_of  # noqa: E402
from skep.query.engines import DuckEngine  # noqa: E402

if __name__ == "__main__":
    print(DuckEngine().rows(query_of("select 1 + 1 as n"), {}))
