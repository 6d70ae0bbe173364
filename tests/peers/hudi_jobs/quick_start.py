"""A PySpark job as teams write them for Hudi: insert, query, update, time travel, incremental, delete, overwrite.

The same file runs with Hudi's jar and with skep. It prints what it read, a line of JSON for each step.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

folder = sys.argv[1]
spark = (
    SparkSession.builder.appName("quick start")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .getOrCreate()
)


def show(step, frame):
    rows = [json.loads(text) for text in frame.toJSON().collect()]
    print(json.dumps({"step": step, "rows": sorted(rows, key=json.dumps)}, sort_keys=True), flush=True)


def fails(step, call):
    try:
        call()
    except Exception:
        print(json.dumps({"step": step, "rows": "refused"}), flush=True)
    else:
        print(json.dumps({"step": step, "rows": "done"}), flush=True)


columns = "ts bigint, uuid string, rider string, driver string, fare double, city string"
data = [
    (1695159649087, "334e26e9", "rider-A", "driver-K", 19.10, "san_francisco"),
    (1695091554788, "e96c4396", "rider-C", "driver-M", 27.70, "san_francisco"),
    (1695046462179, "9909a8b1", "rider-D", "driver-L", 33.90, "san_francisco"),
    (1695516137016, "e3cf430c", "rider-F", "driver-P", 34.15, "sao_paulo"),
    (1695115999911, "c8abbe79", "rider-J", "driver-T", 17.85, "chennai"),
]
for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
    path = f"{folder}/trips_{kind}"
    options = {
        "hoodie.table.name": f"trips_{kind}".lower(),
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "uuid",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.insert.shuffle.parallelism": "2",
    }

    def trips(**more):
        return spark.read.format("hudi").options(**more).load(path)  # noqa: B023 - called within the round

    inserts = spark.createDataFrame(data, columns)
    inserts.write.format("hudi").options(**options).mode("overwrite").save(path)
    show(f"{kind} insert", trips().select("uuid", "fare", "city", "_hoodie_partition_path"))

    trips().createOrReplaceTempView("trips")
    show(f"{kind} query", spark.sql("SELECT uuid, fare, rider FROM trips WHERE fare > 20.0"))
    first = trips().agg({"_hoodie_commit_time": "max"}).first()[0]

    updates = trips().filter("rider = 'rider-D'").withColumn("fare", col("fare") * 10)
    updates.write.format("hudi").options(**options).mode("append").save(path)
    show(f"{kind} update", trips().select("uuid", "fare", "ts"))
    show(f"{kind} as of", trips(**{"as.of.instant": first}).select("uuid", "fare"))

    more = spark.createDataFrame([(1695600000000, "5f9e8ee6", "rider-S", "driver-Z", 41.06, "chennai")], columns)
    more.write.format("hudi").option("hoodie.datasource.write.operation", "insert").options(**options).mode(
        "append"
    ).save(path)
    incremental = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first,
    }
    show(f"{kind} incremental", trips(**incremental).select("uuid", "fare"))
    point = {
        **incremental,
        "hoodie.datasource.read.begin.instanttime": "000",
        "hoodie.datasource.read.end.instanttime": first,
    }
    if kind == "COPY_ON_WRITE":
        show(f"{kind} point in time", trips(**point).select("uuid", "fare"))
    show(f"{kind} pattern", spark.read.format("org.apache.hudi").load(f"{path}/*/*").select("uuid"))
    read_optimized = {"hoodie.datasource.query.type": "read_optimized"}
    show(f"{kind} read optimized", trips(**read_optimized).select("uuid", "fare"))

    deletes = trips().filter("city = 'sao_paulo'").select("uuid", "city", "ts")
    deletes.write.format("hudi").options(**options).option("hoodie.datasource.write.operation", "delete").mode(
        "append"
    ).save(path)
    show(f"{kind} delete", trips().select("uuid"))

    replaced = spark.createDataFrame([(1695700000000, "aa11", "rider-X", "driver-X", 1.5, "chennai")], columns)
    replaced.write.format("hudi").options(**options).option(
        "hoodie.datasource.write.operation", "insert_overwrite"
    ).mode("append").save(path)
    show(f"{kind} insert overwrite", trips().select("uuid", "city"))

    fails(f"{kind} error if exists", lambda: inserts.write.format("hudi").options(**options).save(path))  # noqa: B023
    inserts.withColumn("fare", lit(0.5)).write.options(**options).partitionBy("city").save(
        f"{path}_2", format="hudi", mode="append"
    )
    show(f"{kind} partition by", spark.read.load(f"{path}_2", format="hudi").select("uuid", "fare", "city"))

for _ in range(2):
    spark.createDataFrame(data, columns).limit(1).write.format("hudi").option("hoodie.table.name", "events").mode(
        "append"
    ).save(f"{folder}/events")
show("without a key", spark.read.format("hudi").load(f"{folder}/events").select("uuid"))

spark.stop()
