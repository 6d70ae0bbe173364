"""Indexes: which file group holds the row of a key. The contract (`contract.py`), Hudi's indexes, and plug-ins."""

from skep_table.write.indexes.contract import Candidates, Index, KeyLookUp, LookedUp
from skep_table.write.indexes.registry import index_of, refuse_other_buckets

__all__ = ["Candidates", "Index", "KeyLookUp", "LookedUp", "index_of", "refuse_other_buckets"]
