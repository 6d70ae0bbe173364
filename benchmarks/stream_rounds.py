"""The process of `skep.Streamer` that `stream` measures: a round for each line that comes, whose seconds it prints."""

from __future__ import annotations

import sys
import time
from typing import Any

import skep


def main() -> None:
    conf: dict[str, str] = {}
    given: dict[str, Any] = {"hoodie_conf": conf}
    for flag, value in zip(sys.argv[1:-1:2], sys.argv[2::2], strict=False):
        if flag == "--hoodie-conf":
            key, _, text = value.partition("=")
            conf[key] = text
        else:
            given[flag.removeprefix("--").replace("-", "_")] = value
    streamer = skep.Streamer(**given)
    for _ in sys.stdin:
        start = time.perf_counter()
        streamer.run_once()
        print("seconds", time.perf_counter() - start, flush=True)


main()
