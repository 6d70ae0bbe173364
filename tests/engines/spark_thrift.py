"""A Spark Thrift Server with Hudi's bundle, until it is ended.

Arguments: port, metastore, bundle, scratch folder, address to listen on.
"""

from __future__ import annotations

import signal
import sys

from pyspark.sql import SparkSession

EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"


def main(port: str, metastore: str, bundle: str, folder: str, host: str = "127.0.0.1") -> None:
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.extraClassPath": bundle,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        # Else a session goes on with the first file listing of a table, whatever others commit meanwhile.
        "spark.sql.filesourceTableRelationCacheSize": "0",
        "spark.hadoop.hive.metastore.uris": metastore,
        "spark.hadoop.hive.server2.thrift.port": port,
        "spark.hadoop.hive.server2.thrift.bind.host": host,
        "spark.hadoop.hive.server2.authentication": "NONE",
    }
    builder = SparkSession.builder.appName("thrift")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.enableHiveSupport().getOrCreate()
    server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server.startWithContext(spark._jsparkSession.sqlContext())
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
