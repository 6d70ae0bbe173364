"""Reading the metadata table: file listings and indexes that Hudi's writers keep beside the data (format guide 7)."""

from skep_table.metadata_table.keys import group_numbers, java_hashes
from skep_table.metadata_table.table import FIRST_INSTANTS, FOLDER, MetadataTable

__all__ = ["FIRST_INSTANTS", "FOLDER", "MetadataTable", "group_numbers", "java_hashes"]
