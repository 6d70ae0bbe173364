"""The names of partitions in a metastore: `k=v/…`, from values and back."""

from __future__ import annotations

from collections.abc import Sequence

from skep_format.escaping import escape, unescape
from skep_format.names import DEFAULT_PARTITION


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """The name by which the metastore knows a partition: `k=v/…`, keys in lower case, both escaped."""
    return "/".join(
        f"{escape(key.lower())}={escape(value) or DEFAULT_PARTITION}" for key, value in zip(keys, values, strict=True)
    )


def values_of_name(name: str) -> tuple[str, ...]:
    """The values in a metastore's partition name."""
    return tuple(unescape(level.partition("=")[2]) for level in name.split("/"))
