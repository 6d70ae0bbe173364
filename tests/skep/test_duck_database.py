"""The database of a process that answers queries without Spark."""

from __future__ import annotations

import subprocess
import sys

FORKED = """
import os, sys
import sqlglot
from skep.query.engines import _DATABASE, DuckEngine

def answer():
    query = sqlglot.parse_one("select sum(x) s from values (1), (2) as t(x)", read="spark")
    return DuckEngine().rows(query, {}).to_pylist()

first, folder = answer(), _DATABASE._folder.name
child = os.fork()
if not child:
    assert answer() == first
    assert _DATABASE._folder.name != folder
    sys.exit(0)  # with the handlers that run at the end of a process
assert os.waitpid(child, 0)[1] == 0
assert os.path.isdir(folder)
assert answer() == first == [{"s": 3}]
"""


def test_a_forked_process_has_a_database_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
