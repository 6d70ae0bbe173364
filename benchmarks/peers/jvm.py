"""JVM Hudi as a peer: a warm Spark session with one release's bundle, in a process of its own.

At most one is up at a time through `Jvms`: a session takes a core and a gigabyte or two.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import Self

from benchmarks.peers.bundle import bundle, java
from benchmarks.peers.spelling import Row

WORKER = Path(__file__).with_name("worker.py")


class HudiRefused(Exception):
    """Hudi (or Spark) answered with an error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave: rows in golden spelling, their Spark schema, the seconds it took."""

    rows: list[Row]
    schema: dict[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Validation:
    """How a metadata table differs from its table, how much was compared by kind, and the columns with statistics."""

    differences: list[str]
    compared: dict[str, int]
    columns: list[str]


class Worker:
    """A script in a process of its own that answers requests line by line; see `worker.serve`.

    Use as a context manager, or call stop(). `folder` is the worker's own; stop() deletes it.
    """

    def __init__(self, name: str, script: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix=f"{name}-")
        self._log = Path(self._folder.name, "log").open("wb")  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [sys.executable, str(script), self._folder.name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self._folder.name,
            env={**os.environ, "TZ": "UTC", "PYSPARK_PYTHON": sys.executable, **environment},
            start_new_session=True,
        )
        try:
            self._answer()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the process whose child is the JVM."""
        return self._process.pid

    def request(self, do: str, **fields: Any) -> dict[str, Any]:
        """Asks the worker for `do`, a method of the script's. HudiRefused when that fails."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"do": do, **fields}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def stop(self) -> None:
        """Ends the process and waits until it and its children have ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the JVM is in the worker's own group
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise HudiRefused(f"{found['error']['kind']}: {found['error']['message']}")
        return found

    def _ended(self) -> RuntimeError:
        self._process.wait(timeout=30)
        log = Path(self._log.name).read_text(errors="replace")[-4000:]
        return RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{log}")


class Jvm(Worker):
    """One Spark session with Hudi `release`. PeerMissing when this machine can't run it."""

    def __init__(self, release: str, settings: Mapping[str, str] | None = None) -> None:
        self.release = release
        jar = bundle(release)
        arguments = [str(jar), json.dumps(dict(settings or {}))]
        super().__init__(f"hudi-{release}", WORKER, arguments, {"JAVA_HOME": str(java().resolve().parents[1])})

    def read(self, path: str | Path, options: Mapping[str, str] | None = None, **more: Any) -> Answer:
        """A query of the table at `path`; `columns` and `where` narrow it."""
        return _answer(self.request("read", path=str(path), options=dict(options or {}), **more))

    def write(
        self,
        path: str | Path,
        rows: Iterable[Row],
        schema: str,
        options: Mapping[str, str],
        *,
        operation: str | None = None,
        mode: str = "append",
    ) -> float:
        """Writes rows (in golden spelling; `schema` is DDL text or JSON text) and gives the seconds it took."""
        given = {**options, **({"hoodie.datasource.write.operation": operation} if operation else {})}
        done = self.request("write", path=str(path), rows=list(rows), schema=schema, options=given, mode=mode)
        return float(done["seconds"])

    def sql(self, text: str, settings: Mapping[str, str] | None = None) -> Answer:
        """Runs a statement under `settings`, which hold for this statement only."""
        return _answer(self.request("sql", text=text, settings=dict(settings or {})))

    def validate(self, path: str | Path) -> Validation:
        """Hudi's own comparison of the metadata table with the files, and what is in them."""
        found = self.request("validate", path=str(path))
        return Validation(found["differences"], found["compared"], found["columns"])

    def archived(self, path: str | Path) -> dict[str, str | None]:
        """Time → what the archive of a table keeps of the instant, as JSON. Of release 0.15.0."""
        contents: dict[str, str | None] = self.request("archived", path=str(path))["contents"]
        return contents

    def sync(self, uri: str, options: Mapping[str, str]) -> float:
        """Syncs a table with Hudi's own tool and gives the seconds it took."""
        return float(self.request("sync", uri=uri, options=dict(options))["seconds"])


class Jvms:
    """The sessions of a test run: one at a time, started when asked for, the one before is stopped."""

    def __init__(self) -> None:
        self._current: Jvm | None = None

    def of(self, release: str) -> Jvm:
        if self._current is None or self._current.release != release:
            self.stop()
            self._current = Jvm(release)
        return self._current

    def stop(self) -> None:
        if self._current is not None:
            self._current.stop()
            self._current = None


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(found["rows"], found["schema"], found["seconds"])
