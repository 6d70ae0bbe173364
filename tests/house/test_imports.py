"""The import graph: packages import one way, modules know no cycles, and light commands load no heavy modules.

Read from the source with `ast`, so that imports inside functions and under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "skep_table": ROOT / "table" / "skep_table",
    "skep_catalog": ROOT / "catalog" / "skep_catalog",
    "skep_writer": ROOT / "writer" / "skep_writer",
    "skep_sync": ROOT / "sync" / "skep_sync",
    "skep": ROOT / "skep",
}
MAY_IMPORT = {
    "skep_table": set(),
    "skep_catalog": {"skep_table"},
    "skep_writer": {"skep_table"},
    "skep_sync": {"skep_catalog", "skep_table"},
    "skep": {"skep_table", "skep_catalog", "skep_writer", "skep_sync"},
}


@cache
def modules(package: str) -> dict[str, Path]:
    """Module name → source file."""
    folder = FOLDERS[package]
    found = {}
    for path in folder.rglob("*.py"):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, *, top_only: bool = False, for_types: bool = True) -> Iterator[str]:
    """Full names of what a module imports; for `from a import b` both `a` and `a.b`, whichever of them is a module."""
    tree = ast.parse(path.read_text(), str(path))
    if not for_types:
        tree = WithoutTypeChecking().visit(tree)
    nodes = top_level(tree.body) if top_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*anchor[: len(anchor) - node.level + 1], *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


class WithoutTypeChecking(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def top_level(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run at import: not the bodies of functions, nor what only type checkers see."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield from top_level(node.body)
            yield from top_level(node.orelse)
        elif isinstance(node, ast.Try):
            yield from top_level([*node.body, *node.orelse, *node.finalbody])
            for handler in node.handlers:
                yield from top_level(handler.body)
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from top_level(node.body)


@pytest.mark.parametrize("package", FOLDERS)
def test_packages_import_one_way(package: str) -> None:
    wrong = {
        f"{name} imports {imported}"
        for name, path in modules(package).items()
        for imported in imports(name, path)
        if (root := imported.split(".")[0]) in FOLDERS and root != package and root not in MAY_IMPORT[package]
    }
    assert not wrong


def test_only_the_writer_imports_pyspark() -> None:
    wrong = {
        name
        for package in FOLDERS
        if package != "skep_writer"
        for name, path in modules(package).items()
        if any(imported.split(".")[0] in ("pyspark", "py4j") for imported in imports(name, path, for_types=False))
    }
    assert not wrong


@pytest.mark.parametrize("package", FOLDERS)
def test_modules_of_a_package_know_no_cycle(package: str) -> None:
    own = modules(package)
    graph: dict[str, set[str]] = {}
    for name, path in own.items():
        needs = {imported for imported in imports(name, path, top_only=True) if imported in own}
        # `from package import module` names the package too: only the module is meant.
        graph[name] = {need for need in needs if need != name and not any(n.startswith(need + ".") for n in needs)}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout.splitlines()[-1]))


HELP = """
from skep.cli.main import main
sys.argv = ["skep", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


@pytest.mark.parametrize("code", ["import skep", HELP], ids=["import skep", "skep --help"])
def test_light_starts_load_no_heavy_modules(code: str) -> None:
    loaded = loaded_by(code)
    heavy = {
        "pyspark",
        "py4j",
        "pandas",
        "polars",
        "duckdb",
        "pyarrow",
        "numpy",
        "fastavro",
        "thrift",
        "sqlglot",
        "httpx",
    }
    assert not heavy & loaded
    assert len(loaded) < 900, "a slow start: too many modules"


def test_opening_a_table_needs_no_frames() -> None:
    """What every read goes through loads Arrow, and no data frame library."""
    loaded = loaded_by("import skep_table.storage, skep_table.names, skep_table.options")
    assert not {"pyspark", "pandas", "polars", "duckdb"} & loaded


def test_looking_at_a_timeline_and_a_metastore_needs_no_arrow() -> None:
    """A sync with nothing to do is to be over before Arrow would have been loaded."""
    loaded = loaded_by("import skep_table.table, skep_catalog.connection, skep_sync.sync")
    assert not {"pyarrow", "numpy", "pandas", "fastavro", "tenacity"} & loaded
