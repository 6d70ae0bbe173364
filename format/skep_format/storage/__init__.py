"""Storage: the one seam through which skep touches files. Every step that changes a table goes through `Storage`."""

from skep_format.storage.appending import AppendingStorage as AppendingStorage
from skep_format.storage.base import FileStatus as FileStatus
from skep_format.storage.base import FolderListing as FolderListing
from skep_format.storage.base import Storage as Storage
from skep_format.storage.base import StorageFlags as StorageFlags
from skep_format.storage.folder import FolderStorage as FolderStorage
from skep_format.storage.hdfs import HdfsStorage as HdfsStorage
from skep_format.storage.local import LocalStorage as LocalStorage
from skep_format.storage.objects import ObjectStorage as ObjectStorage
from skep_format.storage.open import open_storage as open_storage
from skep_format.storage.times import TimedStorage as TimedStorage
