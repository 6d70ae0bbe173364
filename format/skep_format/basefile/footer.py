"""The footer of a base file: how many rows, which schema, which keys may be in it; read by ranged reads."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.basefile import keys
from skep_format.basefile.encryption import Encrypted, ParquetKeys, encryption_of, keys_of, without_keys
from skep_format.basefile.key_filter import without_filter
from skep_format.basefile.orc_file import without_avro
from skep_format.basefile.parquet_metadata import ENCRYPTED_MAGIC, MAGIC, footer_size
from skep_format.bloom import BloomFilter, StoredBloom
from skep_format.errors import CorruptFileError, EncryptedFileError, SchemaError, SkepError
from skep_format.names import BaseFormat
from skep_format.schema.arrow import from_arrow
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_format.storage import Storage
from skep_format.storage.ranged import TAIL_BYTES


@dataclass(frozen=True, eq=False)
class BaseFileFooter:
    """The footer of a base file. The bloom filter and the schemas are decoded on first access.

    `entries` are without the filter, whose text is `key_filter`. `encrypted`: of an encrypted file, for its readers;
    None of others.
    """

    path: str
    num_rows: int
    arrow_schema: pa.Schema
    entries: Mapping[str, str]
    key_filter: bytes | None = None
    encrypted: Encrypted | None = None

    @property
    def min_key(self) -> str | None:
        """The smallest record key (`hoodie_min_record_key`); None where the footer has none."""
        return self.entries.get(keys.MIN_RECORD_KEY)

    @property
    def max_key(self) -> str | None:
        """The greatest record key (`hoodie_max_record_key`); None where the footer has none."""
        return self.entries.get(keys.MAX_RECORD_KEY)

    @cached_property
    def bloom(self) -> BloomFilter | None:
        """The filter over the file's record keys, None where it has none. CorruptFileError when it can't be decoded."""
        stored = self.stored_bloom
        return None if stored is None else stored.parsed()

    @property
    def stored_bloom(self) -> StoredBloom | None:
        """The same, as it is there."""
        text = self.key_filter
        return StoredBloom(text, self.entries.get(keys.BLOOM_TYPE), self.path) if text else None

    @cached_property
    def schema(self) -> Schema:
        """With meta columns where the file has them: from the Avro schema, else from the file's own types.

        SchemaError names the file.
        """
        text = self.entries.get(keys.AVRO_SCHEMA) or self.entries.get(keys.ORC_AVRO_SCHEMA)
        try:
            return parse_avro(text) if text else from_arrow(self.arrow_schema)
        except SchemaError as error:
            column = error.fields.get("column")
            raise SchemaError.of_file(self.path, error.message, column=column) from error


def read_footer(storage: Storage, path: str) -> BaseFileFooter:
    """Reads a footer only, by the file's ending. CorruptFileError names the file when there is none to be read,
    EncryptedFileError where its key is missing.
    """
    if BaseFormat.of(path) is BaseFormat.ORC:
        with damage_named(path), storage.open_input(path) as source:
            return _orc_footer(source, path)
    return _parquet_footer(lambda length: storage.read_suffix(path, length), path, keys_of(storage))[0]


def opened_footer(
    source: pa.NativeFile, path: str, own: ParquetKeys | None
) -> tuple[BaseFileFooter, pq.FileMetaData | None, bytes | None]:
    """The footer of an opened base file, the Parquet metadata it was made of, and the bytes of these, both without the
    filter. Errors as `read_footer`.
    """
    if BaseFormat.of(path) is BaseFormat.ORC:
        return _orc_footer(source, path), None, None
    return _parquet_footer(partial(read_end, source), path, own)


def read_end(source: pa.NativeFile, length: int) -> bytes:
    """At most so many bytes from the end of an opened file."""
    size = source.size()
    data: bytes = source.read_at(min(length, size), max(0, size - length))
    return data


def _parquet_footer(
    suffix: Callable[[int], bytes], path: str, own: ParquetKeys | None
) -> tuple[BaseFileFooter, pq.FileMetaData, bytes]:
    tail = parquet_tail(suffix, path)
    if own is None and tail.endswith(ENCRYPTED_MAGIC):
        raise without_keys(path)
    left, text = without_filter(tail) if own is None else (tail, None)
    if text is not None:
        with suppress(CorruptFileError):  # what was left out was part of something else, or the footer is damaged
            found = _parsed_footer(left, path, own)
            if found[0].key_filter == b"":
                return replace(found[0], key_filter=text), *found[1:]
    return _parsed_footer(tail, path, own)


def _parsed_footer(tail: bytes, path: str, own: ParquetKeys | None) -> tuple[BaseFileFooter, pq.FileMetaData, bytes]:
    properties = None if own is None else own.reading()
    with damage_named(path), pq.ParquetFile(pa.BufferReader(tail), decryption_properties=properties) as file:
        metadata = file.metadata
        encrypted = encryption_of(lambda length: tail[-length:], metadata, own, path)
        # Not `metadata.schema`: the two would refer to each other, and stay until a garbage collection.
        schema, entries = file.schema_arrow.remove_metadata(), _texts(metadata.metadata)
        text = _key_filter(entries)
        return BaseFileFooter(path, metadata.num_rows, schema, entries, text, encrypted), metadata, tail


def _key_filter(entries: dict[str, str]) -> bytes | None:
    """Takes the text of the filter out; None where there is none."""
    found = [entries.pop(key) for key in (keys.BLOOM_FILTER, keys.OLD_BLOOM_FILTER) if key in entries]
    return None if not found else (found[0] or found[-1]).encode()


def parquet_tail(suffix: Callable[[int], bytes], path: str) -> bytes:
    """The end of the file, which is its footer. CorruptFileError when the file is cut or is no Parquet."""
    tail = suffix(TAIL_BYTES)
    if len(tail) < 12 or tail[-4:] not in (MAGIC, ENCRYPTED_MAGIC):
        problem = "no Parquet footer at the end"
        raise CorruptFileError.of_file(path, problem, found=tail[-4:].hex(), expected=MAGIC.hex())
    needed = footer_size(tail)
    if needed > len(tail):
        tail = suffix(needed)
        if needed > len(tail):
            problem = f"a footer of {needed} bytes in a file of {len(tail)}"
            raise CorruptFileError.of_file(path, problem, found=needed, expected=len(tail))
    return tail[-needed:]  # what is in front of it would be held with it


def _orc_footer(source: pa.NativeFile, path: str) -> BaseFileFooter:
    from pyarrow import orc

    with damage_named(path):
        file = orc.ORCFile(source)
        entries, schema = _texts(file.metadata), file.schema.remove_metadata()
        schema = schema if keys.ORC_AVRO_SCHEMA in entries else without_avro(schema)
        return BaseFileFooter(path, file.nrows, schema, entries, _key_filter(entries))


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Arrow's errors about unreadable bytes, raised as CorruptFileError that names the file, and those about keys as
    EncryptedFileError.
    """
    try:
        yield
    except EncryptedFileError as error:
        if "path" in error.fields:
            raise
        raise EncryptedFileError(
            f"{path}: {error.message}", hint=error.hint, **{"path": path, **error.fields}
        ) from error
    except (SkepError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, ValueError, zlib.error) as error:  # ValueError: names that are no UTF-8
        if "no decryption found" in str(error):
            raise without_keys(path) from error
        if "decrypt" in str(error).lower():
            problem = f"can't be decrypted, its keys are wrong or the file is damaged: {error}"
            raise EncryptedFileError.of_file(path, problem) from error
        raise CorruptFileError.of_file(path, f"can't be read as a base file: {error}") from error


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in (metadata or {}).items()}
