"""Identifies a process, so that others can detect from what it left behind that it has ended."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessName:
    """One process of one machine.

    `machine` is a digest of the running kernel and the process number space (containers have their own); empty where
    the system does not provide it. `started` (clock ticks since boot) distinguishes processes with the same number.
    """

    host: str
    machine: str
    pid: int
    started: str

    def as_dict(self) -> dict[str, object]:
        """The fields by name, as `parse` reads them."""
        return asdict(self)

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> ProcessName | None:
        """The process that `as_dict` described; None where fields are missing or malformed."""
        try:
            host = str(facts.get("host", ""))
            return cls(host, str(facts["machine"]), int(facts["pid"]), str(facts["started"]))
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def has_ended(self) -> bool:
        """True only when it is certain: the process ran on this machine and no longer exists."""
        if not self.machine or self.machine != _machine():
            return False
        return _started(self.pid) != self.started


def this_process() -> ProcessName:
    """The calling process."""
    pid = os.getpid()
    return ProcessName(socket.gethostname(), _machine(), pid, _started(pid) or "")


@functools.cache
def _machine() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"{boot}/{Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:10]
    return ""


def _started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
