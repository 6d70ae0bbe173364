"""The modules beside the tests, under names that tests import."""

import importlib.util
import sys
from pathlib import Path

for name in ("replays", "kafka_topics", "registry_server", "file_jobs", "proto_files", "postgresql_server"):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
