"""The spelling of a base file's footer entries (format guide 5.4, 5.6)."""

from __future__ import annotations

from typing import Final

AVRO_SCHEMA: Final = "parquet.avro.schema"
ORC_AVRO_SCHEMA: Final = "orc.avro.schema"
WRITER_MODEL: Final = "writer.model.name"
BLOOM_FILTER: Final = "org.apache.hudi.bloomfilter"
OLD_BLOOM_FILTER: Final = "com.uber.hoodie.bloomfilter"
BLOOM_TYPE: Final = "hoodie_bloom_filter_type_code"
MIN_RECORD_KEY: Final = "hoodie_min_record_key"
MAX_RECORD_KEY: Final = "hoodie_max_record_key"

# Which calendar the dates and timestamps of a file are in. Spark counts a file that names no version as undecided and
# refuses dates before 1582 and times before 1900 (READ_ANCIENT_DATETIME); from 3.0 on (INT96: 3.1) a version without a
# mark of the legacy calendar is the proleptic Gregorian one. Hive 4 has a key of its own; without it dates are legacy.
SPARK_VERSION: Final = "org.apache.spark.version"
LEGACY_DATETIME: Final = "org.apache.spark.legacyDateTime"
LEGACY_INT96: Final = "org.apache.spark.legacyINT96"
SPARK_ZONE: Final = "org.apache.spark.timeZone"
HIVE_PROLEPTIC: Final = "writer.date.proleptic"
PROLEPTIC_CALENDAR: Final = {SPARK_VERSION: "3.5.0", HIVE_PROLEPTIC: "true"}
