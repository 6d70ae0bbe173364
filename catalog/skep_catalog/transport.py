"""An open Thrift transport to one address: plain, over TLS, by Kerberos, or both."""

from __future__ import annotations

import importlib.util
import socket
from typing import Any, Final

from thrift.transport import TSocket, TTransport

from skep_catalog.settings import ConnectionSettings, Kerberos, Tls
from skep_format.distribution import install_command
from skep_format.errors import AuthenticationError, EnvironmentMissingError, OptionError

_LARGEST_ANSWER: Final = (1 << 31) - 1  # Thrift's own limit of 16 MB is passed by a thousand wide partitions


class Transport:
    """One open connection: what Thrift's protocol reads and writes, and the socket below."""

    def __init__(self, host: str, port: int, settings: ConnectionSettings) -> None:
        """AuthenticationError when TLS or Kerberos fail; Thrift's and the system's own errors otherwise."""
        self._socket = TSocket.TSocket(host, port) if settings.tls is None else _tls_socket(host, port, settings.tls)
        self.set_timeout(settings.connect_timeout)
        self.thrift: Any = (
            TTransport.TBufferedTransport(self._socket)
            if settings.kerberos is None
            else _sasl(self._socket, host, settings.kerberos)
        )
        try:
            self.thrift.open()
        except BaseException as error:
            self.close()
            _raise_for_authentication(error, f"thrift://{host}:{port}", settings)
            raise
        self._socket.handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def handle(self) -> socket.socket | None:
        """The socket; None when it is closed."""
        return self._socket.handle

    def set_timeout(self, seconds: float) -> None:
        """Limits each read and write from now on."""
        self._socket.setTimeout(max(1, int(seconds * 1000)))

    def close(self) -> None:
        """Closes the socket; calling it again is no error."""
        if self._socket.handle is not None:  # Thrift's TLS socket can't be closed twice
            self._socket.close()


def _tls_socket(host: str, port: int, tls: Tls) -> Any:
    import ssl  # of which commands without TLS have no use

    from thrift.transport import TSSLSocket

    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.ca, tls.certificate, tls.key)))
        raise OptionError(f"skep.metastore.tls.*: {files}: {error}", found=files, expected="PEM files") from error
    return TSSLSocket.TSSLSocket(host, port, ssl_context=context, server_hostname=tls.host or host)


def _sasl(below: Any, host: str, kerberos: Kerberos) -> Any:
    service, name = kerberos.service_and_host(host)
    for needed in ("puresasl", "kerberos"):
        if importlib.util.find_spec(needed) is None:
            raise EnvironmentMissingError(
                f"a metastore with Kerberos needs the Python package {needed}",
                hint=install_command("kerberos"),
                missing=needed,
            )
    return TTransport.TSaslClientTransport(below, name, service, "GSSAPI", max_frame_size=_LARGEST_ANSWER)


def _raise_for_authentication(error: BaseException, address: str, settings: ConnectionSettings) -> None:
    """Raises failures of TLS and Kerberos, which have classes of their own and which no retry mends."""
    inner = error.inner if isinstance(error, TTransport.TTransportException) else error
    if settings.tls is not None:
        from ssl import SSLError

        if isinstance(inner, SSLError):
            raise AuthenticationError(
                f"TLS with {address} failed: {getattr(inner, 'verify_message', None) or inner.reason or inner}",
                hint="see skep.metastore.tls.ca and skep.metastore.tls.host; does the metastore speak TLS at all?",
                uri=address,
            ) from error
    if settings.kerberos is not None and type(inner).__module__.partition(".")[0] in ("kerberos", "puresasl"):
        raise AuthenticationError(
            f"Kerberos with {address} failed: {'; '.join(map(str, inner.args)) or type(inner).__name__}",
            hint="klist must show a ticket (kinit, or a keytab in KRB5_CLIENT_KTNAME); the metastore is "
            f"{settings.kerberos.principal}",
            uri=address,
        ) from error
