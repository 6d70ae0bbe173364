"""A process with a warm Spark session and one release of Hudi; executes requests from its standard input.

Run by `jvm.py` as a script: a request is one line of JSON, `{"do": <function below>, …}`, and so is each answer,
with the seconds the work took, or with `error`. Rows are spelt as in `spelling.py`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyspark.sql.types as spark_types  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from benchmarks.peers.metadata_validator import MetadataValidator  # noqa: E402
from benchmarks.peers.spelling import SpecialFloats, spell  # noqa: E402

Json = dict[str, Any]


# Where Hudi tags by the Bloom filters of a metadata table it broadcasts a view of the table, with its locks. The other
# packages that Kryo looks into are opened by Spark itself.
OPENED = "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED"


def session(folder: str, settings: dict[str, str]) -> SparkSession:
    """A session as all that is measured and compared runs in: two cores, 2 GiB, UTC."""
    builder = SparkSession.builder.master("local[2]").appName("peer")
    for key, value in {
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {OPENED}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.parquet.compression.codec": "snappy",
        **settings,
    }.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}


class Peer:
    """The requests. Every public method is one; its keyword arguments are the fields of the request."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def ping(self) -> Json:
        return {"spark": self._spark.version}

    def read(self, *, path: str, options: Json, columns: list[str] | None = None, where: str | None = None) -> Json:
        frame = self._frame(path, options)
        frame = frame.where(where) if where else frame
        return answer(frame.select(*columns) if columns else frame)

    def write(self, *, path: str, rows: list[Json], schema: str, options: Json, mode: str = "append") -> Json:
        struct = struct_of(schema)
        values = [value_of(row, struct) for row in rows]
        frame = self._spark.createDataFrame(values, struct).coalesce(1)
        frame.write.format("hudi").options(**options).mode(mode).save(path)
        return {}

    def write_files(
        self,
        *,
        path: str,
        source: str,
        options: Json,
        mode: str = "append",
        format: str = "hudi",
        by: list[str] | None = None,
    ) -> Json:
        """Writes the rows of a Parquet folder; `format="parquet"` with `by` is Spark's own partitioned write."""
        writer = self._spark.read.parquet(source).write.format(format).options(**options).mode(mode)
        (writer.partitionBy(*by) if by else writer).save(path)
        return {}

    def aggregate(
        self, *, path: str, options: Json, expressions: list[str], format: str = "hudi", where: str | None = None
    ) -> Json:
        frame = self._frame(path, options) if format == "hudi" else self._spark.read.format(format).load(path)
        return answer((frame.where(where) if where else frame).selectExpr(*expressions))

    def orc_footer(self, *, path: str) -> Json:
        """The entries that users of ORC's writer have put into the footer of a file, by ORC's reader."""
        java = self._spark._jvm
        options = java.org.apache.orc.OrcFile.readerOptions(self._spark._jsc.hadoopConfiguration())
        reader = java.org.apache.orc.OrcFile.createReader(java.org.apache.hadoop.fs.Path(path), options)
        utf8 = java.java.nio.charset.StandardCharsets.UTF_8
        values = {key: reader.getMetadataValue(key) for key in reader.getMetadataKeys()}
        return {"entries": {key: utf8.decode(value).toString() for key, value in values.items()}}

    def plan(self, *, path: str, options: Json) -> Json:
        return planned(self._frame(path, options))

    def sql(self, *, text: str, settings: Json | None = None) -> Json:
        before = {key: self._spark.conf.get(key, None) for key in settings or {}}
        try:
            for key, value in (settings or {}).items():
                self._spark.conf.set(key, value)
            return answer(self._spark.sql(text))
        finally:
            for key, value in before.items():
                self._spark.conf.unset(key) if value is None else self._spark.conf.set(key, value)

    def view(self, *, name: str, rows: list[Json], schema: str) -> Json:
        """A temporary view of rows, for SQL."""
        struct = struct_of(schema)
        self._spark.createDataFrame([value_of(row, struct) for row in rows], struct).createOrReplaceTempView(name)
        return {}

    def hadoop(self, *, key: str, value: str | None) -> Json:
        """Sets (or with None unsets) a Hadoop setting of the session; gives what it was."""
        settings = self._spark._jsc.hadoopConfiguration()
        before = settings.get(key)
        settings.unset(key) if value is None else settings.set(key, value)
        return {"before": before}

    def sync(self, *, options: Json, uri: str) -> Json:
        """Hudi's own tool syncs a table to the metastore at `uri`; the options define which and how."""
        java = self._spark._jvm
        properties = java.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        settings = java.org.apache.hadoop.conf.Configuration(self._spark._jsc.hadoopConfiguration())
        settings.set("hive.metastore.uris", uri)
        tool = java.org.apache.hudi.hive.HiveSyncTool(properties, settings)
        try:
            tool.syncHoodieTable()
        finally:
            tool.close()
        return {}

    def contend(self, *, uri: str, writers: int, turns: int, held_seconds: float, table: str) -> Json:
        """Threads that take turns by Hudi's own lock provider, trying again as often as its client does by default."""
        java = self._spark._jvm
        settings = java.org.apache.hadoop.conf.Configuration(self._spark._jsc.hadoopConfiguration())
        settings.set("hive.metastore.uris", uri)
        properties = java.org.apache.hudi.common.config.TypedProperties()
        for key, value in {
            "hivemetastore.database": "bench",
            "hivemetastore.table": table,
            "hivemetastore.uris": uri,
            "wait_time_ms": "60000",  # these are Hudi's defaults, which the provider does not know by itself
            "num_retries": "15",
            "wait_time_ms_between_retry": "1000",
            "heartbeat_interval_ms": "60000",
        }.items():
            properties.setProperty(f"hoodie.write.lock.{key}", value)
        configuration = java.org.apache.hudi.common.config.LockConfiguration(properties)
        storage = java.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(settings)
        seconds = java.java.util.concurrent.TimeUnit.SECONDS

        def work() -> int:
            for _ in range(turns):
                while True:
                    provider = java.org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider(
                        configuration, storage
                    )
                    try:
                        if provider.tryLock(60, seconds):
                            time.sleep(held_seconds)
                            provider.unlock()
                            break
                    finally:
                        provider.close()
                    time.sleep(5)  # hoodie.write.lock.client.wait_time_ms_between_retry
            return turns

        with ThreadPoolExecutor(writers) as pool:
            return {"turns": sum(future.result() for future in [pool.submit(work) for _ in range(writers)])}

    def _client(self, path: str, options: Json) -> Any:
        """Hudi's write client of a table; the caller closes it."""
        java = self._spark._jvm
        given = java.java.util.HashMap()
        for key, value in options.items():
            given.put(key, value)
        name = options["hoodie.table.name"]
        return java.org.apache.hudi.DataSourceUtils.createHoodieClient(self._spark._jsc, "", path, name, given)

    def clean(self, *, path: str, options: Json, plan: bool) -> Json:
        """Hudi's own cleaner: plans, or carries out what is planned."""
        client = self._client(path, options)
        try:
            if not plan:
                client.clean()
                return {}
            java = self._spark._jvm
            kind = java.org.apache.hudi.common.model.TableServiceType.CLEAN
            planned = client.scheduleTableService(java.org.apache.hudi.common.util.Option.empty(), kind)
            return {"planned": planned.isPresent()}
        finally:
            client.close()

    def services(self, *, path: str, options: Json, calls: list[list[Any]]) -> Json:
        """Calls of Hudi's write client one after the other: `clean`, `savepoint`, … and their arguments."""
        client = self._client(path, options)
        try:
            for do, *arguments in calls:
                getattr(client, do)(*arguments)
        finally:
            client.close()
        return {}

    def validate(self, *, path: str) -> Json:
        """Hudi compares the metadata table of a table with its files."""
        return MetadataValidator(self._spark, path).run()

    def archived(self, *, path: str) -> Json:
        """Time → what the archive of a table of version 6 keeps of the instant, as Hudi 0.15 decodes it."""
        java = self._spark._jvm
        settings = java.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(
            self._spark._jsc.hadoopConfiguration()
        )
        builder = java.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        timeline = builder.setConf(settings).setBasePath(path).build().getArchivedTimeline()
        timeline.loadCompletedInstantDetailsInMemory()
        contents = {}
        for instant in timeline.getInstants():
            details = timeline.getInstantDetails(instant)
            contents[instant.getTimestamp()] = bytes(details.get()).decode() if details.isPresent() else None
        return {"contents": contents}

    def _frame(self, path: str, options: Json) -> DataFrame:
        return self._spark.read.format("hudi").options(**options).load(path)


def answer(frame: DataFrame) -> Json:
    rows = [spell(plain(row, frame.schema)) for row in frame.collect()]
    return {"rows": rows, "schema": json.loads(frame.schema.json())}


def planned(frame: DataFrame) -> Json:
    """Plans a scan of one column as far as its tasks, files listed and divided; runs none of them."""
    return {"tasks": frame.select("amount")._jdf.queryExecution().toRdd().getNumPartitions()}


def plain(value: Any, kind: spark_types.DataType) -> Any:
    """Spark's rows as dicts, recursively, maps in the order of their keys, and instants with their zone."""
    match kind, value:
        case _, None:
            return None
        case spark_types.StructType(), _:
            return {field.name: plain(item, field.dataType) for field, item in zip(kind.fields, value, strict=True)}
        case spark_types.ArrayType(), _:
            return [plain(item, kind.elementType) for item in value]
        case spark_types.MapType(), _:
            return {name: plain(value[name], kind.valueType) for name in sorted(value, key=str)}
        case spark_types.TimestampType(), _:
            return value.replace(tzinfo=dt.timezone.utc)  # naive in the process's zone, which main() makes UTC
    return value


def struct_of(schema: str) -> spark_types.StructType:
    """From DDL text or from JSON text."""
    if schema.startswith("{"):
        return spark_types.StructType.fromJson(json.loads(schema))
    return spark_types._parse_datatype_string(schema)  # public as StructType.fromDDL from Spark 4 on


def value_of(spelt: Any, kind: spark_types.DataType) -> Any:
    """The Python value that createDataFrame wants, from its spelling."""
    match kind, spelt:
        case _, None:
            return None
        case spark_types.StructType(), _:
            return tuple(value_of(spelt.get(field.name), field.dataType) for field in kind.fields)
        case spark_types.ArrayType(), _:
            return [value_of(item, kind.elementType) for item in spelt]
        case spark_types.MapType(), _:
            return {value_of(name, kind.keyType): value_of(item, kind.valueType) for name, item in spelt.items()}
        case spark_types.DecimalType(), _:
            return Decimal(spelt)
        case spark_types.DateType(), _:
            return dt.date.fromisoformat(spelt)
        case spark_types.TimestampType() | spark_types.TimestampNTZType(), _:
            return dt.datetime.fromisoformat(spelt.replace("Z", "+00:00"))
        case spark_types.BinaryType(), _:
            return bytearray(base64.b64decode(spelt))
        case spark_types.FloatType() | spark_types.DoubleType(), _:
            return SpecialFloats[spelt] if isinstance(spelt, str) else float(spelt)
    return spelt


def serve(start: Callable[[], object]) -> None:
    """Answers requests with the methods of the object that `start` makes, until standard input ends."""
    # A JVM inherits standard output and prints to it; the answers go to a copy that only we hold.
    answers = os.fdopen(os.dup(1), "w")
    os.set_inheritable(answers.fileno(), False)
    os.dup2(2, 1)
    os.environ["TZ"] = "UTC"
    time.tzset()
    peer = start()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.perf_counter()
        try:
            result = getattr(peer, request.pop("do"))(**request)
        except Exception as error:
            result = {"error": {"kind": type(error).__name__, "message": str(error)}}
        print(json.dumps({**result, "seconds": time.perf_counter() - begin}), file=answers, flush=True)


def main() -> None:
    folder, jar, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    path = os.pathsep.join((jar, str(Path(__file__).with_name("conf"))))
    serve(lambda: Peer(session(folder, {"spark.driver.extraClassPath": path, **HUDI, **settings})))


if __name__ == "__main__":
    main()
