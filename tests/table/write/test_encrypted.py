"""Tables whose base files are encrypted by Parquet's options: written, merged, clustered, looked up and checked."""

from __future__ import annotations

import base64
import itertools
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from copied_groups import copied_groups
from faulty_storage import KilledAtChanges

from skep_format.basefile import read_footer
from skep_format.basefile.encryption import FACTORY
from skep_format.errors import EncryptedFileError, OptionError, SkepError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.change import AddColumn
from skep_format.schema.types import IntType
from skep_format.storage import LocalStorage
from skep_format.storage.versioned import VersionedStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.locks.providers import LockRequest, make_lock
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.fsck import fsck
from skep_table.services.metadata.index_build import schedule_index
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("f", pa.float64()), ("secret", pa.string()), ("l", pa.list_(pa.int32()))]
)
SECRET = "hush-hush"
TOKEN = "a-token-of-access"
KEYS = ",".join(f"{name}:{base64.b64encode(name.encode() * 8).decode()}" for name in ("k1", "k2"))
KMS = {
    FACTORY.key: "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "org.apache.parquet.crypto.keytools.mocks.InMemoryKMS",
    "parquet.encryption.key.list": KEYS,
    "parquet.encryption.key.access.token": TOKEN,
}
UNIFORM = {**KMS, "parquet.encryption.uniform.key": "k1"}
COLUMNS = {**KMS, "parquet.encryption.footer.key": "k1", "parquet.encryption.column.keys": "k2: secret, f"}
SIGNED = {**COLUMNS, "parquet.encryption.plaintext.footer": "true"}
COMPLETE = {**COLUMNS, "parquet.encryption.complete.columns": "true"}
PLAINTEXT = "skep.encryption.plaintext"
OPTIONS = {
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
    "hoodie.compact.inline": "false",
}


def rows(numbers: range, ts: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{at:03d}" for at in numbers],
            "ts": [ts] * len(numbers),
            "f": [float("nan") if at % 50 == 7 else at / ts for at in numbers],
            "secret": [f"{SECRET} {at} {ts}" for at in numbers],
            "l": [[at, ts][: at % 3] for at in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., HudiTable]:
    def made(options: dict[str, str], **spec: Any) -> HudiTable:
        spec = {"record_key": ("id",), "ordering": "ts", **spec}
        table = create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=SCHEMA, **spec))
        return opened(table, options)

    return made


def opened(table: HudiTable, options: dict[str, str]) -> HudiTable:
    """The table as another process finds it."""
    return HudiTable.open(table.storage.root, Options({**OPTIONS, **options})).with_context(runner=ThreadRunner(1))


def base_files(table: HudiTable) -> list[Path]:
    view = table.reload().view()
    files = [slice_.base_file for path in view.partitions() for slice_ in view.slices(path)]
    return [Path(table.storage.root) / file.path for file in files if file is not None]


def content(table: HudiTable, **request: Any) -> dict[str, Any]:
    columns = ("id", "ts", "secret", "l")
    found = read(table.reload(), ReadRequest(columns=columns, **request)).to_arrow()
    return {row["id"]: (row["ts"], row["secret"], row["l"]) for row in found.to_pylist()}


def expected(*tables: pa.Table) -> dict[str, Any]:
    return {row["id"]: (row["ts"], row["secret"], row["l"]) for table in tables for row in table.to_pylist()}


def shows(table: HudiTable, text: str = SECRET) -> list[str]:
    """The files of a table, all of its folder, that hold a text."""
    root = Path(table.storage.root)
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    return [path.name for path in files if text.encode() in path.read_bytes()]


PLAIN_TEXT = {"hoodie.parquet.compression.codec": "none"}


@pytest.mark.parametrize("options", [UNIFORM, COLUMNS, SIGNED, COMPLETE], ids=["uniform", "columns", "signed", "all"])
def test_every_base_file_is_encrypted_and_read(make: Callable[..., HudiTable], options: dict[str, str]) -> None:
    table = make({**options, **PLAIN_TEXT})
    writer = LocalWriter(table)
    writer.bulk_insert(rows(range(100)))
    writer.insert(rows(range(100, 150)))
    with copied_groups() as copied:
        writer.upsert(rows(range(60, 70), ts=2))
        writer.delete(rows(range(10)).select(["id"]))
    assert not copied
    left = expected(rows(range(10, 150)), rows(range(60, 70), ts=2))
    assert content(table) == left
    assert shows(table) == []
    magic = {path.read_bytes()[-4:] for path in base_files(table)}
    assert magic == {b"PAR1" if options is SIGNED else b"PARE"}
    # all that reads files
    assert content(table, where="secret = 'hush-hush 20 1'").keys() == {"k020"}
    assert content(table, where="f < 14").keys() == {f"k{at:03d}" for at in (10, 11, 12, 13)}
    assert content(table, where="id = 'k120'").keys() == {"k120"}
    assert not fsck(opened(table, options), deep=True)
    for path in base_files(table):
        footer = read_footer(table.storage, str(path.relative_to(table.storage.root)))
        assert footer.bloom is not None
        assert footer.schema.names()[-5:] == tuple(SCHEMA.names)
    # clustering with the options encrypts, in another process of a pool, too
    (done,) = cluster(opened(table, {**options, **PLAIN_TEXT}))
    assert content(pickle.loads(pickle.dumps(done.table))) == left
    assert shows(table) == []


def test_a_merge_on_read_table_has_encrypted_base_files_and_plain_logs_if_allowed(
    make: Callable[..., HudiTable],
) -> None:
    table = make(UNIFORM, type=TableType.MERGE_ON_READ)
    with pytest.raises(UnsupportedError, match="log files of a merge-on-read table") as error:
        LocalWriter(table).bulk_insert(rows(range(20)))
    assert error.value.fields["option"] == PLAINTEXT
    table = opened(table, {**UNIFORM, PLAINTEXT: "logs"})
    LocalWriter(table).bulk_insert(rows(range(20)))
    assert shows(table) == []
    LocalWriter(table).upsert(rows(range(5), ts=2))
    assert [name.startswith(".") for name in shows(table)] == [True]
    left = expected(rows(range(5, 20)), rows(range(5), ts=2))
    assert content(table) == left
    compacting = opened(table, UNIFORM)
    schedule_compaction(compacting)
    execute_pending_compactions(compacting.reload())
    assert content(table) == left
    assert {path.read_bytes()[-4:] for path in base_files(table)} == {b"PARE"}


def test_change_data_and_indexes_that_hold_values_are_refused(make: Callable[..., HudiTable]) -> None:
    table = make({**UNIFORM, "hoodie.metadata.enable": "true"})
    LocalWriter(table).bulk_insert(rows(range(20)))
    statistics = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
    with pytest.raises(UnsupportedError, match="column_stats holds values of columns") as error:
        LocalWriter(opened(table, {**UNIFORM, **statistics})).insert(rows(range(20, 30)))
    assert error.value.fields["option"] == PLAINTEXT
    with pytest.raises(UnsupportedError, match="record_index"):
        schedule_index(opened(table, UNIFORM), ["record_index"])
    LocalWriter(opened(table, {**UNIFORM, **statistics, PLAINTEXT: "indexes"})).insert(rows(range(20, 30)))
    assert content(opened(table, {**UNIFORM, **statistics}), where="secret = 'hush-hush 25 1'").keys() == {"k025"}
    with pytest.raises(UnsupportedError, match="column_stats"):  # it is there
        LocalWriter(opened(table, UNIFORM)).insert(rows(range(30, 40)))


def test_change_logs_are_refused(make: Callable[..., HudiTable]) -> None:
    table = make(UNIFORM, properties={"hoodie.table.cdc.enabled": "true"})
    with pytest.raises(UnsupportedError, match="the logs of its change data are plain text"):
        LocalWriter(table).bulk_insert(rows(range(20)))


def test_base_files_in_orc_are_refused(make: Callable[..., HudiTable]) -> None:
    table = make(UNIFORM, base_format=BaseFormat.ORC)
    with pytest.raises(UnsupportedError, match="base files in ORC are plain text"):
        LocalWriter(table).bulk_insert(rows(range(3)))
    assert not base_files(table)


def test_record_keys_beside_their_encrypted_column_are_refused(make: Callable[..., HudiTable]) -> None:
    keyed = {**COLUMNS, "parquet.encryption.column.keys": "k2:id"}
    table = make(keyed)
    with pytest.raises(UnsupportedError, match="_hoodie_record_key would hold the encrypted column id"):
        LocalWriter(table).bulk_insert(rows(range(20)))
    both = {**COLUMNS, "parquet.encryption.column.keys": "k2:id,_hoodie_record_key"}
    LocalWriter(opened(table, both)).bulk_insert(rows(range(20)))
    assert shows(table, "k019") == []


# -- readers and writers without keys


@pytest.mark.parametrize("options", [UNIFORM, SIGNED], ids=["uniform", "signed"])
def test_without_keys_reads_are_errors_and_writes_are_refused(
    make: Callable[..., HudiTable], options: dict[str, str]
) -> None:
    table = make(options)
    LocalWriter(table).bulk_insert(rows(range(100)))
    files = {path.name for path in base_files(table)}
    plain = opened(table, {})
    for request in ({}, {"where": "secret > 'i'"}, {"where": "f = 3"}, {"where": "id = 'k003'"}):
        with pytest.raises(EncryptedFileError, match="no keys are given") as error:
            content(plain, **request)
        assert Path(error.value.fields["path"]).name in files
        assert error.value.fields["option"] == FACTORY.key
    with pytest.raises(EncryptedFileError):
        fsck(plain)
    for write in ("bulk_insert", "insert", "upsert", "insert_overwrite_table"):
        with pytest.raises(EncryptedFileError, match="new ones would not be"):
            getattr(LocalWriter(plain), write)(rows(range(100, 110)))
    with pytest.raises(EncryptedFileError):
        cluster(plain)
    LocalWriter(plain).alter([AddColumn("more", IntType())])  # writes no file
    with pytest.raises(EncryptedFileError, match="new ones would not be"):
        LocalWriter(plain.reload()).bulk_insert(rows(range(100, 110)))
    assert {path.name for path in base_files(table)} == files
    assert content(table) == expected(rows(range(100)))


def test_clustering_encrypts_a_plain_table_changes_its_keys_and_decrypts_it(make: Callable[..., HudiTable]) -> None:
    table = make(PLAIN_TEXT)
    LocalWriter(table).bulk_insert(rows(range(100)))
    LocalWriter(table).upsert(rows(range(10), ts=2))
    left = expected(rows(range(10, 100)), rows(range(10), ts=2))

    def clustered(options: dict[str, str]) -> bytes:
        with copied_groups() as copied:
            (done,) = cluster(opened(table, {**options, **PLAIN_TEXT}))
        assert not copied
        assert content(opened(table, options)) == left
        (path,) = base_files(done.table)
        return path.read_bytes()

    assert SECRET.encode() not in clustered(UNIFORM)
    assert SECRET.encode() not in clustered({**UNIFORM, "parquet.encryption.uniform.key": "k2"})
    only_new = {**UNIFORM, "parquet.encryption.key.list": KEYS.split(",")[1]}
    assert content(opened(table, only_new)) == left
    with pytest.raises(EncryptedFileError):
        cluster(opened(table, KMS))
    assert SECRET.encode() in clustered({**KMS, PLAINTEXT: "files"})
    LocalWriter(opened(table, {})).upsert(rows(range(20, 30), ts=2))  # a plain table again


# -- keys


def test_a_wrong_or_missing_key_is_an_error_that_names_file_and_key(make: Callable[..., HudiTable]) -> None:
    table = make(COLUMNS)
    LocalWriter(table).bulk_insert(rows(range(100)))
    (path,) = base_files(table)
    first, second = KEYS.split(",")
    wrong = f"k1:{base64.b64encode(b'0' * 16).decode()},{second}"
    for given in (second, wrong):
        with pytest.raises(EncryptedFileError, match="unwraps no key with master key k1") as error:
            content(opened(table, {**COLUMNS, "parquet.encryption.key.list": given}))
        assert error.value.fields["path"].endswith(path.name)
        assert path.name in str(error.value)
    # a column whose key is missing is hidden, others are not; Arrow would end the process at its statistics
    for given in (first, f"{first},k2:{base64.b64encode(b'0' * 16).decode()}"):
        other = opened(table, {**KMS, "parquet.encryption.key.list": given})
        found = read(other, ReadRequest(columns=("id", "ts"), where="ts = 1 and id > 'k090'")).to_arrow()
        assert found.num_rows == 9
        with pytest.raises(EncryptedFileError, match=r"column secret can't be read: .*master key k2") as error:
            content(other)
        assert error.value.fields["column"] == "secret"
        for where in ("secret > 'x'", "f = 1"):
            with pytest.raises(EncryptedFileError, match="can't be read"):
                read(other, ReadRequest(columns=("id",), where=where)).to_arrow()
        with pytest.raises(EncryptedFileError):
            fsck(other, deep=True)
        with pytest.raises(EncryptedFileError):
            LocalWriter(opened(table, {**COLUMNS, "parquet.encryption.key.list": given})).upsert(rows(range(3), ts=2))
    assert content(table) == expected(rows(range(100)))


def test_a_key_that_is_missing_at_a_write_leaves_nothing(make: Callable[..., HudiTable]) -> None:
    table = make({**UNIFORM, "parquet.encryption.uniform.key": "k3"})
    with pytest.raises(SkepError, match="wraps no key with master key k3"):
        LocalWriter(table).bulk_insert(rows(range(10)))
    assert base_files(table) == []
    assert not table.reload().timeline.data().completed().instants


@pytest.mark.parametrize("options", [UNIFORM, SIGNED], ids=["uniform", "signed"])
def test_a_cut_or_damaged_file_is_an_error_that_names_it(
    make: Callable[..., HudiTable], options: dict[str, str]
) -> None:
    table = make(options)
    LocalWriter(table).bulk_insert(rows(range(100)))
    (path,) = base_files(table)
    data = path.read_bytes()
    changed = bytes([data[500] ^ 1]).join((data[:500], data[501:]))
    for broken in (data[:-9], data[: len(data) // 2], *([changed] if options is UNIFORM else [])):
        path.write_bytes(broken)
        with pytest.raises(SkepError, match=path.name):
            read(opened(table, options), ReadRequest()).to_arrow()
    path.write_bytes(changed)
    assert fsck(opened(table, options), deep=True)


def test_no_token_and_no_key_is_shown(make: Callable[..., HudiTable], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    table = make({**UNIFORM, "parquet.encryption.kms.client.class": f"{__name__}:Refusing"})
    with pytest.raises(SkepError) as error:
        LocalWriter(table).bulk_insert(rows(range(10)))
    assert "no access for ****" in str(error.value)
    usual = opened(table, UNIFORM)
    LocalWriter(usual).bulk_insert(rows(range(10)))
    texts = [str(error.value), caplog.text, repr(usual.storage), repr(usual.storage.keys), repr(usual.context)]
    for secret in (TOKEN, KEYS.split(",")[0].partition(":")[2]):
        assert not any(secret in text for text in texts)
        assert shows(table, secret) == []


class Refusing:
    """A KMS client that states the token in its errors."""

    def __init__(self, config: Any) -> None:
        self.token = config.key_access_token

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        raise PermissionError(f"no access for {self.token}")


# -- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parquet.encryption.uniform.key": "k1"}, "has no effect without parquet.crypto.factory.class"),
        ({FACTORY.key: "org.example.Factory"}, "'org.example.Factory' is not org.apache"),
        ({FACTORY.key: KMS[FACTORY.key]}, "needs parquet.encryption.kms.client.class"),
        ({**UNIFORM, "parquet.encryption.footer.key": "k2"}, "can't be together with parquet.encryption.footer.key"),
        ({**KMS, "parquet.encryption.column.keys": "k2:f"}, "needs parquet.encryption.footer.key"),
        ({**KMS, "parquet.encryption.footer.key": "k2"}, "needs parquet.encryption.column.keys"),
        ({**COLUMNS, "parquet.encryption.column.keys": "k2"}, "is not key:column,column;key:column"),
        ({**COLUMNS, "parquet.encryption.column.keys": "k1:f;k2:f"}, "names each column once"),
        ({**UNIFORM, "parquet.encryption.algorithm": "AES"}, "one of AES_GCM_V1, AES_GCM_CTR_V1"),
        ({**UNIFORM, "parquet.encryption.data.key.length.bits": "100"}, "one of 128, 192, 256"),
        ({**KMS, "parquet.encryption.uniform.keys": "k1"}, "did you mean parquet.encryption.uniform.key?"),
        ({PLAINTEXT: "all"}, "a list of files, logs, indexes"),
    ],
)
def test_options_that_would_leave_plain_text_by_mistake_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as error:
        Options(options).check()
    assert text in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"parquet.encryption.key.material.store.internally": "false"},
        {"parquet.encryption.wrap.locally": "true"},
        {"parquet.encryption.kek.length.bits": "256"},
        {"parquet.encryption.kms.client.class": "org.example.OurKms"},
        {"parquet.encryption.kms.client.class": "skep_format.basefile.kms:Missing"},
    ],
)
def test_what_is_not_built_is_refused_by_name(make: Callable[..., HudiTable], options: dict[str, str]) -> None:
    table = make({})
    given = Options({**UNIFORM, **options})
    with pytest.raises(UnsupportedError) as error:
        opened(table, {**given}).options.check()
    assert error.value.fields["option"] in options


def test_a_column_that_files_do_not_have_is_refused(make: Callable[..., HudiTable]) -> None:
    table = make({**COLUMNS, "parquet.encryption.column.keys": "k2:nothing"})
    with pytest.raises(OptionError, match="nothing is no column of the table's files"):
        LocalWriter(table).bulk_insert(rows(range(10)))
    nested = opened(table, {**COLUMNS, "parquet.encryption.column.keys": "k2:l.list.element"})
    LocalWriter(nested).bulk_insert(rows(range(10)))
    assert content(nested) == expected(rows(range(10)))


@pytest.mark.parametrize(
    "options",
    [
        {"parquet.encryption.double.wrapping": "false"},
        {"parquet.encryption.algorithm": "AES_GCM_CTR_V1"},
        {"parquet.encryption.data.key.length.bits": "256", "parquet.encryption.cache.lifetime.seconds": "0"},
        {"parquet.encryption.kms.instance.id": "one", "parquet.encryption.kms.instance.url": "kms://one"},
        {"parquet.encryption.kms.client.class": "skep_format.basefile.kms.InMemoryKms"},
    ],
)
def test_options_that_change_how_files_are_encrypted(make: Callable[..., HudiTable], options: dict[str, str]) -> None:
    table = make({**COLUMNS, **options})
    LocalWriter(table).bulk_insert(rows(range(30)))
    LocalWriter(table).upsert(rows(range(3), ts=2))
    assert content(table) == expected(rows(range(3, 30)), rows(range(3), ts=2))
    assert content(opened(table, COLUMNS)) == content(table)


def test_the_storage_with_keys_is_of_all_protocols_of_its_own(make: Callable[..., HudiTable]) -> None:
    storage = make(UNIFORM).storage
    assert isinstance(storage, VersionedStorage)
    assert repr(pickle.loads(pickle.dumps(storage))) == repr(storage)
    assert storage.root == storage.inner.root
    for provider in ("filesystem", "storage"):
        lock = make_lock(LockRequest(storage, "t", Options({"hoodie.write.lock.provider": provider})), "none")
        lock.acquire(1)
        lock.release()


def test_a_kill_at_any_change_leaves_a_table_that_is_read_and_no_plain_text(
    make: Callable[..., HudiTable], tmp_path: Path
) -> None:
    table = make({**COMPLETE, **PLAIN_TEXT, "hoodie.metadata.enable": "false"})
    LocalWriter(table).bulk_insert(rows(range(20)))
    before, after = expected(rows(range(20))), expected(rows(range(3, 20)), rows(range(3), ts=2))
    seen = set()
    for at in itertools.count(1):
        folder = tmp_path / f"at {at}"
        shutil.copytree(table.storage.root, folder)
        storage = KilledAtChanges(str(folder), at)
        killed = HudiTable.open(storage, table.options).with_context(runner=ThreadRunner(1))
        with suppress(SkepError):
            LocalWriter(killed).upsert(rows(range(3), ts=2))
        left = HudiTable.open(str(folder), table.options)
        assert content(left) in (before, after)
        seen.add(content(left) == after)
        assert shows(left) == []
        shutil.rmtree(folder)
        if not storage.hit:
            break
    assert seen == {False, True}
