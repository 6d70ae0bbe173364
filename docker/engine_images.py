"""Builds the images: the metastores, the engines, Spark's Thrift Server, PostgreSQL, ZooKeeper, an S3 server, and skep.

    python docker/engine_images.py [NAME …]      all of them, or some; `--list` names them

They have one base: SKEP_BASE_IMAGE, else Debian's own image, else one that base.sh makes of Debian's packages where
no image registry is reached. Jars come by Maven into this machine's repository, wheels by pip, a Java that Debian does
not have is this machine's; builds fetch Debian packages only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import engine_services as services
from engine_services import HERE, SERVICES, Parts, Service

from benchmarks.peers.bundle import bundle

PUBLIC_BASE: Final = "debian:bookworm-slim"
OWN_BASE: Final = "skep/debian"
ROOT: Final = HERE.parent
INSIDE: Final = Path("/opt/service")
LABEL: Final = "skep.made-from"
PACKAGES: Final = ("format", "table", "catalog", "writer", "sync", "sql", "stream", "skep")
DEBIANS_PYTHON: Final = (3, 11)
DEBIANS_JAVA: Final = 17
NOT_FOR_RUNNING: Final = ("jmods", "src.zip", "legal", "man", "demo", "include")
FOR_PEOPLE: Final = (".md", ".yaml")
"""Of these no image is made."""
THRIFT: Final = "tests/engines/spark_thrift.py"
SETTINGS: Final = Path("/tmp/service/conf")
DEFAULTS: Final = {
    "HOST": "0.0.0.0",
    "FOLDER": "/var/lib/service",
    "CONF": str(SETTINGS),
    "UNPACKED": str(INSIDE / "home"),  # HOME is every container's own
    "METASTORE": "thrift://metastore:9083",
    "WAREHOUSE": "file:///lake",
    "DATABASE_HOST": "postgresql:5432",
}


def tag(name: str) -> str:
    """`skep/hive:2.3.10` of `hive-2.3.10`."""
    image, _, version = name.partition("-")
    return f"skep/{image}:{version or 'latest'}"


# -- bases -------------------------------------------------------------------------------------------------------------


def base() -> str:
    """The base image of all others: the one that is named, else Debian's, made when it can't be pulled."""
    if named := os.environ.get("SKEP_BASE_IMAGE"):
        return named
    for name in (OWN_BASE, PUBLIC_BASE):
        if docker("image", "inspect", name, quiet=True):
            return name
    if docker("pull", "-q", PUBLIC_BASE, quiet=True):
        return PUBLIC_BASE
    notice(f"{PUBLIC_BASE} can't be pulled: making {OWN_BASE} of Debian's packages")
    subprocess.run(["sh", HERE / "base.sh", OWN_BASE], check=True)
    return OWN_BASE


def java() -> None:
    build(tag("java"), "java.Dockerfile", [f"BASE={base()}"])


# -- services ----------------------------------------------------------------------------------------------------------


def service_image(service: Service) -> None:
    parts = services.parts_of(service)
    with tempfile.TemporaryDirectory(dir=services.cache()) as scratch:
        context = Path(scratch)
        inside = copy_parts(parts, context)
        if service.java > DEBIANS_JAVA:
            home = services.java(service.java).parents[1]
            shutil.copytree(home, context / "java", ignore=shutil.ignore_patterns(*NOT_FOR_RUNNING))
        shutil.copytree(HERE / "conf" / service.settings, context / "conf")
        script = context / "run"
        script.write_text(start_script(service, inside))
        script.chmod(0o755)
        build(tag(service.name), "service.Dockerfile", [], context)


def copy_parts(parts: Parts, context: Path) -> Parts:
    """The class path in its order below lib/, and the home; returns where they are inside of the image."""
    inside: list[Path] = []
    for number, path in enumerate(parts.jars):
        if parts.home is not None and parts.home in path.parents:
            inside.append(INSIDE / "home" / path.relative_to(parts.home))
            continue
        name = f"{number:03}-{path.name}"
        if path.is_dir():
            shutil.copytree(path, context / "lib" / name)
        else:
            link(path, context / "lib" / name)
        inside.append(INSIDE / "lib" / name)
    (context / "lib").mkdir(exist_ok=True)
    (context / "home").mkdir()
    if parts.home is not None:
        for file in parts.home.rglob("*"):
            if file.is_file():
                link(file, context / "home" / file.relative_to(parts.home))
    return Parts(tuple(inside), INSIDE / "home")


def link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def start_script(service: Service, parts: Parts) -> str:
    """Settings from the environment, a set-up before the first start, then the program in this process's place."""
    values = {**DEFAULTS, "PORT": str(service.port), **service.values}
    url = values.pop("DATABASE_URL", None)  # names others
    ordered = [*values.items(), *([("DATABASE_URL", url)] if url else [])]
    lines = [f': "${{{name}:={shell(text)}}}"' for name, text in ordered]
    seds = " ".join(f'-e "s|@{name}@|${name}|g"' for name, _ in ordered)
    run = f"exec java {words(services.command_of(service, parts, SETTINGS))}"
    first = services.setup_of(service, parts, SETTINGS)
    exports = "".join(f'export {name}="{shell(text)}"\n' for name, text in service.environment.items())
    setup = (
        f'if [ ! -e "$FOLDER/set-up" ]; then\n  java {words(first)}\n  touch "$FOLDER/set-up"\nfi\n' if first else ""
    )
    return f"""#!/bin/sh
set -eu
{chr(10).join(lines)}
export METASTORE_HOME={shlex.quote(str(parts.home))} HADOOP_USER_NAME=root PATH="{INSIDE}/java/bin:$PATH"
mkdir -p "$FOLDER" {SETTINGS}
cp -r {INSIDE}/conf/. {SETTINGS}
find {SETTINGS} -type f -exec sed -i {seds} {{}} +
cd "$FOLDER"
{exports}{setup}{run}
"""


def shell(text: str) -> str:
    """`@NAME@` as the shell's own, inside of double quotes."""
    return re.sub(r"@([A-Z_]+)@", r"${\1}", text)


def words(command: Iterable[str]) -> str:
    return " ".join(f'"{shell(text)}"' if "@" in text else shlex.quote(text) for text in command)


# -- what is not a service of services.py ------------------------------------------------------------------------------


def skep() -> None:
    """skep without Spark: what `skep serve`, `sync` and `read` need."""
    wheels_image("skep", f"{ROOT}[hive,presto,trino,serve,s3]")


def spark() -> None:
    """Spark's Thrift Server with Hudi's bundle."""
    wheels_image("spark-3.5", "pyspark==3.5.9", {bundle("0.15.0"): "hudi.jar", ROOT / THRIFT: "spark_thrift.py"})


def wheels_image(name: str, wanted: str, files: Mapping[Path, str] | None = None) -> None:
    """An image of Python packages, as wheels that this machine's pip builds or fetches: builds need no index."""
    if sys.version_info[:2] != DEBIANS_PYTHON:
        sys.exit(f"images: wheels for Debian's Python {DEBIANS_PYTHON} are built by the same Python")
    with tempfile.TemporaryDirectory(dir=services.cache()) as scratch:
        wheels = Path(scratch, "wheels")
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", ROOT / "constraints.txt", "-w", wheels, wanted], check=True)
        for source, target in (files or {}).items():
            link(source, Path(scratch, target))
        build(tag(name), f"{name.partition('-')[0]}.Dockerfile", [], Path(scratch))


def s3() -> None:
    wheels_image("s3", "moto[server,s3]")


def debian(name: str) -> Callable[[], None]:
    return lambda: build(tag(name), f"{name}.Dockerfile", [])


IMAGES: Final[dict[str, Callable[[], None]]] = {
    "java": java,
    **{name: (lambda service=service: service_image(service)) for name, service in SERVICES.items()},
    **{name: debian(name) for name in ("python", "postgresql", "zookeeper")},
    "skep": skep,
    "spark-3.5": spark,
    "s3": s3,
}
PYTHON: Final = {"skep", "spark-3.5", "s3"}
"""Built on the image with Debian's Python."""
OPTIONAL: Final = {name for name, service in SERVICES.items() if service.java > DEBIANS_JAVA}
"""What is left out, when all are asked for, where this machine has no Java for it."""


# -- docker ------------------------------------------------------------------------------------------------------------


def build(name: str, dockerfile: str, arguments: list[str], context: Path | None = None) -> None:
    notice(f"building {name}")
    build_words = [word for argument in arguments for word in ("--build-arg", argument)]
    with tempfile.TemporaryDirectory() as nothing:
        folder = context or Path(nothing)
        label = f"--label={LABEL}={made_from(names()[name])}"
        command = ["docker", "build", "-q", "-t", name, "-f", HERE / dockerfile, label, *build_words, folder]
        # The classic builder asks for no plug-in.
        subprocess.run(command, check=True, env={**os.environ, "DOCKER_BUILDKIT": "0"}, stdout=subprocess.DEVNULL)


def names() -> dict[str, str]:
    return {tag(name): name for name in IMAGES}


def made_from(name: str) -> str:
    """Of what an image is made, in short: one with the same description need not be rebuilt."""
    more = ["constraints.txt"] if name in PYTHON else []
    more += {"skep": ["pyproject.toml", *PACKAGES], "spark-3.5": [THRIFT]}.get(name, [])
    files = [
        file
        for place in (HERE, *(ROOT / path for path in more))
        for file in (sorted(place.rglob("*")) if place.is_dir() else [place])
        if file.is_file() and file.suffix not in FOR_PEOPLE and "pycache" not in str(file)
    ]
    build_words = os.environ.get("SKEP_BASE_IMAGE", "").encode()
    return hashlib.sha256(b"".join([build_words, *(file.read_bytes() for file in files)])).hexdigest()[:16]


def label_of(image: str) -> str:
    template = f'{{{{ index .Config.Labels "{LABEL}" }}}}'
    command = ["docker", "image", "inspect", "--format", template, image]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def docker(*words: str, quiet: bool = False) -> bool:
    out = subprocess.DEVNULL if quiet else None
    return subprocess.run(["docker", *words], stdout=out, stderr=out, check=False).returncode == 0


def notice(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    if "--list" in names:
        print("\n".join(f"{name:18} {tag(name)}" for name in IMAGES))
        return 0
    unknown = [name for name in names if name not in IMAGES]
    if unknown:
        notice(f"no image {', '.join(unknown)}; there are: {', '.join(IMAGES)}")
        return 2
    wanted = dict.fromkeys(names or IMAGES)
    below = ("java", *(("python",) if PYTHON.intersection(wanted) else ()))
    for name in dict.fromkeys((*below, *wanted)):
        if made_from(name) == label_of(tag(name)):
            continue
        try:
            IMAGES[name]()
        except services.ServiceMissing as missing:
            notice(f"no {tag(name)}: {missing}")
            if name in names or name not in OPTIONAL:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
