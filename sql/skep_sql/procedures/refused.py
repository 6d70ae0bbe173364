"""Hudi's other procedures: known by name, each with the reason why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AUDIT: Final = "the audit of storage locks is Hudi's own; skep's commands show a lock and its history: skep lock"

REFUSED: Final[Mapping[str, str]] = {
    "cleanup_audit_lock": _AUDIT,
    "set_audit_lock": _AUDIT,
    "show_audit_lock_status": _AUDIT,
    "validate_audit_lock": _AUDIT,
    "hdfs_parquet_import": "skep write reads Parquet files into a table",
    "partition_bucket_index_manager": "the number of buckets is the same in all partitions",
    "run_rollback_inflight_tableservice": "CALL rollback_to_instant rolls a pending service back, too",
    "sync_validate": "skep sync check compares a table with its entry",
}
