"""What differs between table versions, as one object per version. Nothing outside compares version numbers.

Table versions 6, 8 and 9 are read and written, those before 6 read and upgraded. A concept that differs is an attribute
or method of `TableFormat`, named by that concept; a new version is a new object in `table_format`.
"""

from skep_format.versions.logs import LogNaming as LogNaming
from skep_format.versions.table_format import DEFAULT as DEFAULT
from skep_format.versions.table_format import STREAMER_KEYS as STREAMER_KEYS
from skep_format.versions.table_format import MergeSource as MergeSource
from skep_format.versions.table_format import StreamerKeys as StreamerKeys
from skep_format.versions.table_format import TableFormat as TableFormat
from skep_format.versions.table_format import format_of as format_of
from skep_format.versions.table_format import format_of_version as format_of_version
from skep_format.versions.table_format import known_versions as known_versions
