"""The Bloom filter of record keys in the bytes of a Parquet footer: taken out, and put in.

It is most of a footer, hundreds of kilobytes of text, and each step of reading or writing the other entries copies it.
An empty text stays in its place.
"""

from __future__ import annotations

from struct import pack, unpack
from typing import Final

from skep_format.basefile import keys
from skep_format.basefile.parquet_metadata import MAGIC
from skep_format.basefile.thrift import ThriftError, varint
from skep_format.protobuf import put_varint

# A KeyValue of parquet.thrift up to the length of its value: a key and a value, both bytes in the compact protocol.
_ENTRY: Final = b"\x18" + bytes([len(keys.BLOOM_FILTER)]) + keys.BLOOM_FILTER.encode() + b"\x18"


def without_filter(tail: bytes) -> tuple[bytes, bytes | None]:
    """The footer at the end of a file with an empty text for the filter, and the text; as it is, and None, where there
    is none, or the bytes are damaged.

    Those who read the footer see whether the text was that of the entry, and not part of something else: it is empty.
    """
    start = len(tail) - 8 - int(unpack("<I", tail[-8:-4])[0])
    at = tail.rfind(_ENTRY, max(0, start)) + len(_ENTRY)
    if start < 0 or at < len(_ENTRY):
        return tail, None
    try:
        size, begin = varint(tail, at)
    except (IndexError, ThriftError):
        return tail, None
    end = begin + size
    if not size or end > len(tail) - 8:
        return tail, None
    view = memoryview(tail)
    left = b"".join((view[start:at], b"\0", view[end:-8]))
    return left + pack("<I", len(left)) + MAGIC, bytes(view[begin:end])


def with_filter(tail: bytes, text: bytes) -> list[bytes]:
    """The end of a file, piece by piece: with a footer that has an empty text for the filter, with this one."""
    at = tail.rindex(_ENTRY) + len(_ENTRY)
    if tail[at]:
        raise ValueError("the footer has a filter")
    size = bytearray()
    put_varint(size, len(text))
    length = int(unpack("<I", tail[-8:-4])[0]) + len(size) - 1 + len(text)
    return [tail[:at] + bytes(size), text, tail[at + 1 : -8] + pack("<I", length) + MAGIC]
