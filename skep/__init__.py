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
    from skep.base.history import Commit as Commit
    from skep.flows.pipelines import Pipeline as Pipeline
    from skep.flows.pipelines import pipeline as pipeline
    from skep.flows.streams import Streamer as Streamer
    from skep.handles.by_path import load as load
    from skep.handles.by_path import maintain as maintain
    from skep.handles.by_path import open_table as open_table
    from skep.handles.frame_writer import write as write
    from skep.handles.table import Table as Table
    from skep.jobs.hudi_jobs import HudiJobs as HudiJobs
    from skep.jobs.hudi_jobs import use_for_hudi as use_for_hudi
    from skep.lake import Lake as Lake
    from skep.lake import connect as connect
    from skep.metastore.syncing import SyncWarning as SyncWarning
    from skep.query.result import SqlResult as SqlResult
    from skep.query.rows import Rows as Rows
    from skep.query.spark import register_source as register_source
    from skep.services.runner import ServiceWarning as ServiceWarning
    from skep_format.errors import SkepError as SkepError
    from skep_table.metrics.channels import flush_metrics as flush_metrics
    from skep_table.metrics.channels import metrics as metrics
    from skep_table.runtime.signals import exit_on_sigterm as exit_on_sigterm
    from skep_table.write.result import WriteResult as WriteResult

__version__ = "0.1.0"
_HOMES = {
    "Commit": "skep.base.history",
    "HudiJobs": "skep.jobs.hudi_jobs",
    "Lake": "skep.lake",
    "Pipeline": "skep.flows.pipelines",
    "Rows": "skep.query.rows",
    "ServiceWarning": "skep.services.runner",
    "SkepError": "skep_format.errors",
    "SqlResult": "skep.query.result",
    "Streamer": "skep.flows.streams",
    "SyncWarning": "skep.metastore.syncing",
    "Table": "skep.handles.table",
    "WriteResult": "skep_table.write.result",
    "connect": "skep.lake",
    "exit_on_sigterm": "skep_table.runtime.signals",
    "flush_metrics": "skep_table.metrics.channels",
    "load": "skep.handles.by_path",
    "maintain": "skep.handles.by_path",
    "metrics": "skep_table.metrics.channels",
    "open_table": "skep.handles.by_path",
    "pipeline": "skep.flows.pipelines",
    "register_source": "skep.query.spark",
    "use_for_hudi": "skep.jobs.hudi_jobs",
    "write": "skep.handles.frame_writer",
}
__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module skep has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
