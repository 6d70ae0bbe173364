"""Which lock the options make: by short name, by the classes of Hudi, by entry point; and where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.locking import lock_of
from skep.names import TableName
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_table.errors import OptionError
from skep_table.lock import InProcessLock, Lock, NoLock
from skep_table.locks.dynamodb import DynamoDbLock
from skep_table.locks.filesystem import FileSystemLock
from skep_table.locks.implicit import name_of
from skep_table.locks.storage import StorageLock
from skep_table.locks.zookeeper import ZooKeeperLock
from skep_table.options import Options
from skep_table.storage import LocalStorage

CLIENT = "org.apache.hudi.client.transaction.lock"
AWS = "org.apache.hudi.aws.transaction.lock"
NEEDED = {
    "hoodie.write.lock.zookeeper.url": "zoo:2181",
    "hoodie.write.lock.zookeeper.base_path": "/locks",
    "hoodie.write.lock.dynamodb.table": "locks",
}


def made(folder: Path, named: str, metastore: object = None, **more: object) -> Lock:
    options = Options({"hoodie.write.lock.provider": named, **NEEDED, **more})
    return lock_of(LocalStorage(str(folder)), TableName("d", "visits"), options, metastore=metastore)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("process", "in_process", f"{CLIENT}.InProcessLockProvider"), InProcessLock),
        (("none", f"{CLIENT}.NoopLockProvider"), NoLock),
        (("filesystem", f"{CLIENT}.FileSystemBasedLockProvider"), FileSystemLock),
        (("storage", f"{CLIENT}.StorageBasedLockProvider"), StorageLock),
        (("zookeeper", f"{CLIENT}.ZookeeperBasedLockProvider"), ZooKeeperLock),
        (("zookeeper_implicit", f"{CLIENT}.ZookeeperBasedImplicitBasePathLockProvider"), ZooKeeperLock),
        (("dynamodb", f"{AWS}.DynamoDBBasedLockProvider"), DynamoDbLock),
        (("dynamodb_implicit", f"{AWS}.DynamoDBBasedImplicitPartitionKeyLockProvider"), DynamoDbLock),
        (
            (
                *("metastore", "hms", "hive_metastore"),
                "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
                "org.apache.hudi.hive.HiveMetastoreBasedLockProvider",
            ),
            HmsLock,
        ),
    ],
)
def test_by_name(names: tuple[str, ...], kind: type, tmp_path: Path) -> None:
    metastore = Metastore.connect("thrift://localhost:1")  # no connection before the first call
    assert [type(made(tmp_path, named, metastore)) for named in names] == [kind] * len(names)


def test_an_unknown_one_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown lock provider 'zoo'; there are dynamodb, dynamodb_implicit"):
        made(tmp_path, "zoo")


def test_a_lock_that_is_named_by_the_tables_path(tmp_path: Path) -> None:
    """These two are the answers of HashID.generateXXHashAsString in Hudi's bundle 1.0.2."""
    assert name_of("s3a://bucket/lake/visits") == name_of("s3://bucket/lake/visits") == "B4B37893BAD3CB69"
    assert name_of("/tmp/visits") == "F475A5A63380EB70"
    zookeeper, dynamodb = (made(tmp_path, f"{kind}_implicit") for kind in ("zookeeper", "dynamodb"))
    assert isinstance(zookeeper, ZooKeeperLock)
    assert isinstance(dynamodb, DynamoDbLock)
    assert zookeeper.name == f"zoo:2181/tmp/{name_of(str(tmp_path))}/lock_key"
    assert dynamodb.name == f"dynamodb:locks/{name_of(str(tmp_path))}"
