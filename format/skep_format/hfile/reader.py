"""Reading an HFile: the index once, then only the blocks that hold the wanted keys; lengths and checksums checked."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format import protobuf
from skep_format.errors import CorruptFileError, UnsupportedError
from skep_format.hfile import layout
from skep_format.hfile.layout import Checksum, Codec, TrailerField
from skep_format.protobuf import Cut
from skep_format.storage import Storage

# No writer makes blocks near this; a damaged length must not ask for more.
_MAX_BLOCK_BYTES = 1 << 30
_MAX_INDEX_LEVELS = 16

# Blocks are read together, by one request, as far as few bytes lie between them.
_RUN_BYTES: Final = 1 << 22
_GAP_BYTES: Final = 1 << 17
# The entries of the last runs of few blocks are kept for the next look-up.
_KEPT_RUNS: Final = 2
_KEPT_BLOCKS: Final = 2
_ENTRIES: Final = pa.schema([pa.field("key", pa.large_binary(), False), pa.field("value", pa.large_binary(), False)])

T = TypeVar("T")


class ByteSource(Protocol):
    """Random access to a file's bytes. `bytes` and StorageSource serve."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice) -> bytes: ...


class StorageSource:
    """A file in storage, or the part of one that begins at `base`, read by ranges."""

    def __init__(self, storage: Storage, path: str, size_bytes: int | None = None, base: int = 0) -> None:
        self._storage, self._path, self._base = storage, path, base
        self._size = storage.size(path) - base if size_bytes is None else size_bytes

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        return self._storage.read_range(self._path, self._base + start, max(0, stop - start))


@dataclass(frozen=True, slots=True)
class _BlockRef:
    first_key: bytes
    offset: int
    size: int


class HFile:
    """An opened HFile. Keys are the rows of HBase's keys: the record keys, as UTF-8 bytes, ascending.

    `path` (and `base`, the position of the file in it, for files inside log blocks) is for errors. Every method raises
    CorruptFileError where the bytes contradict themselves, UnsupportedError for a codec that Hudi does not use.
    """

    def __init__(self, source: ByteSource, path: str, base: int = 0) -> None:
        self._source, self._path, self._base = source, path, base
        self._size = len(source)
        trailer = self._trailer()
        number = trailer.get(TrailerField.COMPRESSION, Codec.NONE)
        if number not in (Codec.GZ, Codec.NONE):
            raise UnsupportedError.of_file(path, f"HFile codec {number!r} is not supported", found=number)
        self._gzip = number == Codec.GZ
        self.num_entries = self._int(trailer, TrailerField.ENTRY_COUNT)
        index_at = self._int(trailer, TrailerField.LOAD_ON_OPEN_OFFSET)
        count = self._int(trailer, TrailerField.DATA_INDEX_COUNT)
        levels = self._int(trailer, TrailerField.INDEX_LEVELS) or 1
        if levels > _MAX_INDEX_LEVELS:
            raise self._corrupt("an index of impossible depth", self._size, levels)
        root, _ = self._block(index_at, layout.ROOT_INDEX)
        refs = self._guard(index_at, lambda: _root_entries(root, count))
        for _ in range(levels - 1):
            refs = [ref for parent in refs for ref in self._index_block(parent)]
        self._blocks = refs
        self._first_keys = [ref.first_key for ref in refs]
        self._info_at = self._int(trailer, TrailerField.FILE_INFO_OFFSET)
        self._cached = lru_cache(maxsize=_KEPT_RUNS)(self._entries)

    @classmethod
    def open(cls, storage: Storage, path: str, size_bytes: int | None = None) -> HFile:
        """Reads the trailer. `size_bytes` saves a request. CorruptFileError, UnsupportedError."""
        return cls(StorageSource(storage, path, size_bytes), path)

    @property
    def schema_text(self) -> str | None:
        """The Avro schema of the values, where the file has one."""
        text = self.info.get("schema")
        return None if text is None else text.decode("utf-8", "replace")

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All entries in key order, in batches of some megabytes, with columns `key` and `value`; at least one batch,
        which may be empty. CorruptFileError when their number is not the file's.
        """
        seen = 0
        last = pa.array([], pa.large_binary())
        for run in self._runs(range(len(self._blocks))):
            entries = self._entries(run)
            keys = pa.concat_arrays([last, entries.column("key")])
            if pc.any(pc.less(keys[1:], keys[:-1])).as_py():
                raise self._corrupt("keys out of order", self._blocks[run[0]].offset, None)
            last = keys[-1:]
            seen += entries.num_rows
            yield entries
        if seen != self.num_entries:
            raise self._corrupt(f"{self.num_entries} entries announced", 0, seen)
        if not self._blocks:
            yield _one([])

    def get(self, keys: pa.Array) -> pa.RecordBatch:
        """The entries of the keys (binary or text) that are there, in key order, with columns `key` and `value`.

        Each block that may hold one of the keys is read once.
        """
        texts = keys if keys.type == pa.large_binary() else keys.cast(pa.large_binary())
        if len(self._blocks) == 1:  # where each key's block is need not be found
            entries = self._cached((0,))
            return entries.filter(pc.is_in(entries.column("key"), value_set=texts))
        wanted = pc.unique(texts)
        # Each key's block is the last one that begins at it or before it.
        count = len(self._first_keys)
        order = pc.sort_indices(pa.concat_arrays([pa.array(self._first_keys, pa.large_binary()), wanted])).to_numpy()
        of_block = order < count
        block = (np.cumsum(of_block) - 1)[~of_block]
        wanted = wanted.take(pa.array(order[~of_block].astype(np.int64) - count))
        found = []
        for run in self._runs(np.unique(block[block >= 0]).tolist()):
            first, last = np.searchsorted(block, (run[0], run[-1] + 1)).tolist()
            entries = self._cached(tuple(run)) if len(run) <= _KEPT_BLOCKS else self._entries(run)
            found.append(entries.filter(pc.is_in(entries.column("key"), value_set=wanted[first:last])))
        return _one(found)

    def scan_prefix(self, prefix: bytes) -> pa.RecordBatch:
        """The entries whose keys begin with `prefix`, in key order, with columns `key` and `value`."""
        found = []
        for run in self._runs(self._blocks_of_prefix(prefix)):
            entries = self._cached(tuple(run)) if len(run) <= _KEPT_BLOCKS else self._entries(run)
            found.append(entries.filter(pc.starts_with(entries.column("key"), prefix)))
        return _one(found)

    def has_prefix(self, prefix: bytes) -> bool:
        """Whether any key begins with `prefix`; at most one block is read."""
        after = bisect_right(self._first_keys, prefix)
        if after < len(self._blocks) and self._first_keys[after].startswith(prefix):
            return True
        if not after:
            return False
        keys = self._cached((after - 1,)).column("key")
        return bool(pc.any(pc.starts_with(keys, prefix)).as_py())

    def most_bytes_of_prefix(self, prefix: bytes) -> int:
        """At most so many bytes, as they are stored, have the entries whose keys begin with `prefix`. Reads nothing."""
        return sum(self._blocks[number].size for number in self._blocks_of_prefix(prefix))

    def _blocks_of_prefix(self, prefix: bytes) -> range:
        first = max(0, bisect_right(self._first_keys, prefix) - 1)
        return range(first, bisect_right(self._first_keys, prefix, lo=first, key=lambda key: key[: len(prefix)]))

    def _trailer(self) -> dict[int, int | bytes]:
        start = self._size - layout.TRAILER_BYTES
        data = self._source[max(0, start) : self._size]
        if start < 0 or not data.startswith(layout.TRAILER):
            raise self._corrupt("no HFile trailer", max(0, start), data[:8].hex())
        version = struct.unpack(">I", data[-4:])[0] & 0xFFFFFF
        if version != 3:
            raise UnsupportedError.of_file(self._path, f"HFile version {version} is not supported, 3 is", found=version)

        def parse() -> dict[int, int | bytes]:
            length, at = protobuf.read_varint(data, len(layout.TRAILER))
            if at + length > len(data):
                raise Cut(at, "the trailer is cut")
            return dict(protobuf.read_message(data[at : at + length]))

        return self._guard(start, parse)

    def _int(self, trailer: dict[int, int | bytes], field: TrailerField) -> int:
        value = trailer.get(field, 0)
        if not isinstance(value, int) or value > max(self._size, 1 << 40):
            raise self._corrupt(f"trailer field {field.name} is impossible", self._size - layout.TRAILER_BYTES, value)
        return value

    @cached_property
    def info(self) -> dict[str, bytes]:
        """What the file states of itself, by name. CorruptFileError."""
        offset = self._info_at
        payload, _ = self._block(offset, layout.FILE_INFO)

        def parse() -> dict[str, bytes]:
            if not payload.startswith(layout.PROTOBUF_MAGIC):
                raise Cut(0, "no file info")
            length, at = protobuf.read_varint(payload, len(layout.PROTOBUF_MAGIC))
            message = protobuf.read_message(payload[at : at + length])
            return dict(_info_pair(pair) for number, pair in message if number == 1 and isinstance(pair, bytes))

        return self._guard(offset, parse)

    def _block(self, offset: int, *kinds: bytes, head: bytes | None = None) -> tuple[bytes, int]:
        """The uncompressed payload of the block at `offset`, and where the next block begins.

        `head` is what was read of the block's bytes already.
        """
        header_bytes = layout.BLOCK_HEADER.size
        if head is None:
            head = self._source[offset : offset + header_bytes]
        if len(head) < header_bytes:
            raise self._corrupt("a block header is cut", offset, len(head))
        magic, on_disk, plain, _, checksum, per_checksum, guarded = layout.BLOCK_HEADER.unpack_from(head)
        if magic not in kinds:
            raise self._corrupt("a block of the wrong kind", offset, magic, kinds)
        end = offset + header_bytes + on_disk
        if not (on_disk >= 0 and 0 <= plain <= _MAX_BLOCK_BYTES and header_bytes <= guarded <= header_bytes + on_disk):
            raise self._corrupt("a block of impossible size", offset, (on_disk, plain, guarded))
        if end > self._size:
            raise self._corrupt("a block is cut", offset, self._size - offset, header_bytes + on_disk)
        data = head if len(head) >= header_bytes + on_disk else self._source[offset:end]
        data = data[: header_bytes + on_disk]
        self._check(data, guarded, checksum, per_checksum, offset)
        payload = data[header_bytes:guarded]
        if self._gzip:
            payload = self._inflate(payload, plain, offset)
        if len(payload) != plain:
            raise self._corrupt("a block of another size than announced", offset, len(payload), plain)
        return payload, end

    def _inflate(self, payload: bytes, plain: int, offset: int) -> bytes:
        out = bytearray()
        try:
            while payload and len(out) <= plain:  # one gzip member, or several
                stream = zlib.decompressobj(wbits=47)
                out += stream.decompress(payload, plain + 1 - len(out))
                payload = stream.unused_data
        except zlib.error as error:
            raise self._corrupt(f"a block that does not decompress ({error})", offset, len(payload)) from error
        return bytes(out)

    def _check(self, data: bytes, guarded: int, kind: int, per_checksum: int, offset: int) -> None:
        if kind == Checksum.NULL:
            return
        if kind not in (Checksum.CRC32, Checksum.CRC32C) or per_checksum <= 0:
            raise self._corrupt("an unknown kind of checksum", offset, kind)
        chunks = -(-guarded // per_checksum)
        if len(data) - guarded < 4 * chunks:
            raise self._corrupt("checksums are cut", offset, len(data) - guarded, 4 * chunks)
        check = _crc32c() if kind == Checksum.CRC32C else zlib.crc32
        for number in range(chunks):
            part = data[number * per_checksum : min((number + 1) * per_checksum, guarded)]
            found = check(part)
            expected = int.from_bytes(data[guarded + 4 * number : guarded + 4 * number + 4], "big")
            if found != expected:
                raise self._corrupt("a block with a wrong checksum", offset, f"{found:08x}", f"{expected:08x}")

    def _index_block(self, parent: _BlockRef) -> list[_BlockRef]:
        head = self._source[parent.offset : parent.offset + parent.size]
        payload, _ = self._block(parent.offset, layout.LEAF_INDEX, layout.MIDDLE_INDEX, head=head)
        return self._guard(parent.offset, lambda: _inner_entries(payload))

    def _runs(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """The blocks of these numbers (ascending) in parts to be read together."""
        run: list[int] = []
        for number in numbers:
            ref = self._blocks[number]
            if run:
                before, first = self._blocks[run[-1]], self._blocks[run[0]]
                gap = ref.offset - (before.offset + before.size)
                if not 0 <= gap <= _GAP_BYTES or ref.offset + ref.size - first.offset > _RUN_BYTES:
                    yield run
                    run = []
            run.append(number)
        if run:
            yield run

    def _entries(self, run: Sequence[int]) -> pa.RecordBatch:
        """The entries of the blocks of a run."""
        refs = [self._blocks[number] for number in run]
        start = refs[0].offset
        data = self._source[start : refs[-1].offset + refs[-1].size]
        payloads, bounds, base = [], [], 0
        for ref in refs:
            head = data[ref.offset - start : ref.offset - start + ref.size]
            payload, _ = self._block(ref.offset, layout.DATA_BLOCK, head=head)
            bounds.append(base + self._guard(ref.offset, lambda: _entry_bounds(payload)))  # noqa: B023 - called at once
            payloads.append(payload)
            base += len(payload)
        return _key_values(b"".join(payloads), np.concatenate(bounds))

    def _guard(self, offset: int, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except (Cut, struct.error, IndexError) as error:
            at = error.at if isinstance(error, Cut) else 0
            raise self._corrupt(str(error), offset + at, None) from error

    def _corrupt(self, what: str, offset: int, found: object, expected: object = None) -> CorruptFileError:
        at = self._base + offset
        return CorruptFileError.of_file(self._path, f"{what} at byte {at}", offset=at, found=found, expected=expected)


def _crc32c() -> Callable[[bytes], int]:
    import google_crc32c

    value: Callable[[bytes], int] = google_crc32c.value
    return value


def _info_pair(data: bytes) -> tuple[str, bytes]:
    fields = dict(protobuf.read_message(data))
    key, value = fields.get(1, b""), fields.get(2, b"")
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        raise Cut(0, "file info of the wrong kind")
    return key.decode("utf-8", "replace"), value


def _root_entries(data: bytes, count: int) -> list[_BlockRef]:
    refs: list[_BlockRef] = []
    at = 0
    while len(refs) < count:
        offset, size = layout.INDEX_ENTRY.unpack_from(data, at)
        key, at = layout.index_key(data, at + layout.INDEX_ENTRY.size)
        refs.append(_BlockRef(key, offset, size))
    return refs


def _inner_entries(data: bytes) -> list[_BlockRef]:
    (count,) = struct.unpack_from(">i", data)
    if not 0 <= count <= len(data) // layout.INDEX_ENTRY.size:
        raise Cut(0, "an index block of impossible size")
    starts = struct.unpack_from(f">{count + 1}i", data, 4)
    first = 4 + 4 * (count + 1)
    refs: list[_BlockRef] = []
    for start, end in pairwise(starts):
        at = first + start
        offset, size = layout.INDEX_ENTRY.unpack_from(data, at)
        at += layout.INDEX_ENTRY.size
        (row,) = layout.ROW_LENGTH.unpack_from(data, at)
        at += layout.ROW_LENGTH.size
        if at + row > first + end:
            raise Cut(at, "an index key is cut")
        refs.append(_BlockRef(data[at : at + row], offset, size))
    return refs


def _entry_bounds(data: bytes) -> npt.NDArray[np.int64]:
    """Of each entry of a data block: where its key begins and ends, and where its value does."""
    raw = np.frombuffer(data, np.uint8)
    size = layout.ENTRY_HEAD.itemsize
    found = _linked(raw) if len(raw) > size else None
    if found is None:
        start = _one_by_one(data)
        found = start, _heads(raw, start)
    start, heads = found
    bounds = np.empty((len(start), 4), np.int64)
    bounds[:, 0] = start + size
    bounds[:, 1] = bounds[:, 0] + heads["row_length"]
    bounds[:, 2] = start + layout.KEY_VALUE.size + heads["key_length"]
    bounds[:, 3] = bounds[:, 2] + heads["value_length"]
    return bounds


def _linked(raw: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]] | None:
    """The beginnings of a block's entries, with their heads: all places where the lengths of key and row agree, if each
    entry ends where the next one begins. None if they don't: some other bytes look alike, or the entries have an
    unusual form.
    """
    more = layout.ROW_LENGTH.size + len(layout.KEY_TAIL)
    # By single bytes first, which leave few places of which heads are read: high ones that are 0, and the lowest ones.
    likely = (raw[:-10] | raw[1:-9]) == 0
    likely &= raw[3:-7] - raw[9:-1] == more
    start = np.flatnonzero(likely)
    heads = _heads(raw, start)
    like = heads["key_length"] == heads["row_length"].astype(np.int32) + more
    if not like.all():
        start, heads = start[like], heads[like]
    mvcc = start + layout.KEY_VALUE.size + heads["key_length"] + heads["value_length"]
    if len(start) == 0 or start[0] or mvcc[-1] != len(raw) - 1 or (mvcc[:-1] + 1 != start[1:]).any():
        return None
    return (start, heads) if not raw[mvcc].any() and (heads["value_length"] >= 0).all() else None


def _one_by_one(data: bytes) -> npt.NDArray[np.int64]:
    """The beginnings of a block's entries, each found from the one before."""
    starts: list[int] = []
    at, end = 0, len(data)
    while at < end:
        starts.append(at)
        key_length, value_length = layout.KEY_VALUE.unpack_from(data, at)
        (row,) = layout.ROW_LENGTH.unpack_from(data, at + layout.KEY_VALUE.size)
        at += layout.KEY_VALUE.size + key_length + value_length
        if key_length < layout.ROW_LENGTH.size + row or value_length < 0 or at >= end:
            raise Cut(starts[-1], "an entry of impossible size")
        _, at = layout.read_vlong(data, at)  # the mvcc version
    return np.array(starts, np.int64)


def _heads(raw: npt.NDArray[np.uint8], start: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    size = layout.ENTRY_HEAD.itemsize
    return raw[start[:, None] + np.arange(size)].view(layout.ENTRY_HEAD)[:, 0]


def _key_values(data: bytes, bounds: npt.NDArray[np.int64]) -> pa.RecordBatch:
    # One array of all that lies between the bounds: a key, what follows it, a value, what lies up to the next key.
    count = len(bounds)
    pieces = pa.Array.from_buffers(
        pa.large_binary(), max(4 * count - 1, 0), [None, pa.py_buffer(np.ascontiguousarray(bounds)), pa.py_buffer(data)]
    )
    every = np.arange(count) * 4
    return pa.RecordBatch.from_arrays([pieces.take(pa.array(every)), pieces.take(pa.array(every + 2))], schema=_ENTRIES)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=_ENTRIES)
