"""Archives of the classes that a JVM loads (class data sharing): its next start takes half of the time.

A JVM that finds none writes one when it ends, into the cache folder of the user, and later ones with the same Java and
class path map it. The JVM itself checks that both are unchanged and loads the classes one by one where they are not, so
an archive never changes what a program does.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skep_catalog.java import Java, cache_folder, cache_key, find_java
from skep_catalog.spark import find_spark
from skep_format.errors import EnvironmentMissingError

log = logging.getLogger("skep.java")

_OLDEST: Final = 17  # of Java's releases that write archives of an application at their end
_WRITING_SECONDS: Final = 60
_UNUSED_SECONDS: Final = 30 * 86_400
_QUIET: Final = tuple(f"-Xlog:{tags}=off" for tags in ("cds", "cds+dynamic", "class+path"))


def class_archive_options(java: Java, name: str, jars: Path, *, writes: bool = True) -> list[str]:
    """Arguments of a JVM named `name` whose class path is the folder `jars`: to map its archive, or to write it.

    None where this Java can't, or where the cache folder can't be written.
    """
    if java.major < _OLDEST:
        return []
    try:
        folder = cache_folder() / "classes"
        folder.mkdir(exist_ok=True)
        base = _base(java, folder)
        if base is None:
            return []
        archive = folder / f"{name}-{_key(java, jars)}.jsa"
        if _is_whole(archive):
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", *_QUIET]
        if not writes or _is_being_written(archive):
            return []
        _remove_unused(folder)
    except (OSError, subprocess.SubprocessError, EnvironmentMissingError) as error:
        log.info("no archive of classes: %s", error)
        return []
    return [*base, f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def spark_environment(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables with which pyspark starts a session on the Java that fits, with its archive of classes.

    `conf` are the settings of the session; where they are not known (None) no archive is written.
    EnvironmentMissingError where there is no such Java.
    """
    spark = find_spark()
    java = find_java(spark.version)
    found = {"JAVA_HOME": str(java.home)}
    if _has_more_classes(spark.jars.parent, conf or {}):
        return found
    options = [f'"{each}"' for each in class_archive_options(java, "spark", spark.jars, writes=conf is not None)]
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {**found, "SPARK_SUBMIT_OPTS": " ".join([given, *options]).strip()} if options else found


_MORE_CLASSES: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def _has_more_classes(home: Path, conf: Mapping[str, str]) -> bool:
    """Whether Spark's class path has more than its jars: other jars, or folders, which an archive can't have."""
    return (
        (home / "conf").exists()
        or os.environ.get("SPARK_HOME", str(home)) != str(home)
        or any(os.environ.get(each) for each in _MORE_CLASSES)
        or "spark.driver.extraClassPath" in conf
    )


def _key(java: Java, jars: Path | None = None) -> str:
    """What an archive depends on."""
    parts = [str(java.executable.resolve()), java.version, str(jars)]
    for entry in sorted(os.scandir(jars), key=lambda each: each.name) if jars else ():
        status = entry.stat()
        parts.append(f"{entry.name} {status.st_size} {status.st_mtime_ns}")
    return cache_key(*parts)


def _base(java: Java, folder: Path) -> list[str] | None:
    """The argument that names the archive of Java's own classes, which others refer to; None where it can't be made.

    Runtimes that come as Python wheels have none, so it is made here, in about a second.
    """
    if (java.home / "lib" / "server" / "classes.jsa").is_file():
        return []
    archive = folder / f"java-{_key(java)}.jsa"
    argument = f"-XX:SharedArchiveFile={archive}"
    if not _is_whole(archive) and not _is_being_written(archive):
        archive.touch()
        subprocess.run([java.executable, "-Xshare:dump", argument], capture_output=True, timeout=60, check=False)
    if not _is_whole(archive):
        return None
    os.utime(archive)
    return [argument]


def _is_whole(archive: Path) -> bool:
    """The JVM writes the header last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _is_being_written(archive: Path) -> bool:
    try:
        return time.time() - archive.stat().st_mtime < _WRITING_SECONDS
    except FileNotFoundError:
        return False


def _remove_unused(folder: Path) -> None:
    """Archives of former releases of Java and Spark."""
    for file in folder.iterdir():
        if time.time() - file.stat().st_mtime > _UNUSED_SECONDS:
            file.unlink(missing_ok=True)
