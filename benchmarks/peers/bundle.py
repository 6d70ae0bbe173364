"""Hudi's Spark bundle and other jars, by their Maven coordinates, from the local repository or fetched into it."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

GROUP, ARTIFACT = "org.apache.hudi", "hudi-spark3.5-bundle_2.12"
RELEASES = ("0.15.0", "1.2.0")  # the last that writes table version 6 only, and the last of all
WRITERS = {6: RELEASES, 8: ("1.0.2",), 9: ("1.2.0",)}
"""Table version → the releases that are measured writing it."""
AWS_SDK = "2.18.40"  # that of Hudi 0.15.0
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


class PeerMissing(Exception):
    """A peer can't run on this machine; the message names what is missing."""


@cache
def bundle(release: str) -> Path:
    """The jar of `release`. PeerMissing when Java, Maven or a fitting pyspark is not there."""
    _check_machine()
    return fetched(GROUP, ARTIFACT, release)


def fetched(group: str, artifact: str, release: str, classifier: str = "") -> Path:
    """The jar of these coordinates. PeerMissing when Maven can't get it."""
    name = f"{artifact}-{release}-{classifier}" if classifier else f"{artifact}-{release}"
    inside = Path(*group.split("."), artifact, release, f"{name}.jar")
    jar = Path.home() / ".m2" / "repository" / inside
    if jar.exists():
        return jar
    coordinates = f"{group}:{artifact}:{release}" + (f":jar:{classifier}" if classifier else "")
    _maven(f"{DEPENDENCY_PLUGIN}:get", f"-Dartifact={coordinates}", "-Dtransitive=false")
    if not jar.exists():  # settings.xml may name another folder
        jar = Path(_maven("help:evaluate", "-Dexpression=settings.localRepository", "-DforceStdout").strip()) / inside
    if not jar.exists():
        raise PeerMissing(f"Maven did not bring {coordinates}")
    return jar


def glue_tool(release: str) -> list[Path]:
    """The jars of Hudi's sync tool for AWS Glue, which no bundle has: for a class path with the bundle and Spark."""
    tool = fetched(GROUP, "hudi-aws", release)
    repository = tool.parents[5]
    sdk = repository / "software/amazon/awssdk"
    if not (sdk / "glue" / AWS_SDK).is_dir():
        _maven(f"{DEPENDENCY_PLUGIN}:get", f"-Dartifact=software.amazon.awssdk:glue:{AWS_SDK}")
    others = ("software/amazon/eventstream", "org/reactivestreams")
    found = [*sdk.glob(f"*/{AWS_SDK}/*.jar"), *(jar for each in others for jar in (repository / each).rglob("*.jar"))]
    return [tool, *sorted(found)]


def java() -> Path:
    """The java command: that of JAVA_HOME, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if not found:
        raise PeerMissing("no Java on the path nor in JAVA_HOME; the peers need a JDK 17 (openjdk-17-jdk-headless)")
    return Path(found)


def _check_machine() -> None:
    java()
    try:
        installed = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise PeerMissing("pyspark is not installed") from None
    if not installed.startswith("3.5."):
        raise PeerMissing(f"Hudi's bundles are for Spark 3.5, pyspark here is {installed}")


def _maven(*arguments: str) -> str:
    if not shutil.which("mvn"):
        raise PeerMissing("no Maven on this machine; jars are fetched with mvn (apt-get install maven)")
    done = subprocess.run(["mvn", "-q", "-B", *arguments], capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise PeerMissing(f"mvn {arguments[0]} failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout
