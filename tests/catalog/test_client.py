"""The metastore client: values there and back; errors that say server, call and table; fail-over, time-outs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_catalog.client import Metastore
from skep_catalog.connection import Address, parse_addresses
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Column, Database, Partition, StorageDescriptor, Table
from skep_sync.values import partition_name, values_of_name
from skep_table.errors import (
    CatalogError,
    EntryExistsError,
    InputError,
    MetastoreUnreachableError,
    NoSuchLockError,
    NoSuchTableError,
)


def table(database: str, name: str = "t") -> Table:
    storage = StorageDescriptor(
        columns=(Column("a", "int", "the a"), Column("b", "struct<x:int,y:array<string>>", None)),
        location=f"file:///nowhere/{database}/{name}",
        input_format="org.apache.hadoop.mapred.TextInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serde_library="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        serde_parameters={"serialization.format": "1"},
    )
    keys = (Column("p", "string", "the p"),)
    return Table(database, name, storage, keys, {"EXTERNAL": "TRUE", "x": "ü"}, "EXTERNAL_TABLE", "me")


@pytest.mark.metastore
class TestValues:
    def test_a_table_comes_back_as_it_was_made(self, metastore: Metastore, database: str) -> None:
        made = table(database)
        metastore.create_table(made)
        found = metastore.table(database.upper(), "T")
        assert found.storage == replace(made.storage, location=f"file:/nowhere/{database}/t")
        assert found.partition_keys == made.partition_keys
        assert (found.table_type, found.owner) == ("EXTERNAL_TABLE", "me")
        assert {"EXTERNAL": "TRUE", "x": "ü"}.items() <= found.parameters.items()
        assert metastore.tables(database) == ["t"]

    def test_what_has_no_name_here_survives_an_alteration(self, metastore: Metastore, database: str) -> None:
        metastore.create_table(table(database))
        found = metastore.table(database, "t")
        found.origin.retention = 77
        metastore.alter_table(database, "t", replace(found, parameters={**found.parameters, "y": "1"}))
        again = metastore.table(database, "t")
        assert again.origin.retention == 77
        assert again.parameters["y"] == "1"
        metastore.alter_table(database, "t", replace(again, name="u"))
        assert metastore.tables(database) == ["u"]

    def test_partitions_in_batches(self, metastore: Metastore, database: str) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        wanted = [Partition((f"v{i:03}",), storage, {"numFiles": "2", "totalSize": "10"}) for i in range(25)]
        assert list(metastore.add_partitions(database, "t", wanted, batch_size=10)) == [10, 20, 25]
        assert list(metastore.add_partitions(database, "t", wanted[:3])) == [3], "those that exist are left alone"
        names = metastore.partition_names(database, "t")
        assert names == [f"p=v{i:03}" for i in range(25)]
        assert [p.values for p in metastore.partitions(database, "t", ["p=v007", "p=none"])] == [("v007",)]
        found = next(metastore.partitions(database, "t", ["p=v007"]))
        assert {"numFiles": "2", "totalSize": "10"}.items() <= found.parameters.items()
        moved = replace(found, storage=replace(found.storage, location="file:///elsewhere"))
        assert list(metastore.alter_partitions(database, "t", [moved])) == [1]
        assert next(metastore.partitions(database, "t", ["p=v007"])).storage.location == "file:///elsewhere"
        assert list(metastore.drop_partitions(database, "t", ["p=none", *names[5:]], batch_size=8)) == [8, 16, 21]
        assert metastore.partition_names(database, "t") == names[:5]

    @settings(max_examples=15)
    @given(value=st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=40))
    def test_any_partition_value_is_found_again_by_its_name(
        self, metastore_server: EmbeddedMetastore, value: str
    ) -> None:
        """Hive escapes values in names; skep's spelling must be the server's, or nothing is ever found or dropped."""
        with Metastore.connect(metastore_server.uri) as metastore:
            metastore.create_database(Database("values"), if_not_exists=True)
            with contextlib.suppress(EntryExistsError):
                metastore.create_table(table("values"))
            storage = metastore.table("values", "t").storage
            assert list(metastore.add_partitions("values", "t", [Partition((value,), storage)])) == [1]
            name = partition_name(["p"], [value])
            assert metastore.partition_names("values", "t") == [name]
            assert [p.values for p in metastore.partitions("values", "t", [name])] == [(value,)]
            assert values_of_name(name) == (value,)
            assert list(metastore.drop_partitions("values", "t", [name])) == [1]
            assert metastore.partition_names("values", "t") == []


@pytest.mark.metastore
class TestErrors:
    def test_no_such_table(self, metastore: Metastore, database: str) -> None:
        with pytest.raises(NoSuchTableError) as error:
            metastore.table(database, "none")
        assert error.value.fields["table"] == f"{database}.none"
        assert error.value.fields["uri"] == metastore.uri
        assert metastore.find_table(database, "none") is None
        with pytest.raises(NoSuchTableError):
            metastore.alter_table(database, "none", table(database, "none"))
        with pytest.raises(NoSuchTableError):
            metastore.partition_names(database, "none")
        with pytest.raises(NoSuchTableError, match="has no database nothere"):
            metastore.create_table(table("nothere"))

    def test_exists_already(self, metastore: Metastore, database: str) -> None:
        metastore.create_table(table(database))
        with pytest.raises(EntryExistsError, match="refused create_table"):
            metastore.create_table(table(database))
        with pytest.raises(EntryExistsError):
            metastore.create_database(Database(database))
        assert not metastore.create_database(Database(database), if_not_exists=True)

    def test_a_refusal_names_server_call_and_table(self, metastore: Metastore, database: str) -> None:
        bad = replace(table(database), storage=replace(table(database).storage, columns=(Column("a", "nonsense<"),)))
        metastore.create_table(table(database))
        with pytest.raises(
            CatalogError, match=rf"table {database}\.t: metastore {metastore.uri} refused alter_table"
        ) as error:
            metastore.alter_table(database, "t", bad)
        assert error.value.fields["call"] == "alter_table"

    def test_a_lock_that_is_gone(self, metastore: Metastore) -> None:
        with pytest.raises(NoSuchLockError):
            metastore.check_lock(10**9)


@pytest.mark.metastore
class TestThreads:
    def test_threads_share_a_client(self, metastore: Metastore, database: str) -> None:
        for i in range(4):
            metastore.create_table(table(database, f"t{i}"))
        with ThreadPoolExecutor(8) as pool:
            names = list(pool.map(lambda i: metastore.table(database, f"t{i % 4}").name, range(80)))
        assert names == [f"t{i % 4}" for i in range(80)]


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "host", "port"),
        [
            ("thrift://hms:9083", "hms", 9083),
            ("hms", "hms", 9083),
            ("hms:1", "hms", 1),
            ("thrift://[::1]:7", "::1", 7),
            (" thrift://h/ ", "h", 9083),
        ],
    )
    def test_parse(self, text: str, host: str, port: int) -> None:
        assert Address.parse(text) == Address(host, port)

    @pytest.mark.parametrize("text", ["http://h:1", "thrift://", "h:port", "a:b:c", "thrift://h:999999"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(InputError, match="not a metastore's address"):
            Address.parse(text)

    def test_several(self) -> None:
        assert [str(a) for a in parse_addresses("thrift://a:1, b:2")] == ["thrift://a:1", "thrift://b:2"]
        with pytest.raises(InputError):
            parse_addresses(" , ")


@pytest.fixture
def mute_server() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def babbling_server() -> Iterator[str]:
    """Answers in another protocol and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)

        threading.Thread(target=babble, daemon=True).start()
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


class TestUnreachable:
    def test_nobody_listens(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            uri = f"thrift://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(MetastoreUnreachableError, match=f"no metastore answers at {uri}") as error:
            Metastore.connect(uri, attempts=2).table("d", "t")
        assert error.value.fields["table"] == "d.t"

    def test_nobody_answers_in_time(self, mute_server: str) -> None:
        client = Metastore.connect(mute_server, timeout_seconds=0.3, connect_timeout_seconds=0.3, attempts=1)
        start = time.monotonic()
        with pytest.raises(MetastoreUnreachableError, match="did not answer get_all_databases in time"):
            client.databases()
        assert time.monotonic() - start < 3

    def test_another_protocol(self, babbling_server: str) -> None:
        client = Metastore.connect(babbling_server, timeout_seconds=2, connect_timeout_seconds=2, attempts=1)
        with pytest.raises(MetastoreUnreachableError):
            client.databases()

    @pytest.mark.metastore
    def test_fail_over_to_the_next_address(self, metastore_server: EmbeddedMetastore) -> None:
        client = Metastore.connect(f"thrift://127.0.0.1:1,{metastore_server.uri}", attempts=1)
        assert "default" in client.databases()
        assert "default" in client.databases()

    def test_all_addresses_are_told(self) -> None:
        with pytest.raises(MetastoreUnreachableError, match=r"none of 2 metastores answers: .*:1; .*:2"):
            Metastore.connect("thrift://127.0.0.1:1,thrift://127.0.0.1:2", attempts=1).databases()
