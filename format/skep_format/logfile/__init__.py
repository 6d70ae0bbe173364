"""Log files: blocks of rows, deletes and commands behind a base file, read and written (format guide 6)."""

from skep_format.logfile.block import BlockType as BlockType
from skep_format.logfile.block import HeaderKey as HeaderKey
from skep_format.logfile.block import LogBlock as LogBlock
from skep_format.logfile.block import format_positions as format_positions
from skep_format.logfile.reader import read_blocks as read_blocks
from skep_format.logfile.validity import BlockRule as BlockRule
from skep_format.logfile.validity import valid_blocks as valid_blocks
from skep_format.logfile.writer import avro_block as avro_block
from skep_format.logfile.writer import delete_block as delete_block
from skep_format.logfile.writer import format_block as format_block
from skep_format.logfile.writer import rollback_block as rollback_block
