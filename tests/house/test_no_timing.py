"""No test asserts how long something took: a busy machine is no fault. Deadlines of what is waited for are none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from source_tree import ROOT, parsed

CLOCKS = frozenset({"monotonic", "perf_counter", "process_time", "time"})


def bounds(path: Path) -> Iterator[int]:
    """Lines that assert an upper bound of a difference to a clock of Python's."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            left, upper = node.test.left, isinstance(node.test.ops[-1], ast.Lt | ast.LtE)
            if upper and isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and is_clock(left.left):
                yield node.lineno


def is_clock(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
        and node.func.attr in CLOCKS
    )


def test_no_test_asserts_a_time() -> None:
    found = {path: [*bounds(path)] for path in (ROOT / "tests").rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines}
