"""The metastore client: values there and back; errors that name server, call and table; fail-over, time-outs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from client_contract import ClientContract, table

from benchmarks.metastore_proxy import close_sockets
from skep_catalog.client import Metastore
from skep_catalog.connection import Address, parse_addresses
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.errors import (
    InputError,
    MetastoreUnreachableError,
)


@pytest.mark.metastore
class TestEmbeddedMetastore(ClientContract):
    """What the embedded metastore, a 2.3.9, is asked by every client."""


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

    def test_a_folder_is_refused_with_the_name_of_its_argument(self) -> None:
        with pytest.raises(InputError) as refused:
            Address.parse("/data/lake")
        assert refused.value.hint == "a folder for tables is given as warehouse"

    def test_several(self) -> None:
        assert [str(a) for a in parse_addresses("thrift://a:1, b:2")] == ["thrift://a:1", "thrift://b:2"]
        with pytest.raises(InputError):
            parse_addresses(" , ")


@pytest.fixture
def mute_server() -> Iterator[str]:
    """Accepts connections and never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def babbling_server() -> Iterator[str]:
    """Answers in another protocol and disconnects."""
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
        close_sockets(server)


class TestUnreachable:
    def test_nobody_listens(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            uri = f"thrift://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(MetastoreUnreachableError, match=f"no metastore answers at {uri}") as error:
            Metastore.connect(uri, attempts=2).table("d", "t")
        assert error.value.fields["table"] == "d.t"

    def test_nobody_answers_in_time(self, mute_server: str) -> None:
        client = Metastore.connect(mute_server, timeout=0.3, connect_timeout=0.3, attempts=1)
        with pytest.raises(MetastoreUnreachableError, match="did not answer get_all_databases in time"):
            client.databases()

    def test_another_protocol(self, babbling_server: str) -> None:
        client = Metastore.connect(babbling_server, timeout=2, connect_timeout=2, attempts=1)
        with pytest.raises(MetastoreUnreachableError):
            client.databases()

    @pytest.mark.metastore
    def test_fail_over_to_the_next_address(self, metastore_server: EmbeddedMetastore) -> None:
        client = Metastore.connect(f"thrift://127.0.0.1:1,{metastore_server.uri}", attempts=1)
        assert "default" in client.databases()
        assert "default" in client.databases()

    def test_all_addresses_are_reported(self) -> None:
        with pytest.raises(MetastoreUnreachableError, match=r"none of 2 metastores answers: .*:1; .*:2"):
            Metastore.connect("thrift://127.0.0.1:1,thrift://127.0.0.1:2", attempts=1).databases()
