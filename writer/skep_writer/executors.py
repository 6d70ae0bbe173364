"""Making sure that the executors' Python can run skep's tasks: asked once a session, shipped when it is not there.

Executors are other machines with their own Python. What they lack of skep itself is sent as a zip; pyarrow can't be
sent.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skep_format
import skep_table
from skep_format.errors import EnvironmentMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Runs where skep may be missing: it imports nothing of skep, and is pickled by value because its module is not there.
_PROBE = """
def probe(_):
    import hashlib, importlib, importlib.util, os, sys, zipimport
    found = {"executable": sys.executable}
    for name in ("pyarrow", "pandas"):
        try:
            found[name] = importlib.import_module(name).__version__
        except ImportError:
            found[name] = None
    for name in ("skep_format", "skep_table", "skep_writer"):
        spec = importlib.util.find_spec(name)
        if spec is None:
            found[name] = None
            continue
        found[name + " at"] = spec.submodule_search_locations[0]
        digest = hashlib.sha256()
        root = os.path.dirname(spec.submodule_search_locations[0])
        if isinstance(spec.loader, zipimport.zipimporter):
            root, files = "", [file for file in spec.loader._files if file.startswith(name + os.sep)]
        else:
            walked = os.walk(spec.submodule_search_locations[0])
            files = [os.path.relpath(os.path.join(folder, file), root) for folder, _, own in walked for file in own]
        for file in sorted(file for file in files if file.endswith(".py")):
            data = spec.loader.get_data(os.path.join(root, file))
            digest.update(file.replace(os.sep, "/").encode() + b"\\0" + data)
        found[name] = digest.hexdigest()
    return [found]
"""
_scope: dict[str, Any] = {"__name__": "skep_probe"}
exec(_PROBE, _scope)
_probe = _scope["probe"]


def ensure_executors(spark: SparkSession) -> None:
    """Before the first task of a session. Raises EnvironmentMissingError when the executors can't run skep."""
    context: Any = spark.sparkContext
    if getattr(context, "_skep_ready", False):
        return
    (wanted,) = _probe(None)
    found = _ask(context)
    # On one machine the same folder is the same code, even while someone is editing it.
    shared = context.master.startswith("local") and all(
        found.get(at) == wanted[at] for at in wanted if at.endswith(" at")
    )
    if not shared and not _same(found, wanted):
        context.addPyFile(str(_zip_packages()))
        found = _ask(context)
        if not _same(found, wanted):
            raise EnvironmentMissingError(
                f"the executors' Python ({found['executable']}) has another skep than the driver",
                hint="install the driver's version of skep on the executors, or none",
                found=found,
                expected=wanted,
            )
    context._skep_ready = True


def _ask(context: Any) -> dict[str, str | None]:
    (found,) = context.parallelize([0], 1).mapPartitions(_probe).collect()
    for name in ("pyarrow", "pandas"):
        if found[name] is None:
            raise EnvironmentMissingError(
                f"the executors' Python ({found['executable']}) has no {name}",
                hint=_how_to_bring_packages(context.master),
                missing=name,
            )
    return dict(found)


def _how_to_bring_packages(master: str) -> str:
    if master.startswith("local"):
        return f"set PYSPARK_PYTHON={sys.executable} before the session starts, so that its tasks run in this Python"
    return (
        "ship an environment: `venv-pack -o environment.tar.gz`, then"
        " spark.archives=environment.tar.gz#environment and PYSPARK_PYTHON=./environment/bin/python"
    )


def _same(found: dict[str, str | None], wanted: dict[str, str | None]) -> bool:
    return all(found[name] == wanted[name] for name in ("skep_format", "skep_table", "skep_writer"))


def _zip_packages() -> Path:
    target = Path(tempfile.mkdtemp(prefix="skep-")) / "skep_tasks.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (Path(skep_format.__path__[0]), Path(skep_table.__path__[0]), Path(__file__).parent):
            for file in sorted(folder.rglob("*.py")):
                archive.write(file, file.relative_to(folder.parent))
    return target
