"""How engines are named on the command line."""

from __future__ import annotations

import pytest

from skep_format.errors import InputError
from skep_sync.engines import EngineAddress, EngineKind


def test_an_address_in_full() -> None:
    found = EngineAddress.parse("presto=ada@presto.example:8081/lake")
    assert (found.kind, found.user, found.host, found.port, found.catalog) == (
        EngineKind.PRESTO,
        "ada",
        "presto.example",
        8081,
        "lake",
    )
    assert str(found) == "presto at presto.example:8081"


@pytest.mark.parametrize(("kind", "port"), [("hive", 10000), ("spark", 10000), ("presto", 8080), ("trino", 8080)])
def test_ports_have_defaults(kind: str, port: int) -> None:
    found = EngineAddress.parse(f"{kind}=host")
    assert (found.port, found.catalog) == (port, "hive")


def test_names_are_quoted_as_each_engine_does() -> None:
    assert EngineAddress.parse("hive=h").quoted("db", "t") == "`db`.`t`"
    assert EngineAddress.parse("trino=h").quoted("db", "t") == '"db"."t"'


@pytest.mark.parametrize("text", ["hive", "hive=", "impala=host:1", "presto=host:port", "=host"])
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(InputError, match="engine"):
        EngineAddress.parse(text)
