"""The message of a callback: the fields of Hudi's, and a few by which receivers recognise repetitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skep_format.timeline.codec import encode_json
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata


@dataclass(frozen=True, slots=True)
class CallbackMessage:
    """One commit. A message may come more than once: `event_id` is the same each time."""

    base_path: str
    table_name: str
    instant: Instant
    metadata: CommitMetadata

    @property
    def event_id(self) -> str:
        """The same for each repetition of a message."""
        return f"{self.base_path}@{self.instant.requested_time}"

    def record(self) -> Mapping[str, Any]:
        """Hudi's fields first. Action and extra metadata, which Hudi's message loses, come with their values."""
        commit = json.loads(encode_json(self.metadata))
        return {
            "commitTime": self.instant.requested_time,
            "tableName": self.table_name,
            "basePath": self.base_path,
            "hoodieWriteStat": [stat for stats in commit["partitionToWriteStats"].values() for stat in stats],
            "commitActionType": self.instant.action.value,
            "extraMetadata": commit["extraMetadata"],
            "eventId": self.event_id,
            "eventVersion": 1,
            "operationType": commit["operationType"],
            "partitions": list(self.metadata.partitions),
        }

    def text(self) -> bytes:
        """The message as JSON."""
        return json.dumps(self.record(), ensure_ascii=False, separators=(",", ":")).encode()
