"""Environments of the contenders, each of its own: pyspark and pyspark-client are one module."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "engine_choice"
PYSAIL = "pysail==0.7.2"
PLATFORMS = {  # as pip names them
    "Linux x86_64": ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64"),
    "Linux aarch64": ("manylinux_2_28_aarch64", "manylinux_2_24_aarch64", "manylinux_2_17_aarch64"),
    "Alpine x86_64": ("musllinux_1_2_x86_64",),
    "macOS arm64": ("macosx_11_0_arm64",),
    "macOS x86_64": ("macosx_10_12_x86_64",),
    "Windows x86_64": ("win_amd64",),
    "Windows arm64": ("win_arm64",),
}


@dataclass(frozen=True)
class Environment:
    """A virtual environment with these packages."""

    name: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        """Its interpreter. Makes the environment where it is not there as described."""
        folder, stamp = FOLDER / self.name, hashlib.sha256(repr(self.packages).encode()).hexdigest()
        made = folder / ".made"
        if not made.exists() or made.read_text() != stamp:
            venv.create(folder, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, *self.packages], check=True)
            made.write_text(stamp)
        return folder / "bin" / "python"

    def bytes_of(self, *packages: str) -> dict[str, int]:
        """How much each of these takes once installed, without compiled files."""
        code = (
            "import sys; from importlib.metadata import files\n"
            "for name in sys.argv[1:]: print(name, sum(f.size or 0 for f in files(name)))"
        )
        done = subprocess.run([str(self.python), "-c", code, *packages], check=True, capture_output=True, text=True)
        return {name: int(size) for name, size in (line.split() for line in done.stdout.splitlines())}


SAIL = Environment("sail", (PYSAIL, "pyspark-client==4.2.0", "pyarrow==26.0.1", "pandas<3"))
SPARK4 = Environment("spark4", ("pyspark==4.3.0", "pyarrow==26.0.1", "pandas<3"))
TPCH = Environment("tpch", ("tpchgen-cli==4.0.0",))


def wheels(package: str) -> dict[str, str]:
    """The tag and the size of the wheel that a package index has for each platform; empty where there is none."""
    found = {}
    for platform, tags in PLATFORMS.items():
        found[platform] = ""
        for tag in tags:
            with tempfile.TemporaryDirectory() as folder:
                pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
                command = [*pip, "--python-version=3.11", f"--platform={tag}", "-d", folder, package]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    (file,) = Path(folder).iterdir()
                    size = file.stat().st_size / 2**20
                    found[platform] = f"{re.sub(r'^.*-', '', file.stem)}, {size:.0f} MiB"
                    break
    return found
