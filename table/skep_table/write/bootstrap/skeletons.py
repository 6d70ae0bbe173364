"""Skeleton files: Hudi's meta columns for the rows of one source file, which stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import CorruptFileError, KeyFieldError
from skep_format.names import MarkerType
from skep_format.schema.types import PARTITION_PATH, Schema
from skep_format.timeline.metadata import WriteStat
from skep_table.slices.bootstrap_index import Mapped
from skep_table.write.bootstrap.source import SourceData, SourceFile, SourceFolder
from skep_table.write.context import WriteContext
from skep_table.write.keyed import Keyer
from skep_table.write.output.files import BaseFiles
from skep_table.write.planning.profile import Bucket, new_file_id

SKELETON: Final = Schema((), "HoodieRecordKey", "")
"""The data columns of a skeleton: none. Hudi's name of its Avro record."""


@dataclass(frozen=True, slots=True)
class SkeletonTask:
    """One source file, of which a skeleton is to be made."""

    number: int
    folder: SourceFolder
    file: SourceFile


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """How the rows of a source are keyed, and the columns which that takes."""

    keyer: Keyer
    columns: Schema

    def of(self, source: SourceData, folder: SourceFolder, file: SourceFile) -> Iterator[pa.Table]:
        """Rows with key and partition path, in the order of the file. KeyFieldError as `check_partition`."""
        for batch in source.rows_of(folder, file, self.columns):
            keyed = self.keyer.keyed(batch)
            check_partition(source, folder, file, keyed.column(PARTITION_PATH))
            yield keyed


def check_partition(source: SourceData, folder: SourceFolder, file: SourceFile, paths: pa.ChunkedArray) -> None:
    """KeyFieldError where the key generator puts rows into another partition than that of their folder.

    Updates would look for them there.
    """
    others = [path for path in pc.unique(paths).to_pylist() if path != folder.partition_path]
    if others:
        raise KeyFieldError(
            f"{source.storage.uri(file.path)}: its rows would be in partition {folder.partition_path!r}, and the"
            f" table's key generator puts them into {others[0]!r}",
            hint="hive_style names folders column=value, url_encode encodes what is special in them; the option"
            " hoodie.bootstrap.partitionpath.translator.class decodes it",
            path=source.storage.uri(file.path),
            found=others[0],
            expected=folder.partition_path,
        )


def write_skeleton(
    context: WriteContext, source: SourceData, keys: KeyColumns, task: SkeletonTask
) -> tuple[WriteStat, Mapped]:
    """Writes the skeleton of one file. CorruptFileError where that has changed meanwhile, else as `KeyColumns.of`."""
    folder, file = task.folder, task.file
    file_id = new_file_id().rpartition("-")[0]  # Hudi's have no number
    files = BaseFiles(context, Bucket(task.number, folder.partition_path, file_id))
    with files.open(file_id, MarkerType.CREATE) as skeleton:
        for keyed in keys.of(source, folder, file):
            skeleton.insert(files.new(keyed, skeleton.name))
    uri = source.storage.uri(file.path)
    if skeleton.rows != file.rows:
        raise CorruptFileError(
            f"{uri} had {file.rows} rows a moment ago, and now {skeleton.rows}",
            path=uri,
            found=skeleton.rows,
            expected=file.rows,
        )
    stat = files.stat(skeleton, num_inserts=skeleton.rows)
    return stat, Mapped(folder.partition_path, file_id, folder.path, uri, file.size_bytes, file.modified_ms)
