"""Writing an HFile that every Hudi release reads: full keys in the index, no checksums, one index level."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.hfile import layout
from skep_table.hfile.layout import Checksum, Codec, TrailerField

_BLOCK_BYTES: Final = 64 * 1024
_GZIP_LEVEL: Final = 3  # the highest takes several times as long and saves few of the bytes
_MAX_KEY_BYTES: Final = 0x7FFF  # Java reads the length as a signed number


def format_hfile(
    keys: pa.Array,
    values: pa.Array,
    info: Mapping[str, bytes] | None = None,
    *,
    codec: Codec = Codec.GZ,
    block_bytes: int = _BLOCK_BYTES,
) -> bytes:
    """The bytes of an HFile with these keys and values (binary or text), one each without nulls.

    ValueError unless the keys ascend by their bytes without duplicates, or for a key of more than 32,767 bytes.
    """
    if codec not in (Codec.GZ, Codec.NONE):
        raise ValueError(f"codec {codec.name}: GZ or NONE")
    if len(keys) != len(values) or keys.null_count or values.null_count:
        raise ValueError(f"{len(keys)} keys and {len(values)} values: as many of each, and no nulls")
    keys, values = keys.cast(pa.large_binary()), values.cast(pa.large_binary())
    _check_order(keys)
    return _Printer(codec).print(keys, _Entries(keys, values, block_bytes), dict(info or {}))


def _check_order(keys: pa.Array) -> None:
    descends = pc.greater_equal(keys[:-1], keys[1:])
    if pc.any(descends).as_py():
        at = descends.index(True).as_py()
        raise ValueError(f"keys must ascend: {keys[at + 1].as_py()!r} after {keys[at].as_py()!r}")
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > _MAX_KEY_BYTES:
        raise ValueError(f"a key of {longest} bytes: at most {_MAX_KEY_BYTES}")


class _Entries:
    """The entries, cut into blocks of at least `block_bytes`; the entries of a block are joined by one kernel."""

    def __init__(self, keys: pa.Array, values: pa.Array, block_bytes: int) -> None:
        self._keys, self._values, self._block_bytes = keys, values, block_bytes
        sizes = pc.add(pc.binary_length(keys), pc.binary_length(values)).to_numpy(zero_copy_only=False)
        each = layout.KEY_VALUE.size + layout.ROW_LENGTH.size + len(layout.KEY_TAIL) + len(layout.MVCC)
        self._ends = np.cumsum(sizes + each)

    def blocks(self) -> Iterator[tuple[bytes, bytes]]:
        """First key and payload of each block."""
        first = 0
        while first < len(self._keys):
            start = int(self._ends[first - 1]) if first else 0
            last = min(int(np.searchsorted(self._ends, start + self._block_bytes)) + 1, len(self._keys))
            yield self._keys[first].as_py(), self._payload(first, last, int(self._ends[last - 1]) - start)
            first = last

    def _payload(self, first: int, last: int, size: int) -> bytes:
        keys, values = self._keys[first:last], self._values[first:last]
        rows = pc.binary_length(keys).to_numpy(zero_copy_only=False)
        heads = np.empty(len(keys), layout.ENTRY_HEAD)
        heads["key_length"] = rows + (layout.ROW_LENGTH.size + len(layout.KEY_TAIL))
        heads["value_length"] = pc.binary_length(values).to_numpy(zero_copy_only=False)
        heads["row_length"] = rows
        head = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(heads.itemsize), len(heads), [None, pa.py_buffer(heads)]
        ).cast(pa.large_binary())
        tail, mvcc, nothing = (pa.scalar(b, pa.large_binary()) for b in (layout.KEY_TAIL, layout.MVCC, b""))
        joined = pc.binary_join_element_wise(head, keys, tail, values, mvcc, nothing)
        return joined.buffers()[2][:size].to_pybytes()


class _Printer:
    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._out = bytearray()
        self._index: list[tuple[int, int, bytes]] = []
        self._plain_bytes = 0

    def print(self, keys: pa.Array, entries: _Entries, info: dict[str, bytes]) -> bytes:
        for first, payload in entries.blocks():
            offset = len(self._out)
            previous = self._index[-1][0] if self._index else -1
            self._index.append((offset, self._add(layout.DATA_BLOCK, payload, previous), first))
        index_at = len(self._out)
        index = b"".join(
            layout.INDEX_ENTRY.pack(offset, size) + layout.format_vlong(len(_full_key(key))) + _full_key(key)
            for offset, size, key in self._index
        )
        self._add(layout.ROOT_INDEX, index)
        self._add(layout.ROOT_INDEX, b"")  # no meta blocks
        info_at = len(self._out)
        self._add(layout.FILE_INFO, _file_info(info, keys[-1].as_py() if len(keys) else None))
        self._trailer(index_at, info_at, len(index), len(keys))
        return bytes(self._out)

    def _add(self, magic: bytes, payload: bytes, previous: int = -1) -> int:
        """Appends a block; its size on disk."""
        stored = gzip.compress(payload, _GZIP_LEVEL, mtime=0) if self._codec is Codec.GZ else payload
        guarded = layout.BLOCK_HEADER.size + len(stored)
        checksums = bytes(4 * -(-guarded // layout.BYTES_PER_CHECKSUM))
        self._out += layout.BLOCK_HEADER.pack(
            magic,
            len(stored) + len(checksums),
            len(payload),
            previous,
            Checksum.NULL,
            layout.BYTES_PER_CHECKSUM,
            guarded,
        )
        self._out += stored + checksums
        self._plain_bytes += layout.BLOCK_HEADER.size + len(payload)
        return guarded + len(checksums)

    def _trailer(self, index_at: int, info_at: int, index_bytes: int, count: int) -> None:
        fields: dict[int, int | bytes] = {
            TrailerField.FILE_INFO_OFFSET: info_at,
            TrailerField.LOAD_ON_OPEN_OFFSET: index_at,
            TrailerField.INDEX_UNCOMPRESSED_BYTES: index_bytes,
            TrailerField.TOTAL_UNCOMPRESSED_BYTES: self._plain_bytes,
            TrailerField.DATA_INDEX_COUNT: len(self._index),
            TrailerField.META_INDEX_COUNT: 0,
            TrailerField.ENTRY_COUNT: count,
            TrailerField.INDEX_LEVELS: 1,
            TrailerField.FIRST_DATA_BLOCK: self._index[0][0] if self._index else 0,
            TrailerField.LAST_DATA_BLOCK: self._index[-1][0] if self._index else 0,
            TrailerField.COMPARATOR: b"org.apache.hudi.io.storage.HoodieHBaseKVComparator",
            TrailerField.COMPRESSION: self._codec,
        }
        message = layout.format_message(fields)
        head = layout.TRAILER + layout.format_varint(len(message)) + message
        self._out += head.ljust(layout.TRAILER_BYTES - 4, b"\x00") + struct.pack(">I", 3 << 24 | 3)


def _full_key(key: bytes) -> bytes:
    return layout.ROW_LENGTH.pack(len(key)) + key + layout.KEY_TAIL


def _file_info(info: dict[str, bytes], last: bytes | None) -> bytes:
    standard = {
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        "hfile.AVG_KEY_LEN": struct.pack(">i", 0),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", 0),
        "hfile.CREATE_TIME_TS": struct.pack(">q", 0),
    }
    if last is not None:
        standard["hfile.LASTKEY"] = _full_key(last)
    pairs: list[tuple[int, int | bytes]] = [
        (1, layout.format_message([(1, key.encode()), (2, value)]))
        for key, value in sorted({**standard, **info}.items())
    ]
    message = layout.format_message(pairs)
    return layout.PROTOBUF_MAGIC + layout.format_varint(len(message)) + message
