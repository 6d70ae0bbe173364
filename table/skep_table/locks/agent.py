"""The text by which a lock's holder identifies itself, in the field that a provider has for it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

from skep_table.runtime.process import ProcessName, this_process

_PREFIX: Final = "skep "


def agent_text(purpose: str | None, *, most: int | None = None) -> str:
    """Process, purpose, time, and an id unique to this lock, as JSON.

    `most`: the provider's limit in characters, at least 110; then host and time are left out, and the purpose cut.
    """
    facts: dict[str, object] = {**this_process().as_dict(), "id": uuid.uuid4().hex[:16]}
    if most is not None:
        del facts["host"]
    else:
        facts["since"] = int(time.time())
    if purpose is not None:
        room = len(purpose) if most is None else most - len(_text({**facts, "purpose": ""}))
        facts["purpose"] = purpose[:room]
    return _text(facts)


def _text(facts: Mapping[str, object]) -> str:
    return _PREFIX + json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


def agent_facts(text: str | None) -> dict[str, object]:
    """The facts in a skep holder's text; empty for other clients."""
    if not (text or "").startswith(_PREFIX):
        return {}
    try:
        facts = json.loads((text or "").removeprefix(_PREFIX))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def has_ended(text: str | None) -> bool:
    """Whether the process that wrote the text has certainly ended, so that its lock can be broken."""
    process = ProcessName.parse(agent_facts(text))
    return process is not None and process.has_ended


def describe(
    facts: Mapping[str, object], *, user: str | None = None, host: str | None = None, since: float | None = None
) -> str:
    """A holder as text for people. `since`: epoch seconds, where its own text has none."""
    host = host or str(facts.get("host", "")) or "another client"
    parts = [f"{user}@{host}" if user else host]
    if "pid" in facts:
        parts.append(f"process {facts['pid']}")
    if facts.get("purpose"):
        parts.append(str(facts["purpose"]))
    own = facts.get("since")
    began = since if since is not None else own if isinstance(own, int | float) else None
    if began is not None:
        parts.append(f"since {datetime.fromtimestamp(began, timezone.utc):%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(parts)
