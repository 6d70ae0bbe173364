"""Concurrent changes of a table's columns: the write that completes later keeps the columns that the other added."""

from __future__ import annotations

from dataclasses import replace

from skep_format.errors import CommitConflictError, SchemaError
from skep_format.options import Options
from skep_format.schema.avro import avro_text, parse_avro
from skep_format.schema.history import LATEST_SCHEMA
from skep_format.schema.reconcile import reconcile
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.options import SCHEMA_MERGE
from skep_table.slices.history import schema_with_ids
from skep_table.table import HudiTable


def with_merged_schema(
    began: HudiTable, now: HudiTable, instant: Instant, metadata: CommitMetadata, options: Options
) -> CommitMetadata:
    """The metadata of a write with a schema that has the columns of both.

    CommitConflictError where the columns do not fit, and where readers would not see the new ones: the newest instant
    defines a table's columns, and another instant is newer.
    """
    text = metadata.schema_json
    last_before = began.timeline.data().completed().last()
    if text is None or last_before == now.timeline.data().completed().last():
        return metadata
    if LATEST_SCHEMA in metadata.extra_metadata or schema_with_ids(now):
        _check_ids(began, now, instant, text)
        return metadata
    if not options.value(SCHEMA_MERGE):
        return metadata
    try:
        before, theirs = (began.stored_schema() if last_before else None), now.stored_schema()
    except SchemaError:
        return metadata  # no commit has a schema yet
    ours = parse_avro(text)
    if before == theirs and ours == before:
        return metadata
    try:
        merged = reconcile(theirs, ours)
    except SchemaError as error:
        raise now.error(
            CommitConflictError,
            f"another write changed the columns meanwhile, and what this one writes does not fit them: {error.message}",
            hint="write again with the columns as they are now",
            column=error.fields.get("column"),
        ) from error
    if merged != theirs:
        _check_newest(now, instant)
    if merged == ours:
        return metadata
    return replace(metadata, extra_metadata={**metadata.extra_metadata, "schema": avro_text(merged)})


def _check_ids(began: HudiTable, now: HudiTable, instant: Instant, text: str) -> None:
    """CommitConflictError where columns with ids were changed meanwhile, or readers would not see this change of them.

    A file is read by the columns of its instant: a write that is planned by others would be misread.
    """
    if schema_with_ids(began) != schema_with_ids(now) or began.stored_schema() != now.stored_schema():
        problem = "its columns were changed meanwhile (schema on read)"
        raise now.error(CommitConflictError, problem, hint="write again with the columns as they are now")
    if parse_avro(text).without_meta() != now.stored_schema():
        _check_newest(now, instant)


def _check_newest(now: HudiTable, instant: Instant) -> None:
    later = now.timeline.data().completed().last()
    if later is not None and later.requested_time.is_after(instant.requested_time):
        raise now.error(
            CommitConflictError,
            f"{later.action.value} {later.requested_time} began later and completed first, so that its columns are the"
            " table's, without those that this write adds",
            hint="write again",
            instant=later.requested_time,
        )
