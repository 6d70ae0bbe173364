"""Checks a table: its settings, timeline, files, their contents and its metadata table; repairs what costs no row.

Nothing is changed by a check. Each kind of finding has a line in docs/runbook.md.
"""

from skep_table.services.fsck.check import fsck as fsck
from skep_table.services.fsck.check import fsck_at as fsck_at
from skep_table.services.fsck.findings import FileFinding as FileFinding
from skep_table.services.fsck.findings import Problem as Problem
from skep_table.services.fsck.findings import Repair as Repair
from skep_table.services.fsck.repair import repair as repair
