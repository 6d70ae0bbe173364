"""Which lock a table's writers take: by a provider's short name, by Hudi's class name, or by an entry point."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.storage import Storage
from skep_format.storage.keyed import plain_storage
from skep_table.lock import InProcessLock, Lock, NoLock
from skep_table.locks import options as keys
from skep_table.locks.lease import LockTerms
from skep_table.plug_ins import plug_in

ENTRY_POINTS: Final = "skep.locks"
_SEED: Final = 0xFFFFFFFFDABADABA  # Java's int 0xdabadaba, widened with its sign


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The table whose lock is wanted, and what a provider needs to know besides. `name` is the table's."""

    storage: Storage
    name: str
    options: Options = field(default_factory=Options)
    terms: LockTerms = field(default_factory=LockTerms)


Provider = Callable[[LockRequest], Lock]


def make_lock(request: LockRequest, default: str, others: Mapping[str, Provider] | None = None) -> Lock:
    """The lock that the options name, else that of `default`. `others` are providers of the layers above, by name.

    OptionError for a name that nobody knows, and for what a provider lacks.
    """
    named = request.options.value(keys.LOCK_PROVIDER) or default
    known = {**_PROVIDERS, **(others or {})}
    provider = known.get(provider_name(named)) or plug_in(ENTRY_POINTS, named)
    if provider is None:
        names = ", ".join(sorted(known))
        raise OptionError(
            f"unknown lock provider {named!r}; there are {names}, and Hudi's classes of these",
            option=keys.LOCK_PROVIDER.key,
            found=named,
            expected=names,
        )
    return provider(request)


def provider_name(named: str) -> str:
    """The short name of a provider that is named by it, by another one, or by Hudi's class."""
    return _SHORT.get(named, named)


def _storage(request: LockRequest) -> Lock:
    from skep_table.locks.storage import StorageLock

    validity, renew = (request.options.value(key) for key in (keys.STORAGE_VALIDITY, keys.STORAGE_RENEW))
    if validity < 3 * renew:
        raise OptionError(
            f"{keys.STORAGE_VALIDITY.key}={validity} is less than three times {keys.STORAGE_RENEW.key}={renew}",
            option=keys.STORAGE_VALIDITY.key,
            found=validity,
            expected=f"≥ {3 * renew}",
        )
    return StorageLock(
        plain_storage(request.storage),
        validity_seconds=validity,
        heartbeat_seconds=renew,
        **request.terms,
    )


def _filesystem(request: LockRequest) -> Lock:
    from skep_table.locks.filesystem import FileSystemLock

    options = request.options
    expire = options.value(keys.FILESYSTEM_EXPIRE) * 60
    beat = options.value(keys.HEARTBEAT_MILLISECONDS) / 1000
    return FileSystemLock(
        plain_storage(request.storage),
        folder=options.value(keys.FILESYSTEM_PATH) or None,
        expire_seconds=expire,
        heartbeat_seconds=min(beat, expire / 4) if expire else beat,
        **request.terms,
    )


def implicit_name(base_path: str) -> str:
    """The name of a table's lock where two of Hudi's providers make it of the table's path: its 64-bit xxHash in
    hexadecimal, the same for `s3a://` and `s3://`.

    Writers that share the lock have to name the table by the same path, to the letter.
    """
    import xxhash

    path = re.sub("^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return xxhash.xxh64_hexdigest(path.encode(), seed=_SEED).upper()


def _zookeeper(request: LockRequest, *, implicit: bool = False) -> Lock:
    from skep_table.locks.zookeeper import ZooKeeperLock

    options = request.options
    if implicit:
        path = f"/tmp/{implicit_name(request.storage.root)}/lock_key"
    else:
        base = options.needed(keys.ZOOKEEPER_BASE_PATH, _WHO)
        path = f"{base.rstrip('/')}/{options.value(keys.ZOOKEEPER_LOCK_KEY) or request.name}"
    hosts = options.needed(keys.ZOOKEEPER_URL, _WHO)
    port = options.value(keys.ZOOKEEPER_PORT)
    if port:
        hosts = ",".join(host if ":" in host else f"{host}:{port}" for host in hosts.split(","))
    return ZooKeeperLock(
        hosts,
        path,
        session_seconds=options.value(keys.ZOOKEEPER_SESSION) / 1000,
        connect_seconds=options.value(keys.ZOOKEEPER_CONNECT) / 1000,
        **request.terms,
    )


def _dynamodb(request: LockRequest, *, implicit: bool = False) -> Lock:
    from skep_table.locks.dynamodb import DynamoDbLock

    options = request.options
    return DynamoDbLock(
        options.needed(keys.DYNAMODB_TABLE, _WHO),
        implicit_name(request.storage.root) if implicit else options.value(keys.DYNAMODB_KEY) or request.name,
        region=options.value(keys.DYNAMODB_REGION),
        endpoint_url=options.value(keys.DYNAMODB_ENDPOINT) or None,
        lease_seconds=options.value(keys.LOCK_WAIT_MILLISECONDS) / 1000,
        billing_mode=options.value(keys.DYNAMODB_BILLING),
        capacity=(options.value(keys.DYNAMODB_READ), options.value(keys.DYNAMODB_WRITE)),
        creation_seconds=options.value(keys.DYNAMODB_CREATION) / 1000,
        **request.terms,
    )


_PROVIDERS: Final[Mapping[str, Provider]] = {
    "none": lambda _: NoLock(),
    "process": lambda request: InProcessLock(request.storage.root),
    "storage": _storage,
    "filesystem": _filesystem,
    "zookeeper": _zookeeper,
    "zookeeper_implicit": partial(_zookeeper, implicit=True),
    "dynamodb": _dynamodb,
    "dynamodb_implicit": partial(_dynamodb, implicit=True),
}
_WHO: Final = "the lock provider needs"
_HUDI: Final = "org.apache.hudi.client.transaction.lock"
_SHORT: Final[Mapping[str, str]] = {
    "in_process": "process",
    "hms": "metastore",
    "hive_metastore": "metastore",
    f"{_HUDI}.InProcessLockProvider": "process",
    f"{_HUDI}.NoopLockProvider": "none",
    f"{_HUDI}.FileSystemBasedLockProvider": "filesystem",
    f"{_HUDI}.StorageBasedLockProvider": "storage",
    f"{_HUDI}.ZookeeperBasedLockProvider": "zookeeper",
    f"{_HUDI}.ZookeeperBasedImplicitBasePathLockProvider": "zookeeper_implicit",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider": "dynamodb",
    "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider": "dynamodb_implicit",
    "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider": "metastore",
    "org.apache.hudi.hive.HiveMetastoreBasedLockProvider": "metastore",
}
