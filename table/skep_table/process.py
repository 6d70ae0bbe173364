"""A process as others may recognise it: to tell, from what a writer left behind, that it is certainly gone."""

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
    """`machine` names a running kernel and its process numbers (containers have their own); empty where it can't be
    told. `started` tells a process from a later one with the same number."""

    host: str
    machine: str
    pid: int
    started: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> ProcessName | None:
        """None for what is not the name of a process."""
        try:
            host = str(facts.get("host", ""))
            return cls(host, str(facts["machine"]), int(facts["pid"]), str(facts["started"]))
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def is_gone(self) -> bool:
        """True only when it is certain: it ran on this machine, and no such process is there any more."""
        if not self.machine or self.machine != _machine():
            return False
        return _started(self.pid) != self.started


def this_process() -> ProcessName:
    pid = os.getpid()
    return ProcessName(socket.gethostname(), _machine(), pid, _started(pid) or "")


@functools.cache
def _machine() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"{boot}/{Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:10]
    return ""


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the machine did; None when there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
