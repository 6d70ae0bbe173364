"""Indexes: which file group holds the row of a key. The contract (`contract.py`), Hudi's indexes, and plug-ins."""

from skep_table.write.indexes.contract import Candidates as Candidates
from skep_table.write.indexes.contract import Index as Index
from skep_table.write.indexes.contract import KeyLookUp as KeyLookUp
from skep_table.write.indexes.contract import LookedUp as LookedUp
from skep_table.write.indexes.registry import index_of as index_of
from skep_table.write.indexes.registry import refuse_other_buckets as refuse_other_buckets
