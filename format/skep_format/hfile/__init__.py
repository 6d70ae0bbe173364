"""HFiles, version 3: the sorted key-value files of the metadata table and of the bootstrap index (format guide 7.5)."""

from skep_format.hfile.reader import ByteSource, HFile, StorageSource
from skep_format.hfile.writer import MAX_KEY_BYTES, HFileWriter, format_hfile

__all__ = ["MAX_KEY_BYTES", "ByteSource", "HFile", "HFileWriter", "StorageSource", "format_hfile"]
