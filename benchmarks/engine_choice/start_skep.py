"""A process that answers one line by skep's engine, Sail by the translator."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.engine_choice.allow_list import query_of  # noqa: E402
from skep.query.sail import SailEngine  # noqa: E402

if __name__ == "__main__":
    print(SailEngine().rows(query_of("select 1 + 1 as n"), {}))
