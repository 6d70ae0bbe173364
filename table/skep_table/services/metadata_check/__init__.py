"""Compares a table's metadata table with the table's files. Changes nothing.

Each partition of the metadata table is compared with what the data files hold, as Hudi's HoodieMetadataTableValidator
does: one module for each kind of partition.
"""

from skep_table.services.metadata_check.check import check_metadata_table as check_metadata_table
from skep_table.services.metadata_check.findings import Difference as Difference
from skep_table.services.metadata_check.findings import MetadataCheck as MetadataCheck
from skep_table.services.metadata_check.findings import MetadataProblem as MetadataProblem
from skep_table.services.metadata_check.findings import PartitionCheck as PartitionCheck
from skep_table.services.metadata_check.listing import ListedFile as ListedFile
from skep_table.services.metadata_check.listing import compare_files as compare_files
