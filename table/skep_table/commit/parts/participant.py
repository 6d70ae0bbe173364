"""The contract of what takes part in a commit: a participant is called at three points of the protocol (`states.py`).

What one has prepared or committed counts only if the instant completes: a participant either makes its entries void by
themselves until then, as those of an index outside are (`index_entries.py`), or deletes them in `abort`.
"""

from __future__ import annotations

from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.table import HudiTable


class Participant:
    """Keeps its own data in step with a table's commits. Every method may be repeated after a failure."""

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Outside the lock, after all data files are written and before conflicts are checked: the slow part.

        `table` is the snapshot that the commit is based on. Called again when a write retries after a conflict.
        """

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Under the table's lock, between the conflict check and the completed file.

        `table` is the snapshot taken under the lock; `metadata` is what the completed file is going to hold. The
        instant may still fail after it.
        """

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Undoes `prepare` and `commit` of an instant that does not complete, or that is rolled back later.

        For the participants of a table (`table_participants`) any process may call it, also after a kill: what there
        is to undo has to be found from the table and the instant alone.
        """
