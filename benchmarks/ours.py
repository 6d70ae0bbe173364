"""skep in a process of its own, so that its time and memory are taken as the peers' are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.bundle import java
from benchmarks.peers.jvm import Worker

FOLDER = Path(__file__).parent


class Ours(Worker):
    """skep's writer in a warm Spark session; see ours_writer.py."""

    def __init__(self) -> None:
        environment = {"JAVA_HOME": str(java().resolve().parents[1])}
        super().__init__("skep", FOLDER / "ours_writer.py", [], environment)


class Services(Worker):
    """skep's table services without a JVM; see ours_services.py."""

    def __init__(self) -> None:
        super().__init__("skep", FOLDER / "ours_services.py", [], {"OMP_NUM_THREADS": "2"})


class Objects(Worker):
    """skep without a JVM on an object store that `options` reach; see ours_objects.py."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__("skep", FOLDER / "ours_objects.py", [json.dumps(dict(options))], {"OMP_NUM_THREADS": "2"})


class Reader(Worker):
    """A reader without a JVM: skep, hudi-rs or pyarrow; see readers.py. Two threads, as the sessions have two cores."""

    def __init__(self, kind: str) -> None:
        threads = {"OMP_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2", "TOKIO_WORKER_THREADS": "2"}
        super().__init__(kind, FOLDER / "readers.py", [kind], threads)


class ArrowWriter(Worker):
    """A writer of rows in memory without a JVM: skep by table type, delta-rs or PyIceberg; see arrow_writers.py."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind, FOLDER / "arrow_writers.py", [kind], {"OMP_NUM_THREADS": "2", "TOKIO_WORKER_THREADS": "2"}
        )
