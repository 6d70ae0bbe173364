"""A lock in DynamoDB, by the protocol of Amazon's lock client, which Hudi uses: a lease that changes with each beat.

An item names the owner and a version. A waiting writer that sees one version for the whole lease takes the lock over,
which the owner's next heartbeat then detects. Clocks of different machines are never compared.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import LeaseLostError, LockError, needs
from skep_table.locks.holders import Holder, agent_facts, agent_text, describe, has_ended
from skep_table.locks.lease import LeasedLock, LockTerms, Queue

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEY: Final = "key"
_OWNER: Final = "ownerName"
_LEASE: Final = "leaseDuration"
_VERSION: Final = "recordVersionNumber"
_RELEASED: Final = "isReleased"
_DATA: Final = "data"
_CREATION_POLL_SECONDS: Final = 2
_Item = dict[str, dict[str, Any]]


class DynamoDbLock(LeasedLock):
    """The item `key` of the table `table`, which is created when it is missing."""

    provider = "dynamodb"

    def __init__(
        self,
        table: str,
        key: str,
        *,
        region: str = "us-east-1",
        endpoint_url: str | None = None,
        lease_seconds: float = 20,
        billing_mode: str = "PAY_PER_REQUEST",
        capacity: tuple[int, int] = (20, 10),
        creation_seconds: float = 600,
        **terms: Unpack[LockTerms],
    ) -> None:
        super().__init__(f"dynamodb:{table}/{key}", heartbeat_seconds=lease_seconds / 4, **terms)
        self._table, self._key = table, key
        self._region, self._endpoint = region, endpoint_url
        self._lease_seconds = lease_seconds
        self._billing_mode, self._capacity, self._creation_seconds = billing_mode, capacity, creation_seconds
        self._version = ""
        self._watched: tuple[str, float] | None = None  # another's version, and since when we have seen it

    @property
    def lock_id(self) -> object | None:
        return self._owner

    def _enter(self) -> bool:
        self._watched = None
        return self._poll()

    def _poll(self) -> bool:
        item = self._get()
        if item is None:
            condition, values = "attribute_not_exists(#key)", {}
        elif _text(item, _RELEASED) == "1" or self._is_over(item):
            condition, values = f"{_VERSION} = :seen", {":seen": {"S": _text(item, _VERSION)}}
        else:
            return False
        owner, version = f"skep-{uuid.uuid4().hex}", uuid.uuid4().hex
        new = {
            _KEY: {"S": self._key},
            _OWNER: {"S": owner},
            _LEASE: {"S": str(int(self._lease_seconds * 1000))},
            _VERSION: {"S": version},
            _DATA: {"B": agent_text(self._purpose).encode()},
        }
        if not self._changed("put_item", condition, values, Item=new):
            return False
        self._owner, self._version = owner, version
        return True

    def _is_over(self, item: _Item) -> bool:
        """Whether its owner sent no heartbeat for a whole lease, by our own clock, or has certainly ended."""
        if has_ended(_data(item)):
            self._events.emit("lock.broken", lock=self.name, holder=_holder(item))
            return True
        version, now = _text(item, _VERSION), self._clock.monotonic()
        if self._watched is None or self._watched[0] != version:
            self._watched = version, now
        return now - self._watched[1] > int(_text(item, _LEASE) or 0) / 1000

    def _leave(self) -> None:
        owner, self._owner = self._owner, None
        if not self._changed("delete_item", *self._ours(owner), Key={_KEY: {"S": self._key}}):
            raise LeaseLostError(f"lock on {self.name} was lost already")

    def _look(self) -> None:
        item = self._get()
        if item is None or _text(item, _OWNER) != self._owner:
            raise self.lease_lost()

    def _beat(self) -> None:
        version = uuid.uuid4().hex
        condition, values = self._ours(self._owner)
        updated = self._changed(
            "update_item",
            condition,
            {**values, ":next": {"S": version}},
            Key={_KEY: {"S": self._key}},
            UpdateExpression=f"SET {_VERSION} = :next",
        )
        if not updated:
            raise self.lease_lost()
        self._version = version

    def _ours(self, owner: str | None) -> tuple[str, dict[str, Any]]:
        # By owner, who is this lock object alone: a beat whose answer was lost has changed the version already.
        return f"attribute_exists(#key) AND {_OWNER} = :owner", {":owner": {"S": owner or ""}}

    def _queue(self) -> Queue:
        item = self._get()
        return Queue() if item is None else Queue(_holder(item), 1, _text(item, _OWNER))

    def holders(self) -> list[Holder]:
        """The holder, without the time of its last heartbeat: a heartbeat changes the version and stores no time."""
        item = self._get()
        if item is None or _text(item, _RELEASED) == "1":
            return []
        return [Holder(_text(item, _OWNER), _data(item) or _text(item, _OWNER))]

    def revoke(self, lock_id: str) -> bool:
        return self._changed("delete_item", *self._ours(lock_id), Key={_KEY: {"S": self._key}})

    # -- calls

    def _get(self) -> _Item | None:
        answer = self._call("get_item", Key={_KEY: {"S": self._key}}, ConsistentRead=True)
        return answer.get("Item")

    def _changed(self, name: str, condition: str, values: dict[str, Any], **request: Any) -> bool:
        """Whether the condition held."""
        if "#key" in condition:
            request["ExpressionAttributeNames"] = {"#key": _KEY}
        if values:
            request["ExpressionAttributeValues"] = values
        try:
            self._call(name, ConditionExpression=condition, **request)
        except _ConditionFailed:
            return False
        return True

    def _call(self, name: str, **request: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return dict(getattr(self._client, name)(TableName=self._table, **request))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise _ConditionFailed from error
            raise LockError(f"DynamoDB refused {name} on {self.name}: {error}", lock=self.name) from error
        except BotoCoreError as error:
            raise LockError(f"DynamoDB can't be reached for {self.name}: {error}", lock=self.name) from error

    @cached_property
    def _client(self) -> Any:
        with needs("dynamodb", "locks in DynamoDB need the package boto3"):
            import boto3
            from botocore.exceptions import BotoCoreError, ClientError
        try:
            client = boto3.client("dynamodb", region_name=self._region, endpoint_url=self._endpoint)
            try:
                client.describe_table(TableName=self._table)
            except client.exceptions.ResourceNotFoundException:
                self._create_table(client)
        except (BotoCoreError, ClientError) as error:
            raise LockError(f"the table of locks {self._table} is not available: {error}", lock=self.name) from error
        return client

    def _create_table(self, client: Any) -> None:
        capacity = {"ReadCapacityUnits": self._capacity[0], "WriteCapacityUnits": self._capacity[1]}
        provisioned = {"ProvisionedThroughput": capacity} if self._billing_mode == "PROVISIONED" else {}
        with suppress(client.exceptions.ResourceInUseException):  # another writer makes it
            client.create_table(
                TableName=self._table,
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                BillingMode=self._billing_mode,
                **provisioned,
            )
        attempts = max(1, int(self._creation_seconds / _CREATION_POLL_SECONDS))
        polling = {"Delay": _CREATION_POLL_SECONDS, "MaxAttempts": attempts}
        client.get_waiter("table_exists").wait(TableName=self._table, WaiterConfig=polling)


class _ConditionFailed(Exception):
    """Somebody else changed the item."""


def _text(item: _Item, name: str) -> str:
    return str(item.get(name, {}).get("S", ""))


def _data(item: _Item) -> str:
    return bytes(item.get(_DATA, {}).get("B", b"")).decode(errors="replace")


def _holder(item: _Item) -> str:
    facts = agent_facts(_data(item))
    return describe(facts) if facts else _text(item, _OWNER)
