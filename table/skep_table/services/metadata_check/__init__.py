"""Compares a table's metadata table with the table's files. Changes nothing.

Each partition of the metadata table is compared with what the data files hold, as Hudi's HoodieMetadataTableValidator
does: one module for each kind of partition.
"""

from skep_table.services.metadata_check.check import check_metadata_table
from skep_table.services.metadata_check.findings import Difference, MetadataCheck, MetadataProblem, PartitionCheck
from skep_table.services.metadata_check.listing import ListedFile, compare_files

__all__ = [
    "Difference",
    "ListedFile",
    "MetadataCheck",
    "MetadataProblem",
    "PartitionCheck",
    "check_metadata_table",
    "compare_files",
]
