"""What the SQL server is given: where it listens, whom it serves, and how much it takes of each client."""

from __future__ import annotations

from dataclasses import dataclass, field

from skep.serve.hive.users import Users
from skep.serve.listening import LOOPBACK
from skep_format.errors import InputError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for all clients together and for each. `statements` run at once, the statements of a session one by one.

    `result_bytes` bounds the rows of one statement on disk; `page_bytes` and `page_rows` those of one fetch.
    """

    connections: int = 200
    sessions: int = 500
    operations: int = 100
    statements: int = 32
    page_rows: int = 10_000
    page_bytes: int = 8 << 20
    result_bytes: int = 16 << 30
    message_bytes: int = 16 << 20
    handshake_seconds: float = 15.0
    message_seconds: float = 60.0
    idle_session_seconds: float = 3600.0
    idle_operation_seconds: float = 1800.0
    grace_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class SqlServerSettings:
    """`port` is that of Thrift over TCP, `http_port` of Thrift over HTTP; 0 takes any, None listens on none.

    Without `users` everybody on this machine is served, and may write where `anonymous_writes` is set.
    """

    host: str = "127.0.0.1"
    port: int | None = 10000
    http_port: int | None = None
    users: Users | None = None
    anonymous_writes: bool = False
    certificate: str | None = None
    key: str | None = None
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Others than this machine's users are always asked who they are."""
        if self.users is None and self.host not in LOOPBACK:
            raise InputError(f"without users only loopback is served, not {self.host}", option="--users-file")
        if self.users is not None and self.anonymous_writes:
            raise InputError("users are given, and each has an own right to write", option="--anonymous-writes")
        if self.port is None and self.http_port is None:
            raise InputError("neither a port nor an HTTP port is given", option="--port")
        if self.key is not None and self.certificate is None:
            raise InputError("a key is given without its certificate", option="--certificate")
