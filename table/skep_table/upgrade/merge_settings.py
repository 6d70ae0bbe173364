"""Merge settings by payload class: what Hudi's shipped classes become from table version 9 on (format guide 14.3).

Version 9 keeps the class as a legacy setting and states what it does: a merge mode, a partial update mode, ordering
fields and merge properties. On the way back the class determines again how rows merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skep_table.table_config import MergeMode, PartialUpdateMode
from skep_table.table_config.keys import DELETE_FIELD, DELETE_MARKER, UNAVAILABLE_VALUE

_DEBEZIUM_DELETES: Final = {DELETE_FIELD: "_change_operation_type", DELETE_MARKER: "d"}


@dataclass(frozen=True, slots=True)
class StatedMerge:
    """What a payload class does, in the settings of version 9.

    `ordering`: its own ordering fields, in place of the table's; `ordering_before`: those of versions before 9.
    `is_mode_before`: versions 6 and 8 know the class by its merge mode, too; otherwise it is CUSTOM there.
    """

    mode: MergeMode
    update: PartialUpdateMode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    ordering: tuple[str, ...] = ()
    ordering_before: tuple[str, ...] = ()
    is_mode_before: bool = False


_COMMIT: Final = MergeMode.COMMIT_TIME_ORDERING
_EVENT: Final = MergeMode.EVENT_TIME_ORDERING
_STATED: Final[Mapping[str, StatedMerge]] = {
    "OverwriteWithLatestAvroPayload": StatedMerge(_COMMIT, is_mode_before=True),
    "DefaultHoodieRecordPayload": StatedMerge(_EVENT, is_mode_before=True),
    "EventTimeAvroPayload": StatedMerge(_EVENT, is_mode_before=True),
    "PartialUpdateAvroPayload": StatedMerge(_EVENT, PartialUpdateMode.IGNORE_DEFAULTS),
    "OverwriteNonDefaultsWithLatestAvroPayload": StatedMerge(_COMMIT, PartialUpdateMode.IGNORE_DEFAULTS),
    "AWSDmsAvroPayload": StatedMerge(_COMMIT, properties={DELETE_FIELD: "Op", DELETE_MARKER: "D"}),
    "PostgresDebeziumAvroPayload": StatedMerge(
        _EVENT,
        PartialUpdateMode.FILL_UNAVAILABLE,
        {**_DEBEZIUM_DELETES, UNAVAILABLE_VALUE: "__debezium_unavailable_value"},
        ordering=("_event_lsn",),
        ordering_before=("_event_lsn",),
    ),
    "MySqlDebeziumAvroPayload": StatedMerge(
        _EVENT,
        properties=_DEBEZIUM_DELETES,
        ordering=("_event_bin_file", "_event_pos"),
        ordering_before=("_event_seq",),
    ),
}
DELETE_PROPERTIES: Final = (DELETE_FIELD, DELETE_MARKER)
"""Settings of `DefaultHoodieRecordPayload` that a writer's options may give, and version 9 keeps with the table."""


def stated_merge(payload_class: str | None) -> StatedMerge | None:
    """What a payload class does; None for one that is not shipped with Hudi, or none."""
    return _STATED.get((payload_class or "").rpartition(".")[2])
