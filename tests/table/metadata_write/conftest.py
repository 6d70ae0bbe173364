"""The helpers of these tests, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

NAME = "metadata_listings"
if NAME not in sys.modules:
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name("listings.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
