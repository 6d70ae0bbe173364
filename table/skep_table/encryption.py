"""The keys of a table's base files, by its options: the class of the KMS client is found, and given to its storage."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.storage import Storage
from skep_format.storage.keyed import keyed, plain_storage
from skep_table.plug_ins import plug_in

_GROUP: Final = "skep.kms"
_OF_PARQUET: Final = ("parquet.crypto.", "parquet.encryption.")
_OWN: Final = "skep_format.basefile.kms:"
_BUILT_IN: Final = {
    "org.apache.parquet.crypto.keytools.mocks.InMemoryKMS": f"{_OWN}InMemoryKms",
    "org.apache.parquet.crypto.keytools.samples.InMemoryKMS": f"{_OWN}InMemoryKms",
    "memory": f"{_OWN}InMemoryKms",
    "aws": f"{_OWN}AwsKms",
}


def with_keys(storage: Storage, options: Options) -> Storage:
    """The storage with the keys that the options have for its base files, and without any where they have none.

    OptionError for options that contradict each other, UnsupportedError for a KMS client that is not there.
    """
    if not any(key.startswith(_OF_PARQUET) for key in options):
        return plain_storage(storage)
    from skep_format.basefile.encryption import FACTORY, KMS_CLASS, ParquetKeys, check_options

    check_options(options)
    if not options.value(FACTORY):
        return plain_storage(storage)
    return keyed(storage, ParquetKeys.of(options, _client(options.value(KMS_CLASS).strip())))


@lru_cache(maxsize=64)
def _client(name: str) -> Any:
    from skep_format.basefile.encryption import KMS_CLASS, refuse_unsupported_kms

    found = plug_in(_GROUP, name)
    if found is not None:
        return found
    module, colon, kind = _BUILT_IN.get(name, name).partition(":")
    if not colon:
        module, _, kind = name.rpartition(".")
    try:
        client = getattr(import_module(module), kind, None) if module else None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        client = None
    if client is None:
        raise refuse_unsupported_kms(name)
    if not callable(client):
        raise OptionError(f"option {KMS_CLASS.key}: {name} is no class", option=KMS_CLASS.key, found=name)
    return client
