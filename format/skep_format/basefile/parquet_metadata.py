"""The structs of a Parquet footer by `parquet.thrift`: field numbers, and how a row group is moved to another file.

A row group is moved by changing the offsets in its struct; every field that is not named here stays as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack, unpack
from typing import Final

from skep_format.basefile.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Buffer,
    Struct,
    parse_struct,
    required,
    struct_bytes,
    value_of,
)  # fmt: skip
from skep_format.errors import CorruptFileError

MAGIC: Final = b"PAR1"
ENCRYPTED_MAGIC: Final = b"PARE"
"""Of files whose footer is encrypted."""
# FileMetaData
SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = 2, 3, 4, 5, 6, 7
ENCRYPTION, KEY_OF_SIGNED_FOOTER = 8, 9
"""The algorithm and the metadata of the key, in signed footers of files with encrypted columns."""
KEY_OF_ENCRYPTED_FOOTER: Final = 2
"""Of FileCryptoMetaData, in front of an encrypted footer."""
_FILE_FIELDS: Final = {1: I32, 2: LIST, 3: I64, 4: LIST, 5: LIST, 6: BINARY, 7: LIST}
# RowGroup
COLUMNS, TOTAL_BYTES, GROUP_ROWS, FILE_OFFSET, COMPRESSED_BYTES, ORDINAL = 1, 2, 3, 5, 6, 7
_GROUP_FIELDS: Final = {1: LIST, 2: I64, 3: I64, 4: LIST, 5: I64, 6: I64, 7: I16}
# ColumnChunk; 1 is a file of its own, 8 and 9 are of encrypted columns.
CHUNK_OFFSET, META_DATA = 2, 3
OFFSET_INDEX, OFFSET_INDEX_BYTES, COLUMN_INDEX, COLUMN_INDEX_BYTES = 4, 5, 6, 7
CRYPTO: Final = 8
"""ColumnCryptoMetaData, with the members of the kind for keys of columns."""
WITH_COLUMN_KEY, CRYPTO_PATH, KEY_METADATA = 2, 1, 2
_CHUNK_FIELDS: Final = {2: I64, 3: STRUCT, 4: I64, 5: I32, 6: I64, 7: I32}
# ColumnMetaData
PHYSICAL_TYPE, PATH, CODEC, NUM_VALUES, UNCOMPRESSED, COMPRESSED = 1, 3, 4, 5, 6, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, STATISTICS, BLOOM_FILTER, BLOOM_FILTER_BYTES = 9, 10, 11, 12, 14, 15
SIZE_STATISTICS = 16
_META_DATA_FIELDS: Final = {
    1: I32, 2: LIST, 3: LIST, 4: I32, 5: I64, 6: I64, 7: I64, 8: LIST, 9: I64,
    10: I64, 11: I64, 12: STRUCT, 13: LIST, 14: I64, 15: I32, 16: STRUCT, 17: STRUCT,
}  # fmt: skip
# Statistics
NULL_COUNT, MAX_VALUE, MIN_VALUE, _MAX_IS_EXACT, _MIN_IS_EXACT = 3, 5, 6, 7, 8
# Longer bounds are left out, as Arrow does.
_LONGEST_BOUND: Final = 4096
_BYTE_ARRAY: Final = 6
LENGTH_BYTES: Final = 4
"""What plain text has in front of each value. Text of which a value takes less has a dictionary."""
# SchemaElement
_ELEMENT_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = (
    1, 2, 3, 4, 5, 6, 7, 8, 10,
)  # fmt: skip
_REPEATED: Final = 2
# PageHeader, the headers of the kinds of pages in it, and OffsetIndex
_PAGE_TYPE, _PAGE_BYTES, _VALUES_OF_PAGE = 1, 3, 1
_HEADER_OF: Final = {0: 5, 3: 8}  # pages of values, of both versions
_DICTIONARY_TYPE: Final = 2
PAGE_LOCATIONS: Final = 1
# PageLocation
PAGE_OFFSET: Final = 1
# BloomFilterHeader
FILTER_BYTES: Final = 1
_LARGEST_ORDINAL: Final = 2**15 - 1


def chunks_of(group: Struct) -> list[Struct]:
    """The column chunks of a row group."""
    chunks: list[Struct] = value_of(group, COLUMNS)[1]
    return chunks


def groups_of(footer: Struct) -> list[Struct]:
    """The row groups of a file."""
    groups: list[Struct] = value_of(footer, ROW_GROUPS)[1]
    return groups


def meta_data(chunk: Struct) -> Struct:
    """What a column chunk states of its pages."""
    found: Struct = value_of(chunk, META_DATA)
    return found


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a Parquet file that has chunks: its path and physical type, and whether it may have other than one
    value for a row.
    """

    path: tuple[bytes, ...]
    physical_type: int
    repeated: bool


def leaves_of(footer: Struct) -> list[Leaf]:
    """The columns that have chunks, in the order of these. ValueError where a group has more members than there are."""
    elements = iter(value_of(footer, SCHEMA)[1])
    found: list[Leaf] = []

    def walk(path: tuple[bytes, ...], repeated: bool) -> None:
        element = next(elements, None)
        if element is None:
            raise ValueError("its schema ends within a group of columns")
        path = (*path, value_of(element, _NAME))
        repeated = repeated or value_of(element, _REPETITION) == _REPEATED
        children = members(element)
        if children is None:
            found.append(Leaf(path, value_of(element, _ELEMENT_TYPE), repeated))
        for _ in range(children or 0):
            walk(path, repeated)

    def members(element: Struct) -> int | None:
        return None if _CHILDREN not in element else required(element, _CHILDREN, I32)

    for _ in range(members(next(elements, {})) or 0):
        walk((), False)
    return found


def same_columns(one: Struct, other: Struct) -> bool:
    """Whether the pages of one file mean the same in the other: equal columns, in the same order.

    The name of the root, and the ids of columns, which writers give as they like, mean nothing.
    """
    return [_shape(element) for element in value_of(one, SCHEMA)[1][1:]] == [
        _shape(element) for element in value_of(other, SCHEMA)[1][1:]
    ]


def _shape(element: Struct) -> tuple[object, ...]:
    fields = (_ELEMENT_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL)
    return tuple(value_of(element, field) for field in fields)


def is_known(footer: Struct) -> bool:
    """Whether a footer has nothing that this module does not know, and that may hold an offset or a key."""
    return (
        _has_only(footer, _FILE_FIELDS)
        and _are_structs(footer, SCHEMA)
        and _are_structs(footer, ROW_GROUPS)
        and all(_has_only(group, _GROUP_FIELDS) and _are_structs(group, COLUMNS) for group in groups_of(footer))
        and all(
            _has_only(chunk, _CHUNK_FIELDS) and META_DATA in chunk and _has_only(meta_data(chunk), _META_DATA_FIELDS)
            for group in groups_of(footer)
            for chunk in chunks_of(group)
        )
    )


def _has_only(struct: Struct, known: Mapping[int, int]) -> bool:
    """A field of another type than it should have is one that readers skip."""
    return all(known.get(field) == kind for field, (kind, _) in struct.items())


def _are_structs(struct: Struct, field: int) -> bool:
    of, values = value_of(struct, field)
    return of == STRUCT or not values


def footer_size(tail: Buffer) -> int:
    """How many bytes of the end of a file are its footer, by the last eight, which are among them."""
    size: int = unpack("<I", tail[-8:-4])[0]
    return size + 8


def ending(size: int) -> bytes:
    """What comes after the struct of a footer, which has so many bytes."""
    return pack("<I", size) + MAGIC


def footer_of(tail: Buffer) -> tuple[Struct, int]:
    """The footer of a whole file, or of its end, and how many bytes of the end are its."""
    size = footer_size(tail)
    return parse_struct(tail[-size:-8])[0], size


def footer_bytes(footer: Struct) -> bytes:
    """What a file ends with."""
    data = struct_bytes(footer)
    return data + ending(len(data))


def with_groups(footer: Struct, groups: Sequence[Struct]) -> Struct:
    """The footer of a file with these row groups."""
    numbered = [_numbered(group, number) for number, group in enumerate(groups)]
    rows = sum(value_of(group, GROUP_ROWS) for group in groups)
    return footer | {NUM_ROWS: (I64, rows), ROW_GROUPS: (LIST, (STRUCT, numbered))}


def _numbered(group: Struct, number: int) -> Struct:
    if number <= _LARGEST_ORDINAL:
        return group | {ORDINAL: (I16, number)}
    return {field: found for field, found in group.items() if field != ORDINAL}


def group_with(group: Struct, chunks: Sequence[Struct]) -> Struct:
    """A row group with other chunks, and the totals and the offset of these."""
    metas = [meta_data(chunk) for chunk in chunks]
    return group | {
        COLUMNS: (LIST, (STRUCT, list(chunks))),
        TOTAL_BYTES: (I64, sum(value_of(meta, UNCOMPRESSED) for meta in metas)),
        FILE_OFFSET: (I64, min(map(chunk_start, chunks))),
        COMPRESSED_BYTES: (I64, sum(value_of(meta, COMPRESSED) for meta in metas)),
    }


def chunk_start(chunk: Struct) -> int:
    """Where the pages of a column chunk begin."""
    meta = meta_data(chunk)
    data, dictionary = value_of(meta, DATA_PAGE), value_of(meta, DICTIONARY_PAGE)
    return int(dictionary if dictionary and dictionary < data else data)


def chunk_bytes(chunk: Struct) -> int:
    """How many bytes the pages of a column chunk take."""
    return int(value_of(meta_data(chunk), COMPRESSED))


def moved_chunk(chunk: Struct, by: int, apart: int | None = None) -> Struct:
    """A column chunk whose pages are `by` bytes later in its new file.

    Its indexes and its filter, which are not beside the pages, are `apart` bytes later; left out where that is None.
    """
    moved, meta = dict(chunk), dict(meta_data(chunk))
    for field in (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE):
        _move(meta, field, by)
    for struct, fields in ((moved, (COLUMN_INDEX, COLUMN_INDEX_BYTES)), (moved, (OFFSET_INDEX, OFFSET_INDEX_BYTES)),
                           (meta, (BLOOM_FILTER, BLOOM_FILTER_BYTES))):  # fmt: skip
        if apart is None:
            for field in fields:
                struct.pop(field, None)
        else:
            _move(struct, fields[0], apart)
    # Writers of old repeat the metadata of a chunk at this offset; in those of today nothing is there.
    moved |= {CHUNK_OFFSET: (I64, 0), META_DATA: (STRUCT, meta)}
    return moved


def _move(struct: Struct, field: int, by: int) -> None:
    kind, offset = struct.get(field, (I64, 0))
    if offset:
        struct[field] = kind, offset + by


def has_dictionary(chunk: Struct) -> bool:
    """Whether a column chunk begins with a page of the values that its others name by number."""
    return bool(value_of(meta_data(chunk), DICTIONARY_PAGE))


def is_encoded_text(chunk: Struct) -> bool:
    """Whether a column chunk holds text in a dictionary that makes it shorter."""
    meta = meta_data(chunk)
    return bool(
        value_of(meta, PHYSICAL_TYPE) == _BYTE_ARRAY
        and has_dictionary(chunk)
        and value_of(meta, UNCOMPRESSED) < LENGTH_BYTES * value_of(meta, NUM_VALUES)
    )


def without(chunk: Struct, stated: int) -> Struct:
    """A column chunk without a field of what it states of its pages."""
    meta = {field: found for field, found in meta_data(chunk).items() if field != stated}
    return chunk | {META_DATA: (STRUCT, meta)}


def text_statistics(nulls: int, bounds: tuple[bytes, bytes] | None) -> Struct:
    """The statistics of a column of text with these bounds, the lower one first; None where all values are null."""
    found: Struct = {NULL_COUNT: (I64, nulls)}
    fields = (MIN_VALUE, _MIN_IS_EXACT), (MAX_VALUE, _MAX_IS_EXACT)
    for (bound, is_exact), value in zip(fields, bounds or (), strict=False):
        if len(value) <= _LONGEST_BOUND:
            found |= {bound: (BINARY, value), is_exact: (TRUE, True)}
    return found


def leave_out_bounds(meta: Struct) -> None:
    """Of the statistics of a column chunk only the number of nulls stays."""
    known = value_of(meta, STATISTICS) or {}
    meta[STATISTICS] = STRUCT, {field: found for field, found in known.items() if field == NULL_COUNT}


def check_pages(chunk: Struct, pages: bytes | memoryview, path: str) -> None:
    """CorruptFileError where the pages of a column chunk are not those that its struct states."""
    meta = meta_data(chunk)
    at = values = 0
    first_data: int | None = None
    has_dictionary = False
    while at < len(pages):
        header, start = parse_struct(pages, at)
        kind, size = required(header, _PAGE_TYPE, I32), required(header, _PAGE_BYTES, I32)
        if kind == _DICTIONARY_TYPE:
            has_dictionary = True
        elif kind in _HEADER_OF:
            first_data = at if first_data is None else first_data
            values += required(required(header, _HEADER_OF[kind], STRUCT), _VALUES_OF_PAGE, I32)
        if size < 0:
            raise _contradiction(chunk, path, f"a page of {size} bytes", "a size")
        at = start + size
    if at != len(pages):
        raise _contradiction(chunk, path, f"pages of {at} bytes", f"{len(pages)} bytes")
    if values != value_of(meta, NUM_VALUES):
        raise _contradiction(chunk, path, f"pages of {values} values", f"{value_of(meta, NUM_VALUES)} values")
    offset = value_of(meta, DATA_PAGE) - chunk_start(chunk)
    if values and (first_data != offset or (offset > 0) != has_dictionary):
        raise _contradiction(chunk, path, f"the first page of values at byte {first_data}", f"at byte {offset}")


def name_of(chunk: Struct) -> str:
    """The dotted name of the column of a chunk."""
    return ".".join(part.decode("utf-8", "replace") for part in value_of(meta_data(chunk), PATH)[1])


def _contradiction(chunk: Struct, path: str, found: str, expected: str) -> CorruptFileError:
    problem = f"column {name_of(chunk)}: found {found}, its footer states {expected}"
    return CorruptFileError.of_file(path, problem, column=name_of(chunk), found=found, expected=expected)
