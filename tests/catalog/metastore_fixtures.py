"""One embedded metastore for all tests that need one, and a database of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Database
from skep_format.clock import retried, within


@pytest.fixture(scope="session")
def metastore_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """Started once in a session. Tests that kill or stop one start their own."""
    with EmbeddedMetastore.start_or_join(tmp_path_factory.mktemp("warehouse")) as server:
        yield server


@pytest.fixture
def metastore(metastore_server: EmbeddedMetastore) -> Iterator[Metastore]:
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        yield client


@pytest.fixture
def database(metastore: Metastore, tmp_path: Path) -> Iterator[str]:
    """A fresh, empty database; its entries are dropped afterwards."""
    name = f"db_{uuid.uuid4().hex[:10]}"
    metastore.create_database(Database(name, location=f"file://{tmp_path}/{name}.db"))
    yield name
    # a sync that a test did not wait for may come in between
    retried(lambda: metastore.drop_database(name, cascade=True), Exception, within(30, 0.5))
