"""Writing an HFile that every Hudi release reads: full keys in the index, no checksums, one index level."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format import protobuf
from skep_format.hfile import layout
from skep_format.hfile.layout import Checksum, Codec, TrailerField

_BLOCK_BYTES: Final = 64 * 1024
_GZIP_LEVEL: Final = 1  # others take up to several times as long, and save few of the bytes
_AS_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGE_BLOCK: Final = 2 * _BLOCK_BYTES
_SAMPLE_BYTES: Final = 1 << 14
# What an entry has beside its key and its value.
_FRAME: Final = layout.KEY_VALUE.size + layout.ROW_LENGTH.size + len(layout.KEY_TAIL) + len(layout.MVCC)
MAX_KEY_BYTES: Final = 0x7FFF
"""Java reads the length as a signed number."""


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
    out = io.BytesIO()
    writer = HFileWriter(out, info, codec=codec, block_bytes=block_bytes)
    writer.add(keys, values)
    writer.close()
    return out.getvalue()


class HFileWriter:
    """Writes an HFile piece by piece: of the entries, those of one block wait in memory. `close` ends the file."""

    def __init__(
        self,
        sink: Sink,
        info: Mapping[str, bytes] | None = None,
        *,
        codec: Codec = Codec.GZ,
        block_bytes: int = _BLOCK_BYTES,
    ) -> None:
        if codec not in (Codec.GZ, Codec.NONE):
            raise ValueError(f"codec {codec.name}: GZ or NONE")
        self._blocks = _Blocks(sink, codec)
        self._info = dict(info or {})
        self._block_bytes = block_bytes
        self._keys, self._values = (pa.array([], pa.large_binary()) for _ in range(2))
        self._last: pa.Array | None = None
        self.entries = 0

    @property
    def size_bytes(self) -> int:
        """The bytes written so far."""
        return self._blocks.end

    def add(self, keys: pa.Array, values: pa.Array) -> None:
        """The next entries. ValueError as `format_hfile`."""
        if len(keys) != len(values) or keys.null_count or values.null_count:
            raise ValueError(f"{len(keys)} keys and {len(values)} values: as many of each, and no nulls")
        if not len(keys):
            return
        keys, values = keys.cast(pa.large_binary()), values.cast(pa.large_binary())
        _check_order(keys if self._last is None else pa.concat_arrays([self._last, keys]))
        self._last = keys[-1:]
        self.entries += len(keys)
        self._flush(pa.concat_arrays([self._keys, keys]), pa.concat_arrays([self._values, values]), ends=False)

    def close(self) -> None:
        """Writes what is behind the entries. The sink stays open."""
        self._flush(self._keys, self._values, ends=True)
        self._blocks.close(self._info, self.entries, self._last)

    def _flush(self, keys: pa.Array, values: pa.Array, *, ends: bool) -> None:
        """Writes whole blocks; the rest waits for more entries, unless the file ends."""
        sizes = pc.add(pc.binary_length(keys), pc.binary_length(values)).to_numpy(zero_copy_only=False)
        ends_at = np.cumsum(sizes + _FRAME)
        first = start = 0
        while first < len(keys):
            last = min(int(np.searchsorted(ends_at, start + self._block_bytes)) + 1, len(keys))
            end = int(ends_at[last - 1])
            if end - start < self._block_bytes and not ends:
                break
            self._blocks.add_entries(keys[first].as_py(), _payload(keys[first:last], values[first:last], end - start))
            first, start = last, end
        self._keys, self._values = keys[first:], values[first:]


class Sink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes, /) -> object: ...


def _check_order(keys: pa.Array) -> None:
    descends = pc.greater_equal(keys[:-1], keys[1:])
    if pc.any(descends).as_py():
        at = descends.index(True).as_py()
        raise ValueError(f"keys must ascend: {keys[at + 1].as_py()!r} after {keys[at].as_py()!r}")
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > MAX_KEY_BYTES:
        raise ValueError(f"a key of {longest} bytes: at most {MAX_KEY_BYTES}")


def _payload(keys: pa.Array, values: pa.Array, size: int) -> bytes:
    """The entries of a block, joined by one kernel."""
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


class _Blocks:
    """The blocks of a file, one after another, and the index over those with entries."""

    def __init__(self, sink: Sink, codec: Codec) -> None:
        self._sink, self._codec = sink, codec
        self._index: list[tuple[int, int, bytes]] = []
        self._plain_bytes = 0
        self.end = 0

    def add_entries(self, first: bytes, payload: bytes) -> None:
        """A block of entries, of which the first has the key `first`."""
        offset = self.end
        previous = self._index[-1][0] if self._index else -1
        self._index.append((offset, self._add(layout.DATA_BLOCK, payload, previous), first))

    def close(self, info: dict[str, bytes], entries: int, last: pa.Array | None) -> None:
        """The index, the file info and the trailer. `last` has the last key."""
        index_at = self.end
        index = b"".join(
            layout.INDEX_ENTRY.pack(offset, size) + layout.format_vlong(len(_full_key(key))) + _full_key(key)
            for offset, size, key in self._index
        )
        self._add(layout.ROOT_INDEX, index)
        self._add(layout.ROOT_INDEX, b"")  # no meta blocks
        info_at = self.end
        self._add(layout.FILE_INFO, _file_info(info, None if last is None else last[0].as_py()))
        self._trailer(index_at, info_at, len(index), entries)

    def _add(self, magic: bytes, payload: bytes, previous: int = -1) -> int:
        """Appends a block; its size on disk."""
        stored = _gzipped(payload) if self._codec is Codec.GZ else payload
        guarded = layout.BLOCK_HEADER.size + len(stored)
        checksums = bytes(4 * -(-guarded // layout.BYTES_PER_CHECKSUM))
        header = layout.BLOCK_HEADER.pack(
            magic,
            len(stored) + len(checksums),
            len(payload),
            previous,
            Checksum.NULL,
            layout.BYTES_PER_CHECKSUM,
            guarded,
        )
        self._write(header + stored + checksums)
        self._plain_bytes += layout.BLOCK_HEADER.size + len(payload)
        return guarded + len(checksums)

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self.end += len(data)

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
        message = protobuf.format_message(fields)
        head = layout.TRAILER + protobuf.format_varint(len(message)) + message
        self._write(head.ljust(layout.TRAILER_BYTES - 4, b"\x00") + struct.pack(">I", 3 << 24 | 3))


def _gzipped(payload: bytes) -> bytes:
    """A large block is of one large value: of one that repeats nothing, such as the bits of a Bloom filter, a search
    for repetitions takes twice as long, and more bytes.
    """
    strategy = zlib.Z_DEFAULT_STRATEGY
    if len(payload) >= _LARGE_BLOCK:
        head = payload[:_SAMPLE_BYTES]
        strategy = min(strategy, zlib.Z_HUFFMAN_ONLY, key=lambda each: len(_deflated(head, each)))
    return _deflated(payload, strategy)


def _deflated(payload: bytes, strategy: int) -> bytes:
    stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _AS_GZIP, strategy=strategy)
    return stream.compress(payload) + stream.flush()


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
        (1, protobuf.format_message([(1, key.encode()), (2, value)]))
        for key, value in sorted({**standard, **info}.items())
    ]
    message = protobuf.format_message(pairs)
    return layout.PROTOBUF_MAGIC + protobuf.format_varint(len(message)) + message
