"""Base files: Parquet and ORC, with the footer entries that Hudi's writers look for."""

from skep_format.basefile.footer import BaseFileFooter as BaseFileFooter
from skep_format.basefile.footer import read_footer as read_footer
from skep_format.basefile.matching import RowCondition as RowCondition
from skep_format.basefile.options import BaseFileOptions as BaseFileOptions
from skep_format.basefile.reader import OpenBaseFile as OpenBaseFile
from skep_format.basefile.reader import open_base as open_base
from skep_format.basefile.reader import read_base as read_base
from skep_format.basefile.writer import BaseFileWriter as BaseFileWriter
from skep_format.basefile.writer import ColumnRange as ColumnRange
from skep_format.basefile.writer import bytes_of as bytes_of
from skep_format.basefile.writer import can_copy as can_copy
from skep_format.basefile.writer import parquet_bytes as parquet_bytes
from skep_format.basefile.writer import without_meta_values as without_meta_values
