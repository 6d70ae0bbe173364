"""Records of the metadata table, built from what happened to the data table: one module for each of its partitions.

Arrow in, puts and deletes out; nothing is read or written here.
"""

from skep_table.metadata_table.records.build import PartitionUpdate as PartitionUpdate
