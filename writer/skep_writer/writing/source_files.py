"""The rows of a bootstrap's source files as a frame, whose tasks read the files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_format.schema.arrow import to_arrow
from skep_table.write.bootstrap.run import SourceRows
from skep_writer.edge import Batches, map_frame
from skep_writer.schemas import spark_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of_files(spark: SparkSession, rows: SourceRows) -> DataFrame | None:
    """A frame of all rows; None where Spark has no such columns."""
    schema, of_a_file = to_arrow(rows.source.columns), replace(rows, files=()).of
    if spark_arrow(schema).types != schema.types:
        return None

    def read(batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for payload in batch.column(0):
                for found in of_a_file(pickle.loads(payload.as_buffer())):
                    yield pa.Table.from_batches([found])

    places = [(bytearray(pickle.dumps(place)),) for place in rows.files]
    parts = spark.sparkContext.parallelize(places, max(1, min(len(places), rows.parallelism)))
    return map_frame(spark.createDataFrame(parts, "payload binary"), read, schema)
