"""Table versions are known to `skep_format.versions` alone, and instant times are compared by methods with names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import FOLDERS, modules, parsed

VERSION_AWARE = ("skep_format.versions", "skep_format.table_config", "skep_format.timeline", "skep_table.upgrade")
"""The format, the settings that state the version, the timeline layouts that the format is composed of, and what brings
a table from one version to another."""
LAYOUT_FACTS = frozenset({"layout_version", "has_completion_times"})
LAYOUTS = frozenset({"layout_1", "layout_2"})
VERSIONED = frozenset({"config", "table_config", "format", "table_format"})
TIMES = frozenset(
    {
        "as_of",
        "base_instant",
        "commit_time",
        "completion_time",
        "earliest_commit_to_retain",
        "first_time",
        "instant_time",
        "requested_time",
        "since",
        "target_instant_time",
        "time",
    }
)
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def last_name(node: ast.expr) -> str:
    """`config` of `table.config`, of `config` and of `f(x).config`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_version(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "version" and last_name(node.value) in VERSIONED


def decides_by_version(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(is_version, [node.left, *node.comparators]))
    if isinstance(node, ast.Subscript):
        return is_version(node.slice)
    if isinstance(node, ast.Match):
        return is_version(node.subject)
    if isinstance(node, ast.ImportFrom):
        return not LAYOUTS.isdisjoint(alias.name for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in LAYOUT_FACTS


def version_questions(tree: ast.AST) -> Iterator[str]:
    """Where code decides by a version number, or by a fact of the timeline layout."""
    for node in ast.walk(tree):
        if decides_by_version(node):
            yield f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def bare_comparisons(tree: ast.AST) -> Iterator[str]:
    """Comparisons of instant times with < <= > >=."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(operator, ORDER) for operator in node.ops):
            operands = [node.left, *node.comparators]
            if any(last_name(operand) in TIMES for operand in operands):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def everywhere() -> list[tuple[str, Path]]:
    return [(name, path) for package in FOLDERS for name, path in modules(package).items()]


def test_only_the_format_asks_for_a_version() -> None:
    found = {
        f"{name}, {what}"
        for name, path in everywhere()
        if not name.startswith(VERSION_AWARE)
        for what in version_questions(parsed(path))
    }
    assert not found


def test_instant_times_are_compared_by_name() -> None:
    assert not {f"{name}, {what}" for name, path in everywhere() for what in bare_comparisons(parsed(path))}


@pytest.mark.parametrize(
    "code",
    [
        "if table.config.version < 8: pass",
        "x = 9 <= config.version",
        "if then.format.version != now.format.version: pass",
        "x = {6: 1}[config.version]",
        "match config.version:\n    case 6: pass",
        "x = 1 if table.layout.has_completion_times else 2",
        "if config.layout_version == 1: pass",
        "from skep_format.timeline.layout import layout_2",
    ],
)
def test_a_question_for_the_version_is_found(code: str) -> None:
    assert len(list(version_questions(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "a.requested_time < b",
        "a <= b.completion_time",
        "[i for i in x if since < i.requested_time <= until]",
        "instant_time > last",
        "max(x, key=lambda s: s.base_instant >= y)",
    ],
)
def test_a_bare_comparison_of_times_is_found(code: str) -> None:
    assert len(list(bare_comparisons(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "log.name.version > 3",
        "f'version {config.version}'",
        "spark.version < '4'",
        "a.requested_time == b",
        "a.requested_time in known",
    ],
)
def test_what_asks_for_no_version_and_orders_no_times_is_left_alone(code: str) -> None:
    tree = ast.parse(code)
    assert not [*version_questions(tree), *bare_comparisons(tree)]
