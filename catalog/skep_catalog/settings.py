"""How a metastore is spoken to: time-outs, attempts, the caller's name, TLS, Kerberos; as values and as option keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep_format.errors import OptionError
from skep_format.options import Options, at_least, boolean, of_option, option, setting

_UNITS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """`60`, or as Hive's settings have it: `60s`, `500ms`, `10m`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise ValueError("a time: 60, 60s, 500ms, 10m")
    return float(match[1]) * _UNITS[match[2]]


TIMEOUT = option(
    "skep.metastore.timeout", seconds, 60.0, "How long a call may take.", "hive.metastore.client.socket.timeout"
)
CONNECT_TIMEOUT = option("skep.metastore.timeout.connect", seconds, 10.0, "How long connecting may take.")
ATTEMPTS = option("skep.metastore.attempts", at_least(1), 4, "Tries of calls that may be repeated.")
TLS = option("skep.metastore.tls", boolean, False, "Speak TLS.", "hive.metastore.use.SSL", "metastore.use.SSL")
KERBEROS = option(
    "skep.metastore.kerberos", boolean, False, "Authenticate by Kerberos (SASL).", "hive.metastore.sasl.enabled"
)
PRINCIPAL = option(
    "skep.metastore.kerberos.principal",
    str,
    "hive/_HOST",
    "The metastore's principal; _HOST stands for its host.",
    "hive.metastore.kerberos.principal",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. `host` is the name that the server's certificate must have, when it is not the address's."""

    ca: str | None = setting(
        "skep.metastore.tls.ca", str, None, "PEM file of the authorities to trust; else the system's."
    )
    certificate: str | None = setting(
        "skep.metastore.tls.certificate", str, None, "PEM file of the caller's certificate."
    )
    key: str | None = setting("skep.metastore.tls.key", str, None, "PEM file of its key, where that is another file.")
    host: str | None = setting(
        "skep.metastore.tls.host", str, None, "The name in the server's certificate; else the host."
    )


@dataclass(frozen=True, slots=True)
class Kerberos:
    """The metastore's principal, `service/host@REALM`. The caller's ticket is the one that `klist` shows."""

    principal: str = of_option(PRINCIPAL)

    def service_and_host(self, host: str) -> tuple[str, str]:
        """For the server at `host`. OptionError when the principal is none."""
        match = re.fullmatch(r"([^/@]+)/([^/@]+)(?:@[^/@]+)?", self.principal)
        if match is None:
            raise OptionError(
                f"option {PRINCIPAL.key}: {self.principal!r} is not service/host@REALM",
                option=PRINCIPAL.key,
                found=self.principal,
                expected="service/host@REALM",
            )
        return match[1], host.lower() if match[2] == "_HOST" else match[2]


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Times in seconds. `user` is whom the server takes for the caller where it does not authenticate (set_ugi)."""

    connect_timeout: float = of_option(CONNECT_TIMEOUT)
    timeout: float = of_option(TIMEOUT)
    long_timeout: float = setting(
        "skep.metastore.timeout.long", seconds, 900.0, "The same for calls whose work grows with a table's partitions."
    )
    attempts: int = of_option(ATTEMPTS)
    user: str | None = setting("skep.metastore.user", str, None, "The caller, for servers that do not authenticate.")
    tls: Tls | None = None
    kerberos: Kerberos | None = None

    @classmethod
    def of(cls, given: Mapping[str, object] | None = None) -> ConnectionSettings:
        """From option keys."""
        options = given if isinstance(given, Options) else Options(given)
        tls = options.read(Tls) if options.value(TLS) else None
        return options.read(cls, tls=tls, kerberos=options.read(Kerberos) if options.value(KERBEROS) else None)
