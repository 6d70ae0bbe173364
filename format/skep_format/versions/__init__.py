"""What differs between table versions, as one object per version. Nothing outside compares version numbers.

Table versions 6, 8 and 9 are read and written, those before 6 read and upgraded. A concept that differs is an attribute
or method of `TableFormat`, named by that concept; a new version is a new object in `table_format`.
"""

from skep_format.versions.logs import LogNaming
from skep_format.versions.metadata import MetadataRules
from skep_format.versions.reading import ReadRules
from skep_format.versions.table_format import (
    DEFAULT,
    STREAMER_KEYS,
    MergeSource,
    StreamerKeys,
    TableFormat,
    format_of,
    format_of_version,
    known_versions,
)

__all__ = [
    "DEFAULT",
    "STREAMER_KEYS",
    "LogNaming",
    "MergeSource",
    "MetadataRules",
    "ReadRules",
    "StreamerKeys",
    "TableFormat",
    "format_of",
    "format_of_version",
    "known_versions",
]
