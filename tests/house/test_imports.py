"""The import graph: packages import one way, modules form no cycles, and light commands load no heavy modules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from source_tree import (
    FOLDERS,
    ROOT,
    back_edges,
    cycle,
    import_graph,
    imports,
    modules,
    names_in,
    part,
    part_graph,
    table_rows,
)

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MAY_IMPORT = {names_in(row[0])[0]: set(names_in(row[2])) for row in table_rows(PAGE, "Packages")}
# Modules whose names are not those of the distributions in pyproject.toml, or that these bring along.
FROM = {
    "TCLIService": "pyhive", "anyio": "starlette", "botocore": "boto3", "google_crc32c": "google-crc32c",
    "confluent_kafka": "confluent-kafka", "google": "protobuf", "hdfs_native": "hdfs-native",
    "opentelemetry": "opentelemetry-api", "prometheus_client": "prometheus-client",
    "prompt_toolkit": "prompt-toolkit", "py4j": "pyspark", "thriftpy2": "happybase", "tomllib": "tomli",
}  # fmt: skip
ORDER = {
    package: [name for row in table_rows(PAGE, f"Code map of `{package}`") for name in names_in(row[0])]
    for package in FOLDERS
}
MODULES_OF_A_FOLDER = 20


def test_what_is_imported_at_run_time_is_a_declared_dependency() -> None:
    """Executors, too, have only what pyproject.toml names."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[dependency-groups]")[0]
    declared = set(re.findall(r'"([A-Za-z0-9-]+)[^"]*"', text))
    undeclared = {
        f"{name} imports {root}"
        for package in FOLDERS
        for name, path in modules(package).items()
        for imported in imports(name, path, for_types=False)
        if (root := imported.split(".")[0]) and root not in sys.stdlib_module_names and root not in FOLDERS
        if FROM.get(root, root) not in declared
    }
    assert not undeclared


@pytest.mark.parametrize("package", FOLDERS)
def test_packages_import_one_way(package: str) -> None:
    wrong = {
        f"{name} imports {imported}"
        for name, path in modules(package).items()
        for imported in imports(name, path)
        if (root := imported.split(".")[0]) in FOLDERS and root != package and root not in MAY_IMPORT[package]
    }
    assert not wrong


def is_spark(module: str) -> bool:
    return module.split(".")[0] in ("pyspark", "py4j")


def test_only_the_writer_imports_pyspark() -> None:
    wrong = {
        name
        for package in FOLDERS
        if package != "skep_writer"
        for name, path in modules(package).items()
        if any(is_spark(imported) for imported in imports(name, path))
        and any(is_spark(imported) for imported in imports(name, path, for_types=False))
    }
    assert not wrong


@pytest.mark.parametrize("package", FOLDERS)
def test_modules_of_a_package_form_no_cycle(package: str) -> None:
    """Imports inside functions and under TYPE_CHECKING count."""
    assert not cycle(import_graph(package))


def test_the_map_lists_every_package() -> None:
    assert set(MAY_IMPORT) == set(FOLDERS)
    folders = {names_in(row[0])[0]: names_in(row[1])[0] for row in table_rows(PAGE, "Packages")}
    assert folders == {name: str(path.relative_to(ROOT)) for name, path in FOLDERS.items()}


@pytest.mark.parametrize("package", ORDER)
def test_the_map_lists_every_part_of_a_package_once(package: str) -> None:
    assert len(ORDER[package]) == len(set(ORDER[package]))
    assert set(ORDER[package]) == {part(name) for name in modules(package)} - {""}


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_in_the_order_of_its_map(package: str) -> None:
    wrong = back_edges(ORDER[package], part_graph(package))
    assert not wrong, "imports against the order of the code map in ARCHITECTURE.md: " + "; ".join(wrong)


def test_folders_have_few_modules() -> None:
    counts = Counter(
        str(Path(package, *path.relative_to(FOLDERS[package]).parts[:-1]))
        for package in FOLDERS
        for path in modules(package).values()
        if path.name != "__init__.py"
    )
    assert not {folder: count for folder, count in counts.items() if count > MODULES_OF_A_FOLDER}


def test_a_back_edge_is_found() -> None:
    """One import upwards, seeded in both directions of the page's order."""
    graph = {"skep_format.storage.local": {("errors", "skep_format.errors")}}
    assert not back_edges(["errors", "storage"], graph)
    assert back_edges(["storage", "errors"], graph) == ["skep_format.storage.local imports skep_format.errors"]


def test_a_cycle_is_found() -> None:
    assert not cycle({"a": {"b"}, "b": {"c"}, "c": set()})
    assert len(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == 4


def test_imports_in_functions_and_for_types_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("if TYPE_CHECKING:\n    from a import b\ndef f():\n    import c\nfrom . import d\n")
    assert {"a", "a.b", "c", "p", "p.d"} == set(imports("p.module", path))
    assert {"p", "p.d"} == set(imports("p.module", path, top_only=True))
    assert {"c", "p", "p.d"} == set(imports("p.module", path, for_types=False))


def test_the_map_is_read_from_the_page() -> None:
    page = "\n## Map\n\n| where | what |\n| --- | --- |\n| `a/`, `b` | first |\n| `c` | x |\n\n## Next\n| `d` | x |\n"
    assert [names_in(row[0]) for row in table_rows(page, "Map")] == [["a", "b"], ["c"]]


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys, json\n{code}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout.splitlines()[-1]))


def called(option: str) -> str:
    """Code that calls the command line with an option."""
    return f"""
from skep.cli.main import main
sys.argv = ["skep", "{option}"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


@pytest.mark.parametrize(
    ("code", "most"),
    [("import skep", 100), (called("--help"), 250), (called("--version"), 250)],
    ids=["import skep", "skep --help", "skep --version"],
)
def test_light_starts_load_no_heavy_modules(code: str, most: int) -> None:
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
        "rich",
        "ssl",
        "skep_format.names",
        "skep_format.storage",
    }
    assert not heavy & loaded
    assert len(loaded) < most, "a slow start: too many modules"


def test_opening_a_table_needs_no_frames() -> None:
    """What every read goes through loads Arrow, and no data frame library."""
    loaded = loaded_by("import skep_format.storage, skep_format.names, skep_format.options")
    assert not {"pyspark", "pandas", "polars", "duckdb"} & loaded


@pytest.mark.parametrize("first", ["skep.lake", "skep.handles.by_path"])
def test_options_of_modules_that_are_imported_later_are_known(first: str) -> None:
    """No option is called unknown because what reads it is not needed yet."""
    every = [
        name
        for package in FOLDERS
        for name, path in modules(package).items()
        if "= option(" in path.read_text(encoding="utf-8") and package in ("skep_format", "skep_table", "skep_sync")
    ]
    code = (
        f"import {first}\nfrom skep_format.options import REGISTRY\n"
        f"known = {{each.key for each in REGISTRY}}\n"
        f"import {', '.join(every)}\nprint(*({{each.key for each in REGISTRY}} - known))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "\n"


def test_looking_at_a_timeline_and_a_metastore_needs_no_arrow() -> None:
    """A sync with nothing to do is to be over before Arrow would have been loaded."""
    loaded = loaded_by("import skep_table.table, skep_catalog.connection, skep_sync.sync")
    assert not {"pyarrow", "numpy", "pandas", "fastavro"} & loaded
