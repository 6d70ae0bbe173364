"""Compressed files of text as they were before, by the endings of their names, as those of Hadoop's codecs."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from skep_format.errors import CorruptFileError, UnsupportedError

_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".deflate": zlib.decompress,
    ".zst": lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(),
}
_NOT_BUILT: Final = (".lz4", ".snappy", ".lzo")  # Hadoop's own framing


def plain(name: str, data: bytes) -> bytes:
    """The bytes within a compressed file, and those of another as they are.

    CorruptFileError for one that is damaged or cut short, UnsupportedError for a codec that is not built.
    """
    ending = name[name.rfind(".") :].lower()
    if ending in _NOT_BUILT:
        known = ", ".join(_CODECS)
        raise UnsupportedError.of_file(name, f"{ending} is not built", found=ending, expected=known)
    codec = _CODECS.get(ending)
    if codec is None:
        return data
    try:
        return codec(data)
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
        raise CorruptFileError(f"{name} can't be decompressed: {error}", path=name) from error
