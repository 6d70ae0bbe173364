"""`./dev` and `.ci/run` do what README.md promises."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skep_format.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
COMMANDS = ("demo", "test", "check", "wheel", "sqlglot", "bench", "mutants", "images", "setup")


def dev(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "dev", *words], capture_output=True, text=True, check=False)


def test_without_an_argument_it_prints_what_it_can_do() -> None:
    answer = dev()
    assert answer.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  \./dev {command}\s+\S", answer.stdout, re.MULTILINE)


def test_an_unknown_command_is_refused() -> None:
    answer = dev("tset")
    assert answer.returncode == 2
    assert "no command tset" in answer.stderr


def test_an_unknown_spark4_mode_is_refused() -> None:
    assert dev("test", "--spark4=maybe").returncode == 2


@pytest.mark.parametrize("file", ["dev", ".ci/run"])
def test_they_can_be_run(file: str) -> None:
    assert os.access(ROOT / file, os.X_OK)


def test_ci_runs_what_the_readme_names() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("./dev check", "./dev test"):
        assert command in readme
        assert re.search(rf"^{re.escape(command)}\b", ci, re.MULTILINE)


def described() -> dict[str, Any]:
    """What is in pyproject.toml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found


def test_the_sql_server_is_installed_with_what_its_example_imports() -> None:
    """PyHive's own extra for logging in by SASL, as `hive.connect(host, port=…)` does."""
    (pyhive,) = (text for text in described()["project"]["optional-dependencies"]["sql-server"] if "pyhive" in text)
    (extra,) = re.findall(r"\[(.*)\]", pyhive)
    needed = [text.lower().replace("_", "-") for text in importlib.metadata.requires("pyhive") or ()]
    assert any(text.startswith("thrift-sasl") and re.search(rf"extra == .{extra}\b", text) for text in needed)


@pytest.mark.parametrize("pins", ["constraints.txt", "constraints-spark4.txt"])
def test_every_dependency_is_pinned(pins: str) -> None:
    """For each dependency named in pyproject.toml: each of the environments installs exactly one version of it."""
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / pins).read_text(encoding="utf-8"), re.MULTILINE))
    project = described()
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["project"]["dependencies"],
        *extras["spark"],
        *extras["local"],
        *project["dependency-groups"]["test"],
    ]
    names = {re.split(r"[\s\[<>=!~;]", text)[0].lower().replace("_", "-") for text in wanted} - {DISTRIBUTION}
    assert names <= pinned
