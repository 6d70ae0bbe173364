"""Location and version of the installed pyspark, found without importing it."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError

_HINT = f"{install_command('local')} brings pyspark and a Java"


@dataclass(frozen=True, slots=True)
class InstalledSpark:
    """An installation of Spark: its version and the folder of its jars."""

    version: str
    jars: Path


def find_spark() -> InstalledSpark:
    """The pyspark of this interpreter; its jars, or those of SPARK_HOME where the package has none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentMissingError("pyspark is not installed in this Python", hint=_HINT, missing="pyspark")
    package = Path(spec.origin).parent
    version = _version(package)
    spark_home = os.environ.get("SPARK_HOME")
    for home in (package, *([Path(spark_home)] if spark_home else [])):
        if any((home / "jars").glob("spark-core_*.jar")):
            return InstalledSpark(version, home / "jars")
    raise EnvironmentMissingError(
        f"pyspark {version} at {package} has no jars", hint="set SPARK_HOME, or install pyspark in full", path=package
    )


def _version(package: Path) -> str:
    """As in the package's own file: a pyspark on PYTHONPATH has no metadata, or another one's."""
    file = package / "version.py"
    if file.is_file() and (found := re.search(r"__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)", file.read_text())):
        return found[1]
    import importlib.metadata  # slow, and hardly ever needed

    return importlib.metadata.version("pyspark")
