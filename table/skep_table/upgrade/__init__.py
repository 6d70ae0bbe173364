"""Upgrade and downgrade: a table from one version to another, in steps that a crash can't leave half done.

What differs between versions is where the timeline lies and how it is encoded, and what the settings state. Data files
stay as they are, but for one compaction: log files are named by another instant from version 8 on, so no latest slice
may have any.

1. *Settle*, before and beside other writers: failed writes are rolled back, pending plans carried out,
   all logs compacted. Each is an operation of its own, which the table may see at any time.
2. *Copy*, under the lock, when nothing is pending and no slice has logs: the timeline and its archive are written in
   the other layout, in the place where the new version has them and no reader of the old one searches. What an earlier
   attempt left there is deleted first.
3. *Switch*: one atomic replace of `hoodie.properties`, with the new version and all of its settings. This is the commit
   point: before it the table is of the old version, with its timeline; after it of the new one, with the copy.
4. *Delete* the old timeline.

A sign (`timeline.layout.MOVED`) lies in the new folder from before the first copy until after the switch, and in the
old one from before the switch until all else is deleted. Who has read the settings before the switch and lists the
folder after it finds the sign, or nothing, and reads the settings again; and a signed folder beside the table's
timeline is known as a copy, where Hudi, which moves files one by one, leaves half of them.

A process that is killed before 3 leaves files that nobody reads, after 3 files of a timeline that was left: the next
upgrade or downgrade, to the same version too, deletes them. A step between neighbouring versions is a function of the
settings (`settings.py`); several are taken at once, with one copy and one switch. Between 8 and 9 the layout is the
same, and nothing is copied. Writers of an older snapshot are refused at their commit
(`commit/writable.check_version`).

A table of a version before 6 is only read. It becomes one of version 6 first, by a switch of its own (`older.py`), and
from there what it is to become.
"""

from skep_table.upgrade.change import change_version as change_version
from skep_table.upgrade.change import upgrade_to as upgrade_to
from skep_table.upgrade.plan import UpgradeStep as UpgradeStep
from skep_table.upgrade.plan import VersionPlan as VersionPlan
from skep_table.upgrade.plan import plan_version_change as plan_version_change
