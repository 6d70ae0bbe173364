"""The module of replays, under a name that tests import."""

import importlib.util
import sys
from pathlib import Path

if "replays" not in sys.modules:
    spec = importlib.util.spec_from_file_location("replays", Path(__file__).parent / "replays.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["replays"] = module
    spec.loader.exec_module(module)
