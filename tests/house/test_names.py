"""One class name, one class: a reader who meets a name knows which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict

from source_tree import FOLDERS, modules, parsed


def test_a_name_of_a_class_is_given_once() -> None:
    """But for names that are a module's own."""
    found = defaultdict(list)
    for package in FOLDERS:
        for name, path in modules(package).items():
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(name)
    assert not {name: homes for name, homes in found.items() if len(homes) > 1}
