"""What people did by force, one JSON line each in a file of the user's: when, who, what."""

from __future__ import annotations

import getpass
import json
import os
import socket
from datetime import datetime, timezone
from pathlib import Path


def audit_file() -> Path:
    """`$XDG_STATE_HOME/skep/audit.jsonl`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "skep" / "audit.jsonl"


def note(what: str, **facts: object) -> Path:
    """Adds a line, and answers the file that it is in."""
    file = audit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    line = {"at": now, "by": f"{getpass.getuser()}@{socket.gethostname()}", "what": what, **facts}
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, default=str) + "\n")
    return file
