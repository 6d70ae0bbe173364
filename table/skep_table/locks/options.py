"""Options of the lock providers, by Hudi's names and with Hudi's defaults."""

from __future__ import annotations

from skep_format.options import at_least, option

_LOCK = "hoodie.write.lock."

LOCK_PROVIDER = option(
    f"{_LOCK}provider",
    str,
    "",
    "metastore, storage, filesystem, zookeeper, dynamodb, process or none; or Hudi's class, or an entry point's name",
    "skep.lock",
)
LOCK_WAIT_MILLISECONDS = option(
    f"{_LOCK}wait_time_ms", at_least(1), 60_000, "How long one of Hudi's tries waits; a lease in DynamoDB lasts as long"
)
LOCK_RETRIES = option(f"{_LOCK}client.num_retries", at_least(0), 50, "How often Hudi tries again")
HEARTBEAT_MILLISECONDS = option(
    f"{_LOCK}heartbeat_interval_ms", at_least(10), 60_000, "A lock is renewed so often, by a thread of its own"
)

LOCK_TIMEOUT_SECONDS = option(
    "skep.write.lock.timeout.seconds",
    float,
    600.0,
    "How long a write waits for the table's lock; else as long as Hudi with its two options, when one is given",
)

FILESYSTEM_PATH = option(f"{_LOCK}filesystem.path", str, "", "Folder of the lock file; else the table's own")
FILESYSTEM_EXPIRE = option(
    f"{_LOCK}filesystem.expire",
    at_least(0),
    0,
    "A lock file that was not renewed for so many minutes is broken; 0: only when its process has certainly ended",
)

STORAGE_VALIDITY = option(f"{_LOCK}storage.validity.timeout.secs", at_least(10), 300, "How long a lease lasts")
STORAGE_RENEW = option(f"{_LOCK}storage.heartbeat.poll.secs", at_least(1), 30, "A lease is renewed so often")

ZOOKEEPER_URL = option(f"{_LOCK}zookeeper.url", str, "", "host[:port], several by comma")
ZOOKEEPER_PORT = option(f"{_LOCK}zookeeper.port", str, "", "The port of hosts that name none")
ZOOKEEPER_BASE_PATH = option(f"{_LOCK}zookeeper.base_path", str, "", "The node below which locks are made")
ZOOKEEPER_LOCK_KEY = option(f"{_LOCK}zookeeper.lock_key", str, "", "The lock's node; else the table's name")
ZOOKEEPER_SESSION = option(
    f"{_LOCK}zookeeper.session_timeout_ms", at_least(100), 60_000, "The lock of a dead writer is free after it"
)
ZOOKEEPER_CONNECT = option(
    f"{_LOCK}zookeeper.connection_timeout_ms", at_least(100), 15_000, "How long the first connection may take"
)

DYNAMODB_TABLE = option(f"{_LOCK}dynamodb.table", str, "", "The table of locks; made when it is not there")
DYNAMODB_KEY = option(f"{_LOCK}dynamodb.partition_key", str, "", "The lock's key; else the table's name")
DYNAMODB_REGION = option(f"{_LOCK}dynamodb.region", str, "us-east-1", "AWS region")
DYNAMODB_ENDPOINT = option(f"{_LOCK}dynamodb.endpoint_url", str, "", "Another endpoint than AWS's")
DYNAMODB_BILLING = option(f"{_LOCK}dynamodb.billing_mode", str, "PAY_PER_REQUEST", "Of a table that is made")
DYNAMODB_READ = option(f"{_LOCK}dynamodb.read_capacity", at_least(1), 20, "Of a table that is made")
DYNAMODB_WRITE = option(f"{_LOCK}dynamodb.write_capacity", at_least(1), 10, "Of a table that is made")
DYNAMODB_CREATION = option(
    f"{_LOCK}dynamodb.table_creation_timeout", at_least(1), 600_000, "How long its making may take, in milliseconds"
)

METASTORE_DATABASE = option(f"{_LOCK}hivemetastore.database", str, "", "The lock's database; else the table's")
METASTORE_TABLE = option(f"{_LOCK}hivemetastore.table", str, "", "The lock's table; else the table's name")
METASTORE_URIS = option(f"{_LOCK}hivemetastore.uris", str, "", "Its metastore; else the lake's, or that of the sync")
