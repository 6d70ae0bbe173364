"""The bytes of an HFile in one place: block headers, trailer fields, key frames, the three kinds of integers."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import numpy as np

from skep_format.protobuf import Cut, read_varint

DATA_BLOCK: Final = b"DATABLK*"
ROOT_INDEX: Final = b"IDXROOT2"
LEAF_INDEX: Final = b"IDXLEAF2"
MIDDLE_INDEX: Final = b"IDXINTE2"
FILE_INFO: Final = b"FILEINF2"
TRAILER: Final = b'TRABLK"$'

# magic, on-disk size without header, uncompressed size, previous block's offset, checksum type, bytes per checksum,
# on-disk data size with header
BLOCK_HEADER: Final = struct.Struct(">8siiqBii")
INDEX_ENTRY: Final = struct.Struct(">qi")  # offset, on-disk size; the key follows
KEY_VALUE: Final = struct.Struct(">ii")  # key length, value length
ROW_LENGTH: Final = struct.Struct(">H")
# The head of each entry in a data block; the row follows.
ENTRY_HEAD: Final = np.dtype([("key_length", ">i4"), ("value_length", ">i4"), ("row_length", ">u2")])
# What HBase has behind the row of a key: no family, the latest timestamp, type Put.
KEY_TAIL: Final = b"\x00" + b"\x7f" + b"\xff" * 7 + b"\x04"
MVCC: Final = b"\x00"  # the version behind each value, a Hadoop vlong

TRAILER_BYTES: Final = 4096
BYTES_PER_CHECKSUM: Final = 16384
PROTOBUF_MAGIC: Final = b"PBUF"


class Checksum(IntEnum):
    """How the blocks of a file are guarded."""

    NULL = 0
    CRC32 = 1
    CRC32C = 2


class Codec(IntEnum):
    """How block payloads are compressed."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


class TrailerField(IntEnum):
    """Protobuf field numbers of the trailer that are read or written here."""

    FILE_INFO_OFFSET = 1
    LOAD_ON_OPEN_OFFSET = 2
    INDEX_UNCOMPRESSED_BYTES = 3
    TOTAL_UNCOMPRESSED_BYTES = 4
    DATA_INDEX_COUNT = 5
    META_INDEX_COUNT = 6
    ENTRY_COUNT = 7
    INDEX_LEVELS = 8
    FIRST_DATA_BLOCK = 9
    LAST_DATA_BLOCK = 10
    COMPARATOR = 11
    COMPRESSION = 12


def read_vlong(data: bytes, at: int) -> tuple[int, int]:
    """A Hadoop vlong that is not negative: (value, position behind it)."""
    if at >= len(data):
        raise Cut(at, "a number is cut")
    first = data[at]
    if first <= 0x7F:
        return first, at + 1
    count = 0x90 - first  # bytes that follow; first = -112 - count as a signed byte
    if not 1 <= count <= 8 or at + 1 + count > len(data):
        raise Cut(at, "an impossible length")
    return int.from_bytes(data[at + 1 : at + 1 + count], "big"), at + 1 + count


def format_vlong(value: int) -> bytes:
    """A Hadoop vlong of a number ≥ 0."""
    if value <= 0x7F:
        return bytes([value])
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(body)]) + body


def index_key(data: bytes, at: int) -> tuple[bytes, int]:
    """The row of an index entry's key at `at`: (row, position behind the key).

    The key's length is a Hadoop vlong in files that HBase wrote and a protobuf varint in Hudi 1.1's own; where the two
    readings differ, the row length at the start of each key decides.
    """
    for read in (read_vlong, read_varint):
        try:
            length, start = read(data, at)
        except Cut:
            continue
        end = start + length
        if length < ROW_LENGTH.size or end > len(data):
            continue
        row_end = start + ROW_LENGTH.size + ROW_LENGTH.unpack_from(data, start)[0]
        if row_end in (end, end - len(KEY_TAIL)):
            return data[start + ROW_LENGTH.size : row_end], end
    raise Cut(at, "an index key of impossible length")
