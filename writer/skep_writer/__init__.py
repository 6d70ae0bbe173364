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
    "SparkWriter": "writing.writer",
    "active_spark": "session",
    "arrow_frame": "reading.scan",
    "arrow_schema": "edge",
    "collect_answer": "edge",
    "collect_arrow": "edge",
    "frame_schema": "edge",
    "make_spark": "session",
    "numbered": "reading.scan",
    "stream_changes": "reading.changes",
    "to_spark": "reading.scan",
    "with_constants": "reading.scan",
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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
