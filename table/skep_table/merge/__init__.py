"""Merging rows with equal keys: which one stays, and what it takes over from the other (format guide 8)."""

from skep_table.merge.combine import combine, latest_per_key, newer_of_pairs
from skep_table.merge.rows import DELETED, mark_deleted
from skep_table.merge.rule import Fill, MergeRule, MergeStep
from skep_table.merge.updates import Updates, Watch, last_of_each

__all__ = [
    "DELETED",
    "Fill",
    "MergeRule",
    "MergeStep",
    "Updates",
    "Watch",
    "combine",
    "last_of_each",
    "latest_per_key",
    "mark_deleted",
    "newer_of_pairs",
]
