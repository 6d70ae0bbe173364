"""Hudi's bloom filters over record keys: read from footers, built for them, asked many keys at once (guide 5.5)."""

from skep_format.bloom.filter import BloomBuilder, BloomFilter, BloomKind, BloomRow, bits_for, build_bloom, fitted
from skep_format.bloom.hashes import HashKind, KeyHashes

__all__ = [
    "BloomBuilder",
    "BloomFilter",
    "BloomKind",
    "BloomRow",
    "HashKind",
    "KeyHashes",
    "bits_for",
    "build_bloom",
    "fitted",
]
