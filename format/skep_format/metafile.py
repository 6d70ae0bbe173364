"""The metafile that makes a folder a partition (format guide 1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from skep_format.errors import AlreadyExistsError, FormatError, KeyFieldError
from skep_format.instant_time import InstantTime
from skep_format.names import PARTITION_METAFILE, join
from skep_format.properties import format_properties, parse_properties
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import Storage

PARQUET_METAFILE: Final = f"{PARTITION_METAFILE}.parquet"
ORC_METAFILE: Final = f"{PARTITION_METAFILE}.orc"
METAFILES: Final = frozenset({PARTITION_METAFILE, PARQUET_METAFILE, ORC_METAFILE})


def ensure_partition(
    storage: Storage, partition_path: str, instant_time: InstantTime, name: str = PARTITION_METAFILE
) -> None:
    """Writes the partition metafile with the first data file of a partition; an existing one is never touched.

    `name` is that of the table's metafiles, see `TableConfig.metafile`. KeyFieldError where another partition is above
    or below this one, which then has no metafile: listings end at the outer one.
    """
    path = join(partition_path, name)
    if storage.exists(path):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    facts = {"commitTime": instant_time, "partitionDepth": str(depth)}
    try:
        storage.create_exclusive(path, metafile_content(facts, name), durable=False)
    except AlreadyExistsError:
        return  # another task was first
    # Behind the metafile: of two writers at the same time, one at least finds that of the other.
    above = (path for path in folders_above(partition_path) if storage.exists(join(path, name)))
    # The table's own folder holds the one partition of tables without partition columns, and Hudi's.
    other = next(above, None) or (partition_below(storage, partition_path) if partition_path else None)
    if other is not None:
        storage.delete(path)
        raise KeyFieldError(
            f"partition {partition_path!r} and partition {other!r} can't be in one table: one lies in the folder of the"
            " other, where readers without a metadata table do not find it",
            hint="make the table with hoodie.datasource.write.partitionpath.urlencode=true, or use other values",
            path=partition_path,
            found=other,
        )


def metafile_content(facts: Mapping[str, str], name: str) -> bytes:
    """A metafile with these facts: properties, or a Parquet or ORC file without rows whose footer has them."""
    if name == PARTITION_METAFILE:
        return format_properties(facts, ["partition metadata"])
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name == ORC_METAFILE:
        from skep_format.basefile.options import BaseFileOptions
        from skep_format.basefile.orc_output import orc_bytes

        schema = pa.schema([(RECORD_KEY, pa.string())])  # Hudi's
        return orc_bytes(schema, schema.empty_table(), BaseFileOptions(), facts)
    sink = pa.BufferOutputStream()
    # Readers take the footer alone; the column is Hudi's, as a Parquet file needs one.
    with pq.ParquetWriter(sink, pa.schema([("dummyint", pa.int64())]), store_schema=False) as writer:
        writer.add_key_value_metadata(dict(facts))
    return bytes(sink.getvalue())


def read_metafile(storage: Storage, partition_path: str) -> dict[str, str] | None:
    """What the metafile of a partition states, in whichever form it is; None where there is none."""
    try:
        return parse_properties(storage.read(join(partition_path, PARTITION_METAFILE)))
    except FileNotFoundError:
        names = {file.name for file in storage.list_prefix(partition_path)} & METAFILES
    if not names:
        return None
    from skep_format.basefile.footer import read_footer

    return dict(read_footer(storage, join(partition_path, min(names))).entries)


def partition_below(storage: Storage, folder: str) -> str | None:
    """A partition in a folder below that of another; None where there is none."""
    if not storage.list_folder(folder).folders:
        return None
    files = storage.list_prefix(folder, recursive=True)
    found = (file.path.rpartition("/")[0] for file in files if file.name in METAFILES)
    return next((path for path in found if path != folder), None)


def hidden(outer: str, inner: str) -> FormatError:
    """The error for a table with a partition in the folder of another."""
    return FormatError(
        f"partition {inner!r} lies in the folder of partition {outer!r}: Hudi lists the outer one only, which hides the"
        " rows of the inner one",
        hint="read the table with its metadata table, and write the rows of one of the two to another partition",
        path=inner,
        found=outer,
    )


def folders_above(partition_path: str) -> Iterator[str]:
    """The folders in which a partition lies, below that of the table."""
    parts = partition_path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))
