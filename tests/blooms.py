"""Bloom filters over given keys."""

from __future__ import annotations

import pyarrow as pa

from skep_format.bloom import BloomBuilder, BloomFilter, BloomKind


def build_bloom(
    keys: pa.Array | pa.ChunkedArray,
    kind: str = "DYNAMIC_V0",
    entries: int = 60_000,
    fpp: float = 1e-9,
    max_entries: int = 100_000,
) -> BloomFilter:
    """A filter over `keys`, sized by Hudi's options (its defaults here)."""
    builder = BloomBuilder(BloomKind(kind), entries, fpp, max_entries)
    builder.add(keys)
    return builder.finish()
