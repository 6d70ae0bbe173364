"""Storage: the one seam through which skep touches files. Every step that changes a table goes through `Storage`."""

from skep_table.storage.base import FileStatus, FolderListing, Storage, StorageFlags
from skep_table.storage.folder import FolderStorage
from skep_table.storage.hdfs import HdfsStorage
from skep_table.storage.local import LocalStorage
from skep_table.storage.objects import ObjectStorage
from skep_table.storage.open import open_storage
from skep_table.storage.times import TimedStorage

__all__ = [
    "FileStatus",
    "FolderListing",
    "FolderStorage",
    "HdfsStorage",
    "LocalStorage",
    "ObjectStorage",
    "Storage",
    "StorageFlags",
    "TimedStorage",
    "open_storage",
]
