"""The library leaves the process's signal handlers alone: only the command line, or a call on request, installs one."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAY_INSTALL = {"table/skep_table/signals.py", "skep/cli/metastore.py", "skep/cli/serve.py"}
"""`exit_on_sigterm` itself, and two servers that the command line runs in the foreground."""
MAY_REQUEST = {"skep/cli/main.py"}


def callers(*names: str) -> set[str]:
    """Source files of the packages with a call of one of these functions."""
    found = set()
    for folder in ("table", "catalog", "writer", "sync", "skep"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            if any(ast.unparse(function) in names for function in calls):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_only_the_command_line_installs_handlers() -> None:
    assert callers("signal.signal", "signal.setitimer", "signal.set_wakeup_fd") == MAY_INSTALL


def test_only_the_command_line_requests_an_exit_on_sigterm() -> None:
    assert callers("exit_on_sigterm") == MAY_REQUEST
