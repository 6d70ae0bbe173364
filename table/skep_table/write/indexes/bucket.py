"""BUCKET: the file group of a key is its hash modulo the number of buckets; nothing is read (format guide 11.1)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.errors import TableMismatchError
from skep_table.keys.generator import EMPTY_TEXT, NULL_TEXT
from skep_table.schema.types import RECORD_KEY
from skep_table.write.index import IndexFile
from skep_table.write.indexes.base import Files, Index, Tags, by_partition, new_group, single

_DIGITS = 8
_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class BucketIndex(Index):
    """`hash_fields`: the record key fields whose values are hashed."""

    files: Files
    buckets: int
    hash_fields: tuple[str, ...]

    def __post_init__(self) -> None:
        for path, files in self.files.items():
            groups_by_number(path, files, self.buckets)  # refuses foreign groups on the driver already

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        tag_of = new_group(np.arange(self.buckets))
        groups = groups_by_number(path, self.files.get(path, ()), self.buckets)
        tag_of[list(groups)] = list(groups.values())
        return tag_of[bucket_numbers(single(rows.column(RECORD_KEY)), self.hash_fields, self.buckets)]


def groups_by_number(path: str, files: Sequence[IndexFile], buckets: int) -> dict[int, int]:
    """Bucket number → position of its file. TableMismatchError where a group has none, or two have one."""
    found: dict[int, int] = {}
    for position, file in enumerate(files):
        prefix = file.file_id[:_DIGITS]
        number = int(prefix) if prefix.isdecimal() else buckets
        if number >= buckets or found.setdefault(number, position) != position:
            raise TableMismatchError(
                f"partition {path or 'of the table'}: group {file.file_id} is not that of one of {buckets} buckets",
                hint="all writers of a table have to use one index, with one number of buckets",
                path=path,
                found=file.file_id,
                expected=buckets,
            )
    return found


def bucket_file_id(number: int) -> str:
    """A new file group for a bucket."""
    return f"{number:0{_DIGITS}d}{str(uuid.uuid4())[_DIGITS:]}-0"


def bucket_numbers(keys: pa.Array, hash_fields: Iterable[str], buckets: int) -> npt.NDArray[np.int64]:
    """Java's `List.hashCode` of the values of the hash fields, without its sign, modulo the number of buckets."""
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    hashes = np.full(len(keys), 31, np.uint64) + java_string_hashes(keys)
    if pc.any(composite).as_py():
        listed, some = np.ones(len(keys), np.uint64), np.zeros(len(keys), np.bool_)
        for field in hash_fields:
            value, has = _value_in_key(keys, field)
            listed = np.where(has, listed * np.uint64(31) + value, listed)
            some |= has
        hashes = np.where(composite.to_numpy(zero_copy_only=False) & some, listed, hashes)
    numbers = (hashes & np.uint64(0x7FFFFFFF)).astype(np.int64) % buckets
    return np.asarray(numbers, np.int64)


def _value_in_key(keys: pa.Array, field: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The hash of the field's value in composite keys, and which keys have the field.

    A value ends at the last comma before a colon that comes after a comma: `f1:10:30,a,f2:x` holds `10:30,a`.
    """
    value = r"[^,]*(?:,[^:]*)?"
    pattern = rf"^(?:[^:]*:{value},)*?{re.escape(field)}:(?P<value>{value})(?:,[^,:]*:.*)?$"
    found = pc.struct_field(pc.extract_regex(keys, f"(?s){pattern}"), "value")
    has = found.is_valid().to_numpy(zero_copy_only=False)
    text = pc.if_else(pc.equal(found, EMPTY_TEXT), "", found)
    hashes = java_string_hashes(pc.fill_null(text, ""))
    null = pc.fill_null(pc.equal(found, NULL_TEXT), False).to_numpy(zero_copy_only=False)
    return np.where(null, np.uint64(0), hashes), has


def java_string_hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """`String.hashCode` as its unsigned 32 bits, over UTF-16 units."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    units, offsets = _utf16(data, offsets)
    lengths = np.diff(offsets)
    sums = np.zeros(len(lengths), np.uint64)
    filled = lengths > 0
    if filled.any():
        powers = _powers(int(lengths.max()))
        from_end = np.repeat(offsets[1:], lengths) - np.arange(len(units)) - 1
        sums[filled] = np.add.reduceat(units.astype(np.uint64) * powers[from_end], offsets[:-1][filled])
    return sums & _MASK


def _powers(count: int) -> npt.NDArray[np.uint64]:
    powers = np.full(max(count, 1), 31, np.uint64)
    powers[0] = 1
    return np.asarray(np.multiply.accumulate(powers) & _MASK, np.uint64)


def _utf16(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16] | npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    if not len(data) or int(data.max()) < 0x80:
        return data, offsets
    units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), np.uint16)
    # a byte that begins a character is one unit, or two from four bytes on
    of_bytes = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    return units, np.append(0, np.cumsum(of_bytes))[offsets]
