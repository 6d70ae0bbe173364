"""Tables with consistent hashing, as a maker of tables has them: two buckets, which clusterings split and merge."""

from __future__ import annotations

from typing import Any, Final

from skep_table.write.local import LocalWriter

RINGS: Final = {
    "index__type": "BUCKET",
    "index__bucket__engine": "CONSISTENT_HASHING",
    "bucket__index__num__buckets": 2,
}
SPLITS: Final = {"parquet__max__file__size": 100, "bucket__index__max__num__buckets": 4}
MERGES: Final = {"bucket__index__min__num__buckets": 1}


def ring_writer(maker: Any, **options: Any) -> LocalWriter:
    """A writer by the ring of the maker's table."""
    return LocalWriter(maker.table.with_context(**maker.setting(**RINGS, **options)))


def upsert(maker: Any, ts: int, *keys: str, **options: Any) -> str:
    """The requested time of one upsert."""
    return str(ring_writer(maker, **options).upsert(maker.frame(ts, *keys)).instant.requested_time)
