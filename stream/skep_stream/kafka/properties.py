"""The properties of Kafka's client: those of Java's, as Hudi's jobs have them, in the words of librdkafka."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from skep_format.errors import OptionError, needs
from skep_format.options import Options
from skep_stream.kafka.options import START

Client = TypeVar("Client")
_OURS: Final = ("hoodie.", "skep.")
_OF_JAVA: Final = frozenset({"key.deserializer", "value.deserializer", START.key})
_OF_REGISTRY: Final = ("schema.registry.", "basic.auth.")
_GUARDS: Final = ("ssl.", "sasl.", "security.")
_JAAS: Final = "sasl.jaas.config"
_LOGIN: Final = re.compile(r"\S+\.(Plain|Scram)LoginModule\s+(required|requisite)\s+(?P<given>.*?);?\s*", re.DOTALL)
_GIVEN: Final = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)""")
_PEM: Final = "PEM"
_UNKNOWN: Final = re.compile(r'No such configuration property: "(?P<name>[^"]+)"')


class ClientPropertyWarning(UserWarning):
    """A property that the client of Kafka does not know."""


def client_properties(options: Options) -> dict[str, str]:
    """The properties that are the client's: all but Hudi's, skep's, and those of Java's deserializers.

    OptionError for a login that is neither by name and password nor by a file that librdkafka reads.
    """
    given = {
        key: value
        for key, value in options.items()
        if not key.startswith((*_OURS, *_OF_REGISTRY)) and key not in _OF_JAVA
    }
    return _with_name(_with_checks(_with_stores(given)))


def _with_name(given: dict[str, str]) -> dict[str, str]:
    """Java's login of name and password as properties of their own."""
    text = given.pop(_JAAS, None)
    if text is None:
        return given
    login = _LOGIN.fullmatch(text.strip())
    found = {name: _unquoted(value) for name, value in _GIVEN.findall(login["given"])} if login else {}
    if not {"username", "password"} <= found.keys():
        raise OptionError(
            f"{_JAAS} is read where it is PlainLoginModule or ScramLoginModule with username and password",
            hint="sasl.username, sasl.password and sasl.oauthbearer.… are properties of the client here",
            option=_JAAS,
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"], **given}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in "\"'" else text


def _with_stores(given: dict[str, str]) -> dict[str, str]:
    """Java's stores that are PEM files; others librdkafka refuses by name, but for keys in PKCS #12."""
    if given.pop("ssl.truststore.type", "").upper() == _PEM and "ssl.truststore.location" in given:
        given["ssl.ca.location"] = given.pop("ssl.truststore.location")
    if given.pop("ssl.keystore.type", "").upper() == _PEM and "ssl.keystore.location" in given:
        given["ssl.key.location"] = given["ssl.certificate.location"] = given.pop("ssl.keystore.location")
    return given


def _with_checks(given: dict[str, str]) -> dict[str, str]:
    """Java's empty algorithm checks no names of hosts."""
    algorithm = "ssl.endpoint.identification.algorithm"
    return {**given, algorithm: "none"} if given.get(algorithm) == "" else given


def made(make: Callable[[Mapping[str, Any]], Client], properties: Mapping[str, Any]) -> Client:
    """A client; properties that it does not know are left out with a warning, as Java's client does.

    OptionError for a value that it can't use, and for an unknown property that protects a connection.
    """
    with needs("kafka", "reading Kafka needs the package confluent-kafka", package="confluent_kafka"):
        from confluent_kafka import KafkaException
    left = dict(properties)
    while True:
        try:
            return make(left)
        except KafkaException as error:
            text = error.args[0].str()
            unknown = _UNKNOWN.search(text)
            name = unknown["name"] if unknown else None
            if name is None or name.startswith(_GUARDS) or left.pop(name, None) is None:
                raise OptionError(f"the client of Kafka can't be made: {text}", option=name) from error
            warnings.warn(f"{name} is no property of Kafka's client here", ClientPropertyWarning, stacklevel=2)
