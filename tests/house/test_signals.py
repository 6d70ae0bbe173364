"""The library leaves the process's signal handlers alone: only the command line, or a call on request, installs one."""

from __future__ import annotations

import ast

from source_tree import FOLDERS, ROOT, modules, parsed

MAY_INSTALL = {"table/skep_table/runtime/signals.py", "skep/cli/metastore.py", "skep/cli/scope.py"}
"""`exit_on_sigterm` itself, and two servers that the command line runs in the foreground."""
MAY_REQUEST = {"skep/cli/main.py"}


def callers(*names: str) -> set[str]:
    """Source files of the packages with a call of one of these functions."""
    return {
        str(path.relative_to(ROOT))
        for package in FOLDERS
        for path in modules(package).values()
        if any(name.rpartition(".")[2] in path.read_text() for name in names)  # parsing all takes seconds
        and any(ast.unparse(node.func) in names for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
    }


def test_only_the_command_line_installs_handlers() -> None:
    assert callers("signal.signal", "signal.setitimer", "signal.set_wakeup_fd") == MAY_INSTALL


def test_only_the_command_line_requests_an_exit_on_sigterm() -> None:
    assert callers("exit_on_sigterm") == MAY_REQUEST
