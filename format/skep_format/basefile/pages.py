"""Whether every page of a base file can be decoded: checksums where pages have them, and what the footer states."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile.encryption import keys_of
from skep_format.basefile.footer import damage_named, opened_footer
from skep_format.basefile.orc_file import OrcRows
from skep_format.basefile.row_groups import RowGroups
from skep_format.errors import CorruptFileError, EncryptedFileError
from skep_format.names import BaseFormat
from skep_format.storage import Storage

_COMPARED = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_date, pa.types.is_decimal)


def damaged_pages(storage: Storage, path: str) -> Iterator[str]:
    """What is wrong with the columns of a file, row group by row group; one column chunk is in memory at a time.

    A page without checksum whose values still decode is found where they contradict the footer's statistics.
    CorruptFileError where the footer can't be read, EncryptedFileError where a key is missing.
    """
    with damage_named(path), storage.open_input(path) as source:
        if BaseFormat.of(path) is BaseFormat.ORC:
            from pyarrow import orc

            yield from OrcRows(orc.ORCFile(source), source, path).damage()
            return
        keys = keys_of(storage)
        footer, _, tail = opened_footer(source, path, keys)
        encrypted = footer.encrypted
        properties = None if keys is None else keys.reading()
        file = pq.ParquetFile(source, page_checksum_verification=True, decryption_properties=properties)
        if encrypted is not None:
            encrypted.check(None, path)
        stated = None if encrypted is not None else RowGroups(source, path, tail).metadata()
        for group in range(file.num_row_groups):
            for name in file.schema_arrow.names:
                problem = _damage(file, group, name, path, stated)
                if problem is not None:
                    yield f"column {name} of row group {group}: {problem}"


def _damage(file: pq.ParquetFile, group: int, name: str, path: str, stated: pq.FileMetaData | None) -> str | None:
    rows = file.metadata.row_group(group).num_rows
    try:
        with damage_named(path):
            column = file.read_row_group(group, columns=[name], use_threads=False).column(0)
            column.validate(full=True)
            if len(column) != rows:
                return f"{len(column):,} values in {rows:,} rows"
            return None if stated is None else _contradiction(stated.row_group(group), name, column)
    except (CorruptFileError, EncryptedFileError) as error:
        return error.message.removeprefix(f"{path}: ")


def _contradiction(group: pq.RowGroupMetaData, name: str, column: pa.ChunkedArray) -> str | None:
    """What the statistics of a plain column state otherwise than its values are."""
    stated = next(
        (
            group.column(at).statistics
            for at in range(group.num_columns)
            if group.column(at).path_in_schema == name and group.column(at).is_stats_set
        ),
        None,
    )
    if stated is None:
        return None
    if stated.has_null_count and stated.null_count != column.null_count:
        return f"{column.null_count:,} nulls, its statistics state {stated.null_count:,}"
    if not stated.has_min_max or not any(is_kind(column.type) for is_kind in _COMPARED):
        return None
    found = pc.min_max(column).as_py()
    low, high = stated.min, stated.max
    if found["min"] is None or type(low) is not type(found["min"]):
        return None
    if found["min"] < low or found["max"] > high:  # bounds may be wider: long texts are cut
        return "values outside of its statistics"
    return None
