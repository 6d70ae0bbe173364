"""What a Python worker of Spark is left with after a task."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from skep_writer.edge import forget_zip_finders


def test_finders_of_zips_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        archive.writestr("zipped_parts/__init__.py", "")
        archive.writestr("zipped_parts/one.py", "VALUE = 1")
        archive.writestr("zipped_parts/two.py", "VALUE = 2")
    monkeypatch.syspath_prepend(str(tmp_path / "parts.zip"))
    assert importlib.import_module("zipped_parts.one").VALUE == 1

    forget_zip_finders()
    assert not [finder for finder in sys.path_importer_cache.values() if isinstance(finder, zipimporter)]
    assert importlib.import_module("zipped_parts.two").VALUE == 2
