"""The embedded metastore: Hive's own, out of the installed pyspark's jars, on Derby, one per warehouse folder.

Processes that work on one warehouse share one metastore: the first one starts it, the last one to leave stops it.
Three lock files in `<warehouse>/.metastore` record the users; the system frees them however a process ends:

    start.lock    held while a process looks, starts, joins or leaves
    users.lock    shared by every process that uses the metastore; the server itself waits for it and ends when it is
                  free
    server.lock   held by the server for its life

So no process id, which may have been reused, is relied upon, and a killed process leaves nothing to clean up.
"""

from __future__ import annotations

import atexit
import errno
import html
import json
import logging
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
import zipfile
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from skep_catalog.class_archive import class_archive_options
from skep_catalog.java import Java, cache_folder, cache_key, find_java
from skep_catalog.kept_entries import KeptEntries, forget, keep
from skep_catalog.spark import InstalledSpark, find_spark
from skep_format.errors import (
    CatalogError,
    EnvironmentMissingError,
    InputError,
    MetastoreStartError,
    SkepError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("skep.metastore")

FOLDER: Final = ".metastore"
_HOST: Final = "127.0.0.1"
_SERVER_CLASS: Final = "EmbeddedMetastore"
# The name is relative to derby.system.home: a path may hold characters that mean something in a Derby URL.
_DATABASE: Final = "jdbc:derby:;databaseName=derby;create=true"
_ANOTHER_SERVER, _PORT_TAKEN = 3, 4  # exit codes of the server
_LOG_LIMIT_BYTES: Final = 8 << 20
_LOG_TAIL_LINES: Final = 25

# What Hive's classes reach into below Java 17's module borders; Java 8 ignores it.
_OPENED_PACKAGES: Final = (
    *("lang", "lang.invoke", "lang.reflect", "util", "util.concurrent", "util.concurrent.atomic", "util.regex"),
    *("net", "nio", "io", "text", "time"),
)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running embedded metastore."""

    pid: int
    port: int
    folder: Path

    @property
    def uri(self) -> str:
        """The address for clients."""
        return f"thrift://{_HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.folder / "metastore.log"


@dataclass
class _Membership:
    """This process's share in one metastore. POSIX locks belong to the process: closing any handle of the file drops
    them, so there is one per folder and process, counted."""

    folder: Path
    pid: int
    users: IO[bytes]
    count: int = 0


_memberships: dict[Path, _Membership] = {}
_guard = threading.RLock()


@dataclass(eq=False)
class EmbeddedMetastore:
    """One use of a warehouse's metastore. `started`: whether this use started the server; `stop()` ends the use,
    and the server with it when nobody else is left."""

    server: ServerInfo
    started: bool
    _membership: _Membership = field(repr=False)
    _open: bool = field(default=True, repr=False)

    @classmethod
    def start_or_join(
        cls, warehouse: str | os.PathLike[str], *, port: int | None = None, timeout_seconds: float = 90
    ) -> EmbeddedMetastore:
        """Joins the metastore of `warehouse` (a local folder, made when missing), or starts it.

        Without `port` the server takes the one it had last, when that is free, else any. MetastoreStartError when it
        does not come up, when `port` is taken, or when the metastore already runs on another port than asked for.
        """
        if fcntl is None:
            raise UnsupportedError("the embedded metastore needs a POSIX system", hint="give the URI of a metastore")
        warehouse_path = local_folder(warehouse)
        folder = warehouse_path / FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MetastoreStartError(f"can't make the metastore's folder: {error}", path=folder) from error
        with _owned(folder), _starting(folder):
            membership = _join(folder)
            try:
                server = _settled(folder, timeout_seconds)
                started = server is None
                if server is None:
                    server = _start(folder, warehouse_path, port, timeout_seconds)
                elif port is not None and server.port != port:
                    raise MetastoreStartError(
                        f"the metastore of {warehouse_path} already runs on port {server.port}, not {port}",
                        hint=f"use {server.uri}, or stop it first (process {server.pid})",
                        port=server.port,
                        pid=server.pid,
                    )
            except BaseException:
                _leave(membership)
                raise
        metastore = cls(server, started, membership)
        _open_uses.add(metastore)
        return metastore

    @property
    def uri(self) -> str:
        """The address for clients."""
        return self.server.uri

    def is_alive(self) -> bool:
        """Whether the server process lives. When it was killed, `start_or_join` starts it again with its data."""
        return _is_locked(self.server.folder / "server.lock")

    def revived(self, timeout_seconds: float = 90) -> str:
        """The address of the server that serves this use now: when its process has died, it is restarted, or that
        joined which another process has started since.

        CatalogError when the use has ended, MetastoreStartError when the server does not come up.
        """
        folder = self.server.folder
        if not self._open or self._membership.pid != os.getpid():
            raise _ended(folder.parent, self.uri)
        with _owned(folder), _starting(folder):
            server = _settled(folder, timeout_seconds)
            if server is None:
                log.warning("the embedded metastore of %s (process %d) died", folder.parent, self.server.pid)
                server = _start(folder, folder.parent, None, timeout_seconds)
                self.started = True
                log.warning("it was restarted: process %d, %s", server.pid, server.uri)
            self.server = server
        return server.uri

    def stop(self, timeout_seconds: float = 20) -> bool:
        """Ends this use; calling it again is no error. Returns whether the server was stopped: it runs on while others
        use it."""
        with _guard:
            if not self._open:
                return False
            self._open = False
        if self._membership.pid != os.getpid():
            return False  # a forked child inherits the object, not the use
        with _starting(self.server.folder):
            if not _leave(self._membership):
                return False
            server = running(self.server.folder)
            if server is not None:
                forget(server.folder)
                _terminate(server, timeout_seconds)
                keep(server.folder, server.uri)
            return True

    def __enter__(self) -> EmbeddedMetastore:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class EmbeddedWhenNeeded:
    """A use of a warehouse's metastore that begins when its address is asked for, by the first call of a client."""

    def __init__(self, warehouse: str, start: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """`start` makes a context around the start."""
        self.use: EmbeddedMetastore | None = None
        self.warehouse = local_folder(warehouse)
        self._start = start
        self._guard = threading.Lock()
        self._ended = False
        self._failure: SkepError | None = None  # in the background
        self._kept: KeptEntries | None = None
        self._looks_for_kept = fcntl is not None

    def kept(self) -> KeptEntries | None:
        """What was kept of the entries, where no server runs and the database has not changed since. None for good once
        that is not so, or a server was used."""
        with self._guard:
            if self._looks_for_kept:
                self._kept = self._fitting()
                self._looks_for_kept = self._kept is not None
            return self._kept

    def _fitting(self) -> KeptEntries | None:
        if self.use is not None or self._ended or self._failure is not None:
            return None
        folder = self.warehouse / FOLDER
        kept = self._kept or KeptEntries.of(folder)
        if kept is None or not kept.fit() or not os.access(folder, os.W_OK):
            return None
        try:
            return None if _is_locked(folder / "server.lock") else kept
        except OSError:  # another user's
            return None

    def begin(self, *, only_reads: bool = False) -> None:
        """Starts or joins the server in the background, as it will be needed: the caller's imports take as long.

        With `only_reads` it is not needed where entries were kept.
        """
        if only_reads and self.kept() is not None:
            return
        threading.Thread(target=self._begin_beside, name="skep-metastore").start()

    def address(self) -> str:
        """The server's, which is started, joined or, when its process has died, started again."""
        with self._guard:
            if self.use is not None:
                return self.use.revived()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            return self._started().uri

    def _started(self) -> EmbeddedMetastore:
        if self._ended:
            raise _ended(self.warehouse)
        with self._start():
            self.use = EmbeddedMetastore.start_or_join(self.warehouse)
        return self.use

    def _begin_beside(self) -> None:
        with self._guard:
            if self.use is None and not self._ended:
                try:
                    self._started()
                except SkepError as error:
                    self._failure = error

    def stop(self) -> None:
        """Ends the use, if it began. Calling it again is no error."""
        with self._guard:
            self._ended = True
            if self.use is not None:
                self.use.stop()


def _ended(warehouse: str | Path, uri: str | None = None) -> CatalogError:
    return CatalogError(
        f"the embedded metastore of {warehouse} is not in use any more: the lake was closed",
        hint="connect again",
        uri=uri,
    )


_open_uses: weakref.WeakSet[EmbeddedMetastore] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for metastore in list(_open_uses):
        with suppress(Exception):
            metastore.stop()


def local_folder(warehouse: str | os.PathLike[str]) -> Path:
    """The absolute folder of a path or file: URI. InputError for a warehouse elsewhere."""
    text = os.fspath(warehouse)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).resolve()
    if "://" in text:
        raise InputError(
            f"an embedded metastore needs a warehouse on this machine, not {text}", hint="give the URI of a metastore"
        )
    return Path(text).expanduser().resolve()


def running(folder: Path) -> ServerInfo | None:
    """The server that lives for this state folder, None when there is none."""
    return _state(folder) if _is_locked(folder / "server.lock") else None


def _state(folder: Path) -> ServerInfo | None:
    """What the last server that came up wrote. None while one is starting, and before the first."""
    try:
        state = json.loads((folder / "server.json").read_text())
        return ServerInfo(int(state["pid"]), int(state["port"]), folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _settled(folder: Path, timeout_seconds: float) -> ServerInfo | None:
    """As `running`, once no server is starting or stopping any more (one whose starter was killed, for example)."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        server = running(folder)
        if server is not None or not _is_locked(folder / "server.lock"):
            return server
        if time.monotonic() > deadline:
            raise MetastoreStartError(
                f"a metastore holds {folder} and does not come up; see {folder / 'metastore.log'}",
                log=folder / "metastore.log",
            )
        time.sleep(0.1)


# -------------------------------------------------------------------------------- who is there


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Files of the metastore that can't be used as MetastoreStartError, which names their owner."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SkepError):
            raise
        owner = _owner(folder)
        others = f", which belongs to {owner}" if owner else ""
        raise MetastoreStartError(
            f"the embedded metastore of {folder.parent} can't be used: {error.strerror or error}:"
            f" {error.filename or folder}{others}",
            hint="one user at a time has the embedded metastore of a warehouse: choose another warehouse, or give the"
            " URI of a metastore that all share",
            path=folder,
        ) from error


def _owner(folder: Path) -> str | None:
    """Whose the metastore is, where it is another user's."""
    try:
        found = folder.stat().st_uid
    except OSError:
        return None
    if found == os.geteuid():
        return None
    import pwd

    try:
        return f"user {pwd.getpwuid(found).pw_name}"
    except KeyError:
        return f"user id {found}"


@contextmanager
def _starting(folder: Path) -> Iterator[None]:
    """One process, and one thread of it, at a time."""
    with _guard, (folder / "start.lock").open("ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _join(folder: Path) -> _Membership:
    membership = _memberships.get(folder)
    if membership is None or membership.pid != os.getpid():
        users = (folder / "users.lock").open("a+b")
        fcntl.lockf(users, fcntl.LOCK_SH)  # waits for a server that is just going away
        membership = _memberships[folder] = _Membership(folder, os.getpid(), users)
    membership.count += 1
    return membership


def _leave(membership: _Membership) -> bool:
    """Whether nobody uses the metastore any more."""
    membership.count -= 1
    if membership.count > 0:
        return False
    _memberships.pop(membership.folder, None)
    with membership.users as users:
        return _takes(users)


def _is_locked(file: Path) -> bool:
    """Whether another process holds the lock. (A process does not see its own: only the server takes this one.)"""
    with file.open("ab") as handle:
        return not _takes(handle)


def _takes(file: IO[bytes]) -> bool:
    """Whether this process gets the lock of a file."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


# -------------------------------------------------------------------------------- starting, ending


def _start(folder: Path, warehouse: Path, port: int | None, timeout_seconds: float) -> ServerInfo:
    """Starts the server and waits until it answers."""
    if port is not None:
        return _launch(folder, warehouse, port, timeout_seconds)
    before = _state(folder)
    last = before.port if before is not None and _is_free(before.port) else 0
    try:
        return _launch(folder, warehouse, last, timeout_seconds)
    except MetastoreStartError as error:
        if error.fields.get("port_taken"):  # another process took it after the check
            return _launch(folder, warehouse, 0, timeout_seconds)
        raise


def _launch(folder: Path, warehouse: Path, port: int, timeout_seconds: float) -> ServerInfo:
    state, log_path = folder / "server.json", folder / "metastore.log"
    state.unlink(missing_ok=True)
    forget(folder)
    (folder / "hive-site.xml").write_text(_hive_site(warehouse), encoding="utf-8")
    if log_path.exists() and log_path.stat().st_size > _LOG_LIMIT_BYTES:
        log_path.replace(log_path.with_suffix(".log.old"))
    with log_path.open("ab") as log_file:
        begin = log_file.tell()
        process = subprocess.Popen(
            _command(folder, port),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the terminal is for the program, which then leaves in order
        )
    threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
    try:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            server = _state(folder)
            if server is not None:
                return server
            if process.poll() is not None:
                raise _failure(f"ended with exit code {process.returncode}", log_path, begin, port, process)
            time.sleep(0.005)
        raise _failure(f"did not answer in {timeout_seconds:g} s", log_path, begin, port, process)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _failure(what: str, log_path: Path, begin: int, port: int, process: subprocess.Popen[bytes]) -> MetastoreStartError:
    """The error for a server that did not start: the known cause, or the end of its log."""
    with log_path.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    tail = "\n".join("    " + line[:300] for line in lines[-_LOG_TAIL_LINES:])
    text = "\n".join(lines)
    facts: dict[str, Any] = {"log": log_path, "port": port or None, "pid": process.pid}
    if process.returncode == _PORT_TAKEN:
        return MetastoreStartError(
            f"the embedded metastore can't listen on {_HOST}:{port}: the port is in use",
            hint="choose another port, or none to get a free one",
            port_taken=True,
            **facts,
        )
    if process.returncode == _ANOTHER_SERVER:
        return MetastoreStartError(f"another metastore is starting or stopping in {log_path.parent}", **facts)
    if "XSDB6" in text or "Another instance of Derby may have already booted" in text:
        return MetastoreStartError(
            f"the database {log_path.parent / 'derby'} is open in another process",
            hint="end the process that has it open; this is not skep's own metastore",
            **facts,
        )
    return MetastoreStartError(f"the embedded metastore {what}; the end of {log_path}:\n{tail}", **facts)


def _terminate(server: ServerInfo, timeout_seconds: float) -> None:
    """Ends the server in order, and by force when it does not go. The caller holds the start lock."""
    lock = server.folder / "server.lock"
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # another user's ends by itself, when nobody uses it
            os.kill(server.pid, signal_number)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if not _is_locked(lock):
                return
            time.sleep(0.002)
    raise MetastoreStartError(f"process {server.pid} does not end", pid=server.pid, port=server.port)


def _command(folder: Path, port: int) -> list[str]:
    spark = find_spark()
    java = find_java(spark.version)
    if not any(spark.jars.glob("hive-metastore-*.jar")):
        raise EnvironmentMissingError(
            f"the jars of pyspark {spark.version} at {spark.jars} hold no Hive Metastore",
            hint="install pyspark from PyPI, or give the URI of a metastore",
            missing="hive-metastore",
        )
    server = _compiled(java, spark)
    return [
        str(java.executable),
        "-Xmx512m",
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),  # starts faster, and it is a small server
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
        "--add-opens=java.sql/java.sql=ALL-UNNAMED",
        "-Djava.awt.headless=true",
        f"-Dderby.system.home={folder}",
        f"-Dderby.stream.error.file={folder / 'derby.log'}",
        "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
        *(f"-Dorg.apache.logging.log4j.simplelog.{name}={value}" for name, value in _LOG_SETTINGS.items()),
        "-Dsun.reflect.inflationThreshold=2147483647",  # else classes are made for methods that are called 15 times
        *class_archive_options(java, server.stem, spark.jars),
        "-cp",
        os.pathsep.join(map(str, (server, *_class_path(spark)))),
        _SERVER_CLASS,
        str(folder),
        str(port),
        _DATABASE,
    ]


# Jars of Spark that Hive's metastore has no use for: each one is opened when a resource is looked for. Those stay
# that a table's SerDe or a connector to some storage may need: Parquet's and Netty's, for example.
_FOREIGN_JARS: Final = re.compile(
    r"(spark|scala|kubernetes|volcano|vertx|arrow|arpack|blas|lapack|breeze|spire|algebra|cats|chill|json4s"
    r"|jersey|hk2|jaxb|jjwt|metrics|rocksdbjni|leveldbjni|mesos|datasketches|RoaringBitmap|jackson-module-scala)"
    r"[-_.].*"
)


# Hadoop reads them a dozen times at a start, and a metastore never looks at them: the server's jar, the first on the
# class path, has an empty one.
_UNUSED_SETTINGS: Final = "yarn-default.xml"


def _class_path(spark: InstalledSpark) -> list[Path]:
    return [each for each in sorted(spark.jars.glob("*.jar")) if not _FOREIGN_JARS.fullmatch(each.name)]


def _compiled(java: Java, spark: InstalledSpark) -> Path:
    """A jar of the server, made once by the Janino in Spark's jars: Java runtimes that come as Python wheels have no
    compiler. MetastoreStartError where that fails."""
    source = Path(__file__).with_name(f"{_SERVER_CLASS}.java")
    jars = list(map(str, _class_path(spark)))
    key = cache_key(source.read_text("utf-8"), java.version, _UNUSED_SETTINGS, *jars)
    made = cache_folder() / "java" / f"{_SERVER_CLASS}-{key}.jar"
    if made.is_file():
        return made
    made.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        command: list[str | Path] = [java.executable, "-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", os.pathsep.join(jars), "org.codehaus.commons.compiler.samples.CompilerDemo"]
        command += ["-d", scratch, "-classpath", os.pathsep.join(jars), source]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        classes = sorted(Path(scratch).glob("*.class"))
        if not any(each.stem == _SERVER_CLASS for each in classes):
            raise MetastoreStartError(
                f"the embedded metastore can't be compiled for pyspark {spark.version}: {done.stderr.strip()[-2000:]}",
                path=source,
            )
        jar = Path(scratch, made.name)
        with zipfile.ZipFile(jar, "w") as archive:
            for each in classes:
                archive.write(each, each.name)
            archive.writestr(_UNUSED_SETTINGS, "<configuration/>")
        jar.replace(made)
    return made


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


# -------------------------------------------------------------------------------- its settings

# Of log4j's own simple logger: log4j-core takes 0.2 s to start.
_LOG_SETTINGS: Final = {
    "level": "WARN",
    "showShortLogname": "true",
    "showdatetime": "true",
    "dateTimeFormat": "yyyy-MM-dd HH:mm:ss",
    "org.apache.hadoop.hive.conf.HiveConf.level": "ERROR",
    "org.apache.hadoop.hive.metastore.ObjectStore.level": "ERROR",
    "org.apache.thrift.server.TThreadPoolServer.level": "OFF",
}


def _hive_site(warehouse: Path) -> str:
    settings = {
        "javax.jdo.option.ConnectionURL": _DATABASE,
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        # Not autoCreateAll: each start compares the columns then, which are the same in all of Spark's releases.
        "datanucleus.schema.autoCreateTables": "true",
        "datanucleus.schema.autoCreateConstraints": "true",
        "datanucleus.connectionPoolingType": "NONE",  # the default pool's jar is missing in Spark 4
        # Hive persists each object explicitly: looking at commit for objects that became unreachable finds none.
        "datanucleus.persistenceByReachabilityAtCommit": "false",
        # Nothing is mapped by annotations or .orm files, which would be looked for in each jar and class.
        "datanucleus.metadata.supportORM": "false",
        "datanucleus.metadata.allowAnnotations": "false",
        "datanucleus.metadata.xml.validate": "false",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{warehouse}",  # Hadoop takes paths as they are, never URL-encoded
        # Else a member added to a struct, or a column in the middle, is refused.
        "hive.metastore.disallow.incompatible.col.type.changes": "false",
        "hive.hmshandler.retry.attempts": "2",  # of calls that its database failed: 10, each after 2 s, else
        "hive.hmshandler.retry.interval": "200ms",
        "hive.async.log.enabled": "false",
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.txn.timeout": "60s",
        "hive.timedout.txn.reaper.start": "1s",
        "hive.timedout.txn.reaper.interval": "1s",
    }
    properties = "".join(
        f"  <property><name>{html.escape(name)}</name><value>{html.escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<configuration>\n{properties}</configuration>\n'
