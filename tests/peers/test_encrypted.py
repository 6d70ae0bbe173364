"""Encrypted base files: JVM Hudi reads those of skep and skep those of Hudi, with Parquet's in-memory KMS on both."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peer_shared import Shape, Shared, agree

from benchmarks.peers.bundle import PeerMissing, bundle, fetched
from benchmarks.peers.jvm import HudiRefused, Jvm
from skep_format.options import Options
from skep_table.services.clustering.cluster import cluster
from skep_table.table import HudiTable

KMS = {
    "parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "org.apache.parquet.crypto.keytools.mocks.InMemoryKMS",
    "parquet.encryption.key.list": ",".join(
        f"{name}:{base64.b64encode(name.encode() * 8).decode()}" for name in ("k1", "k2")
    ),
}
UNIFORM = {"parquet.encryption.uniform.key": "k1"}
COLUMNS = {
    "parquet.encryption.footer.key": "k1",
    "parquet.encryption.column.keys": "k2:note,amount",
    "parquet.encryption.plaintext.footer": "true",
}
COMPLETE = {
    "parquet.encryption.footer.key": "k1",
    "parquet.encryption.column.keys": "k2:note",
    "parquet.encryption.complete.columns": "true",
    "parquet.encryption.double.wrapping": "false",
}
GROUP, RELEASE = "org.apache.parquet", "1.13.1"


class Encrypted(Shared):
    """A table that skep opens with keys."""

    keys: dict[str, str]

    def open(self) -> HudiTable:
        return HudiTable.open(str(self.path), Options(self.keys))

    def magic(self) -> set[bytes]:
        """How its newest base files end."""
        table = self.open()
        view = table.view()
        files = [each.base_file for path in view.partitions() for each in view.slices(path)]
        return {Path(table.storage.root, file.path).read_bytes()[-4:] for file in files if file is not None}


@contextmanager
def with_keys(hudi: Jvm, keys: dict[str, str]) -> Iterator[None]:
    """Hadoop's configuration of the session has them."""
    try:
        for key, value in keys.items():
            hudi.request("hadoop", key=key, value=value)
        yield
    finally:
        for key in keys:
            hudi.request("hadoop", key=key, value=None)


@pytest.fixture
def hudi(no_jvm: None) -> Iterator[Jvm]:
    """With the KMS of Parquet's own tests on its class path."""
    try:
        jar = fetched(GROUP, "parquet-hadoop", RELEASE, "tests")
    except PeerMissing as missing:
        pytest.skip(str(missing))
    with Jvm("0.15.0", {"spark.driver.extraClassPath": f"{bundle('0.15.0')}:{jar}"}) as hudi:
        yield hudi


@pytest.mark.peer("hudi-0.15.0")
def test_hudi_and_skep_read_and_write_each_others_encrypted_files(hudi: Jvm, tmp_path: Path) -> None:
    for number, encrypted in enumerate((UNIFORM, COLUMNS, COMPLETE)):
        shared = Encrypted.make(tmp_path / str(number), Shape("encrypted", partition_by=()))
        shared.keys = {**KMS, **encrypted}
        with with_keys(hudi, shared.keys):
            source = shared.source
            shared.ours("bulk_insert", source.new(30))
            if encrypted is COMPLETE:
                cluster(shared.open())
            else:
                shared.theirs(hudi, "upsert", source.mixed(10, 5))
                assert shared.magic() == {b"PAR1" if encrypted is COLUMNS else b"PARE"}
                shared.ours("upsert", source.mixed(5, 5))  # of rows of Hudi, which then reads them
            agree(shared, hudi)
    with pytest.raises(HudiRefused, match="encrypted"):
        hudi.read(shared.path)
