"""Which lock the options make: by short name, by the classes of Hudi, by entry point; and where it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import skep
from skep.base.names import TableName
from skep.metastore.locking import lock_of
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.pending import LOCK_ID
from skep_table.lock import InProcessLock, Lock, NoLock
from skep_table.locks.dynamodb import DynamoDbLock
from skep_table.locks.filesystem import FileSystemLock
from skep_table.locks.providers import implicit_name
from skep_table.locks.storage import StorageLock
from skep_table.locks.zookeeper import ZooKeeperLock
from skep_table.table import HudiTable

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


def test_an_unknown_one_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown lock provider 'zoo'; there are dynamodb, dynamodb_implicit"):
        made(tmp_path, "zoo")


PROVIDER = """
from skep_table.lock import InProcessLock

asked, taken = [], []

class TheirLock(InProcessLock):
    leased = True

    def acquire(self, timeout_seconds):
        taken.append(super().acquire(timeout_seconds))
        return f"theirs-{len(taken)}"

def provide(request):
    asked.append(request)
    return TheirLock(request.storage.root)
"""


def test_one_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "their_locks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-locks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[skep.locks]\ntheirs = their_locks:provide\n")
    (site / "their_locks.py").write_text(PROVIDER)
    monkeypatch.syspath_prepend(site)
    options = {
        "hoodie.table.name": "visits",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "theirs",
        "their.own.option": "7",
    }
    path = str(tmp_path / "visits")
    for mode in ("overwrite", "append"):
        skep.write(pa.table({"id": ["a"]})).options(**options).mode(mode).save(path)
    theirs = sys.modules.pop("their_locks")
    assert theirs.taken
    assert {request.name for request in theirs.asked} == {"visits"}
    assert {request.options.get("their.own.option") for request in theirs.asked} == {"7"}
    table = HudiTable.open(path)
    ids = [table.commit_metadata(i).extra_metadata[LOCK_ID] for i in table.timeline.data().completed()]
    assert len(ids) == 2
    assert all(each.startswith("theirs-") for each in ids)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(site)])
    with pytest.raises(OptionError, match="unknown lock provider 'theirs'"):
        made(tmp_path, "theirs")


def test_a_lock_that_is_named_by_the_tables_path(tmp_path: Path) -> None:
    """These two are the answers of HashID.generateXXHashAsString in Hudi's bundle 1.0.2."""
    assert implicit_name("s3a://bucket/lake/visits") == implicit_name("s3://bucket/lake/visits") == "B4B37893BAD3CB69"
    assert implicit_name("/tmp/visits") == "F475A5A63380EB70"
    zookeeper, dynamodb = (made(tmp_path, f"{kind}_implicit") for kind in ("zookeeper", "dynamodb"))
    assert isinstance(zookeeper, ZooKeeperLock)
    assert isinstance(dynamodb, DynamoDbLock)
    assert zookeeper.name == f"zoo:2181/tmp/{implicit_name(str(tmp_path))}/lock_key"
    assert dynamodb.name == f"dynamodb:locks/{implicit_name(str(tmp_path))}"


def test_by_path_the_metastore_of_the_sync_is_taken(tmp_path: Path) -> None:
    """As the documents have it: database and table of the lock, and the address of the sync."""
    options = {
        "hoodie.write.lock.hivemetastore.database": "d",
        "hoodie.write.lock.hivemetastore.table": "visits",
        "hoodie.datasource.hive_sync.metastore.uris": "thrift://sync:9083",
    }
    named = "org.apache.hudi.hive.HiveMetastoreBasedLockProvider"
    lock = made(tmp_path, named, **options)
    assert isinstance(lock, HmsLock)
    assert (lock.metastore.uri, lock.name) == ("thrift://sync:9083", "d.visits")
    own = made(tmp_path, named, **options, **{"hoodie.write.lock.hivemetastore.uris": "thrift://own:9083"})
    assert isinstance(own, HmsLock)
    assert own.metastore.uri == "thrift://own:9083"
    of_lake = made(tmp_path, named, Metastore.connect("thrift://lake:9083"), **options)
    assert isinstance(of_lake, HmsLock)
    assert of_lake.metastore.uri == "thrift://lake:9083"
