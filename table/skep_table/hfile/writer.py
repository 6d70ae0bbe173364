"""Writing an HFile that every Hudi release reads: full keys in the index, no checksums, one index level."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping

from skep_table.hfile import layout
from skep_table.hfile.layout import Checksum, Codec, TrailerField

_BLOCK_BYTES = 64 * 1024


def format_hfile(
    entries: Iterable[tuple[bytes, bytes]],
    info: Mapping[str, bytes] | None = None,
    *,
    codec: Codec = Codec.GZ,
    block_bytes: int = _BLOCK_BYTES,
) -> bytes:
    """The bytes of an HFile with `entries` (key, value), which must ascend by key without duplicates (ValueError)."""
    return _Printer(codec, block_bytes).print(entries, dict(info or {}))


class _Printer:
    def __init__(self, codec: Codec, block_bytes: int) -> None:
        if codec not in (Codec.GZ, Codec.NONE):
            raise ValueError(f"codec {codec.name}: GZ or NONE")
        self._codec, self._block_bytes = codec, block_bytes
        self._out = bytearray()
        self._index: list[tuple[int, int, bytes]] = []
        self._plain_bytes = 0

    def print(self, entries: Iterable[tuple[bytes, bytes]], info: dict[str, bytes]) -> bytes:
        count = 0
        last: bytes | None = None
        block = bytearray()
        first = b""
        for key, value in entries:
            if last is not None and key <= last:
                raise ValueError(f"keys must ascend: {key!r} after {last!r}")
            if not block:
                first = key
            full = _full_key(key)
            block += layout.KEY_VALUE.pack(len(full), len(value)) + full + value + b"\x00"
            last = key
            count += 1
            if len(block) >= self._block_bytes:
                self._data_block(first, block)
        if block:
            self._data_block(first, block)
        index_at = len(self._out)
        index = b"".join(
            layout.INDEX_ENTRY.pack(offset, size) + layout.format_vlong(len(_full_key(key))) + _full_key(key)
            for offset, size, key in self._index
        )
        self._add(layout.ROOT_INDEX, index)
        self._add(layout.ROOT_INDEX, b"")  # no meta blocks
        info_at = len(self._out)
        self._add(layout.FILE_INFO, _file_info(info, last))
        self._trailer(index_at, info_at, len(index), count)
        return bytes(self._out)

    def _data_block(self, first: bytes, block: bytearray) -> None:
        offset = len(self._out)
        previous = self._index[-1][0] if self._index else -1
        self._index.append((offset, self._add(layout.DATA_BLOCK, bytes(block), previous), first))
        block.clear()

    def _add(self, magic: bytes, payload: bytes, previous: int = -1) -> int:
        """Appends a block; its size on disk."""
        stored = gzip.compress(payload, mtime=0) if self._codec is Codec.GZ else payload
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
