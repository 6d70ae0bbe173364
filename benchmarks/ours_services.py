"""The process behind `ours.Services`: skep's table services on two threads, without a JVM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa  # noqa: E402

from benchmarks.peers.worker import serve  # noqa: E402
from skep_format.options import Options  # noqa: E402
from skep_format.runner import ThreadRunner  # noqa: E402
from skep_table.services.cleaning.clean import execute_pending_cleans, schedule_clean  # noqa: E402
from skep_table.services.clustering.cluster import execute_pending_clusterings  # noqa: E402
from skep_table.services.compaction.compact import execute_pending_compactions  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402

Json = dict[str, Any]


class OurServices:
    """The requests, as `services.Contender` has them."""

    def compact(self, *, path: str) -> Json:
        return {"done": len(execute_pending_compactions(HudiTable.open(path).with_context(**setting({}))))}

    def cluster(self, *, path: str) -> Json:
        return {"done": len(execute_pending_clusterings(HudiTable.open(path).with_context(**setting({}))))}

    def clean(self, *, path: str, options: Json, plan: bool) -> Json:
        table = HudiTable.open(path)
        if plan:
            return {"planned": schedule_clean(table.with_context(**setting(options))) is not None}
        return {"done": len(execute_pending_cleans(table.with_context(**setting(options))))}


def setting(options: Json) -> dict[str, Any]:
    return {"options": Options(options), "runner": ThreadRunner(2)}


if __name__ == "__main__":
    pa.set_cpu_count(2)
    serve(OurServices)
