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
