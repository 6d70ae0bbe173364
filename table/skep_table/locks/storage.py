"""A lock in the table's own storage: a lease in one small file, changed only by compare and swap; no server is needed.

Hudi's StorageBasedLockProvider: `.hoodie/.locks/table_lock.json` names the holder and the end of its lease. Once that
time has passed, plus a margin for clock drift, another writer may swap in its own lease.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from skep_format.errors import FormatError, LeaseLostError, UnsupportedError
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.storage.versioned import Versioned, VersionedStorage
from skep_table.locks.holders import Holder, agent_facts, agent_text, describe, has_ended
from skep_table.locks.lease import LeasedLock, LockTerms, Queue

if TYPE_CHECKING:
    from typing_extensions import Unpack

LOCK_FILE: Final = f"{META_FOLDER}/.locks/table_lock.json"
_DRIFT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Lease:
    """The file's content. `valid_until`: epoch milliseconds; `expired`: the owner has released it."""

    owner: str
    valid_until: int
    expired: bool = False

    @classmethod
    def parse(cls, data: bytes, path: str) -> Lease:
        """FormatError, naming `path`, for bytes that are no lease."""
        try:
            found = json.loads(data)
            return cls(str(found["owner"]), int(found["validUntil"]), bool(found["expired"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is no lease of a lock: {data[:80]!r}", path=path) from error

    def encode(self) -> bytes:
        """The JSON that Hudi's provider writes."""
        fields = asdict(self)
        return json.dumps({"expired": fields["expired"], "validUntil": self.valid_until, "owner": self.owner}).encode()


class StorageLock(LeasedLock):
    """The lock of the table in `storage`. UnsupportedError where that can't compare and swap."""

    provider = "storage"

    def __init__(
        self,
        storage: Storage,
        *,
        validity_seconds: float = 300,
        heartbeat_seconds: float = 30,
        **terms: Unpack[LockTerms],
    ) -> None:
        if not isinstance(storage, VersionedStorage):
            raise UnsupportedError.of_file(storage.root, "this storage can't compare and swap, as a lock in it needs")
        super().__init__(storage.root, heartbeat_seconds=heartbeat_seconds, **terms)
        self._storage: VersionedStorage = storage
        self._validity_ms = int(validity_seconds * 1000)
        self._seen: Versioned | None = None

    @property
    def target(self) -> str:
        return self.name

    def _poll(self) -> bool:
        owner = agent_text(self._purpose)
        seen = self._storage.read_versioned(LOCK_FILE)
        if seen is not None and not self._is_free(Lease.parse(seen.data, LOCK_FILE)):
            return False
        if not self._put(Lease(owner, self._now_ms() + self._validity_ms), seen):
            return False
        self._owner = owner
        return True

    def _is_free(self, lease: Lease) -> bool:
        if lease.expired or self._now_ms() > lease.valid_until + _DRIFT_MS:
            return True
        if has_ended(lease.owner):
            self._events.emit("lock.broken", lock=self.name, holder=describe(agent_facts(lease.owner)))
            return True
        return False

    def _leave(self) -> None:
        owner, self._owner = self._owner, None
        seen = self._storage.read_versioned(LOCK_FILE)
        if owner is None or not self._is_ours(seen, owner) or not self._put(Lease(owner, self._now_ms(), True), seen):
            raise LeaseLostError(f"lock on {self.name} was lost already")

    def _look(self) -> None:
        if not self._is_ours(self._storage.read_versioned(LOCK_FILE), self._owner):
            raise self.lease_lost()

    def _beat(self) -> None:
        owner, seen = self._owner or "", self._storage.read_versioned(LOCK_FILE)
        if not self._is_ours(seen, owner) or not self._put(Lease(owner, self._now_ms() + self._validity_ms), seen):
            raise self.lease_lost()

    def _queue(self) -> Queue:
        seen = self._storage.read_versioned(LOCK_FILE)
        lease = Lease.parse(seen.data, LOCK_FILE) if seen else None
        if lease is None or lease.expired:
            return Queue()
        until = datetime.fromtimestamp(lease.valid_until / 1000, timezone.utc)
        holder = describe(agent_facts(lease.owner)) if agent_facts(lease.owner) else lease.owner
        return Queue(f"{holder}, whose lease lasts until {until:%Y-%m-%d %H:%M:%S} UTC", 1, _id_of(lease))

    def holders(self) -> list[Holder]:
        seen = self._storage.read_versioned(LOCK_FILE)
        lease = Lease.parse(seen.data, LOCK_FILE) if seen else None
        if lease is None or lease.expired:
            return []
        over = self._now_ms() > lease.valid_until + _DRIFT_MS
        return [Holder(_id_of(lease), lease.owner, until=lease.valid_until / 1000, over=over)]

    def revoke(self, lock_id: str) -> bool:
        seen = self._storage.read_versioned(LOCK_FILE)
        lease = Lease.parse(seen.data, LOCK_FILE) if seen else None
        if lease is None or lease.expired or _id_of(lease) != lock_id:
            return False
        return self._put(Lease(lease.owner, self._now_ms(), True), seen)

    def _is_ours(self, seen: Versioned | None, owner: str | None) -> bool:
        """Whether the lease is still valid, with a margin for clock drift."""
        lease = Lease.parse(seen.data, LOCK_FILE) if seen else None
        return (
            lease is not None
            and owner is not None
            and lease.owner == owner
            and not lease.expired
            and self._now_ms() < lease.valid_until - _DRIFT_MS
        )

    def _put(self, lease: Lease, seen: Versioned | None) -> bool:
        return self._storage.swap(LOCK_FILE, lease.encode(), seen)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _id_of(lease: Lease) -> str:
    return str(agent_facts(lease.owner).get("id", lease.owner))
