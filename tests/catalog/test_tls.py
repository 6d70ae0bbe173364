"""TLS and Kerberos: a metastore behind TLS, what is checked of its certificate, and the errors."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from benchmarks.metastore_proxy import close_sockets
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.settings import ConnectionSettings, Kerberos, Tls, seconds
from skep_format.errors import AuthenticationError, EnvironmentMissingError, MetastoreUnreachableError, OptionError

PLAIN = ConnectionSettings(timeout=10, connect_timeout=10, attempts=1)


@dataclass
class TlsProxy:
    """Accepts TLS connections on loopback and forwards their bytes to a plain server."""

    context: ssl.SSLContext
    target: tuple[str, int]
    accepted: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __enter__(self) -> TlsProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        close_sockets(self._listener)

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            with self.context.wrap_socket(plain, server_side=True) as client:
                self.accepted += 1
                with socket.create_connection(self.target) as server:
                    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                    back.start()
                    _pump(client, server)
                    server.shutdown(socket.SHUT_RDWR)
                    back.join()
        except OSError:
            plain.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    while data := source.recv(1 << 16):
        sink.sendall(data)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return str(tmp_path / "ca.pem")


Behind = Callable[..., TlsProxy]


@pytest.fixture
def behind_tls(authority: trustme.CA, metastore_server: EmbeddedMetastore) -> Iterator[Behind]:
    """The session's metastore behind TLS, with a certificate for the names given."""
    proxies: list[TlsProxy] = []

    def start(*names: str, callers: trustme.CA | None = None) -> TlsProxy:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        if callers is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            callers.configure_trust(context)
        proxies.append(TlsProxy(context, ("127.0.0.1", metastore_server.server.port)).__enter__())
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.__exit__()


@pytest.mark.metastore
class TestTls:
    def test_calls_go_over_one_connection(self, behind_tls: Behind, ca_file: str) -> None:
        proxy = behind_tls("127.0.0.1")
        with Metastore.connect(proxy.uri, {"skep.metastore.tls": "true", "skep.metastore.tls.ca": ca_file}) as client:
            for _ in range(5):
                assert "default" in client.databases()
        assert proxy.accepted == 1

    def test_hives_own_key_turns_it_on(self, behind_tls: Behind, ca_file: str) -> None:
        settings = {"hive.metastore.use.SSL": "true", "skep.metastore.tls.ca": ca_file}
        with Metastore.connect(behind_tls("127.0.0.1").uri, settings) as client:
            assert "default" in client.databases()

    def test_an_unknown_authority_is_refused(self, behind_tls: Behind) -> None:
        proxy = behind_tls("127.0.0.1")
        with pytest.raises(AuthenticationError, match=f"TLS with {proxy.uri} failed: .*issuer certificate") as error:
            Metastore.connect(proxy.uri, {"skep.metastore.tls": "true"}).databases()
        assert error.value.fields["uri"] == proxy.uri

    def test_another_name_is_refused_unless_it_is_the_one_asked_for(self, behind_tls: Behind, ca_file: str) -> None:
        proxy = behind_tls("metastore.example")
        with pytest.raises(AuthenticationError, match=r"not valid for '127\.0\.0\.1'"):
            Metastore.connect(proxy.uri, ConnectionSettings(tls=Tls(ca_file))).databases()
        named = ConnectionSettings(tls=Tls(ca_file, host="metastore.example"))
        with Metastore.connect(proxy.uri, named) as client:
            assert "default" in client.databases()

    def test_the_caller_shows_a_certificate_where_the_server_wants_one(
        self, behind_tls: Behind, authority: trustme.CA, ca_file: str, tmp_path: Path
    ) -> None:
        proxy = behind_tls("127.0.0.1", callers=authority)
        with pytest.raises((AuthenticationError, MetastoreUnreachableError)):
            Metastore.connect(proxy.uri, ConnectionSettings(attempts=1, tls=Tls(ca_file))).databases()
        mine = authority.issue_cert("caller@example.org")
        mine.private_key_pem.write_to_path(tmp_path / "key.pem")
        mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        tls = Tls(ca_file, str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
        with Metastore.connect(proxy.uri, ConnectionSettings(tls=tls)) as client:
            assert "default" in client.databases()

    def test_one_side_plain(self, behind_tls: Behind, ca_file: str, metastore_server: EmbeddedMetastore) -> None:
        encrypted = Metastore.connect(metastore_server.uri, ConnectionSettings(connect_timeout=5, tls=Tls(ca_file)))
        with pytest.raises(AuthenticationError, match="does the metastore speak TLS"):
            encrypted.databases()
        with pytest.raises(MetastoreUnreachableError):
            Metastore.connect(behind_tls("127.0.0.1").uri, PLAIN).databases()

    def test_a_file_that_is_none_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "ca.pem").write_text("no certificate")
        for name in ("ca.pem", "missing.pem"):
            settings = ConnectionSettings(tls=Tls(str(tmp_path / name)))
            with pytest.raises(OptionError, match=rf"skep\.metastore\.tls.*{name}"):
                Metastore.connect("127.0.0.1:1", settings).databases()


class TestKerberos:
    @pytest.mark.parametrize(
        ("principal", "service_and_host"),
        [
            ("hive/_HOST@EXAMPLE.ORG", ("hive", "meta.example")),
            ("hive/_HOST", ("hive", "meta.example")),
            ("hms/alias.example@EXAMPLE.ORG", ("hms", "alias.example")),
        ],
    )
    def test_the_servers_principal(self, principal: str, service_and_host: tuple[str, str]) -> None:
        settings = ConnectionSettings.of(
            {"hive.metastore.sasl.enabled": "true", "hive.metastore.kerberos.principal": principal}
        )
        assert settings.kerberos is not None
        assert settings.kerberos.service_and_host("Meta.Example") == service_and_host

    @pytest.mark.parametrize("principal", ["hive", "hive@EXAMPLE.ORG", "hive//x", ""])
    def test_no_principal(self, principal: str) -> None:
        with pytest.raises(OptionError, match="is not service/host@REALM"):
            Kerberos(principal).service_and_host("h")

    def test_what_must_be_installed_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(EnvironmentMissingError, match="needs the Python package puresasl") as error:
            Metastore.connect("127.0.0.1:1", ConnectionSettings(kerberos=Kerberos())).databases()
        assert "skep-hudi[kerberos]" in str(error.value.hint)


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "expected"), [("60", 60), ("600s", 600), ("500ms", 0.5), ("10m", 600), ("1.5 min", 90), ("2h", 7200)]
    )
    def test_times(self, text: str, expected: float) -> None:
        assert ConnectionSettings.of({"hive.metastore.client.socket.timeout": text}).timeout == pytest.approx(expected)
        assert seconds(text) == pytest.approx(expected)

    @pytest.mark.parametrize("text", ["", "0", "-1", "soon", "5 weeks"])
    def test_no_times(self, text: str) -> None:
        with pytest.raises(OptionError, match=r"skep\.metastore\.timeout: .* is not a time"):
            ConnectionSettings.of({"skep.metastore.timeout": text})

    def test_what_is_given_beside_them_wins(self) -> None:
        client = Metastore.connect("h", {"skep.metastore.timeout": "5", "skep.metastore.user": "me"}, timeout=7)
        assert client._connections.settings.timeout == 7
        assert client.user == "me"
