"""Options of the commit protocol."""

from __future__ import annotations

from enum import Enum

from skep_table.options import boolean, one_of, option


class MetadataTablePolicy(Enum):
    """What a write does on a table that has a metadata table."""

    DROP = "drop"
    REFUSE = "refuse"


class ConcurrencyMode(Enum):
    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"


def _metadata_enable(text: str) -> bool:
    if boolean(text):
        raise ValueError("false: skep does not write metadata tables yet")
    return False


METADATA_TABLE_POLICY = option(
    "skep.write.metadata.table",
    one_of(MetadataTablePolicy),
    MetadataTablePolicy.DROP,
    "A table's metadata table is dropped before the write, as Hudi does when a writer runs without it; or the write is"
    " refused",
)
METADATA_ENABLE = option(
    "hoodie.metadata.enable", _metadata_enable, False, "Only false: metadata tables are not written"
)
CONCURRENCY_MODE = option(
    "hoodie.write.concurrency.mode",
    one_of(ConcurrencyMode),
    ConcurrencyMode.SINGLE_WRITER,
    "With other writers at work, a metadata table is never dropped",
)
LOCK_TIMEOUT_SECONDS = option(
    "skep.write.lock.timeout.seconds", float, 60.0, "How long a write waits for the table's lock"
)
