"""HFiles, version 3: the sorted key-value files of the metadata table and of the bootstrap index (format guide 7.5)."""

from skep_format.hfile.reader import ByteSource as ByteSource
from skep_format.hfile.reader import HFile as HFile
from skep_format.hfile.reader import StorageSource as StorageSource
from skep_format.hfile.writer import MAX_KEY_BYTES as MAX_KEY_BYTES
from skep_format.hfile.writer import HFileWriter as HFileWriter
from skep_format.hfile.writer import format_hfile as format_hfile
