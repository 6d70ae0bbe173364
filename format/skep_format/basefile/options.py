"""How base files are written: Hudi's options of Parquet, of ORC and of bloom filters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from skep_format.basefile.value_filters import ValueFilters
from skep_format.bloom import BloomKind, bits_for, fitted
from skep_format.names import BaseFormat
from skep_format.options import Options, Status, at_least, boolean, of_option, one_of, option

CODECS: Final = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
"""Codecs by name, and their numbers in footers."""


def _codec(text: str) -> str:
    codec = {"uncompressed": "none", "": "none"}.get(text.strip().lower(), text.strip().lower())
    if codec not in CODECS:
        raise ValueError(f"one of {', '.join(sorted(CODECS))}")
    return codec


CODEC = option(
    "hoodie.parquet.compression.codec",
    _codec,
    "snappy",
    "Every engine reads snappy; Hudi's default, gzip, costs most of a write",
)
BLOCK_BYTES = option(
    "hoodie.parquet.block.size",
    int,
    16 << 20,
    "About what a row group has, in bytes of Arrow data; one that no row of a write changes is copied as it is",
)
PAGE_BYTES = option("hoodie.parquet.page.size", int, 1_048_576, "A page, in bytes")
DICTIONARY = option("hoodie.parquet.dictionary.enabled", boolean, True, "Dictionary pages")


def _orc_codec(text: str) -> str:
    codec = {"none": "uncompressed"}.get(text.strip().lower(), text.strip().lower())
    if codec not in ORC_CODECS:
        raise ValueError(f"one of none, {', '.join(ORC_CODECS[1:])}")
    return codec


ORC_CODECS: Final = ("uncompressed", "zlib", "snappy", "lz4", "zstd")
ORC_CODEC = option(
    "hoodie.orc.compression.codec",
    _orc_codec,
    "snappy",
    "Of ORC files: none, zlib (Hudi's default), snappy, lz4 or zstd",
)
STRIPE_BYTES = option("hoodie.orc.stripe.size", at_least(1), 16 << 20, "A stripe of an ORC file, in bytes")
option("hoodie.orc.block.size", int, 125_829_120, "no blocks of HDFS are filled up", status=Status.NO_EFFECT)
BLOOM_TYPE = option("hoodie.bloom.index.filter.type", one_of(BloomKind), BloomKind.DYNAMIC_V0, "Filter in the footer")
BLOOM_ENTRIES = option("hoodie.index.bloom.num_entries", int, 60_000, "Keys a filter row is sized for")
BLOOM_FPP = option("hoodie.index.bloom.fpp", float, 1e-9, "Rate of false positives of a filter row")
KEY_FILTER = option(
    "hoodie.parquet.bloom.filter.enabled",
    boolean,
    True,
    "Footers have the filter over record keys, and their range; without them an index reads the keys",
)
BLOOM_MAX_ENTRIES = option(
    "hoodie.bloom.index.filter.dynamic.max.entries", int, 100_000, "A dynamic filter grows up to this many keys"
)
option("hoodie.parquet.compression.ratio", float, 0.1, "sizes are measured", status=Status.NO_EFFECT)


@dataclass(frozen=True, slots=True)
class BaseFileOptions:
    """How a base file is written. `block_bytes` bounds the Arrow data that a writer holds before it writes it out.

    `key_filter`: the footer has the filter over record keys and their range; `filter_fits`: the filter of a file with
    few keys is sized for these. Without `meta` the meta columns are null, as the table has it that recomputes keys
    (`hoodie.populate.meta.fields=false`). `format` is that of the table's base files; `codec`, `page_bytes` and
    `value_filters` are of Parquet, `orc_codec` and `stripe_bytes` of ORC.
    """

    format: BaseFormat = BaseFormat.PARQUET
    orc_codec: str = of_option(ORC_CODEC)
    stripe_bytes: int = of_option(STRIPE_BYTES)
    codec: str = of_option(CODEC)
    block_bytes: int = of_option(BLOCK_BYTES)
    page_bytes: int = of_option(PAGE_BYTES)
    dictionary: bool = of_option(DICTIONARY)
    bloom_type: BloomKind = of_option(BLOOM_TYPE)
    bloom_entries: int = of_option(BLOOM_ENTRIES)
    bloom_fpp: float = of_option(BLOOM_FPP)
    bloom_max_entries: int = of_option(BLOOM_MAX_ENTRIES)
    key_filter: bool = of_option(KEY_FILTER)
    filter_fits: bool = True
    meta: bool = True
    value_filters: ValueFilters = field(default_factory=ValueFilters)

    @classmethod
    def of(cls, options: Options, *, meta: bool = True, format: BaseFormat = BaseFormat.PARQUET) -> BaseFileOptions:
        """From a write's options. `meta`: whether Hudi's meta columns are written."""
        return options.read(
            cls,
            format=format,
            key_filter=meta and options.value(KEY_FILTER),
            filter_fits=not options.is_set(BLOOM_ENTRIES),
            meta=meta,
            value_filters=ValueFilters.of(options),
        )

    def filter_bytes(self, keys: int) -> int:
        """What the filter over so many keys takes in a footer, where it is written as text."""
        if not self.key_filter:
            return 0
        entries = fitted(keys, self.bloom_entries) if self.filter_fits else self.bloom_entries
        rows = 1 if self.bloom_type is BloomKind.SIMPLE else -(-min(keys, self.bloom_max_entries) // entries)
        return max(1, rows) * bits_for(entries, self.bloom_fpp) // 6

    def room(self, size: int, keys: int) -> int:
        """What a file of `size` bytes has for its records. At least half: a target may be smaller than the filter."""
        return max(size - self.filter_bytes(keys), size // 2)
