"""How the metadata table spells keys and ids of file groups, and which file group holds a key (format guide 7.2)."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets
from skep_format.escaping import escape
from skep_table.metadata_table.partitions import COLUMN_STATS, RECORD_INDEX

ALL_PARTITIONS: Final = "__all_partitions__"
NON_PARTITIONED: Final = "."
_OF_PARTITIONS: Final = "__partition_stat__"
_HASHED_AT_ONCE: Final = 65_536  # the arrays for so many keys stay in the processor's cache
_FIRST_BEYOND_ASCII: Final = 0x80
_SEED: Final = 0xFFFFFFFFDABADABA  # Java's int 0xdabadaba, widened with its sign


def partition_key(partition_path: str) -> str:
    """A partition path as key of the `files` partition; the table that is not partitioned has `.`."""
    return partition_path or NON_PARTITIONED


@lru_cache(maxsize=1024)
def column_key(column: str) -> str:
    """A column name as part of a key of the column statistics."""
    return _hash64(column)


def partitions_key(column: str) -> str:
    """A column name as part of a key of the statistics of partitions, in an index over an expression."""
    return _hash64(column) + _hash64(_OF_PARTITIONS)


def path_key(partition_path: str) -> str:
    """A partition path as part of a key of column statistics and bloom filters."""
    return _hash64(partition_key(partition_path))


def file_key(file_name: str) -> str:
    """A file name as part of a key of column statistics and bloom filters."""
    digest = hashlib.md5(file_name.encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode("ascii")


def _hash64(text: str) -> str:
    import xxhash

    return base64.b64encode(xxhash.xxh64_digest(text.encode(), seed=_SEED)).decode("ascii")


def group_set(file_id: str) -> str:
    """Which file groups share the keys with this one: those with the same name before number and suffix.

    A partitioned record index has `record-index-<data partition>-0000-0`, its own groups for each data partition.
    """
    return file_id.rsplit("-", 2)[0]


def group_set_of(partition: str) -> str:
    """The `group_set` of the file groups of a partition, if it has one, or what all of them begin with."""
    return "col-stats" if partition == COLUMN_STATS else partition.replace("_", "-")


def group_id(group_set: str, number: int) -> str:
    """The id of one file group of a set."""
    return f"{group_set}-{number:04d}-0"


def record_index_groups(partition_path: str) -> str:
    """The `group_set` that a partitioned record index has for a partition of the table: its path is escaped, dashes and
    underscores too.
    """
    text = escape(partition_path)
    for character in "-_":  # at which names of files are cut
        text = text.replace(character, f"%{ord(character):02X}")
    return f"{group_set_of(RECORD_INDEX)}-{text}"


def group_numbers(keys: pa.Array, groups: int) -> npt.NDArray[np.int64]:
    """The file group of each key: the absolute value of Java's hash of the string, modulo the number of groups."""
    if groups == 1:
        return np.zeros(len(keys), np.int64)
    magnitude = np.abs(java_hashes(keys).view(np.int32)).view(np.uint32)
    return magnitude.astype(np.int64) % groups


def java_hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Java's String.hashCode: the UTF-16 units as digits of a number to the base 31, modulo 2^32."""
    text = keys.cast(pa.large_string())
    parts = [_java_hashes(text.slice(at, _HASHED_AT_ONCE)) for at in range(0, len(text), _HASHED_AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


def _java_hashes(text: pa.Array) -> npt.NDArray[np.uint32]:
    unit_offsets, units = _utf16(*bytes_and_offsets(text))
    lengths = np.diff(unit_offsets)
    powers = np.ones(int(lengths.max(initial=0)) + 1, np.uint32)
    np.multiply.accumulate(np.full(len(powers) - 1, 31, np.uint32), out=powers[1:])
    exponents = np.repeat(unit_offsets[1:], lengths) - 1 - np.arange(len(units))
    hashes = np.zeros(len(lengths), np.uint32)
    filled = lengths > 0
    if filled.any():
        products = units * powers[exponents]
        hashes[filled] = np.add.reduceat(products, unit_offsets[:-1][filled], dtype=np.uint32)
    return hashes


def _utf16(
    utf8: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The units of texts, and the offsets between them there, given their bytes."""
    if utf8.max(initial=0) < _FIRST_BEYOND_ASCII:
        return offsets, utf8.astype(np.uint32)
    begins = (utf8 & 0xC0) != 0x80
    units_of_byte = begins.astype(np.int64) + (utf8 >= 0xF0)  # four bytes of UTF-8 are two units
    units = np.frombuffer(utf8.tobytes().decode().encode("utf-16-le"), "<u2").astype(np.uint32)
    return np.concatenate([[0], np.cumsum(units_of_byte)])[offsets], units
