"""How log files are written: Hudi's options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from skep_format.options import boolean, of_option, one_of, option


class DataBlockFormat(str, Enum):
    """What the rows of a data block are encoded in."""

    AVRO = "avro"
    PARQUET = "parquet"


BLOCK_FORMAT = option(
    "hoodie.logfile.data.block.format",
    one_of(DataBlockFormat),
    DataBlockFormat.AVRO,
    "The rows of a data block: avro or parquet",
)
FILE_BYTES = option(
    "hoodie.logfile.max.size",
    int,
    1_073_741_824,
    "A log file that has grown past this is followed by another, in bytes",
)
BLOCK_BYTES = option("hoodie.logfile.data.block.max.size", int, 268_435_456, "A data block at most, in bytes of rows")
COMPRESSION_RATIO = option(
    "hoodie.logfile.to.parquet.compression.ratio",
    float,
    0.35,
    "Base file bytes per log file byte: estimates which file groups are small, where inserts go into logs",
)
POSITIONS = option(
    "hoodie.write.record.positions",
    boolean,
    True,
    "Blocks of updates and deletes name the rows of the base file beside their keys; from table version 8 on",
)
APPEND = option(
    "skep.write.log.append",
    boolean,
    False,
    "Tables of version 6 on local files and HDFS: blocks go behind those of the newest log file of a slice, as by Hudi"
    " on HDFS; else, and where other writers write at the same time, each write begins a log file",
)


@dataclass(frozen=True, slots=True)
class LogFileOptions:
    """How log files are written. `file_bytes`: a new log file begins beyond it; `block_bytes`: size of a data block.

    `positions`: blocks name the places of their rows in the base file, where the table's version has that. `appends`:
    the newest log file of a slice may grow.
    """

    block_format: DataBlockFormat = of_option(BLOCK_FORMAT)
    file_bytes: int = of_option(FILE_BYTES)
    block_bytes: int = of_option(BLOCK_BYTES)
    positions: bool = of_option(POSITIONS)
    appends: bool = False
