"""The file-system view: which files hold a table's rows at an instant (format guide 10)."""

from skep_table.view.listing import FolderFilter, Listing, StorageListing, StorageListings
from skep_table.view.slicing import BaseFile, FileGroup, FileSlice, FileView, LogFile

__all__ = [
    "BaseFile",
    "FileGroup",
    "FileSlice",
    "FileView",
    "FolderFilter",
    "Listing",
    "LogFile",
    "StorageListing",
    "StorageListings",
]
