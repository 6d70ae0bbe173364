"""Waits for processes that tests start. One that does not end leaves the stacks of its threads in the report."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

# The interpreters that tests start print the stacks of their threads on SIGABRT.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

_PATIENCE_SECONDS = 120.0


def outcome(process: subprocess.Popen[Any], seconds: float = _PATIENCE_SECONDS) -> tuple[Any, Any]:
    """Its standard output and errors once it has ended; AssertionError with both if it does not within that time."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, errors = process.communicate()
        raise AssertionError(f"the process did not end within {seconds:g} s\n{out}\n{errors}") from None
