"""A PySpark job in SQL on Hudi tables, beside a table of Spark's own and temporary views.

The same file runs with Hudi's jar and with skep. It prints what it read, a line of JSON for each step.
"""

import json
import sys

from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.appName("statements")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .getOrCreate()
)


def show(step, frame):
    rows = [json.loads(text) for text in frame.toJSON().collect()]
    print(json.dumps({"step": step, "rows": sorted(rows, key=json.dumps)}, sort_keys=True), flush=True)


spark.sql("CREATE DATABASE IF NOT EXISTS shop")
spark.sql("USE shop")
spark.sql("""
    CREATE TABLE orders (id BIGINT, item STRING, price DOUBLE, ts BIGINT, day STRING) USING hudi
    TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts') PARTITIONED BY (day)
""")
spark.sql("INSERT INTO orders VALUES (1, 'pen', 1.5, 10, '2026-01-01'), (2, 'ink', 7.0, 10, '2026-01-02')")
show("insert", spark.sql("SELECT id, item, price, day FROM orders"))
first = spark.sql("SELECT max(_hoodie_commit_time) FROM shop.orders").first()[0]

spark.createDataFrame([("pen", "tools"), ("ink", "fluids")], "item string, kind string").write.saveAsTable("kinds")
show("join", spark.sql("SELECT o.id, k.kind FROM orders o JOIN kinds k ON o.item = k.item WHERE o.price > 1"))

spark.sql("UPDATE orders SET price = price * 2, ts = 20 WHERE id = 1")
show("update", spark.table("shop.orders").select("id", "price"))
show("time travel", spark.sql(f"SELECT id, price FROM orders TIMESTAMP AS OF '{first}'"))

changes = spark.createDataFrame(
    [(2, "ink", 8.0, 30, "2026-01-02"), (3, "cup", 3.0, 30, "2026-01-02")],
    "id bigint, item string, price double, ts bigint, day string",
)
changes.createOrReplaceTempView("changes")
spark.sql("""
    MERGE INTO orders t USING changes s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
""")
show("merge", spark.sql("SELECT id, item, price FROM orders"))
show("arguments", spark.sql("SELECT id FROM orders WHERE price > :least", args={"least": 3.5}))
show("filled in", spark.sql("SELECT o.id FROM orders o JOIN {frame} c ON o.id = c.id", frame=changes))

spark.sql("DELETE FROM orders WHERE id = 1")
show("delete", spark.sql("SELECT id FROM orders"))
spark.sql("INSERT OVERWRITE orders PARTITION (day = '2026-01-02') SELECT 9, 'jar', 2.5, 40")
show("insert overwrite", spark.sql("SELECT id, day FROM orders"))

spark.sql("CREATE OR REPLACE TEMPORARY VIEW cheap AS SELECT id, price FROM orders WHERE price < 5")
spark.sql("INSERT INTO orders SELECT 10, 'lid', 0.5, 50, '2026-01-03'")
show("view", spark.sql("SELECT id FROM cheap"))
show("changes", spark.sql(f"SELECT id FROM hudi_table_changes('shop.orders', 'latest_state', '{first}')"))

spark.sql("CREATE TABLE kept USING parquet AS SELECT id, item FROM orders WHERE id >= 9")
show("into spark", spark.table("kept"))
spark.sql("""
    CREATE TABLE copied USING hudi TBLPROPERTIES (primaryKey = 'id', type = 'mor')
    AS SELECT id, item, price FROM orders
""")
show("as select", spark.sql("SELECT id, item FROM copied"))

changes.write.format("hudi").option("primaryKey", "id").option("preCombineField", "ts").saveAsTable("shop.saved")
show("save as table", spark.table("saved").select("id", "item"))
changes.limit(1).selectExpr("20L AS id", "item", "price", "ts", "day").write.insertInto("orders")
show("insert into", spark.table("orders").select("id", "item"))

spark.sql("ALTER TABLE orders ADD COLUMNS (note STRING)")
spark.sql("INSERT INTO orders (id, item, price, ts, note, day) VALUES (30, 'cap', 1.0, 60, 'new', '2026-01-04')")
show("add column", spark.sql("SELECT id, note FROM orders WHERE id >= 20"))
show("call", spark.sql("CALL show_commits(table => 'orders', limit => 100)").selectExpr("count(*) > 4 AS many"))
show("tables", spark.sql("SHOW TABLES").where("tableName IN ('orders', 'kinds', 'saved')").select("tableName"))
spark.sql("DROP TABLE copied")
show("dropped", spark.sql("SHOW TABLES").where("tableName = 'copied'"))

spark.stop()
