"""docs/coverage.md names what is there: options and flags that take effect, commands, procedures, files of tests."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from named_things import check, spans

from skep_format.options import REGISTRY, Status
from skep_sql.settings import OF_STATEMENTS
from skep_stream.flags import FLAGS

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "coverage.md").read_text(encoding="utf-8")
BUILT = TEXT[: TEXT.index("## What is not here")]
ROWS = [line.strip("|").split("|") for line in BUILT.splitlines() if line.startswith("| ") and "---" not in line]


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    """The modules that register the options that no table reads itself."""
    for name in (
        "skep.handles.by_path",
        "skep_sync.options",
        "skep_stream.options",
        "skep_sql.settings",
        "skep_writer",
    ):
        import_module(name)


def test_each_feature_has_a_test() -> None:
    features = [row for row in ROWS if row[0].strip() != "feature"]
    assert len(features) > 100
    assert [row[0] for row in features if len(row) != 3 or not re.search(r"`\w+/[\w/]*test_\w+\.py`", row[2])] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(\w+/[\w/]*\.py)`", BUILT))))
def test_the_files_of_tests_are_there(path: str) -> None:
    assert (TESTS / path).is_file()


@pytest.mark.parametrize("key", sorted(set(re.findall(r"`(hoodie\.[\w.]+)`", BUILT))))
def test_options_take_effect(key: str) -> None:
    option = REGISTRY.find(key)
    assert key in OF_STATEMENTS if option is None else option.status is Status.SUPPORTED


@pytest.mark.parametrize("flag", sorted(set(re.findall(r"`(--[a-z-]+)`", BUILT))))
def test_flags_of_streams_take_effect(flag: str) -> None:
    (known,) = (each for each in FLAGS if each.name == flag)
    assert known.status is Status.SUPPORTED


@pytest.mark.parametrize("span", sorted(spans(BUILT)))
def test_commands_are_there(span: str) -> None:
    check(span)
