"""The metastore's client against metastores of four releases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_contract import ClientContract

from skep_catalog.client import Metastore
from skep_catalog.entities import Database


@pytest.fixture
def metastore(any_metastore: str) -> Iterator[Metastore]:
    with Metastore.connect(any_metastore, timeout=30, attempts=2) as client:
        yield client


@pytest.fixture
def database(metastore: Metastore, tmp_path: Path) -> Iterator[str]:
    name = f"db_{uuid.uuid4().hex[:10]}"
    metastore.create_database(Database(name, location=f"file://{tmp_path}/{name}.db"))
    yield name
    metastore.drop_database(name, cascade=True)


class TestEachRelease(ClientContract):
    pass
