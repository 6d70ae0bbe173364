"""The engines and metastores of the tests and images: of what they are made, and the command that runs each.

One description for both ways of starting them, as plain processes and in containers. Jars come by Maven by the
coordinates in pom.xml; settings are the templates below conf/, in which `@NAME@` stands for a value of the start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"

# What these programs reach into below Java 17's module borders.
_OPENED: Final = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.ref", "java.lang.reflect", "java.net", "java.nio"),
    *("java.security", "java.text", "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.util.regex", "javax.security.auth", "javax.security.auth.login"),
)
JAVA_OPTIONS: Final = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.sql/java.sql=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "-Djava.awt.headless=true",
    "-Duser.timezone=UTC",
    "-XX:+UseSerialGC",
)


class ServiceMissing(Exception):
    """A service can't run on this machine; the message names what is missing."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What one program is made of. `main` and what goes with it may hold `@NAME@`s."""

    name: str
    profiles: tuple[str, ...]
    hudi: str = ""
    """The release of Hudi on its class path, where it is not that of pom.xml."""
    main: str
    arguments: tuple[str, ...] = ()
    settings: str
    memory: str = "512m"
    java: int = 17
    """The least version."""
    java_options: tuple[str, ...] = ()
    through_launcher: bool = False
    members: tuple[str, ...] = ()
    """What is unpacked of the tarball among the artifacts: patterns below its one folder."""
    plugins: tuple[str, ...] = ()
    """Of the plug-ins unpacked those that are kept: a server loads all that it finds, which may take minutes."""
    setup: tuple[str, ...] = ()
    """Main class and arguments of a program that runs once, before the first start."""
    values: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process; may hold `@NAME@`s."""
    needs_database: bool = False
    """Whether a PostgreSQL must be there, at DATABASE_HOST."""
    port: int = 0
    """The port inside of a container."""


_DERBY: Final = {
    "DATABASE_URL": "jdbc:derby:;databaseName=@FOLDER@/derby;create=true",
    "DATABASE_DRIVER": "org.apache.derby.jdbc.EmbeddedDriver",
    "DATABASE_USER": "APP",
    "DATABASE_PASSWORD": "mine",
    "DATABASE_KIND": "derby",
    "AUTO_CREATE": "false",
    "EXPRESSION_PROXY": "org.apache.hadoop.hive.ql.optimizer.ppr.PartitionExpressionForMetastore",
}
# Hive 4 on Derby can't detect whether a parameter of an entry is still what a client saw.
_POSTGRESQL: Final = {
    **_DERBY,
    "DATABASE_URL": "jdbc:postgresql://@DATABASE_HOST@/metastore",
    "DATABASE_DRIVER": "org.postgresql.Driver",
    "DATABASE_USER": "hive",
    "DATABASE_PASSWORD": "hive",
    "DATABASE_KIND": "postgres",
}
_METASTORE: Final = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_HIVE: Final = "org.apache.hive.service.server.HiveServer2"
_SCHEMA_TOOL: Final = ("-dbType", "@DATABASE_KIND@", "-initSchema")

SERVICES: Final[dict[str, Service]] = {
    service.name: service
    for service in (
        Service(
            name="metastore-2.3.10",
            profiles=("hive2",),
            main=_METASTORE,
            arguments=("-p", "@PORT@"),
            settings="metastore",
            setup=("LockTables",),
            values={**_DERBY, "AUTO_CREATE": "true"},
            port=9083,
        ),
        Service(
            name="metastore-3.1.3",
            profiles=("metastore3",),
            main=_METASTORE,
            arguments=("-p", "@PORT@"),
            settings="metastore",
            members=("scripts",),
            setup=("org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool", *_SCHEMA_TOOL),
            values={
                **_DERBY,
                "EXPRESSION_PROXY": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            },
            port=9083,
        ),
        Service(
            name="metastore-4.0.1",
            profiles=("metastore4", "metastore4-with-exec"),
            main=_METASTORE,
            arguments=("-p", "@PORT@"),
            settings="metastore",
            members=("scripts",),
            setup=("org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool", *_SCHEMA_TOOL),
            values=_POSTGRESQL,
            needs_database=True,
            port=9083,
        ),
        Service(
            name="hive-2.3.10",
            profiles=("hive2", "tez"),
            main=_HIVE,
            settings="hive",
            memory="1g",
            through_launcher=True,
            values={"INPUT_FORMAT": "org.apache.hudi.hadoop.hive.HoodieCombineHiveInputFormat"},
            port=10000,
        ),
        Service(
            name="hive-4.0.1",
            profiles=("hive4",),
            main=_HIVE,
            settings="hive",
            memory="1g",
            values={"INPUT_FORMAT": "org.apache.hadoop.hive.ql.io.HiveInputFormat"},
            port=10000,
        ),
        Service(
            name="flink-1.17.2",
            profiles=("flink",),
            main="org.apache.flink.table.gateway.SqlGateway",
            settings="flink",
            memory="1g",
            java_options=("-XX:TieredStopAtLevel=1",),
            environment={"FLINK_CONF_DIR": "@CONF@"},
            port=8083,
        ),
        Service(
            name="presto-0.287",
            profiles=("presto",),
            main="com.facebook.presto.server.PrestoServer",
            settings="presto",
            memory="1500m",
            java_options=(
                "-XX:-UseSerialGC",
                "-XX:+UseG1GC",
                "-Djdk.attach.allowAttachSelf=true",
                "-Dnode.environment=skep",
                "-Dnode.id=presto",
                "-Dnode.internal-address=127.0.0.1",
                "-Dnode.data-dir=@FOLDER@/data",
                "-Dconfig=@CONF@/config.properties",
                "-Dlog.levels-file=@CONF@/log.properties",
                "-Dcatalog.config-dir=@CONF@/catalog",
            ),
            members=("lib", "plugin/hive-hadoop2", "plugin/hudi"),
            port=8080,
        ),
        Service(
            name="trino-476",
            profiles=("trino",),
            main="io.trino.server.TrinoServer",
            settings="trino",
            memory="1500m",
            java=24,
            java_options=(
                "-XX:-UseSerialGC",
                "-XX:+UseG1GC",
                "-XX:+EnableDynamicAgentLoading",
                "-Djdk.attach.allowAttachSelf=true",
                "-Djdk.nio.maxCachedBufferSize=2000000",
                "--add-modules=jdk.incubator.vector",
                "--enable-native-access=ALL-UNNAMED",
                "-Dconfig=@CONF@/config.properties",
                "-Dlog.levels-file=@CONF@/log.properties",
                "-Dnode.environment=skep",
                "-Dnode.id=trino",
                "-Dnode.internal-address=127.0.0.1",
                "-Dnode.data-dir=@FOLDER@/data",
                "-Dplugin.dir=@UNPACKED@/plugin",
                "-Dcatalog.config-dir=@CONF@/catalog",
            ),
            members=("*",),  # the jars of a plug-in are links to those of others
            plugins=("hive", "hudi"),
            port=8080,
        ),
        Service(
            name="hbase-2.6.1",
            profiles=("hbase",),
            main="StandaloneHBase",
            arguments=("--port", "@PORT@", "--bind", "@HOST@", "--infoport", "-1", "start"),
            settings="hbase",
            java_options=("-XX:TieredStopAtLevel=1",),
            values={"ZOOKEEPER": "2181"},
            port=9090,
        ),
    )
}


# -- of what they are made ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What a service runs from: its class path, in order, and the folder that its tarball was unpacked to."""

    jars: tuple[Path, ...]
    home: Path | None

    def classpath(self, settings: Path) -> str:
        return os.pathsep.join(map(str, (settings, *self.jars)))


def parts_of(service: Service) -> Parts:
    """Fetched where they are not there yet. ServiceMissing names what is not available."""
    with _alone():
        artifacts = [path for profile in service.profiles for path in _artifacts(profile, service.hudi)]
        jars = [path for path in artifacts if path.suffix == ".jar"]
        tarball = next((path for path in artifacts if path.name.endswith(".tar.gz")), None)
        home = _unpacked(tarball, service) if tarball is not None else None
        if home is not None and service.settings == "presto":
            _replace_asm(home, jars)
        if home is not None and (home / "lib").is_dir():
            jars = sorted((home / "lib").glob("*.jar"))
        if service.setup or service.through_launcher or service.main in _COMPILED:
            jars.append(_compiled(tuple(jars)))
        return Parts(tuple(jars), home)


def _artifacts(profile: str, hudi: str = "") -> list[Path]:
    """The class path of a profile of pom.xml: files in Maven's local repository, remembered by the pom's content."""
    kept = cache() / f"{profile}{hudi}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}.classpath"
    if kept.exists():
        found = [Path(line) for line in kept.read_text().splitlines()]
        if all(path.exists() for path in found):
            return found
    if not shutil.which("mvn"):
        raise ServiceMissing("no Maven on this machine; the engines are fetched with mvn (apt-get install maven)")
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "classpath")
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
        flags = [f"-Dmdep.outputFile={out}", "-Dmdep.includeScope=runtime", "-Dmdep.pathSeparator=|"]
        flags += [f"-Dhudi.version={hudi}"] if hudi else []
        # -C: a checksum that does not fit ends the build.
        command = ["mvn", "-q", "-B", "-C", "-f", str(POM), f"-P{profile}", goal, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        if done.returncode or not out.exists():
            raise ServiceMissing(f"Maven can't fetch {profile}: {(done.stdout + done.stderr).strip()[-800:]}")
        found = [Path(text) for text in out.read_text().strip().split("|")]
    kept.write_text("".join(f"{path}\n" for path in found))
    return found


def _unpacked(tarball: Path, service: Service) -> Path:
    """What a service wants of a tarball, unpacked once, whole or not at all."""
    name = tarball.name.removesuffix(".tar.gz")
    wanted = repr((*service.members, *service.plugins))
    folder = cache() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            patterns = [f"*/{member}" for member in service.members]
            subprocess.run(
                ["tar", "-xzf", tarball, "-C", made, "--strip-components=1", "--wildcards", *patterns], check=True
            )
            for plugin in (made / "plugin").iterdir() if service.plugins else ():
                if plugin.name not in service.plugins:
                    shutil.rmtree(plugin)
            made.rename(folder)
    return folder


def _replace_asm(home: Path, jars: list[Path]) -> None:
    """Presto's own ASM knows no classes of Java 17."""
    for folder in (home / "lib", *(home / "plugin").iterdir()):
        for jar in jars:
            artifact = re.sub(r"-[\d.]+\.jar$", "", jar.name)
            for old in folder.glob(f"{artifact}-[0-9]*.jar"):
                if old.name != jar.name:
                    old.unlink()
                    shutil.copyfile(jar, folder / jar.name)


_COMPILED: Final = {"LockTables": r"hive-metastore-2\.3\.\d+\.jar", "StandaloneHBase": r"hbase-thrift-.*\.jar"}
"""The classes below java/ that use others, and the jar that has these."""


def _compiled(jars: tuple[Path, ...]) -> Path:
    """The folder of the classes below java/: the launcher, and those whose jars are on the class path."""
    fitting = [name for name, jar in _COMPILED.items() if any(re.fullmatch(jar, each.name) for each in jars)]
    sources = [HERE / "java" / f"{name}.java" for name in ("Launcher", *fitting)]
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = cache() / f"classes-{stamp}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            made = Path(scratch, "made")
            javac = java(17).with_name("javac")
            path = os.pathsep.join(map(str, jars)) or "."
            command = [javac, "-nowarn", "-proc:none", "-d", made, "-cp", path, *sources]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ServiceMissing(f"javac failed: {done.stderr.strip()[-800:]}")
            made.rename(folder)
    return folder


# -- how they run ------------------------------------------------------------------------------------------------------


def values_of(service: Service, given: Mapping[str, str]) -> dict[str, str]:
    """All `@NAME@`s of a start."""
    values = {**service.values, **given}
    filled = {name: fill(text, values) for name, text in values.items() if name != "DATABASE_URL"}
    url = values.get("DATABASE_URL", "")
    return {**filled, "DATABASE_URL": fill(url, filled)}


def fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)


def write_settings(service: Service, folder: Path, values: Mapping[str, str]) -> None:
    source = HERE / "conf" / service.settings
    for template in source.rglob("*"):
        if template.is_file():
            file = folder / template.relative_to(source)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(fill(template.read_text(encoding="utf-8"), values), encoding="utf-8")


def command_of(service: Service, parts: Parts, settings: Path) -> list[str]:
    """The program and its arguments after `java`, with its `@NAME@`s."""
    return _command(service, parts, settings, service.main, *service.arguments)


def setup_of(service: Service, parts: Parts, settings: Path) -> list[str] | None:
    return _command(service, parts, settings, *service.setup) if service.setup else None


def _command(service: Service, parts: Parts, settings: Path, main: str, *arguments: str) -> list[str]:
    path = parts.classpath(settings)
    launcher = ["-cp", str(parts.jars[-1]), "Launcher", main, path]
    program = launcher if service.through_launcher else ["-cp", path, main]
    return [*JAVA_OPTIONS, f"-Xmx{service.memory}", *service.java_options, *program, *arguments]


def java(least: int) -> Path:
    """A java command that is new enough: JAVA_HOME's, the one on the path, or one where Debian and others put them."""
    home = os.environ.get("JAVA_HOME")
    commands = [str(Path(home, "bin", "java"))] if home else []
    commands += ["java", *map(str, sorted(Path("/usr/lib/jvm").glob("*/bin/java")))]
    found = [command for command in map(shutil.which, commands) if command]
    for command in found:
        text = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', text)
        if version and int(version[1]) >= least:
            return Path(command).resolve()
    raise ServiceMissing(f"no Java {least} or later on this machine (JAVA_HOME, the path, /usr/lib/jvm)")


def cache() -> Path:
    """Where what was fetched and unpacked is kept from run to run."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "skep", "engines")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time fetches and unpacks."""
    with (cache() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
