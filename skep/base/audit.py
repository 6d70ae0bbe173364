"""The user's audit file: one JSON line for each forced action, with time, user and facts."""

from __future__ import annotations

import getpass
import json
import os
import socket
from datetime import datetime, timezone
from pathlib import Path


def state_folder() -> Path:
    """`$XDG_STATE_HOME/skep`: what skep keeps for the user from one run to the next."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "skep"


def audit_file() -> Path:
    """`$XDG_STATE_HOME/skep/audit.jsonl`."""
    return state_folder() / "audit.jsonl"


def note(what: str, **facts: object) -> Path:
    """Adds a line; returns the file."""
    file = audit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    line = {"at": now, "by": f"{getpass.getuser()}@{socket.gethostname()}", "what": what, **facts}
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, default=str) + "\n")
    return file
