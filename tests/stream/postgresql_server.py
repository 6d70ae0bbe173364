"""A PostgreSQL of the tests' own on loopback, which can be killed and started again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil


class NoPostgresql(Exception):
    """This machine has none."""


class Server:
    """Its port and its data outlive its process. It does not run as root: then as the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        found = [Path(text) for text in (shutil.which("postgres"),) if text]
        found += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
        if not found:
            raise NoPostgresql("no PostgreSQL on this machine")
        self._programs, self._folder = found[0].resolve().parent, folder
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        command = [*self._as, self._programs / "initdb", "-A", "trust", "-U", "shop", "-D", folder / "data"]
        subprocess.run(command, check=True, cwd=folder, capture_output=True)

    def start(self) -> None:
        """Returns when it responds."""
        import psycopg

        settings = ("listen_addresses=127.0.0.1", "timezone=America/New_York", "shared_buffers=16MB")
        words = [self._programs / "postgres", "-D", self._folder / "data", "-p", str(self.port), "-k", self._folder]
        words += [word for each in settings for word in ("-c", each)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*self._as, *words], cwd=self._folder, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with self.connected() as connection:
            for each in statements:
                connection.execute(each)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(host="127.0.0.1", port=self.port, user="shop", dbname="postgres", autocommit=True) as made:
            yield made

    def kill(self) -> None:
        """As kill -9 of all of its processes."""
        main = psutil.Process(self._process.pid)
        processes = [main, *main.children(recursive=True)]
        for each in processes:
            each.kill()
        self._process.wait()
        psutil.wait_procs(processes[1:], 30)


@contextmanager
def postgresql() -> Iterator[Server]:
    """One that is up."""
    with tempfile.TemporaryDirectory(prefix="skep-postgresql-") as folder:  # pytest's own are not for other users
        made = Server(Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.kill()
