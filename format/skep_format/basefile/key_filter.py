"""The Bloom filter of record keys in the bytes of a Parquet footer: taken out, and put in.

It is most of a footer, hundreds of kilobytes of text, and each step of reading or writing the other entries copies it.
An empty text stays in its place.
"""

from __future__ import annotations

from typing import Final

from skep_format.basefile import keys
from skep_format.basefile.parquet_metadata import ending, footer_size
from skep_format.protobuf import Cut, format_varint, read_varint

# A KeyValue of parquet.thrift up to the length of its value: a key and a value, both bytes in the compact protocol.
_ENTRY: Final = b"\x18" + bytes([len(keys.BLOOM_FILTER)]) + keys.BLOOM_FILTER.encode() + b"\x18"


def without_filter(tail: bytes) -> tuple[bytes, bytes | None]:
    """The footer at the end of a file with an empty text for the filter, and the text; as it is, and None, where there
    is none, or the bytes are damaged.

    Those who read the footer see whether the text was that of the entry, and not part of something else: it is empty.
    """
    start = len(tail) - footer_size(tail)
    at = tail.rfind(_ENTRY, max(0, start)) + len(_ENTRY)
    if start < 0 or at < len(_ENTRY):
        return tail, None
    try:
        size, begin = read_varint(tail, at)
    except Cut:
        return tail, None
    end = begin + size
    if not size or end > len(tail) - 8:
        return tail, None
    view = memoryview(tail)
    left = b"".join((view[start:at], b"\0", view[end:-8]))
    return left + ending(len(left)), bytes(view[begin:end])


def with_filter(tail: bytes, text: bytes) -> list[bytes]:
    """The end of a file, piece by piece: with a footer that has an empty text for the filter, with this one."""
    at = tail.rindex(_ENTRY) + len(_ENTRY)
    if tail[at]:
        raise ValueError("the footer has a filter")
    size = format_varint(len(text))
    before, after = tail[:at] + size, tail[at + 1 : -8]
    start = len(tail) - footer_size(tail)
    return [before, text, after + ending(len(before) + len(text) + len(after) - start)]
