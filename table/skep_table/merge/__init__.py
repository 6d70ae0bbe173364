"""Merging rows with equal keys: which one stays, and what it takes over from the other (format guide 8)."""

from skep_table.merge.combine import combine as combine
from skep_table.merge.combine import latest_per_key as latest_per_key
from skep_table.merge.combine import newer_of_pairs as newer_of_pairs
from skep_table.merge.rows import DELETED as DELETED
from skep_table.merge.rows import mark_deleted as mark_deleted
from skep_table.merge.rule import Fill as Fill
from skep_table.merge.rule import MergeRule as MergeRule
from skep_table.merge.rule import MergeStep as MergeStep
from skep_table.merge.updates import Updates as Updates
from skep_table.merge.updates import Watch as Watch
from skep_table.merge.updates import last_of_each as last_of_each
