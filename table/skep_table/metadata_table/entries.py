"""What a file group of the metadata table holds for some keys, or for all: base file and log blocks, oldest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro import decode_values, parse_record
from skep_format.avro.types import arrow_of
from skep_format.avro_schemas import RELEASES, schema_of
from skep_format.errors import CorruptFileError, FormatError, SchemaError
from skep_format.hfile import ByteSource, HFile, StorageSource
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockRule, BlockType, LogBlock, read_blocks, valid_blocks
from skep_format.schema.types import StructType
from skep_format.storage import FileStatus, Storage
from skep_table.view import FileSlice

_RECORD: Final = "HoodieMetadataRecord"


@lru_cache(maxsize=64)
def metadata_record(text: str) -> StructType:
    """The type of the records. SchemaError unless it has what every release has, in the types that these have.

    Values have no schema of their own, so a damaged one would turn them into other values without an error.
    Members that no known release has are left to themselves: later releases add some.
    """
    record = parse_record(text)
    oldest, newest = (arrow_of(parse_record(schema_of(_RECORD, release))) for release in (RELEASES[0], RELEASES[-1]))
    strange = _strange(arrow_of(record), oldest, newest, _RECORD)
    if strange is not None:
        raise SchemaError(f"the schema of the values is not that of a metadata table: {strange}", column=strange)
    return record


def _strange(found: pa.DataType, oldest: pa.DataType, newest: pa.DataType, name: str) -> str | None:
    """The first member that lacks or has another type than in the releases known."""
    if pa.types.is_map(newest):
        return _strange(found.item_type, oldest.item_type, newest.item_type, name) if pa.types.is_map(found) else name
    if pa.types.is_list(newest):
        return (
            _strange(found.value_type, oldest.value_type, newest.value_type, name) if pa.types.is_list(found) else name
        )
    if not pa.types.is_struct(newest):
        return None if found == newest else name
    if not pa.types.is_struct(found):
        return name
    members = {field.name: field.type for field in found}
    required = {field.name: field.type for field in oldest}
    for field in newest:
        inner = f"{name}.{field.name}"
        if field.name in members:
            problem = _strange(members[field.name], required.get(field.name, field.type), field.type, inner)
            if problem is not None:
                return problem
        elif field.name in required:
            return inner
    return None


Mask = npt.NDArray[np.bool_]

# What is found for so many keys is kept for the next look-up: some megabytes.
_MOST_KEPT: Final = 1 << 16
# A block of so many bytes takes less time to read at once than its index and one of its parts.
_READ_WHOLE: Final = 1 << 20
# A log file of so many bytes is read by one request, and stays in memory.
_SMALL_LOG: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys (ascending) and their records in one base file or block. `records` is None for a delete block."""

    keys: pa.Array
    records: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class _Found:
    """What a look-up of keys has found in one column."""

    column: str
    newest: bool
    keys: pa.Array
    entries: tuple[Entries, ...]

    def covers(self, keys: pa.Array, column: str, *, newest: bool) -> bool:
        if (column, newest) != (self.column, self.newest):
            return False
        if keys is self.keys:
            return True
        return bool(pc.all(pc.is_in(keys, value_set=self.keys), min_count=0).as_py())

    def of(self, keys: pa.Array) -> Iterator[Entries]:
        for each in self.entries:
            if each.records is None or keys is self.keys:
                yield each
            else:
                among = pc.is_in(each.keys, value_set=keys)
                yield Entries(each.keys.filter(among), each.records.filter(among))


class GroupReader:
    """One file group of the metadata table; its files are opened once and stay open for further look-ups.

    So does what the last look-up of some keys has found: a write looks its keys up when it tags its rows, and when it
    records what it has changed.
    """

    def __init__(
        self,
        storage: Storage,
        slice_: FileSlice,
        counts: Callable[[InstantTime], bool],
        files: Mapping[str, FileStatus] | None = None,
        before: OpenedFiles | None = None,
    ) -> None:
        """`files` has the listed files by path, and `before` what the reader of the group in another snapshot has
        opened: of what is the same here nothing is read again.
        """
        self._storage, self.slice, self._counts = storage, slice_, counts
        self._files = files or {}
        self.files = OpenedFiles(counts) if before is None else before.settled(counts)
        """What is open, for the reader of the group in another snapshot."""
        self._sources: list[_Source] | None = None
        self._last: _Found | None = None

    @property
    def file_id(self) -> str:
        """The id of the file group."""
        return self.slice.file_id

    def entries(self, keys: pa.Array | None = None, *, column: str) -> Iterator[Entries]:
        """Oldest first; `keys` None means all. Of the records, only `column` is decoded."""
        if keys is None:
            for source in self.opened():
                yield from source.entries(None, column)
        else:
            yield from entries_of([(self, keys)], column)

    def prefix_entries(self, prefix: str, *, column: str) -> Iterator[Entries]:
        """As `entries`, for all keys that begin with the prefix."""
        for source in self.opened():
            yield from source.prefix_entries(prefix, column)

    def has_prefix(self, prefix: str) -> bool:
        """Whether any record has a key that begins with the prefix; marks of deleted ones count as records."""
        return any(isinstance(source, _HFileSource) and source.has_prefix(prefix) for source in self.opened())

    def most_bytes_of_prefix(self, prefix: str) -> int:
        """At most so many bytes, as they are stored, would be read for `prefix_entries`."""
        files = (source for source in self.opened() if isinstance(source, _HFileSource))
        return sum(source.most_bytes_of_prefix(prefix) for source in files)

    def times(self) -> frozenset[InstantTime]:
        """The instants whose blocks count, and those that a log compaction among them has merged."""
        blocks = valid_blocks(self._blocks(), BlockRule(self._counts))
        return frozenset(time for block in blocks for time in (block.instant_time, *block.compacted_times))

    def known(self, keys: pa.Array, column: str, *, newest: bool) -> _Found | None:
        """What the last look-up has found, where that has all of the keys."""
        last = self._last
        return last if last is not None and last.covers(keys, column, newest=newest) else None

    def keep(self, found: _Found) -> None:
        """Keeps what a look-up has found for the next one."""
        self._last = found

    def opened(self) -> list[_Source]:
        """The files and blocks that count, oldest first."""
        if self._sources is None:
            self._sources = list(self._open())
        return self._sources

    def _open(self) -> Iterator[_Source]:
        base = self.slice.base_file
        if base is not None:
            opened = self.files.base
            if opened is None or opened.status != self._files.get(base.path):
                read = partial(HFile.open, self._storage, base.path, base.size_bytes)
                opened = self.files.base = _Base(self._files.get(base.path), _HFileSource(read, base.path))
            yield opened.source
        for block in valid_blocks(self._blocks(), BlockRule(self._counts)):
            log = self.files.logs.get(block.path)
            source = self._source_of(block) if log is None else log.source_of(block, self._source_of)
            if source is not None:
                yield source

    def _source_of(self, block: LogBlock) -> _Source | None:
        """None of a block without entries."""
        if block.type is BlockType.DELETE:
            deletes = block.deletes()
            return _DeleteSource(deletes) if len(deletes) else None
        if block.type is BlockType.HFILE_DATA:
            if not block.content_size:
                return None
            if block.path in self.files.logs:
                return _HFileSource(partial(_file_of, block), block.path, block.schema_text)
            # read later by its place: not one of many log files stays open
            place = block.path, block.content_offset, block.content_size
            return _HFileSource(partial(_file_inside, self._storage, *place), block.path, block.schema_text)
        raise FormatError.of_file(
            block.path,
            f"a {block.type.name} block in a metadata table at byte {block.offset}",
            offset=block.offset,
            found=block.type.name,
            expected="HFILE_DATA or DELETE",
        )

    def _blocks(self) -> Iterator[LogBlock]:
        for log in self.slice.log_files:
            if log.size_bytes > _SMALL_LOG:
                yield from read_blocks(self._storage.open_input(log.path), log.path, log.size_bytes)
                continue
            known, status = self.files.logs.get(log.path), self._files.get(log.path)
            if known is None or known.status != status or not known.counts(self._counts):
                data = pa.BufferReader(self._storage.read_range(log.path, 0, log.size_bytes))
                blocks = tuple(read_blocks(data, log.path, log.size_bytes))
                known = self.files.logs[log.path] = _SmallLog(status, blocks, {})
            yield from known.blocks


class OpenedFiles:
    """The base file of a file group that is open, and its log files that are in memory, with what was read of them.

    Unlike a reader it has no results of look-ups: it may be kept until another snapshot is read.
    """

    def __init__(
        self,
        counts: Callable[[InstantTime], bool],
        base: _Base | None = None,
        logs: dict[str, _SmallLog] | None = None,
    ) -> None:
        self._counts, self.base, self.logs = counts, base, logs or {}

    def settled(self, counts: Callable[[InstantTime], bool]) -> OpenedFiles:
        """What a reader of another snapshot, with `counts` of its own, need not read again, where the listing shows the
        same files.

        Log files whose commits have not all completed are read again: they may be rolled back, and another commit may
        give its file the name of one of them.
        """
        logs = {path: log for path, log in list(self.logs.items()) if log.status and log.counts(self._counts)}
        return OpenedFiles(counts, self.base if self.base and self.base.status else None, logs)


@dataclass(frozen=True, slots=True)
class _Base:
    """A base file that is open. `status` is None where no listing shows whether it is the same later."""

    status: FileStatus | None
    source: _HFileSource


@dataclass(frozen=True, slots=True)
class _SmallLog:
    """The blocks of a log file that is in memory, and by their places what was read of them."""

    status: FileStatus | None
    blocks: tuple[LogBlock, ...]
    sources: dict[int, _Source | None]

    def counts(self, counts: Callable[[InstantTime], bool]) -> bool:
        """Whether all blocks are of entries that count."""
        return all(
            block.type in (BlockType.DELETE, BlockType.HFILE_DATA) and counts(block.instant_time)
            for block in self.blocks
        )

    def source_of(self, block: LogBlock, make: Callable[[LogBlock], _Source | None]) -> _Source | None:
        if block.offset not in self.sources:
            self.sources[block.offset] = make(block)
        return self.sources[block.offset]


def _file_of(block: LogBlock) -> HFile:
    """The HFile in a block that is in memory."""
    return HFile(block.content().to_pybytes(), block.path, block.content_offset)


def _file_inside(storage: Storage, path: str, offset: int, size_bytes: int) -> HFile:
    """The HFile in a log block: read whole where it is small, else by its index, as a file of its own."""
    content: ByteSource
    if size_bytes <= _READ_WHOLE:
        content = storage.read_range(path, offset, size_bytes)
    else:
        content = StorageSource(storage, path, size_bytes, offset)
    return HFile(content, path, offset)


class _HFileSource:
    """An HFile, which is read once something is looked for in it."""

    def __init__(self, read: Callable[[], HFile], path: str, schema_text: str | None = None) -> None:
        self._read, self._path, self._schema_text = read, path, schema_text

    @cached_property
    def _file(self) -> HFile:
        return self._read()

    @cached_property
    def record(self) -> StructType:
        """The type of the records. FormatError unless it is that of a metadata table."""
        path, text = self._path, self._schema_text or self._file.schema_text
        if text is None:
            raise FormatError.of_file(path, "an HFile of a metadata table without a schema", expected="schema")
        try:
            return metadata_record(text)
        except SchemaError as error:
            raise FormatError.of_file(path, error.message, expected="HoodieMetadataRecord") from error

    def entries(self, wanted: pa.Array | None, column: str) -> Iterator[Entries]:
        for found in self._file.scan() if wanted is None else [self.stored(wanted)]:
            yield self.decoded(found, column)

    def stored(self, wanted: pa.Array) -> pa.RecordBatch:
        """The keys that are there, with the bytes of their records."""
        return self._file.get(wanted)

    def prefix_entries(self, prefix: str, column: str) -> Iterator[Entries]:
        yield self.decoded(self._file.scan_prefix(prefix.encode()), column)

    def has_prefix(self, prefix: str) -> bool:
        return self._file.has_prefix(prefix.encode())

    def most_bytes_of_prefix(self, prefix: str) -> int:
        return self._file.most_bytes_of_prefix(prefix.encode())

    def decoded(self, found: pa.RecordBatch, column: str) -> Entries:
        """What `stored` has found."""
        try:
            keys = found.column("key").cast(pa.string())
        except pa.ArrowInvalid as error:
            raise CorruptFileError.of_file(self._path, "a key that is not UTF-8") from error
        return Entries(keys, decode_values(self.record, found.column("value"), columns={column}, path=self._path))


class _DeleteSource:
    def __init__(self, deletes: pa.Table) -> None:
        self.keys = deletes.column("record_key").combine_chunks().drop_null()

    def entries(self, wanted: pa.Array | None, column: str) -> Iterator[Entries]:  # noqa: ARG002 - has no columns
        yield Entries(self.keys, None)

    def prefix_entries(self, prefix: str, column: str) -> Iterator[Entries]:  # noqa: ARG002
        yield Entries(self.keys, None)


_Source = _HFileSource | _DeleteSource


def entries_of(
    parts: Sequence[tuple[GroupReader, pa.Array]], column: str, *, newest: bool = False
) -> Iterator[Entries]:
    """As `entries` of each of the groups for keys of its own. All records that have one schema are decoded at once:
    each file has few of them.

    `newest`: of each of the keys its newest record may be enough, and one that is deleted may be left out. Files older
    than all of these records are not read.
    """
    few = [(group, keys.cast(pa.string())) for group, keys in parts if len(keys) <= _MOST_KEPT]
    known = {group: last for group, keys in few if (last := group.known(keys, column, newest=newest)) is not None}
    stored = {group: _stored(group.opened(), keys, newest=newest) for group, keys in few if group not in known}
    decoded = _decoded({file: rows for of_group in stored.values() for file, rows in of_group.items()}, column)
    for group, keys in few:
        if group not in known:
            found = tuple(_in_order(group.opened(), decoded, keys, column, newest=newest))
            known[group] = _Found(column, newest, keys, found)
            group.keep(known[group])
    texts = dict(few)
    for group, keys in parts:
        if group in known:
            yield from known[group].of(texts[group])
        else:
            for source in group.opened():
                yield from source.entries(keys, column)


def _stored(sources: Sequence[_Source], keys: pa.Array, *, newest: bool) -> dict[_HFileSource, pa.RecordBatch]:
    if newest:
        return _newest(sources, keys)
    return {each: each.stored(keys) for each in sources if isinstance(each, _HFileSource)}


def _decoded(stored: Mapping[_HFileSource, pa.RecordBatch], column: str) -> dict[_HFileSource, Entries]:
    """Without files that have none of the keys."""
    alike: dict[int, list[_HFileSource]] = defaultdict(list)
    for file, rows in stored.items():
        if rows.num_rows:
            alike[id(file.record)].append(file)
    decoded: dict[_HFileSource, Entries] = {}
    for files in alike.values():
        decoded |= _decoded_together(files, [stored[each] for each in files], column)
    return decoded


def _in_order(
    sources: Sequence[_Source], decoded: Mapping[_HFileSource, Entries], keys: pa.Array, column: str, *, newest: bool
) -> Iterator[Entries]:
    for source in sources:
        if isinstance(source, _HFileSource):
            if source in decoded:
                yield decoded[source]
        elif not newest:
            yield from source.entries(keys, column)


def _newest(sources: Sequence[_Source], keys: pa.Array) -> dict[_HFileSource, pa.RecordBatch]:
    """Of each key its newest record, as it is stored; none of a key that is deleted."""
    found: dict[_HFileSource, pa.RecordBatch] = {}
    left = keys.cast(pa.large_binary())
    for source in reversed(sources):
        if not len(left):
            break
        if isinstance(source, _DeleteSource):
            there = source.keys.cast(pa.large_binary())
        else:
            found[source] = source.stored(left)
            there = found[source].column("key")
        if len(there):
            left = left.filter(pc.invert(pc.is_in(left, value_set=there)))
    return found


def _decoded_together(
    files: Sequence[_HFileSource], stored: Sequence[pa.RecordBatch], column: str
) -> dict[_HFileSource, Entries]:
    try:
        whole = files[0].decoded(pa.concat_batches(stored), column)
    except CorruptFileError:  # which names the first file: decoded one by one, the error names the right one
        return {file: file.decoded(rows, column) for file, rows in zip(files, stored, strict=True)}
    assert whole.records is not None
    found, start = {}, 0
    for file, rows in zip(files, stored, strict=True):
        count = rows.num_rows
        found[file] = Entries(whole.keys.slice(start, count), whole.records.slice(start, count))
        start += count
    return found


def latest(entries: Iterable[Entries], column: str) -> tuple[pa.Array, pa.Array]:
    """The newest record of each key as (keys, `column` of the records), deleted keys left out."""
    return _gathered(entries, column, lambda records: np.ones(len(records), np.bool_))


def alive(keys: pa.Array, records: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Without records that mark something as deleted."""
    if not pa.types.is_struct(records.type) or records.type.get_field_index("isDeleted") < 0:
        return keys, records
    there = pc.invert(pc.struct_field(records, "isDeleted").fill_null(False))
    return keys.filter(there), records.filter(there)


def since_reset(entries: Iterable[Entries], column: str, resets: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """As `latest`, with all records of a key, oldest first: from the last one on of which a member in `resets` is true,
    or that came after the key was deleted.
    """

    def begins_again(records: pa.Array) -> Mask:
        found = np.zeros(len(records), np.bool_)
        for name in resets:
            if records.type.get_field_index(name) >= 0:  # not all releases know all of them
                found |= pc.struct_field(records, name).fill_null(False).to_numpy(zero_copy_only=False)
        return found

    return _gathered(entries, column, begins_again)


def _gathered(
    entries: Iterable[Entries], column: str, begins_again: Callable[[pa.Array], Mask]
) -> tuple[pa.Array, pa.Array]:
    keys: list[pa.Array] = []
    parts: list[pa.Array] = []
    deletes: list[Mask] = []
    resets: list[Mask] = []
    for source in entries:
        keys.append(source.keys.cast(pa.large_string()))
        deletes.append(np.full(len(source.keys), source.records is None))
        if source.records is None:
            resets.append(deletes[-1])
        else:
            parts.append(source.records.column(column))
            resets.append(begins_again(parts[-1]))
    if not parts:
        return pa.array([], pa.string()), pa.nulls(0)
    texts = pa.concat_arrays(keys)
    key = texts.dictionary_encode().indices.to_numpy()
    deleted, reset = np.concatenate(deletes), np.flatnonzero(np.concatenate(resets))
    # The row from which on a key's records count. Of several such rows the last is assigned last, and remains.
    since = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    since[key[reset]] = reset
    counts = ~deleted & (np.arange(len(key)) >= since[key])
    keys_there = texts.filter(pa.array(counts)).cast(pa.string())
    return keys_there, pa.concat_arrays(_same_type(parts)).filter(pa.array(counts[~deleted]))


def _same_type(parts: list[pa.Array]) -> list[pa.Array]:
    """Records of several releases: members that older ones have not are null there."""
    if all(part.type == parts[0].type for part in parts):
        return parts
    fields: dict[str, pa.Field] = {}
    for part in parts:
        for field in part.type:
            known = fields.get(field.name)
            if known is None or (pa.types.is_struct(field.type) and field.type.num_fields > known.type.num_fields):
                fields[field.name] = field.with_nullable(True)
    return [widened(part, pa.struct(list(fields.values()))) for part in parts]


def widened(part: pa.Array, target: pa.DataType) -> pa.Array:
    """The same records in a type that knows more members: these are null. Members that it lacks are left out."""
    if part.type == target or not pa.types.is_struct(target):
        return part
    members = dict(zip((field.name for field in part.type), part.flatten(), strict=True))
    arrays = [
        widened(members[field.name], field.type) if field.name in members else pa.nulls(len(part), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=part.is_null())
