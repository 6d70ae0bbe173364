"""The file-system view: which files hold a table's rows at an instant (format guide 10)."""

from skep_table.view.listing import FolderFilter as FolderFilter
from skep_table.view.listing import Listing as Listing
from skep_table.view.listing import StorageListing as StorageListing
from skep_table.view.listing import StorageListings as StorageListings
from skep_table.view.slicing import BaseFile as BaseFile
from skep_table.view.slicing import FileGroup as FileGroup
from skep_table.view.slicing import FileSlice as FileSlice
from skep_table.view.slicing import FileView as FileView
from skep_table.view.slicing import LogFile as LogFile
