"""What the writer tells the layers above when an instant is complete: sync and callbacks hang themselves there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skep_table.schema.types import Schema
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import CommitMetadata


@dataclass(frozen=True, slots=True)
class Committed:
    """A completed instant of the table at `base_path`, with its account and the table's schema after it."""

    base_path: str
    table_name: str
    instant: Instant
    metadata: CommitMetadata
    schema: Schema | None


CommitHook = Callable[[Committed], None]
