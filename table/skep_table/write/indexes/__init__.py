"""Indexes: which file group holds the row of a key. What each is to a write; Hudi's by their names, and plug-ins."""

from skep_table.write.indexes.base import GlobalIndex, Index, Tags
from skep_table.write.indexes.registry import make_index

__all__ = ["GlobalIndex", "Index", "Tags", "make_index"]
