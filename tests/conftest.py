"""Fixtures that all suites share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent


def load_helper(name: str, path: Path) -> ModuleType:
    """A helper module beside the tests, imported once under `name` (the tests are no packages)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def pytest_configure(config: pytest.Config) -> None:
    load_helper("golden_archives", TESTS / "golden" / "archives.py")


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Path:
    """The folder of the golden tables, `<hudi version>/<case>/table`: shared by all tests, so never write into it."""
    import golden_archives

    return golden_archives.unpack(Path(pytestconfig.cache.mkdir("golden")))
