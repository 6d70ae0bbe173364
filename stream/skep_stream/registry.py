"""A schema registry by its HTTP interface: schemas by address and by id, and the provider that reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from skep_stream.options import streamer_option
from skep_stream.protocols import StreamContext
from skep_table.errors import FormatError, OptionError, SchemaError, StorageError
from skep_table.options import Options, Status, option
from skep_table.schema.avro import parse_avro
from skep_table.schema.types import Schema

SOURCE_URL = streamer_option(
    "schemaprovider.registry.url", str, "", "SchemaRegistryProvider: …/subjects/<subject>/versions/latest", secret=True
)
TARGET_URL = streamer_option(
    "schemaprovider.registry.targetUrl", str, "", "The same of the target; else that of the source", secret=True
)
for _name in ("schemaconverter", "baseUrl", "urlSuffix", "sourceUrlSuffix", "targetUrlSuffix"):
    streamer_option(f"schemaprovider.registry.{_name}", str, "", "", status=Status.PLANNED)
for _name in ("keystore.location", "keystore.password", "truststore.location", "truststore.password", "key.password"):
    option(f"schema.registry.ssl.{_name}", str, "", status=Status.PLANNED, secret=True)
REGISTRY_URL = option("schema.registry.url", str, "", "The registry of Avro messages, several by comma", secret=True)
USER_INFO = option("basic.auth.user.info", str, "", "user:password at the registry", secret=True)
USER_INFO_OF_CLIENTS = option(f"schema.registry.{USER_INFO.key}", str, "", "The same, among a client's", secret=True)
_TIMEOUT_SECONDS: Final = 30.0
_NOT_FOUND: Final = 404


class UnknownSchemaError(SchemaError):
    """A registry has no schema of this id."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry at one of several addresses. Schemas of ids never change, so each is read once."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    _known: dict[int, str] = field(default_factory=dict, compare=False, repr=False)

    def schema(self, number: int) -> str:
        """The Avro schema of an id. UnknownSchemaError for none, StorageError where no address can be reached."""
        if number not in self._known:
            self._known[number] = self._read(f"schemas/ids/{number}")
        return self._known[number]

    def _read(self, path: str) -> str:
        failure: StorageError | None = None
        for url in self.urls:
            try:
                return read_schema(f"{url.rstrip('/')}/{path}", self.user_info)
            except StorageError as error:
                failure = error
        assert failure is not None
        raise failure


def read_schema(url: str, user_info: str = "") -> str:
    """The Avro schema at an address, which may hold user and password.

    UnknownSchemaError where there is none, StorageError where the registry refuses, FormatError for no answer of one.
    """
    import httpx

    address, found = without_user(url)
    user, _, password = (found or user_info).partition(":")
    try:
        response = httpx.get(address, auth=(user, password) if user else None, timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StorageError(f"{address}: {error}", call="GET", path=address) from error
    if response.status_code == _NOT_FOUND:
        raise UnknownSchemaError(f"{address}: the registry has no such schema", path=address)
    if not response.is_success:
        raise StorageError(f"{address}: status {response.status_code}", call="GET", path=address)
    return _schema_in(address, response.text)


def _schema_in(address: str, text: str) -> str:
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, Mapping) or not isinstance(document.get("schema"), str):
        raise FormatError(f"{address}: this is no answer of a schema registry", path=address, found=text[:200])
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise SchemaError(f"{address}: the schema is of {kind}, not of Avro", path=address, found=kind, expected="AVRO")
    return str(document["schema"])


def without_user(url: str) -> tuple[str, str]:
    """An address without its user, and `user:password`."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(user) if at else ""


def registry_of(options: Options) -> Registry:
    """By the properties of Confluent's deserializers; else that of the schema provider. OptionError for none."""
    given = options.value(REGISTRY_URL)
    if given:
        return Registry(tuple(each.strip() for each in given.split(",")), _user_info(options))
    base, subjects, _ = options.value(SOURCE_URL).partition("/subjects/")
    if not subjects:
        raise OptionError(
            f"Avro messages need a schema registry: {REGISTRY_URL.key}", option=REGISTRY_URL.key, found=base or None
        )
    return Registry((base,), _user_info(options))


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """The newest schemas of subjects, read again at each use: a stream that goes on follows them."""

    source: str = field(repr=False)
    target: str = field(repr=False)
    user_info: str = field(default="", repr=False)

    def source_schema(self) -> Schema:
        """The columns of the source."""
        return self._read(self.source)

    def target_schema(self) -> Schema | None:
        """The columns of the target, where it has a subject of its own."""
        return self._read(self.target) if self.target else None

    def _read(self, url: str) -> Schema:
        address = without_user(url)[0]
        try:
            return parse_avro(read_schema(url, self.user_info)).without_meta()
        except SchemaError as error:
            message = error.message if error.message.startswith(address) else f"{address}: {error.message}"
            raise SchemaError(message, hint=error.hint, **{**error.fields, "path": address}) from error


def registry_schemas(context: StreamContext) -> RegistrySchemas:
    """SchemaRegistryProvider. OptionError without an address."""
    options = context.options
    if not options.value(SOURCE_URL):
        raise OptionError(f"SchemaRegistryProvider needs {SOURCE_URL.key}", option=SOURCE_URL.key)
    return RegistrySchemas(options.value(SOURCE_URL), options.value(TARGET_URL), _user_info(options))


def _user_info(options: Options) -> str:
    return options.value(USER_INFO) or options.value(USER_INFO_OF_CLIENTS)
