"""Row groups of a base file as bytes, for another base file with the same columns.

What can be copied is decided before a byte is: the columns, the codec, the calendar, the writer, and that the footer
has nothing which is not known here. What a copied row group states is compared with its pages. A footer that
contradicts itself or its file is CorruptFileError.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.basefile import keys
from skep_format.basefile import parquet_metadata as parquet
from skep_format.basefile.encryption import keys_of
from skep_format.basefile.footer import damage_named, opened_footer, parquet_tail, read_end
from skep_format.basefile.thrift import I32, I64, LIST, Buffer, Struct, parse_struct, required, struct_bytes, value_of
from skep_format.errors import CorruptFileError
from skep_format.names import BaseFormat
from skep_format.storage import Storage

# Before 1.10, Java's writer wrote wrong bounds of text, and no orders.
_JAVA: Final = re.compile(rb"parquet-mr version (1\.[1-9]\d+|[2-9]|[1-9]\d+)\.")
_ARROW: Final = b"parquet-cpp-arrow version "
# A header of a bloom filter takes a few bytes; without its length in the footer, so many are read for it.
_FILTER_HEADER_BYTES: Final = 64
# Of larger footers what they state is not kept: it takes many times as much memory as they do.
_KEPT_BYTES: Final = 64 << 10
# Fewer bytes between two column chunks are read along: a request to a store takes longer.
_READ_ALONG_BYTES: Final = 1 << 20


@lru_cache(maxsize=16)
def _parsed(tail: bytes) -> Struct:
    """The footer at the end of a file, which nobody changes: keys are looked up in a file, and then it is copied."""
    return parquet.footer_of(tail)[0]


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column chunk, what its footer states of it, and where they began in the file of old."""

    chunk: Struct
    data: Buffer
    column_index: Buffer = b""
    offset_index: Struct | None = None
    bloom_filter: Buffer = b""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group that was read to be copied."""

    rows: int
    struct: Struct
    columns: tuple[ColumnPages, ...]

    def without_data(self) -> RowGroup:
        """What its footer states, for when its pages have been written."""
        return replace(self, columns=tuple(replace(each, data=b"") for each in self.columns))

    def without_statistics(self, names: Collection[str]) -> RowGroup:
        """The same, of some columns without what readers select by."""
        columns = (
            replace(each, chunk=parquet.without(each.chunk, parquet.STATISTICS), column_index=b"")
            if parquet.name_of(each.chunk) in names
            else each
            for each in self.columns
        )
        return replace(self, columns=tuple(columns))


class FileInMemory:
    """A Parquet file that was just written into memory: it is read without a copy, and its pages are not checked."""

    def __init__(self, data: pa.Buffer) -> None:
        self._data = memoryview(data).cast("B")  # those of Arrow are signed

    def size(self) -> int:
        """As an open file has it."""
        return len(self._data)

    def read_at(self, length: int, start: int) -> memoryview:
        """As an open file has it."""
        return self._data[start : start + length]


class RowGroups:
    """The row groups of an open Parquet file, in their order. `tail`: its end, where that was read before."""

    def __init__(self, source: pa.NativeFile | FileInMemory, path: str, tail: Buffer | None = None) -> None:
        with damage_named(path):  # of an encrypted file it is no Thrift: see `OpenBaseFile.row_groups`
            end = tail or parquet_tail(partial(read_end, source), path)
            is_kept = isinstance(end, bytes) and len(end) <= _KEPT_BYTES
            self._footer = _parsed(end) if is_kept else parquet.footer_of(end)[0]
        self._source, self._path = source, path
        self._size = source.size()

    @cached_property
    def groups(self) -> Sequence[Struct]:
        """What the footer states of each."""
        return parquet.groups_of(self._footer)

    @cached_property
    def rows(self) -> list[int]:
        """How many each has."""
        return [value_of(group, parquet.GROUP_ROWS) for group in self.groups]

    @cached_property
    def sizes(self) -> list[int]:
        """How many bytes the pages of each take before they are compressed."""
        return [value_of(group, parquet.TOTAL_BYTES) for group in self.groups]

    def column_bytes(self, number: int | None = None) -> Iterator[tuple[str, int]]:
        """The name of each column of a row group, of fields in nested ones, and its bytes; None: of all row groups.

        Nothing where the footer can't be read here.
        """
        if self.is_known:
            for group in self.groups if number is None else (self.groups[number],):
                for chunk in parquet.chunks_of(group):
                    yield parquet.name_of(chunk), parquet.chunk_bytes(chunk)

    def has_page_index(self, number: int) -> bool:
        """Whether a row group states where its pages are."""
        return any(parquet.OFFSET_INDEX in chunk for chunk in parquet.chunks_of(self.groups[number]))

    def text_bounds(self, name: str) -> list[tuple[bytes, bytes] | None]:
        """Of each row group the bounds of a text column, None where they are not known."""
        return [self._bounds(group, name) for group in self.groups]

    def _bounds(self, group: Struct, name: str) -> tuple[bytes, bytes] | None:
        if not self.is_known or not self._is_sound:
            return None
        for chunk in parquet.chunks_of(group):
            if parquet.name_of(chunk) == name:
                stated = value_of(parquet.meta_data(chunk), parquet.STATISTICS) or {}
                low, high = value_of(stated, parquet.MIN_VALUE), value_of(stated, parquet.MAX_VALUE)
                return (low, high) if isinstance(low, bytes) and isinstance(high, bytes) else None
        return None

    def encoded_columns(self, among: Container[str], numbers: Sequence[int] | None = None) -> list[str]:
        """Those of the flat columns `among` that hold text in dictionaries in all row groups, where that is shorter.

        `numbers`: in these.
        """
        groups = self.groups if numbers is None else [self.groups[number] for number in numbers]
        if not self.is_known or not groups:
            return []
        columns = zip(*map(parquet.chunks_of, groups), strict=False)
        encoded = [chunks[0] for chunks in columns if all(map(parquet.is_encoded_text, chunks))]
        return [name for name in map(parquet.name_of, encoded) if name in among]

    def plain_columns(self, number: int) -> frozenset[str]:
        """The columns of a row group, fields of nested ones by dotted names, without dictionary, if others have one."""
        chunks = parquet.chunks_of(self.groups[number])
        plain = frozenset(parquet.name_of(chunk) for chunk in chunks if not parquet.has_dictionary(chunk))
        return plain if len(plain) < len(chunks) else frozenset()

    def metadata(self) -> pq.FileMetaData | None:
        """The footer as Arrow reads it, for statistics, without its entries, of which a filter is large; None where it
        can't be read here.

        CorruptFileError where it contradicts itself, for which Arrow would end the process; so it would for sizes of
        levels that don't fit their column, which are left out.
        """
        if not self.is_known:
            return None
        self._check()
        with damage_named(self._path):
            footer = {field: found for field, found in self._footer.items() if field != parquet.KEY_VALUES}
            found = pq.read_metadata(pa.BufferReader(without_level_sizes(footer)))
            found.created_by  # noqa: B018  a ValueError where it is no text
            return found

    @cached_property
    def is_known(self) -> bool:
        """Whether what it states of columns is read here at all. Arrow is not asked: some damaged footers abort it."""
        return parquet.is_known(self._footer)

    def can_be_copied(self, into: Struct, codec: int, filters: Collection[str]) -> bool:
        """Whether a file with the footer `into` may take them: its columns, its codec, a filter of values on each of
        the columns `filters`. CorruptFileError where the footer contradicts itself.
        """
        if (
            not self.is_known
            or not self._is_sound
            or parquet.COLUMN_ORDERS not in self._footer
            or not parquet.same_columns(self._footer, into)
        ):
            return False
        self._check()
        return all(
            value_of(parquet.meta_data(chunk), parquet.CODEC) == codec
            and (parquet.name_of(chunk) not in filters or parquet.BLOOM_FILTER in parquet.meta_data(chunk))
            for group in self.groups
            for chunk in parquet.chunks_of(group)
        )

    @property
    def _is_sound(self) -> bool:
        """Whether bounds are those of all values: Arrow's are without NaN, but in files with Hudi's entries, which are
        written here.
        """
        writer = value_of(self._footer, parquet.CREATED_BY) or b""
        if not writer.startswith(_ARROW):
            return _JAVA.match(writer) is not None
        _, entries = value_of(self._footer, parquet.KEY_VALUES) or (0, ())
        return any(value_of(entry, 1) == keys.AVRO_SCHEMA.encode() for entry in entries)

    def _check(self) -> None:
        with damage_named(self._path):
            leaves = parquet.leaves_of(self._footer)
        end = self._size - 8
        taken: list[tuple[int, int]] = []
        for number, group in enumerate(self.groups):
            chunks, rows = parquet.chunks_of(group), value_of(group, parquet.GROUP_ROWS)
            self._expect(len(chunks), len(leaves), f"column chunks of row group {number}")
            for leaf, chunk in zip(leaves, chunks, strict=True):
                meta = parquet.meta_data(chunk)
                what = f"of column {parquet.name_of(chunk)} in row group {number}"
                self._expect(tuple(value_of(meta, parquet.PATH)[1]), leaf.path, f"path {what}")
                self._expect(value_of(meta, parquet.PHYSICAL_TYPE), leaf.physical_type, f"type {what}")
                if not leaf.repeated:
                    self._expect(value_of(meta, parquet.NUM_VALUES), rows, f"values {what}")
                taken.append((parquet.chunk_start(chunk), parquet.chunk_bytes(chunk)))
        self._expect(sum(self.rows), value_of(self._footer, parquet.NUM_ROWS), "rows of all row groups")
        at = len(parquet.MAGIC)
        for start, length in sorted(taken):
            if start < at or length < 0 or start + length > end:
                raise self._wrong(f"a column chunk at bytes {start} to {start + length}", f"bytes {at} to {end}")
            at = start + length

    def read(self, number: int, pages: Mapping[str, ColumnPages] = MappingProxyType({})) -> RowGroup:
        """The bytes of one row group, compared with what its footer states.

        `pages`: of the columns, by dotted name, that have other values in the new file. They keep the index of their
        pages where the others have theirs: readers want it of all columns, or of none.
        """
        group = self.groups[number]
        with damage_named(self._path):
            kept = list(self._columns(parquet.chunks_of(group), pages))
        if any(each.offset_index is None for each in kept if each is not None):
            pages = {name: replace(each, column_index=b"", offset_index=None) for name, each in pages.items()}
        names = map(parquet.name_of, parquet.chunks_of(group))
        columns = (pages[name] if each is None else each for name, each in zip(names, kept, strict=True))
        return RowGroup(self.rows[number], group, tuple(columns))

    def _columns(self, chunks: Sequence[Struct], others: Container[str]) -> Iterator[ColumnPages | None]:
        """None of columns that are among the `others`."""
        kept = [chunk for chunk in chunks if parquet.name_of(chunk) not in others]
        pages = self._pages(kept)
        for chunk in chunks:
            data = pages.get(id(chunk))
            if data is None:
                yield None
                continue
            if not isinstance(self._source, FileInMemory):
                parquet.check_pages(chunk, data, self._path)
            bounds = self._index(chunk, parquet.COLUMN_INDEX, parquet.COLUMN_INDEX_BYTES)
            places = self._index(chunk, parquet.OFFSET_INDEX, parquet.OFFSET_INDEX_BYTES)
            yield ColumnPages(
                chunk, data, bounds, parse_struct(places)[0] if places else None, self._bloom_filter(chunk)
            )

    def _pages(self, chunks: Sequence[Struct]) -> dict[int, memoryview]:
        """The bytes of column chunks by the identity of these, with one request for those that lie close together."""
        found: dict[int, memoryview] = {}
        near: list[tuple[int, int, Struct]] = []
        placed = sorted((parquet.chunk_start(chunk), at) for at, chunk in enumerate(chunks))
        for start, at in [*placed, (sys.maxsize, -1)]:
            if near and start - near[-1][1] > _READ_ALONG_BYTES:
                low = near[0][0]
                together = memoryview(self._bytes(low, near[-1][1] - low))
                found |= {id(chunk): together[first - low : end - low] for first, end, chunk in near}
                near = []
            if at >= 0:
                near.append((start, start + parquet.chunk_bytes(chunks[at]), chunks[at]))
        return found

    def _index(self, chunk: Struct, at: int, size: int) -> Buffer:
        """Of pages, whose place and size are in these fields; nothing where there is none."""
        offset, length = value_of(chunk, at), value_of(chunk, size)
        return self._bytes(offset, length) if offset and length else b""

    def _bloom_filter(self, chunk: Struct) -> Buffer:
        meta = parquet.meta_data(chunk)
        offset, length = value_of(meta, parquet.BLOOM_FILTER), value_of(meta, parquet.BLOOM_FILTER_BYTES)
        if not offset:
            return b""
        if not length:  # older writers don't state it
            header, size = parse_struct(self._bytes(offset, min(_FILTER_HEADER_BYTES, self._size - offset)))
            length = size + required(header, parquet.FILTER_BYTES, I32)
        return self._bytes(offset, length)

    def _bytes(self, start: int, length: int) -> Buffer:
        if start < 0 or length < 0 or start + length > self._size:
            raise self._wrong(f"bytes {start} to {start + length}", f"a file of {self._size} bytes")
        data: Buffer = self._source.read_at(length, start)
        return data

    def _expect(self, found: object, expected: object, what: str) -> None:
        if found != expected:
            raise self._wrong(f"{what}: {found}", expected)

    def _wrong(self, found: str, expected: object) -> CorruptFileError:
        problem = f"its footer contradicts itself: found {found}, expected {expected}"
        return CorruptFileError.of_file(self._path, problem, found=found, expected=expected)


def without_level_sizes(footer: Struct) -> bytes:
    """A footer that Arrow can look at the columns of, if it does not contradict itself otherwise."""
    groups = [
        parquet.group_with(
            group, [parquet.without(chunk, parquet.SIZE_STATISTICS) for chunk in parquet.chunks_of(group)]
        )
        for group in parquet.groups_of(footer)
    ]
    return parquet.footer_bytes(parquet.with_groups(footer, groups))


def share_of_columns(storage: Storage, path: str, columns: Container[str]) -> float:
    """The part of a base file's bytes that columns (in lower case) take up; 1 where its footer does not show it."""
    if BaseFormat.of(path) is BaseFormat.ORC:
        return 1.0
    with storage.open_input(path) as source:
        # CorruptFileError for a footer that lacks what every one has
        footer, _, tail = opened_footer(source, path, keys_of(storage))
        if footer.encrypted is not None:
            return 1.0
        sizes = list(RowGroups(source, path, tail).column_bytes())
    return share(sizes, lambda name: name.lower() in columns)


def share(sizes: Sequence[tuple[str, int]], is_wanted: Callable[[str], bool]) -> float:
    """The part of the bytes of columns that is in those wanted, by the names of whole ones; 1 where there are none."""
    whole = sum(size for _, size in sizes)
    wanted = sum(size for name, size in sizes if is_wanted(name.partition(".")[0]))
    return wanted / whole if whole else 1.0


def moved_index(index: Struct, by: int) -> bytes:
    """An offset index for pages that are so many bytes later in their new file."""
    kind, locations = required(index, parquet.PAGE_LOCATIONS, LIST)
    offsets = [required(location, parquet.PAGE_OFFSET, I64) for location in locations]
    moved = [
        location | {parquet.PAGE_OFFSET: (I64, offset + by)}
        for location, offset in zip(locations, offsets, strict=True)
    ]
    return struct_bytes(index | {parquet.PAGE_LOCATIONS: (LIST, (kind, moved))})
