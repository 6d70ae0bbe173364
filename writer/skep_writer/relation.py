"""Spark's own file scan over exactly the files that a read needs, with partition columns of any type and any folder
names. The one place that depends on how Spark makes such a scan.

The driver's JVM is called through Py4J, where each call takes longer than the work it starts: what is done for every
file or folder is one call for all of them. Their values are passed pickled, as PySpark passes rows, and Java's method
handles are applied to the whole list.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from skep_table.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Each relation fills a cache of its own and empties it at once: nothing is evicted before Spark has read it.
_CACHE_BYTES: Final = 1 << 40
_WITHOUT_EXPIRY: Final = -1
# Of a file's status, besides path and size: Spark splits files by its own settings, never by these.
_IS_FOLDER, _COPIES, _BLOCK_BYTES, _MODIFIED_MS = False, 1, 128 << 20, 0


class ReadWarning(UserWarning):
    """Spark reads a table in a slower way than it could; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What is read of one folder: the names and sizes in bytes of files. `uri` is complete and unescaped.

    `values` are those of the partition columns, as Python values of their Spark types.
    """

    uri: str
    values: tuple[object, ...]
    files: tuple[tuple[str, int], ...]


def file_frame(
    spark: SparkSession,
    folders: Sequence[Folder],
    data: StructType,
    partition: StructType,
    options: Mapping[str, str],
) -> DataFrame:
    """A lazy frame over Parquet files: the columns of `data`, then those of `partition`, which prune folders.

    `options` are those of Spark's Parquet reader. Storage is not asked: no folder is listed, no file opened.
    Raises UnsupportedError with the reason where this Spark can't make the scan.
    """
    try:
        return _internals(spark).frame(spark, folders, data, partition, options)
    except UnsupportedError:
        raise
    except Exception as error:
        raise _unsupported(spark, reason_of(error)) from error


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
        _internals(spark)
    except UnsupportedError as error:
        return error.message
    return None


def reason_of(error: Exception) -> str:
    """The first line of an error, of Java's where there is one."""
    thrown = getattr(error, "java_exception", None)
    text = str(error if thrown is None else thrown.toString()).strip()
    return text.splitlines()[0] if text else type(error).__name__


def warn_slower(reason: str) -> None:
    """A ReadWarning. Python shows each reason once."""
    warnings.warn(reason, ReadWarning, stacklevel=2)


_tried: Final[WeakKeyDictionary[Any, _Internals | UnsupportedError]] = WeakKeyDictionary()


def _internals(spark: SparkSession) -> _Internals:
    """Those of the session's JVM, looked up once for each Spark application. UnsupportedError where they differ."""
    context = spark.sparkContext
    found = _tried.get(context)
    if found is None:
        try:
            found = _Internals(context)
        except Exception as error:
            found = _unsupported(spark, reason_of(error))
        _tried[context] = found
    if isinstance(found, UnsupportedError):
        raise found
    return found


def _unsupported(spark: SparkSession, reason: str) -> UnsupportedError:
    return UnsupportedError(f"Spark {spark.version} can't scan given files: {reason}", found=spark.version)


class _Internals:
    """The classes of Spark and Hadoop that a scan is made of, and functions over lists of their objects.

    Py4J asks the JVM about every name on the way to a class, so that all of them are looked up once.
    """

    def __init__(self, context: Any) -> None:
        self._gateway = context._gateway
        java, spark = context._jvm.java, context._jvm.org.apache.spark
        sources = spark.sql.execution.datasources
        self._handles = java.lang.invoke.MethodHandles
        self._shape = java.lang.invoke.MethodType.methodType
        self._proxy = java.lang.invoke.MethodHandleProxies.asInterfaceInstance
        self._handle, self._java_class, self._class_name = (
            java.lang.invoke.MethodHandle,
            java.lang.Class,
            java.lang.Class.forName,
        )
        self._loader = java.lang.Thread.currentThread().getContextClassLoader()
        self._lookup = self._handles.publicLookup()
        self._unpickler, self._to_list = context._jvm.net.razorvine.pickle.Unpickler, java.util.stream.Collectors.toList
        self._java_map, self._int = java.util.HashMap, context._jvm.int
        self._seq, self._scala_map = spark.api.python.PythonUtils.toSeq, spark.api.python.PythonUtils.toScalaMap
        self._some, self._none = context._jvm.scala.Option.apply, context._jvm.scala.Option.empty()
        self._type_of, self._to_catalyst = (
            spark.sql.types.DataType.fromJson,
            spark.sql.execution.python.EvaluatePython.makeFromJava,
        )
        self._new_cache, self._new_spec = sources.SharedInMemoryCache, sources.PartitionSpec
        self._new_index, self._new_relation = sources.InMemoryFileIndex, sources.HadoopFsRelation
        self._new_parquet = sources.parquet.ParquetFileFormat
        self._look_up_handles(java, context._jvm.org.apache.hadoop.fs)

    def _look_up_handles(self, java: Any, hadoop: Any) -> None:
        sources = "org.apache.spark.sql.execution.datasources"
        self._function_class, self._consumer_class = map(
            self._class, ("java.util.function.Function", "java.util.function.Consumer")
        )
        self._object, text = self._class("java.lang.Object"), self._class("java.lang.String")
        self._objects = self._array(java.lang.Object).getClass()
        self._row = self._class("org.apache.spark.sql.catalyst.InternalRow")
        self._nothing = java.lang.Void.TYPE
        path, self._status = self._class("org.apache.hadoop.fs.Path"), self._class("org.apache.hadoop.fs.FileStatus")
        self._statuses = self._array(hadoop.FileStatus).getClass()
        of_text = self._constructor(path, text)
        self._path_of = self._method(self._status, "getPath")
        self._paths_of = self._function(self._path_of)
        # [size, is a folder, copies, bytes of a block, time modified, text of the path] → status
        flag, number, long = java.lang.Boolean.TYPE, java.lang.Integer.TYPE, java.lang.Long.TYPE
        of_values = self._constructor(self._status, long, flag, number, long, long, path)
        self._status_of = self._function(self._filtered(of_values, 5, of_text).asSpreader(self._objects, 6))
        # row of values, text of a file's path → Spark's description of a partition
        folder = self._filtered(self._method(path, "getParent"), 0, of_text)
        self._partition = self._filtered(
            self._constructor(self._class(f"{sources}.PartitionPath"), self._row, path), 1, folder
        )
        self._apply = self._method(self._class("scala.Function1"), "apply", self._object)
        self._put = self._method(self._class(f"{sources}.FileStatusCache"), "putLeafFiles", path, self._statuses)

    def frame(
        self,
        spark: SparkSession,
        folders: Sequence[Folder],
        data: StructType,
        partition: StructType,
        options: Mapping[str, str],
    ) -> DataFrame:
        from pyspark.sql import DataFrame

        session, data_type, partition_type = (
            spark._jsparkSession,
            self._type_of(data.json()),
            self._type_of(partition.json()),
        )
        statuses = self._each(
            self._status_of,
            (
                (size, _IS_FOLDER, _COPIES, _BLOCK_BYTES, _MODIFIED_MS, f"{folder.uri}/{name}")
                for folder in folders
                for name, size in folder.files
            ),
        )
        cache = self._new_cache(_CACHE_BYTES, _WITHOUT_EXPIRY).createForNewClient()
        statuses.stream().forEach(self._putting(cache))
        paths = self._listed(statuses.stream().map(self._paths_of))
        spec = self._new_spec(partition_type, self._seq(self._partitions(folders, partition, partition_type)))
        no_options = self._options({})
        index = self._new_index(
            session, self._seq(paths), no_options, self._some(data_type), cache, self._some(spec), self._none
        )
        cache.invalidateAll()
        expected, found = statuses.size(), index.allFiles().size()
        if found != expected:
            raise _unsupported(spark, f"it takes {found} of {expected} for files with rows")
        relation = self._new_relation(
            index,
            partition_type,
            data_type.asNullable(),
            self._none,
            self._new_parquet(),
            self._options(options),
            session,
        )
        return DataFrame(session.baseRelationToDataFrame(relation), spark)

    def _partitions(self, folders: Sequence[Folder], partition: StructType, partition_type: Any) -> Any:
        """The description of each folder for Spark: its values as Catalyst has them, and its path."""
        to_row = self._apply.bindTo(self._to_catalyst(partition_type)).asType(self._shape(self._row, self._object))
        kinds = [field.dataType for field in partition.fields]
        described = (
            (
                tuple(kind.toInternal(value) for kind, value in zip(kinds, folder.values, strict=True)),
                f"{folder.uri}/{folder.files[0][0]}",
            )
            for folder in folders
            if kinds
        )
        make = self._filtered(self._partition, 0, to_row).asSpreader(self._objects, 2)
        return self._each(self._function(make), described)

    def _putting(self, cache: Any) -> Any:
        """A consumer of statuses: it stores each in the cache as all that there is at its own path."""
        of_path_and_status = self._put.bindTo(cache).asCollector(self._statuses, 1)
        of_two = self._filtered(of_path_and_status, 0, self._path_of)
        both_the_first = self._gateway.new_array(self._int, 2)  # of zeros
        of_one = self._handles.permuteArguments(of_two, self._shape(self._nothing, self._status), both_the_first)
        return self._proxy(self._consumer_class, of_one)

    def _each(self, function: Any, values: Iterable[tuple[object, ...]]) -> Any:
        """A Java list of what `function` returns for each of the values."""
        return self._listed(self._unpickler().loads(pickle.dumps(list(values))).stream().map(function))

    def _listed(self, stream: Any) -> Any:
        return stream.collect(self._to_list())

    def _options(self, values: Mapping[str, str]) -> Any:
        plain = self._java_map()
        for key, value in values.items():
            plain.put(key, value)
        return self._scala_map(plain)

    def _class(self, name: str) -> Any:
        return self._class_name(name, True, self._loader)

    def _array(self, kind: Any, *items: Any) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for at, item in enumerate(items):
            array[at] = item
        return array

    def _constructor(self, of: Any, *kinds: Any) -> Any:
        return self._lookup.unreflectConstructor(of.getConstructor(self._array(self._java_class, *kinds)))

    def _method(self, of: Any, name: str, *kinds: Any) -> Any:
        return self._lookup.unreflect(of.getMethod(name, self._array(self._java_class, *kinds)))

    def _filtered(self, handle: Any, at: int, by: Any) -> Any:
        """`handle` whose argument `at` is the result of another handle."""
        return self._handles.filterArguments(handle, at, self._array(self._handle, by))

    def _function(self, handle: Any) -> Any:
        return self._proxy(self._function_class, handle)
