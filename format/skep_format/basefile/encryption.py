"""Parquet's modular encryption: the keys of a table's base files, by the option names of Java's Parquet.

Arrow ends the process where it is asked for what a footer states of a column whose key is missing. So which columns are
hidden is found out before, by the footer as this module reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from io import BytesIO
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.basefile import parquet_metadata as parquet
from skep_format.basefile.encoding import leaves
from skep_format.basefile.parquet_metadata import ENCRYPTED_MAGIC
from skep_format.basefile.thrift import Struct, parse_struct, value_of
from skep_format.errors import EncryptedFileError, OptionError, UnsupportedError
from skep_format.options import REGISTRY, Options, Status, boolean, comma_list, of_option, option
from skep_format.storage import Storage
from skep_format.storage.keyed import keys_in

if TYPE_CHECKING:
    import pyarrow.parquet.encryption as pe

_MOST_KEYS: Final = 10_000
"""That are kept: with double wrapping there are few, without one for each column of a file."""
_FACTORY_CLASS: Final = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
_PREFIXES: Final = ("parquet.encryption.", "parquet.crypto.")


def _factory(text: str) -> str:
    if text.strip() not in ("", _FACTORY_CLASS):
        raise ValueError(_FACTORY_CLASS)
    return text.strip()


def _columns_by_key(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        key, colon, names = part.partition(":")
        columns = tuple(name.strip() for name in names.split(","))
        if not colon or not key.strip() or not all(columns) or ":" in names:
            raise ValueError("key:column,column;key:column")
        found[key.strip()] = (*found.get(key.strip(), ()), *columns)
    named = [name for columns in found.values() for name in columns]
    if len(set(named)) < len(named):
        raise ValueError("a list that names each column once")
    return tuple(found.items())


def _choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().upper() not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return text.strip().upper()

    return parse


def _bits(text: str) -> int:
    return int(_choice("128", "192", "256")(text))


_NO_COLUMNS: tuple[tuple[str, tuple[str, ...]], ...] = ()
_NO_NAMES: tuple[str, ...] = ()

FACTORY = option("parquet.crypto.factory.class", _factory, "", f"Encryption is on: {_FACTORY_CLASS}")
KMS_CLASS = option(
    "parquet.encryption.kms.client.class", str, "", "What wraps keys: a class of Python, or a Java class known here"
)
KMS_ID = option("parquet.encryption.kms.instance.id", str, "", "Passed to the KMS client")
KMS_URL = option("parquet.encryption.kms.instance.url", str, "", "Passed to the KMS client")
ACCESS_TOKEN = option("parquet.encryption.key.access.token", str, "", "Passed to the KMS client", secret=True)
FOOTER_KEY = option("parquet.encryption.footer.key", str, "", "The master key of footers")
COLUMN_KEYS = option(
    "parquet.encryption.column.keys",
    _columns_by_key,
    _NO_COLUMNS,
    "Master keys of columns: `key:column,column;key:column`, fields in nested ones by their dotted paths",
)
UNIFORM_KEY = option("parquet.encryption.uniform.key", str, "", "One master key for footers and all columns")
COMPLETE = option(
    "parquet.encryption.complete.columns", boolean, False, "Columns without a key of their own have that of the footer"
)
PLAINTEXT_FOOTER = option(
    "parquet.encryption.plaintext.footer", boolean, False, "Footers are signed, and can be read without a key"
)
DOUBLE_WRAPPING = option(
    "parquet.encryption.double.wrapping", boolean, True, "Keys of data have keys that the KMS wraps: it is called less"
)
CACHE_SECONDS = option("parquet.encryption.cache.lifetime.seconds", int, 600, "How long unwrapped keys are kept")
ALGORITHM = option(
    "parquet.encryption.algorithm", _choice("AES_GCM_V1", "AES_GCM_CTR_V1"), "AES_GCM_V1", "How pages are encrypted"
)
KEY_BITS = option("parquet.encryption.data.key.length.bits", _bits, 128, "Length of the keys of data")
KEY_LIST = option(
    "parquet.encryption.key.list",
    comma_list,
    _NO_NAMES,
    "Keys of the KMS for tests, `name:base64`",
    secret=True,
)
NEW_KEY_LIST = option("parquet.encryption.new.key.list", comma_list, _NO_NAMES, "Their versions that wrap", secret=True)
PLAINTEXT = option(
    "skep.encryption.plaintext",
    comma_list,
    _NO_NAMES,
    "What of an encrypted table may be written as plain text: `files`, `logs`, `indexes`",
)
FILES, LOGS, INDEXES = "files", "logs", "indexes"
"""What `PLAINTEXT` may name."""

_BESIDE: Final = "key material is stored in the files"
option("parquet.encryption.key.material.store.internally", str, "true", _BESIDE, status=Status.PLANNED)
option("parquet.encryption.key.material.store.temp.prefix", str, "", _BESIDE, status=Status.NO_EFFECT)
option("parquet.encryption.wrap.locally", str, "false", "the KMS client wraps", status=Status.PLANNED)
option("parquet.encryption.kek.length.bits", str, "128", "Arrow's length", status=Status.PLANNED)


@dataclass(frozen=True, slots=True)
class ParquetKeys:
    """The keys that a table's base files are read with, and written with where they `encrypt`. It pickles.

    `client`: the class of the KMS client, called with Arrow's `KmsConnectionConfig`. `settings`: what else the options
    have for it. `complete`: columns without a key have that of the footer.
    """

    client: Callable[[Any], Any]
    instance_id: str = of_option(KMS_ID)
    instance_url: str = of_option(KMS_URL)
    access_token: str = of_option(ACCESS_TOKEN)
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    footer_key: str = ""
    column_keys: tuple[tuple[str, tuple[str, ...]], ...] = of_option(COLUMN_KEYS)
    complete: bool = False
    plaintext_footer: bool = of_option(PLAINTEXT_FOOTER)
    double_wrapping: bool = of_option(DOUBLE_WRAPPING)
    cache_seconds: int = of_option(CACHE_SECONDS)
    algorithm: str = of_option(ALGORITHM)
    key_bits: int = of_option(KEY_BITS)

    @classmethod
    def of(cls, options: Options, client: Callable[[Any], Any]) -> ParquetKeys:
        """OptionError for options that contradict each other."""
        uniform = options.value(UNIFORM_KEY).strip()
        return options.read(
            cls,
            client=client,
            settings=tuple(sorted((key, text) for key, text in options.items() if _is_of_kms(key))),
            footer_key=uniform or options.value(FOOTER_KEY).strip(),
            complete=bool(uniform) or options.value(COMPLETE),
        )

    @property
    def encrypt(self) -> bool:
        """Whether files that are written are encrypted: there is a master key for them."""
        return bool(self.footer_key)

    def hides(self, column: str) -> bool:
        """Whether files that are written have a top-level column, or a field in it, encrypted."""
        named = (name for _, columns in self.column_keys for name in columns)
        return self.encrypt and (self.complete or any(name.partition(".")[0] == column for name in named))

    def reading(self) -> pe.FileDecryptionProperties:
        """For one file, that may be plain. The KMS is called when it is opened."""
        import pyarrow.parquet.encryption as pe

        lifetime = timedelta(seconds=self.cache_seconds)
        return _factory_of(self).file_decryption_properties(
            self.connection(), pe.DecryptionConfiguration(cache_lifetime=lifetime)
        )

    def writing(self, schema: pa.Schema) -> pe.FileEncryptionProperties | None:
        """For one file; None where it is not to be encrypted. EncryptedFileError where the KMS refuses a key,
        OptionError for a column that the file does not have.
        """
        import pyarrow.parquet.encryption as pe

        if not self.encrypt:
            return None
        paths = [path for each in schema for path, _ in leaves(each.name, each.type)]
        columns = {key: list(names) for key, names in self.column_keys}
        named = {name for names in columns.values() for name in names}
        missing = named.difference(paths)
        if missing:
            raise OptionError(
                f"{COLUMN_KEYS.key}: {min(missing)} is no column of the table's files",
                option=COLUMN_KEYS.key,
                found=min(missing),
                expected=", ".join(paths),
            )
        others = [path for path in paths if path not in named]
        if self.complete and named and others:
            columns.setdefault(self.footer_key, []).extend(others)
        keys = pe.EncryptionConfiguration(
            footer_key=self.footer_key,
            encryption_algorithm=self.algorithm,
            plaintext_footer=self.plaintext_footer,
            double_wrapping=self.double_wrapping,
            cache_lifetime=timedelta(seconds=self.cache_seconds),
            data_key_length_bits=self.key_bits,
            **({"column_keys": columns} if columns else {"uniform_encryption": True}),
        )
        return _factory_of(self).file_encryption_properties(self.connection(), keys)

    def connection(self) -> pe.KmsConnectionConfig:
        """What the KMS client is made with."""
        import pyarrow.parquet.encryption as pe

        return pe.KmsConnectionConfig(
            kms_instance_id=self.instance_id or "DEFAULT",
            kms_instance_url=self.instance_url or "DEFAULT",
            key_access_token=self.access_token or "DEFAULT",
            custom_kms_conf=dict(self.settings),
        )

    def unwraps(self, wrapped: str, master_key: str) -> str:
        """Why the KMS does not unwrap a key; empty where it does."""
        try:
            _client_of(self).unwrapped(wrapped, master_key)
        except EncryptedFileError as error:
            return error.message
        return ""


def _is_of_kms(key: str) -> bool:
    known = REGISTRY.find(key)
    return key.startswith(_PREFIXES) and (known is None or known in (KEY_LIST, NEW_KEY_LIST))


@lru_cache(maxsize=64)
def _factory_of(keys: ParquetKeys) -> pe.CryptoFactory:
    """One for the process: it keeps keys, too."""
    import pyarrow.parquet.encryption as pe

    return pe.CryptoFactory(lambda _config: _client_of(keys))


@lru_cache(maxsize=64)
def _client_of(keys: ParquetKeys) -> Any:
    """The KMS client of a process, whose failures are EncryptedFileError, which Arrow passes on.

    It keeps what the KMS has unwrapped. Arrow ends the process where a key of a file that is open can't be had any
    more: such a file is read on with the key that it was opened with.
    """
    import pyarrow.parquet.encryption as pe

    def failed(what: str, error: Exception) -> EncryptedFileError:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if keys.access_token:
            reason = reason.replace(keys.access_token, "****")
        return EncryptedFileError(f"{what}: {reason}", option=KMS_CLASS.key)

    class Client(pe.KmsClient):
        """Calls the client of the options."""

        def __init__(self) -> None:
            super().__init__()
            self._known: dict[tuple[str, str], tuple[bytes, float]] = {}
            self._guard = Lock()
            try:
                self._own = keys.client(keys.connection())
            except Exception as error:
                raise failed("the KMS client does not start", error) from error

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> Any:
            """For a new file."""
            try:
                return self._own.wrap_key(key_bytes, master_key_identifier)
            except Exception as error:
                raise failed(f"the KMS wraps no key with master key {master_key_identifier}", error) from error

        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            """Of a file, for Arrow."""
            try:
                return self.unwrapped(wrapped_key, master_key_identifier)
            except EncryptedFileError:
                found = self._known.get((wrapped_key, master_key_identifier))
                if found is None:
                    raise
                return found[0]

        def unwrapped(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            """The key of a file that is being opened."""
            at, now = (wrapped_key, master_key_identifier), monotonic()
            found = self._known.get(at)
            if found is not None and now - found[1] < keys.cache_seconds:
                return found[0]
            try:
                key: bytes = self._own.unwrap_key(wrapped_key, master_key_identifier)
            except Exception as error:
                raise failed(f"the KMS unwraps no key with master key {master_key_identifier}", error) from error
            with self._guard:
                while len(self._known) >= _MOST_KEYS:
                    del self._known[next(iter(self._known))]
                self._known[at] = key, now
            return key

    return Client()


def check_options(options: Options) -> None:
    """OptionError for options of encryption that contradict each other, that have no effect without others, or that
    are nearly those of Parquet: files would be written as plain text by mistake.
    """
    of_parquet = {key: REGISTRY.find(key) for key in options if key.startswith(_PREFIXES)}
    given = [key for key, known in of_parquet.items() if known is None or known.status is not Status.NO_EFFECT]
    if not given:
        return
    for key in given:
        if REGISTRY.find(key) is None and (near := REGISTRY.nearest(key)) is not None:
            raise OptionError(f"unknown option {key}; did you mean {near}?", option=key, found=key, expected=near)
    value = options.value
    if not value(FACTORY):
        raise _contradiction(given[0], f"{FACTORY.key}={_FACTORY_CLASS}", "it has no effect without")
    if not value(KMS_CLASS).strip():
        raise _contradiction(FACTORY.key, KMS_CLASS.key, "it needs")
    uniform, footer, columns = value(UNIFORM_KEY).strip(), value(FOOTER_KEY).strip(), value(COLUMN_KEYS)
    complete = options.value(COMPLETE)
    if uniform and (footer or columns):
        other = FOOTER_KEY.key if footer else COLUMN_KEYS.key
        raise _contradiction(UNIFORM_KEY.key, other, "it can't be together with")
    if (columns or complete) and not footer and not uniform:
        raise _contradiction(COLUMN_KEYS.key if columns else COMPLETE.key, FOOTER_KEY.key, "it needs")
    if footer and not columns and not complete:
        raise _contradiction(FOOTER_KEY.key, f"{COLUMN_KEYS.key}, or {COMPLETE.key}=true", "it needs")


def _contradiction(key: str, other: str, text: str) -> OptionError:
    return OptionError(f"option {key}: {text} {other}", option=key, expected=other)


def _check_plaintext(options: Options) -> None:
    named: tuple[str, ...] = options.value(PLAINTEXT)
    unknown = set(named) - {FILES, LOGS, INDEXES}
    if unknown:
        expected = f"a list of {FILES}, {LOGS}, {INDEXES}"
        raise OptionError(
            f"option {PLAINTEXT.key}: {min(unknown)!r} is not {expected}", option=PLAINTEXT.key, expected=expected
        )


REGISTRY.checks += [check_options, _check_plaintext]


@dataclass(frozen=True, slots=True)
class Encrypted:
    """An encrypted file, for its readers: the columns whose keys they do not get, and why."""

    hidden: Mapping[str, str]

    def check(self, columns: Sequence[str] | None, path: str) -> None:
        """EncryptedFileError where a top-level column (None: any) is hidden."""
        for name, reason in self.hidden.items():
            if columns is None or name in columns:
                raise EncryptedFileError.of_file(path, f"column {name} can't be read: {reason}", column=name)


def keys_of(storage: Storage) -> ParquetKeys | None:
    """The keys of the base files in a storage; None where it has none."""
    found = keys_in(storage)
    return found if isinstance(found, ParquetKeys) else None


def encryption_of(
    end: Callable[[int], bytes], metadata: pq.FileMetaData, keys: ParquetKeys | None, path: str
) -> Encrypted | None:
    """Of a file whose last bytes `end` returns; None of a plain one. EncryptedFileError where there are no keys."""
    tail = end(8)
    length = int.from_bytes(tail[:4], "little")
    if length == metadata.serialized_size and tail[4:] == parquet.MAGIC:
        return None
    if tail[4:] == ENCRYPTED_MAGIC:
        written = BytesIO()
        metadata.write_metadata_file(written)
        footer, _ = parquet.footer_of(written.getvalue())
    else:
        footer, _ = parquet.footer_of(end(length + 8))
        if parquet.ENCRYPTION not in footer:  # of a writer that has other bytes behind its footer
            return None
    if keys is None:
        raise without_keys(path)
    if reason := _reason(keys, _footer_key(end(length + 8), footer)):
        raise EncryptedFileError.of_file(path, f"its footer can't be read: {reason}", option=KMS_CLASS.key)
    hidden: dict[str, str] = {}
    for name, material in dict(_column_keys(footer)).items():
        if reason := _reason(keys, material):
            hidden.setdefault(name, reason)
    return Encrypted(hidden)


def without_keys(path: str) -> EncryptedFileError:
    """The error for an encrypted file that is read without the options."""
    problem = "the file is encrypted, and no keys are given"
    hint = f"set {FACTORY.key}, {KMS_CLASS.key} and what this KMS client needs"
    return EncryptedFileError.of_file(path, problem, hint=hint, option=FACTORY.key)


def _footer_key(tail: bytes, footer: Struct) -> bytes:
    """The metadata of the key that encrypts or signs a footer."""
    if tail.endswith(ENCRYPTED_MAGIC):
        return value_of(parse_struct(tail)[0], parquet.KEY_OF_ENCRYPTED_FOOTER) or b""
    return value_of(footer, parquet.KEY_OF_SIGNED_FOOTER) or b""


def _column_keys(footer: Struct) -> Iterator[tuple[str, bytes]]:
    """The top-level name and the key's metadata of each column with a key of its own."""
    for group in parquet.groups_of(footer):
        for chunk in parquet.chunks_of(group):
            own = value_of(value_of(chunk, parquet.CRYPTO) or {}, parquet.WITH_COLUMN_KEY)
            if own is not None:
                top = value_of(own, parquet.CRYPTO_PATH)[1][0].decode("utf-8", "replace")
                yield top, value_of(own, parquet.KEY_METADATA) or b""


def _reason(keys: ParquetKeys, material: bytes) -> str:
    """Why a column can't be read; empty where it can."""
    try:
        stated = json.loads(material)
        wrapped = stated["wrappedKEK"] if stated.get("doubleWrapping") else stated["wrappedDEK"]
        return keys.unwraps(wrapped, stated["masterKeyID"])
    except (ValueError, KeyError, TypeError):
        return "its key's metadata are not those of Parquet's key tools, stored in the file"


def refuse_unsupported_kms(name: str) -> UnsupportedError:
    """The error for a class that is not there."""
    return UnsupportedError(
        f"{KMS_CLASS.key}: there is no class {name} in Python",
        hint="name a subclass of pyarrow.parquet.encryption.KmsClient as module:Class, or register it as an entry point"
        f" of group 'skep.kms' under the name {name}",
        option=KMS_CLASS.key,
        found=name,
    )
