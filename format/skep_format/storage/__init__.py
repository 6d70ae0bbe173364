"""Storage: the one seam through which skep touches files. Every step that changes a table goes through `Storage`."""

from skep_format.storage.appending import AppendingStorage
from skep_format.storage.base import FileStatus, FolderListing, Storage, StorageFlags
from skep_format.storage.folder import FolderStorage
from skep_format.storage.hdfs import HdfsStorage
from skep_format.storage.local import LocalStorage
from skep_format.storage.objects import ObjectStorage
from skep_format.storage.open import open_storage
from skep_format.storage.times import TimedStorage

__all__ = [
    "AppendingStorage",
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
