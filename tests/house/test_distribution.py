"""The distribution: its name, what its extras are, and that errors and pages name them as they are."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from source_tree import FOLDERS, ROOT

from skep_format.distribution import DISTRIBUTION, install_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docker").glob("*")]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def test_its_name_is_in_one_place(project: dict[str, Any]) -> None:
    """`skep` on package indexes is another project: no hint may install that."""
    assert project["project"]["name"] == DISTRIBUTION
    assert install_command("s3") == f"pip install '{DISTRIBUTION}[s3]'"
    sources = [path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*.py")]
    sources = [path for path in sources if path.name != "distribution.py"]
    for path in [*sources, *filter(lambda path: path.is_file(), PAGES)]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bskep\[\w|pip install '?skep\b(?!-)", text), path
        if path in sources:
            assert "pip install 'skep" not in text, f"{path} does not use install_command"


def test_extras_that_errors_and_pages_name_exist(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"].keys()
    named: set[str] = set()
    for path in (ROOT / folder for folder in FOLDERS.values()):
        for source in path.rglob("*.py"):
            named |= set(re.findall(r"install_command\(['\"]([\w-]+)['\"]\)", source.read_text(encoding="utf-8")))
    assert named
    for path in PAGES:
        if path.is_file():
            for found in re.findall(r"skep-hudi\[([\w,-]+)\]", path.read_text(encoding="utf-8")):
                named |= set(found.split(","))
    assert named <= extras


def test_each_package_is_typed_and_shipped(project: dict[str, Any]) -> None:
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.rpartition("/")[2] for path in packages} == FOLDERS.keys()
    assert not [path for path in packages if not (ROOT / path / "py.typed").is_file()]


def test_the_source_distribution_includes_folders_of_the_root_only(project: dict[str, Any]) -> None:
    """As in .gitignore: `sync` would be tests/sync, too."""
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(pattern.startswith("/") for pattern in included)
    roots = {path.partition("/")[0] for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert {f"/{root}" for root in roots} <= set(included)
