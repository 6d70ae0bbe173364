"""One file of an instant as the record that an archive of timeline layout 1 keeps of it (format guide 2.10).

Hudi's record has members for some kinds of content only. A file of any other kind is archived by its time, action and
state alone, as Hudi archives it; so every file that can lie on a timeline has a record.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from skep_format.errors import FormatError
from skep_format.timeline.archive import MEMBER_OF
from skep_format.timeline.codec import commit_record
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import PLAN_OF, decode_plan
from skep_format.timeline.records import to_record

_NO_COMMIT: Final = CommitMetadata(operation_type=WriteOperation.UNKNOWN)

log = logging.getLogger("skep.archive")


def keeps_content(instant: Instant) -> bool:
    """Whether an archive keeps what a file of this action and state holds."""
    return (instant.action, instant.state) in MEMBER_OF


def archive_entry(layout: TimelineLayout, instant: Instant, data: bytes, path: str, modified: str) -> dict[str, Any]:
    """The HoodieArchivedMetaEntry of a file with the bytes `data`, last modified at the instant time `modified`.

    FormatError naming `path` when a completed file is not readable. An unreadable plan, which nobody needs any more,
    is left out with a warning.
    """
    entry: dict[str, Any] = {
        "commitTime": instant.requested_time,
        "actionType": instant.action.value,
        "actionState": instant.state.name,
        "stateTransitionTime": modified,
        "version": None,
    }
    member = MEMBER_OF.get((instant.action, instant.state))
    if member is None:
        return entry
    try:
        content = _content(layout, instant, data, path)
    except FormatError as error:
        if instant.is_completed:
            raise
        log.warning("archived without its content: %s", error.message)
        return entry
    return entry if content is None else {**entry, member: content}


def _content(layout: TimelineLayout, instant: Instant, data: bytes, path: str) -> Any:
    if kind := PLAN_OF.get((instant.action, instant.state)):
        return to_record(decode_plan(kind, data, path)) if data else None
    if instant.action not in DATA_ACTIONS:
        return None
    metadata = layout.decode_commit(data, path) if data else _NO_COMMIT
    record = commit_record(metadata)
    if instant.action is Action.REPLACE_COMMIT and instant.is_completed:
        record.setdefault("partitionToReplaceFileIds", {})
    return record
