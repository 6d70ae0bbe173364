"""A schema registry by its HTTP interface: schemas by address, by id, and those that another one refers to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from skep_format.errors import FormatError, OptionError, SchemaError, StorageError
from skep_format.options import Options, Status, option
from skep_stream.options import streamer_option

SOURCE_URL = streamer_option(
    "schemaprovider.registry.url", str, "", "SchemaRegistryProvider: …/subjects/<subject>/versions/latest", secret=True
)
TARGET_URL = streamer_option(
    "schemaprovider.registry.targetUrl", str, "", "The same of the target; else that of the source", secret=True
)
CONVERTER = streamer_option(
    "schemaprovider.registry.schemaconverter",
    str,
    "",
    "ProtoSchemaToAvroSchemaConverter: the registry's schemas are of Protobuf",
)
for _name in ("baseUrl", "urlSuffix", "sourceUrlSuffix", "targetUrlSuffix"):
    streamer_option(f"schemaprovider.registry.{_name}", str, "", "", status=Status.PLANNED)
for _name in ("keystore.location", "keystore.password", "truststore.location", "truststore.password", "key.password"):
    option(f"schema.registry.ssl.{_name}", str, "", status=Status.PLANNED, secret=True)
REGISTRY_URL = option("schema.registry.url", str, "", "The registry of Avro messages, several by comma", secret=True)
USER_INFO = option("basic.auth.user.info", str, "", "user:password at the registry", secret=True)
USER_INFO_OF_CLIENTS = option(f"schema.registry.{USER_INFO.key}", str, "", "The same, among a client's", secret=True)
_TIMEOUT_SECONDS: Final = 30.0
_NOT_FOUND: Final = 404
_AVRO: Final = "AVRO"


class UnknownSchemaError(SchemaError):
    """A registry has no schema of this id."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to by a name, and its place in the registry."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a registry gives it out."""

    text: str
    kind: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at one of several addresses."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)

    def schema(self, number: int) -> str:
        """The Avro schema of an id. UnknownSchemaError for none, StorageError where no address can be reached."""
        path = f"schemas/ids/{number}"
        return avro_of(self.read(path), f"{without_user(self.urls[0])[0].rstrip('/')}/{path}")

    def read(self, path: str) -> Registered:
        """What is at a path below the address. As `read_registered`."""
        failure: StorageError | None = None
        for url in self.urls:
            try:
                return read_registered(f"{url.rstrip('/')}/{path}", self.user_info)
            except StorageError as error:
                failure = error
        assert failure is not None
        raise failure


def read_schema(url: str, user_info: str = "") -> str:
    """The Avro schema at an address. As `read_registered`; SchemaError for a schema of another kind."""
    return avro_of(read_registered(url, user_info), without_user(url)[0])


def avro_of(found: Registered, address: str) -> str:
    """The text of an Avro schema. SchemaError for one of another kind."""
    if found.kind != _AVRO:
        problem = f"the schema is of {found.kind}, not of Avro"
        raise SchemaError.of_file(address, problem, found=found.kind, expected=_AVRO)
    return found.text


def read_registered(url: str, user_info: str = "") -> Registered:
    """The schema at an address, which may hold user and password.

    UnknownSchemaError where there is none, StorageError where the registry refuses, FormatError for no answer of one.
    """
    import httpx

    address, found = without_user(url)
    user, _, password = (found or user_info).partition(":")
    try:
        response = httpx.get(address, auth=(user, password) if user else None, timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StorageError.of_file(address, str(error), call="GET") from error
    if response.status_code == _NOT_FOUND:
        raise UnknownSchemaError.of_file(address, "the registry has no such schema")
    if not response.is_success:
        raise StorageError.of_file(address, f"status {response.status_code}", call="GET")
    return _registered_in(address, response.text)


def _registered_in(address: str, text: str) -> Registered:
    try:
        document: Any = json.loads(text)
        references = tuple(map(_reference, document.get("references") or ()))
        return Registered(_text(document["schema"]), _text(document.get("schemaType", _AVRO)), references)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError.of_file(address, "not an answer of a schema registry", found=text[:200]) from error


def _reference(node: Any) -> Reference:
    return Reference(
        _text(node["name"]), f"subjects/{quote(_text(node['subject']), safe='')}/versions/{int(node['version'])}"
    )


def _text(node: object) -> str:
    if not isinstance(node, str):
        raise TypeError(f"{node!r} is no text")
    return node


def without_user(url: str) -> tuple[str, str]:
    """An address without its user, and `user:password`."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(user) if at else ""


def registry_of(options: Options) -> SchemaRegistry:
    """By the properties of Confluent's deserializers; else that of the schema provider. OptionError for none."""
    given = options.value(REGISTRY_URL)
    if given:
        return SchemaRegistry(tuple(each.strip() for each in given.split(",")), user_info(options))
    base, subjects, _ = options.value(SOURCE_URL).partition("/subjects/")
    if not subjects:
        raise OptionError(
            f"Avro messages need a schema registry: {REGISTRY_URL.key}", option=REGISTRY_URL.key, found=base or None
        )
    return SchemaRegistry((base,), user_info(options))


def user_info(options: Options) -> str:
    """`user:password` at the registry, by either of the keys."""
    return options.value(USER_INFO) or options.value(USER_INFO_OF_CLIENTS)
