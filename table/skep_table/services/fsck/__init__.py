"""Checks a table: its settings, timeline, files, their contents and its metadata table; repairs what costs no row.

Nothing is changed by a check. Each kind of finding has a line in docs/runbook.md.
"""

from skep_table.services.fsck.check import fsck, fsck_at
from skep_table.services.fsck.findings import FileFinding, Problem, Repair
from skep_table.services.fsck.repair import repair

__all__ = ["FileFinding", "Problem", "Repair", "fsck", "fsck_at", "repair"]
