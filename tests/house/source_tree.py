"""The source tree as the house tests read it: packages, modules, imports, all from the source with `ast`.

Nothing is imported: imports inside functions and under TYPE_CHECKING are part of the graph.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "skep_format": ROOT / "format" / "skep_format",
    "skep_table": ROOT / "table" / "skep_table",
    "skep_catalog": ROOT / "catalog" / "skep_catalog",
    "skep_writer": ROOT / "writer" / "skep_writer",
    "skep_sync": ROOT / "sync" / "skep_sync",
    "skep_sql": ROOT / "sql" / "skep_sql",
    "skep_stream": ROOT / "stream" / "skep_stream",
    "skep": ROOT / "skep",
}
Graph = Mapping[str, set[str]]


@cache
def modules(package: str) -> dict[str, Path]:
    """Module name → source file."""
    folder = FOLDERS[package]
    found = {}
    for path in folder.rglob("*.py"):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(name: str, path: Path, *, top_only: bool = False, for_types: bool = True) -> Iterator[str]:
    """Full names of what a module imports; for `from a import b` both `a` and `a.b`, whichever of them is a module."""
    tree = parsed(path) if for_types else WithoutTypeChecking().visit(copy.deepcopy(parsed(path)))
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
    """Removes the bodies of `if TYPE_CHECKING`."""

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


def import_graph(package: str, *, top_only: bool = False) -> dict[str, set[str]]:
    """Module → the modules of the same package that it imports."""
    own = modules(package)
    graph: dict[str, set[str]] = {}
    for name, path in own.items():
        needs = {imported for imported in imports(name, path, top_only=top_only) if imported in own}
        # `from package import module` names the package too: only the module is meant.
        graph[name] = {need for need in needs if need != name and not any(n.startswith(need + ".") for n in needs)}
    return graph


def cycle(graph: Graph) -> list[str]:
    """One cycle of the graph, its first node repeated at the end; empty without a cycle."""
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def part(module: str) -> str:
    """The part of its package that a module belongs to: its folder, or a module of its own."""
    return module.split(".")[1] if "." in module else ""


def part_graph(package: str) -> dict[str, set[tuple[str, str]]]:
    """Module → (the part it imports, the module there), for imports that leave its own part."""
    return {
        name: {(part(need), need) for need in needs if part(need) not in ("", part(name))}
        for name, needs in import_graph(package).items()
    }


def back_edges(order: list[str], graph: Mapping[str, Iterable[tuple[str, str]]]) -> list[str]:
    """Imports of a part that the order lists at or after the importing module's own part."""
    position = {name: at for at, name in enumerate(order)}
    return sorted(
        f"{name} imports {need}"
        for name, needs in graph.items()
        for other, need in needs
        if part(name) in position and other in position and position[other] >= position[part(name)]
    )


def table_rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first Markdown table below a heading, without its head."""
    section = re.split(rf"^#+ {re.escape(heading)}\n", page, maxsplit=1, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def names_in(cell: str) -> list[str]:
    """The names in backticks of one cell, without a folder's closing slash."""
    return [name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)]
