"""Queries as sources: all their rows in each round, without a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.clock import Clock, SystemClock
from skep_stream.options import SOURCE_QUERY, SOURCE_QUERY_CHECKPOINT, SOURCE_QUERY_FILE
from skep_stream.properties import read_text
from skep_stream.protocols import Batch, BatchEngine, Position, StreamContext


@dataclass(frozen=True, slots=True)
class QuerySource:
    """One query. Without a checkpoint nothing is committed unless `--allow-commit-on-no-checkpoint-change` is given."""

    engine: BatchEngine
    text: str
    clock: Clock | None = None

    def fetch(self, last: Position, limit: int) -> Batch:  # noqa: ARG002 - a query has no parts
        """All its rows."""
        now = None if self.clock is None else str(int(self.clock.now().timestamp() * 1000))
        return Batch(self.engine.query(self.text, {}), now or last.checkpoint)


def query_source(context: StreamContext) -> QuerySource:
    """SqlSource."""
    return QuerySource(context.engine, context.options.needed(SOURCE_QUERY, "SqlSource needs"))


def query_file_source(context: StreamContext) -> QuerySource:
    """SqlFileBasedSource."""
    path = context.options.needed(SOURCE_QUERY_FILE, "SqlFileBasedSource needs")
    clock = SystemClock() if context.options.value(SOURCE_QUERY_CHECKPOINT) else None
    return QuerySource(context.engine, read_text(path, context.options).strip().rstrip(";"), clock)
