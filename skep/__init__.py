"""skep keeps Apache Hudi tables in a Hive Metastore: written with PySpark, synced after every commit, safe to share.

    lake = skep.connect()
    flights = lake.create_table("demo.flights", schema, key="id", ordering="updated_at", partition_by="month")
    flights.upsert(frame)
    lake.sql("select count(*) from demo.flights").show()

Everything here is imported when it is first used: `import skep` is quick, and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.hoodie import load, maintain, open_table, write
    from skep.hudi_jobs import HudiJobs, use_for_hudi
    from skep.lake import Lake, connect
    from skep.pipelines import Pipeline, pipeline
    from skep.rows import Rows
    from skep.services.runner import ServiceWarning
    from skep.spark import register_source
    from skep.sql import SqlResult
    from skep.streams import Streamer
    from skep.syncing import SyncWarning
    from skep.table import Commit, Table
    from skep_table.errors import SkepError
    from skep_table.signals import exit_on_sigterm
    from skep_table.write.result import WriteResult

__version__ = "0.1.0"
__all__ = [
    "Commit",
    "HudiJobs",
    "Lake",
    "Pipeline",
    "Rows",
    "ServiceWarning",
    "SkepError",
    "SqlResult",
    "Streamer",
    "SyncWarning",
    "Table",
    "WriteResult",
    "__version__",
    "connect",
    "exit_on_sigterm",
    "load",
    "maintain",
    "open_table",
    "pipeline",
    "register_source",
    "use_for_hudi",
    "write",
]

_HOMES = {
    "Commit": "skep.table",
    "HudiJobs": "skep.hudi_jobs",
    "Lake": "skep.lake",
    "Pipeline": "skep.pipelines",
    "Rows": "skep.rows",
    "ServiceWarning": "skep.services.runner",
    "SkepError": "skep_table.errors",
    "SqlResult": "skep.sql",
    "Streamer": "skep.streams",
    "SyncWarning": "skep.syncing",
    "Table": "skep.table",
    "WriteResult": "skep_table.write.result",
    "connect": "skep.lake",
    "exit_on_sigterm": "skep_table.signals",
    "load": "skep.hoodie",
    "maintain": "skep.hoodie",
    "open_table": "skep.hoodie",
    "pipeline": "skep.pipelines",
    "register_source": "skep.spark",
    "use_for_hudi": "skep.hudi_jobs",
    "write": "skep.hoodie",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module skep has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
