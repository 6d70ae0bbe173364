"""Starts services as plain processes: on free ports of 127.0.0.1, waited for by a real call, stopped for certain."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine_services import Service, command_of, fill, java, parts_of, setup_of, values_of, write_settings
from engine_timings import Timing

GUARD = Path(__file__).with_name("guard.py")
Ready = Callable[[int], object]
"""Given the port: a call that fails until the service answers."""


class StartFailed(Exception):
    """A service did not come up; the message ends with its log's end."""


@dataclass
class Running:
    """A service that answers on `port`."""

    name: str
    port: int
    log: Path
    _end: Callable[[], None]
    _ended: bool = field(default=False, repr=False)

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def stop(self) -> None:
        if not self._ended:
            self._ended = True
            self._end()

    def and_then(self, more: Callable[[], None]) -> Running:
        """The same, whose stop also does `more`."""

        def end() -> None:
            self.stop()
            more()

        return Running(self.name, self.port, self.log, end)


class Launcher(Protocol):
    """A way of starting services: as processes or in containers."""

    kind: str

    def start(self, service: Service, ready: Ready, values: Mapping[str, str], *, seconds: float = 300) -> Running: ...


class ProcessLauncher:
    """Plain processes, each under a guard that ends it when this process does."""

    kind = "process"

    def __init__(self, scratch: Path, logs: Path, timings: list[Timing], running: list[Running]) -> None:
        self._scratch, self._logs = scratch, logs
        self._timings, self._running = timings, running

    def start(self, service: Service, ready: Ready, values: Mapping[str, str], *, seconds: float = 300) -> Running:
        """ServiceMissing when it can't be had; StartFailed when it does not answer in time."""
        parts = parts_of(service)
        began = time.monotonic()
        folder = new_folder(self._scratch, service.name)
        settings = folder / "conf"
        port = free_port()
        all_values = values_of(
            service,
            {
                "HOST": "127.0.0.1",
                "PORT": str(port),
                "FOLDER": str(folder),
                "CONF": str(settings),
                "UNPACKED": str(parts.home or folder),
                **values,
            },
        )
        write_settings(service, settings, all_values)
        log = self._logs / f"{service.name}.log"
        environment = {"METASTORE_HOME": str(parts.home or folder), "HADOOP_USER_NAME": "root"}
        environment.update({name: fill(text, all_values) for name, text in service.environment.items()})
        program = str(java(service.java))
        first = setup_of(service, parts, settings)
        with log.open("wb") as out:
            if first is not None:
                done = subprocess.run(
                    [program, *(fill(text, all_values) for text in first)],
                    cwd=folder,
                    stdout=out,
                    stderr=out,
                    env=with_environment(environment),
                    check=False,
                )
                if done.returncode:
                    raise StartFailed(f"{service.name}: its set-up failed ({done.returncode}){tail(log)}")
        command = [program, *(fill(text, all_values) for text in command_of(service, parts, settings))]
        return self.run(service.name, command, port, ready, folder, environment, seconds=seconds, began=began)

    def run(
        self,
        name: str,
        command: list[str],
        port: int,
        ready: Ready,
        folder: Path,
        environment: Mapping[str, str],
        *,
        seconds: float = 300,
        began: float | None = None,
        kind: str = kind,
    ) -> Running:
        """Any command that comes to listen on `port`."""
        began = time.monotonic() if began is None else began
        log = self._logs / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, str(GUARD), *command],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=with_environment(environment),
                start_new_session=True,
            )

        def end() -> None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=120)
            shutil.rmtree(folder, ignore_errors=True)

        running = Running(name, port, log, end)
        self._running.append(running)
        try:
            wait_until_ready(running, ready, seconds, lambda: process.poll() is None)
        except BaseException:
            running.stop()
            raise
        self._timings.append(Timing(name, kind, time.monotonic() - began))
        return running


def wait_until_ready(running: Running, ready: Ready, seconds: float, alive: Callable[[], bool]) -> None:
    """An open port is not enough: a real call is tried until it is answered."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            ready(running.port)
            return
        except Exception as error:  # whatever the client of a half-started server raises
            if not alive():
                raise StartFailed(f"{running.name} ended while it started{tail(running.log)}") from error
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"{running.name} gave no answer in {seconds:g} s: {error!r}{tail(running.log)}"
                ) from error
        time.sleep(0.3)


def tail(log: Path, lines: int = 30) -> str:
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return f"; the end of {log}:\n" + "\n".join(f"    {line[:300]}" for line in text)


def new_folder(parent: Path, name: str) -> Path:
    for number in range(1000):
        folder = parent / (f"{name}-{number}" if number else name)
        if not folder.exists():
            folder.mkdir(parents=True)
            return folder
    raise AssertionError(parent)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def with_environment(more: Mapping[str, str]) -> dict[str, Any]:
    return {**os.environ, "TZ": "UTC", **more}
