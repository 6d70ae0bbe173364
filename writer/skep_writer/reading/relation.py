"""Spark's own file scan over exactly the files that a read needs, with partition columns of any type and any folder
names.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skep_format.errors import UnsupportedError
from skep_writer.jvm import FILE_SCAN, java_object, planning_call, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ReadWarning(UserWarning):
    """Spark reads a table in a slower way than it could; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What is read of one folder: the names and sizes in bytes of files. `uri` is complete and unescaped.

    `values` are those of its columns, as Python values of their Spark types.
    """

    uri: str
    values: tuple[object, ...]
    files: tuple[tuple[str, int], ...]


def file_frame(
    spark: SparkSession,
    folders: Sequence[Folder],
    data: StructType,
    of_folders: StructType,
    result: Sequence[str],
    options: Mapping[str, str],
    *,
    in_files: bool = False,
    holding: Callable[[Sequence[Any]], bytes] | None = None,
) -> DataFrame:
    """A lazy frame over Parquet files: expressions over the columns of `data` and those of folders, which filters leave
    out by them.

    `in_files`: the folders' columns are among those of the files, in the same types. The frame has the values of
    the files; those of folders only leave out folders.
    `holding` returns, by filters of the columns of `data`, which files can hold such rows: a byte for each, 0 for none.
    `options` are those of Spark's Parquet reader. Storage is not asked: no folder is listed, no file opened. The files
    and values of all folders are passed in one call, pickled: each call of Py4J takes longer than what it starts.
    Raises UnsupportedError with the reason where this Spark can't make the scan.
    """
    from pyspark.sql import DataFrame

    scan = java_object(spark, FILE_SCAN)
    kinds = [field.dataType for field in of_folders.fields]
    rows = [
        (
            folder.uri,
            tuple(kind.toInternal(value) for kind, value in zip(kinds, folder.values, strict=True)),
            list(folder.files),
        )
        for folder in folders
    ]
    try:
        given = (pickle.dumps((rows, list(result))), data.json(), of_folders.json(), dict(options), in_files)
        question = None if holding is None else planning_call(spark, lambda _, filters: holding(filters))
        return DataFrame(scan.of(spark._jsparkSession, *given, question), spark)
    except Exception as error:
        message = f"Spark {spark.version} can't scan given files: {reason_of(error)}"
        raise UnsupportedError(message, found=spark.version) from error


def root_of_session(spark: SparkSession, root: str, file: str, size: int) -> str:
    """The URI, with scheme and authority, by which the session's own file systems reach what lies below `root`.

    They have to find `file` there, of `size` bytes where that is positive. UnsupportedError with the reason.
    """
    if root.startswith("file:"):
        return root
    schemes = (root, "s3a" + root[2:]) if root.startswith("s3:") else (root,)
    reasons = []
    for uri in schemes:
        try:
            path = spark._jvm.org.apache.hadoop.fs.Path(uri)
            system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
            found = system.getFileStatus(spark._jvm.org.apache.hadoop.fs.Path(f"{uri}/{file}")).getLen()
            if size <= 0 or found == size:
                return str(system.makeQualified(path).toString())
            reasons.append(f"{file} has {found} bytes there, not {size}")
        except Exception as error:
            reasons.append(reason_of(error))
    raise UnsupportedError(
        f"the session's file systems don't reach {root}: {'; '.join(reasons)}",
        hint="give the session Hadoop's settings for this storage (spark.hadoop.fs…)",
        path=root,
    )


def unavailable(spark: SparkSession) -> str | None:
    """Why `file_frame` can't work in this session; None where nothing is known."""
    try:
        java_object(spark, FILE_SCAN)
    except UnsupportedError as error:
        return error.message
    return None


def warn_slower(reason: str) -> None:
    """A ReadWarning. Python shows each reason once."""
    warnings.warn(reason, ReadWarning, stacklevel=2)
