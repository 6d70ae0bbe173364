"""Public docstrings: at least 95 % of what is public in each package has one.

Public, as interrogate counts with `--ignore-private --ignore-semiprivate --ignore-magic --ignore-nested-functions`:
modules, classes, functions and methods whose name, and whose modules' and classes' names, start with no underscore.
A member needs no docstring of its own where one is inherited: it overrides a documented member of a base class of the
project, or its class defines each method of a protocol of the project that documents it. An overload is no function of
its own.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from source_tree import FOLDERS, modules, parsed

WANTED = 0.95

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Class:
    """A class of the project: its bases by bare name, and which of its members have a docstring."""

    bases: list[str]
    members: dict[str, bool] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)  # of the members, without properties

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases


def bare(node: ast.expr) -> str:
    """The last name of `a.b.Name[T]`."""
    if isinstance(node, ast.Subscript):
        return bare(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_overload(node: Function) -> bool:
    return any(bare(decorator) in ("overload", "setter") for decorator in node.decorator_list)


def is_property(node: Function) -> bool:
    return any(bare(decorator) in ("property", "cached_property") for decorator in node.decorator_list)


def members(node: ast.ClassDef) -> Iterator[Function]:
    """The public methods and properties that a class body defines."""
    for child in node.body:
        if isinstance(child, Function) and not child.name.startswith("_") and not is_overload(child):
            yield child


def classes_of(trees: Iterable[ast.Module]) -> dict[str, list[Class]]:
    """Bare name → the classes of that name."""
    found = defaultdict(list)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                documented = {child.name: ast.get_docstring(child) is not None for child in members(node)}
                methods = {child.name for child in members(node) if not is_property(child)}
                found[node.name].append(Class([bare(base) for base in node.bases], documented, methods))
    return found


@cache
def project_classes() -> dict[str, list[Class]]:
    return classes_of(parsed(path) for package in FOLDERS for path in modules(package).values())


def inherits(name: str, node: ast.ClassDef, known: dict[str, list[Class]]) -> bool:
    """Whether a base class, or a protocol that the class implements by its shape, documents the member."""
    bases, seen = [bare(base) for base in node.bases], set()
    while bases:
        base = bases.pop()
        for candidate in known.get(base, []) if base not in seen else []:
            if candidate.members.get(name):
                return True
            bases += candidate.bases
        seen.add(base)
    own = {child.name for child in members(node)}
    protocols = (one for classes in known.values() for one in classes if one.is_protocol)
    return any(one.members.get(name) and one.methods <= own for one in protocols)


def undocumented(tree: ast.Module, known: dict[str, list[Class]]) -> tuple[int, list[str]]:
    """How many public names a module has, the module itself among them, and those without a docstring."""
    count, missing = 1, [] if ast.get_docstring(tree) is not None or not tree.body else ["module"]

    def visit(body: list[ast.stmt], prefix: str, owner: ast.ClassDef | None) -> None:
        nonlocal count
        for node in body:
            if isinstance(node, ast.If | ast.Try):
                visit([*node.body, *node.orelse], prefix, owner)
            if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
                continue
            if isinstance(node, Function) and is_overload(node):
                continue
            has = ast.get_docstring(node) is not None
            if not has and owner is not None and isinstance(node, Function) and inherits(node.name, owner, known):
                continue
            count += 1
            if not has:
                missing.append(f"{prefix}{node.name}")
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.", node)

    visit(tree.body, "", None)
    return count, missing


def place(module: str) -> str:
    """Where a module counts: its folder in `skep_format`, `skep_table` and `skep`, else its package."""
    words = module.split(".")
    folder = modules(words[0])[module].parent == FOLDERS[words[0]]
    return words[0] if folder or words[0] not in ("skep_format", "skep_table", "skep") else ".".join(words[:2])


@cache
def counted() -> dict[str, tuple[int, list[str]]]:
    """Place → how many public names it has, and those without a docstring."""
    found: dict[str, tuple[int, list[str]]] = {}
    for name, path in public_modules():
        count, missing = undocumented(parsed(path), project_classes())
        before = found.get(place(name), (0, []))
        found[place(name)] = before[0] + count, before[1] + [f"{name}: {one}" for one in missing]
    return found


def public_modules() -> Iterator[tuple[str, Path]]:
    for package in FOLDERS:
        for name, path in modules(package).items():
            if not any(word.startswith("_") for word in name.split(".")):
                yield name, path


@pytest.mark.parametrize("where", sorted({place(name) for name, _ in public_modules()}))
def test_public_names_have_docstrings(where: str) -> None:
    count, missing = counted()[where]
    allowed = int(count * (1 - WANTED))
    assert len(missing) <= allowed, f"{len(missing)} of {count} lack a docstring, {allowed} may:\n" + "\n".join(missing)


BASE = '''"""M."""
class B:
    """B."""
    def f(self):
        """F."""
'''


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ('"""A module."""', []),
        ("x = 1", ["module"]),
        ('"""M."""\ndef f(): ...', ["f"]),
        ('"""M."""\ndef _f(): ...\nclass _C:\n    def f(self): ...', []),
        ('"""M."""\nclass C:\n    """C."""\n    def f(self): ...\n    def __len__(self): ...', ["C.f"]),
        ('"""M."""\ndef f():\n    """F."""\n    def inner(): ...', []),
        ('"""M."""\n@overload\ndef f(x): ...\ndef f(x):\n    """F."""', []),
        (BASE + 'class C(B):\n    """C."""\n    def f(self): ...', []),
        (BASE.replace('"""F."""', "...") + 'class C(B):\n    """C."""\n    def f(self): ...', ["B.f", "C.f"]),
        (BASE.replace("B:", "B(Protocol):") + 'class C:\n    """C."""\n    def f(self): ...', []),
        (BASE + 'class C:\n    """C."""\n    def f(self): ...', ["C.f"]),
        ('"""M."""\nif X:\n    def f(): ...\nasync def g(): ...', ["f", "g"]),
    ],
)
def test_what_lacks_a_docstring_is_found(source: str, missing: list[str]) -> None:
    tree = ast.parse(source)
    assert undocumented(tree, classes_of([tree]))[1] == missing
