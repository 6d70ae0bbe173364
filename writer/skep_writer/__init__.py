"""The embedded PySpark writer: the only package that imports pyspark, and only when a session is asked for.

Names are imported when they are used: a task in a Python worker needs its own module, and not all that the driver does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep_writer.edge import arrow_schema, collect_answer, collect_arrow, frame_schema
    from skep_writer.reading.changes import stream_changes
    from skep_writer.reading.scan import arrow_frame, numbered, to_spark, with_constants
    from skep_writer.session import active_spark, make_spark
    from skep_writer.writing.writer import SparkWriter

_MODULES = {
    "edge": ("arrow_schema", "collect_answer", "collect_arrow", "frame_schema"),
    "reading.changes": ("stream_changes",),
    "reading.scan": ("arrow_frame", "numbered", "to_spark", "with_constants"),
    "session": ("active_spark", "make_spark"),
    "writing.writer": ("SparkWriter",),
}

__all__ = [
    "SparkWriter",
    "active_spark",
    "arrow_frame",
    "arrow_schema",
    "collect_answer",
    "collect_arrow",
    "frame_schema",
    "make_spark",
    "numbered",
    "stream_changes",
    "to_spark",
    "with_constants",
]


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
