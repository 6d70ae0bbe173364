"""Reading the metadata table: file listings and indexes that Hudi's writers keep beside the data (format guide 7)."""

from skep_table.metadata_table.keys import group_numbers as group_numbers
from skep_table.metadata_table.keys import java_hashes as java_hashes
from skep_table.metadata_table.table import FIRST_INSTANTS as FIRST_INSTANTS
from skep_table.metadata_table.table import FOLDER as FOLDER
from skep_table.metadata_table.table import MetadataTable as MetadataTable
