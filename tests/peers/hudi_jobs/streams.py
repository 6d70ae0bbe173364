"""A PySpark job that streams into Hudi tables: by the format, and batch by batch with MERGE INTO.

The same file runs with Hudi's jar and with skep. It prints what it read, a line of JSON for each step.
"""

import json
import sys

from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.appName("streams")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .getOrCreate()
)
columns = "id bigint, v string, ts bigint, day string"
options = {
    "hoodie.table.name": "ticks",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "day",
}


def show(step, frame):
    rows = [json.loads(text) for text in frame.toJSON().collect()]
    print(json.dumps({"step": step, "rows": sorted(rows, key=json.dumps)}, sort_keys=True), flush=True)


def arrive(*rows):
    spark.createDataFrame(list(rows), columns).coalesce(1).write.mode("append").json(f"{folder}/in")


def new_rows():
    return spark.readStream.schema(columns).json(f"{folder}/in")


def stream():
    query = (
        new_rows()
        .writeStream.format("hudi")
        .options(**options)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("append")
        .trigger(availableNow=True)
        .start(f"{folder}/ticks")
    )
    query.awaitTermination()


def rows():
    return spark.read.format("hudi").load(f"{folder}/ticks").select("id", "v", "day")


arrive((1, "a", 1, "mon"), (2, "b", 1, "tue"))
stream()
show("first batch", rows())
arrive((2, "B", 2, "tue"), (3, "c", 2, "mon"))
stream()
show("second batch", rows())
stream()
show("nothing new", rows())

spark.sql("""
    CREATE TABLE latest (id BIGINT, v STRING, ts BIGINT) USING hudi
    TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')
""")


def merge(frame, number):
    frame.dropDuplicates(["id"]).createOrReplaceTempView("arrived")
    frame.sparkSession.sql("""
        MERGE INTO latest t USING (SELECT id, v, ts FROM arrived) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    """)
    frame.write.format("hudi").options(**options).option("hoodie.table.name", "copies").mode("append").save(
        f"{folder}/copies"
    )


query = new_rows().where("day = 'mon'").writeStream.foreachBatch(merge)
query.option("checkpointLocation", f"{folder}/merged").trigger(availableNow=True).start().awaitTermination()
show("merged", spark.table("latest").select("id", "v"))
show("written batch by batch", spark.read.format("hudi").load(f"{folder}/copies").select("id", "v"))

spark.stop()
