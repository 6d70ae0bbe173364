"""Log files: blocks of rows, deletes and commands behind a base file, read and written (format guide 6)."""

from skep_format.logfile.block import BlockType, HeaderKey, LogBlock, format_positions
from skep_format.logfile.reader import read_blocks
from skep_format.logfile.validity import BlockRule, valid_blocks
from skep_format.logfile.writer import avro_block, delete_block, format_block, rollback_block

__all__ = [
    "BlockRule",
    "BlockType",
    "HeaderKey",
    "LogBlock",
    "avro_block",
    "delete_block",
    "format_block",
    "format_positions",
    "read_blocks",
    "rollback_block",
    "valid_blocks",
]
