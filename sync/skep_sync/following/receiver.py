"""Hudi's commit callback: the message of a JVM writer after a commit, over HTTP or Kafka.

    {"commitTime": "…", "tableName": "…", "basePath": "…", "hoodieWriteStat": [ … ]}

Newer releases add fields. It is only taken as a hint that the table may have a commit: the sync reads the timeline.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from skep_format.errors import InputError

_TIME: Final = re.compile(r"\d{1,20}")
_LONGEST_NAME: Final = 256


class BadCallbackError(InputError):
    """A message that is no commit callback of Hudi's."""


@dataclass(frozen=True, slots=True)
class CommitCallback:
    """What of a callback matters to a sync."""

    base_path: str
    table: str
    instant: str | None


def parse_callback(body: bytes) -> CommitCallback:
    """The callback of a message's body. BadCallbackError names what is missing or wrong."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadCallbackError(f"the callback is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadCallbackError("the callback is no JSON object", found=type(message).__name__)
    base_path = _text(message, "basePath")
    table = _text(message, "tableName")
    if len(table) > _LONGEST_NAME or not table.isprintable():
        raise BadCallbackError("the callback's tableName can't be a table's name", found=table[:_LONGEST_NAME])
    instant = message.get("commitTime")
    if instant is not None and not (isinstance(instant, str) and _TIME.fullmatch(instant)):
        raise BadCallbackError("the callback's commitTime is no instant", found=str(instant)[:64])
    return CommitCallback(base_path, table, instant)


def _text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str) or not value:
        raise BadCallbackError(f"the callback has no {name}", expected=name, found=type(value).__name__)
    return value
