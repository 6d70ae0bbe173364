"""Starts services in containers, from the images of docker/: the same services and settings as plain processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from engine_images import tag
from engine_launch import ProcessLauncher, Ready, Running, free_port, new_folder
from engine_services import HERE, Service, ServiceMissing


class ContainerLauncher:
    """Containers on the host's network that see the folders of the tests under their own paths.

    testcontainers starts them. Its reaper, an image from a public registry, is not used: `attached` under the guard of
    the processes collects the log and ends the container when the run ends, however it does.
    """

    kind = "container"

    def __init__(self, processes: ProcessLauncher, scratch: Path, folders: list[Path]) -> None:
        self._processes, self._scratch, self._folders = processes, scratch, folders

    def start(self, service: Service, ready: Ready, values: Mapping[str, str], *, seconds: float = 300) -> Running:
        return self.start_image(service.name, ready, values, seconds=seconds)

    def start_image(self, name: str, ready: Ready, values: Mapping[str, str], *, seconds: float = 300) -> Running:
        """Any of the images, also those of what is not made of jars alone."""
        build(name)
        began = time.monotonic()
        folder = new_folder(self._scratch, name)
        port = free_port()
        variables = {"HOST": "127.0.0.1", "PORT": str(port), "FOLDER": str(folder), **values}
        container = started(tag(name), variables, [*self._folders, folder])
        how = {"seconds": seconds, "began": began, "kind": self.kind}
        return self._processes.run(name, attached(container), port, ready, folder, {}, **how)


def started(image: str, environment: Mapping[str, str], folders: list[Path]) -> str:
    """The id of a container that is removed when it ends."""
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # read when the package is imported
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image).with_kwargs(network_mode="host", auto_remove=True)
    for name, value in environment.items():
        container.with_env(name, value)
    for folder in folders:
        container.with_volume_mapping(str(folder), str(folder), "rw")
    container.start()
    return str(container.get_wrapped_container().id)


def attached(container: str) -> list[str]:
    """For the guard: prints what a container prints, then ends it. To a first process SIGTERM is nothing."""
    follow = ["docker", "attach", "--no-stdin", "--sig-proxy=false", container]
    return ["--last", f"docker kill {container}", *follow]


def run_in(image: str, *command: str, folders: list[Path]) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, in a container of its own."""
    volumes = [f"--volume={folder}:{folder}" for folder in folders]
    whole = ["docker", "run", "--rm", "--network=host", *volumes, image, *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)


def build(*names: str) -> None:
    """The images, where they are not there or were made from something else. ServiceMissing without a docker."""
    if not docker_answers():
        raise ServiceMissing("no docker that answers on this machine (DOCKER_HOST, or the docker group)")
    script = HERE / "engine_images.py"
    done = subprocess.run([sys.executable, script, *names], capture_output=True, text=True, timeout=1500, check=False)
    if done.returncode:
        raise RuntimeError(f"images {', '.join(names)} can't be built:\n{(done.stdout + done.stderr)[-3000:]}")


def docker_answers() -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False)
        return asked.returncode == 0
    return False
