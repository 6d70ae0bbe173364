"""The history of a table's columns with their ids as a participant of each commit: a file of its own per commit."""

from __future__ import annotations

import json

from skep_format.schema.history import LATEST_SCHEMA, first_version, version_document, with_version
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.parts.participant import Participant
from skep_table.slices.history import history_files, history_path, in_files, newest_history
from skep_table.table import HudiTable


class SchemaHistory(Participant):
    """Writes the history before the instant completes; readers leave out the file of an instant that is not complete.

    Hudi takes the newest file of the commits in the active timeline for the whole history: each commit of a table whose
    columns have ids writes one, whether it changes the columns or not.
    """

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Writes the file, and deletes those of archived commits; nothing for a table whose columns have no ids."""
        latest = metadata.extra_metadata.get(LATEST_SCHEMA)
        if latest is None:
            return
        files = history_files(table)
        newest = newest_history(table, files)
        if newest is None:
            before = in_files(table, table.stored_schema())
            history = with_version(None, version_document(first_version(before), before))
        else:
            history = table.storage.read(newest).decode()
        text = with_version(history, json.loads(latest))
        table.storage.replace_atomic(history_path(instant.requested_time), text.encode())
        archived = table.timeline.is_archived
        old = [path for file, path in files if archived(file.requested_time) and path != newest]
        if old:
            table.storage.delete_many(old, durable=False)

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the instant's files, those that Hudi wrote included."""
        written = [path for file, path in history_files(table) if file.requested_time == instant.requested_time]
        if written:
            table.storage.delete_many(written)


def rename_for_version_6(table: HudiTable) -> None:
    """Gives the history files that Hudi wrote in a newer version names without completion times, as its readers of
    version 6 need them. Those of newer versions read these, too: an interrupted change may leave either."""
    for file, path in history_files(table):
        target = history_path(file.requested_time)
        if file.is_completed and path != target:
            table.storage.rename(path, target)
