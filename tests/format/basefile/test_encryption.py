"""Encrypted Parquet files by themselves: which columns a key covers, hidden ones, and what is not written into them."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skep_format.basefile import BaseFileOptions, BaseFileWriter, open_base, read_base, read_footer
from skep_format.basefile.encryption import ParquetKeys
from skep_format.basefile.kms import AwsKms, InMemoryKms
from skep_format.basefile.row_groups import share_of_columns
from skep_format.basefile.value_filters import ValueFilters
from skep_format.errors import EncryptedFileError, UnsupportedError
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage, Storage
from skep_format.storage.keyed import keyed

ROWS = pa.table(
    {
        "a": pa.array(range(100), pa.int32()),
        "b": [f"text {at}" for at in range(100)],
        "s": [{"x": at, "y": f"inner {at}"} for at in range(100)],
        "f": [float("nan")] * 100,
    }
)
KEYS = {name: base64.b64encode(name.encode() * 8).decode() for name in ("k1", "k2")}
PATH = "f.parquet"


def _options(known: str) -> dict[str, str]:
    return {"parquet.encryption.key.list": ",".join(f"{name}:{KEYS[name]}" for name in known.split(","))}


def storage_of(folder: Path, known: str = "k1,k2", **given: str) -> Storage:
    options = {f"parquet.encryption.{key.replace('__', '.')}": value for key, value in given.items()}
    options |= _options(known)
    return keyed(LocalStorage(str(folder)), ParquetKeys.of(Options(options), InMemoryKms))


def write(storage: Storage, options: BaseFileOptions | None = None) -> BaseFileWriter:
    with BaseFileWriter(storage, PATH, from_arrow(ROWS.schema), options) as writer:
        writer.write(ROWS)
    return writer


class Condition:
    """That a hidden column has some value."""

    columns = ("b",)
    expression = pc.field("b") == "text 200"

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.equal(rows.column("b"), "text 200")


COLUMNS = {"footer__key": "k1", "column__keys": "k2:b,s.y"}


@pytest.mark.parametrize("footer", ["false", "true"])
def test_the_statistics_of_a_written_file_are_known(tmp_path: Path, footer: str) -> None:
    storage = storage_of(tmp_path, **COLUMNS, plaintext__footer=footer)
    found = write(storage).column_statistics()
    assert (found["a"].low, found["a"].high) == (0, 99)
    assert (found["s.y"].low, found["s.y"].high) == ("inner 0", "inner 99")
    assert found["f"].low is None
    assert pa.Table.from_batches(read_base(pickle.loads(pickle.dumps(storage)), PATH)).select(
        ["a", "b", "s"]
    ) == ROWS.select(["a", "b", "s"])


@pytest.mark.parametrize("footer", ["false", "true"])
def test_hidden_columns_are_found_before_arrow_is_asked_for_them(tmp_path: Path, footer: str) -> None:
    write(storage_of(tmp_path, **COLUMNS, plaintext__footer=footer))
    reader = storage_of(tmp_path, "k1")
    assert read_footer(reader, PATH).num_rows == 100
    assert share_of_columns(reader, PATH, ["a"]) == 1
    assert [batch.num_rows for batch in read_base(reader, PATH, columns=["a", "f"])] == [100]
    for columns in (["a", "b"], ["s"], None):
        with pytest.raises(EncryptedFileError, match="master key k2") as error:
            list(read_base(reader, PATH, columns=columns))
        assert error.value.fields["path"] == PATH
        assert error.value.fields["column"] in "bs"
    with open_base(reader, PATH) as opened:
        assert opened.groups_left(Condition(), from_arrow(ROWS.schema)) == (1, 1)
        assert opened.row_groups is None
        with pytest.raises(EncryptedFileError):
            _ = opened.metadata
    with pytest.raises(EncryptedFileError, match="no keys are given"):
        read_footer(LocalStorage(str(tmp_path)), PATH)


def test_complete_columns_have_the_key_of_the_footer(tmp_path: Path) -> None:
    write(storage_of(tmp_path, **COLUMNS))
    assert b"text 5" not in (tmp_path / PATH).read_bytes()
    write(storage_of(tmp_path, **COLUMNS, complete__columns="true"), BaseFileOptions(codec="none", dictionary=False))
    data = (tmp_path / PATH).read_bytes()
    assert pa.array(range(90, 99), pa.int32()).buffers()[1].to_pybytes() not in data
    write(storage_of(tmp_path, **COLUMNS), BaseFileOptions(codec="none", dictionary=False))
    assert pa.array(range(90, 99), pa.int32()).buffers()[1].to_pybytes() in (tmp_path / PATH).read_bytes()


def test_filters_of_values_are_refused(tmp_path: Path) -> None:
    filters = ValueFilters((("b", True),))
    with pytest.raises(UnsupportedError, match=r"parquet\.bloom\.filter\.enabled"):
        write(storage_of(tmp_path, uniform__key="k1"), BaseFileOptions(value_filters=filters))
    assert list(tmp_path.iterdir()) == []


def test_a_plain_file_is_read_with_keys(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / PATH)
    storage = storage_of(tmp_path, uniform__key="k1")
    assert read_footer(storage, PATH).encrypted is None
    with open_base(storage, PATH) as opened:
        assert opened.row_groups is not None
        assert opened.metadata is not None
        assert pa.Table.from_batches(opened.rows()).num_rows == 100


def test_keys_that_the_kms_of_tests_wraps_are_javas() -> None:
    """A key of 16 bytes that Java's InMemoryKMS would wrap: nonce, cipher text and tag, with the name as AAD."""

    class Config:
        custom_kms_conf: ClassVar[dict[str, str]] = {
            "parquet.encryption.key.list": f"k1:{KEYS['k1']}",
            "parquet.encryption.new.key.list": f"k1:{KEYS['k2']}",
        }

    client = InMemoryKms(Config())
    wrapped = client.wrap_key(b"0123456789abcdef", "k1").decode()
    assert len(base64.b64decode(wrapped)) == 12 + 16 + 16

    class Newer:
        custom_kms_conf: ClassVar[dict[str, str]] = {"parquet.encryption.key.list": f"k1:{KEYS['k2']}"}

    newer = InMemoryKms(Newer())
    assert newer.unwrap_key(wrapped, "k1") == b"0123456789abcdef"


def test_awss_key_service_wraps_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with moto.mock_aws():
        key = boto3.client("kms").create_key()["KeyMetadata"]["KeyId"]
        given = Options({"parquet.encryption.uniform.key": key})
        storage = keyed(LocalStorage(str(tmp_path)), ParquetKeys.of(given, AwsKms))
        write(storage)
        assert pa.Table.from_batches(read_base(storage, PATH)).num_rows == 100
        lost = ParquetKeys.of(Options({"parquet.encryption.uniform.key": "alias/none"}), AwsKms)
        with pytest.raises(EncryptedFileError, match="wraps no key with master key alias/none: NotFoundException"):
            write(keyed(LocalStorage(str(tmp_path)), lost))


def test_a_legacy_calendar_wants_the_keys_of_all_columns(tmp_path: Path) -> None:
    keys = ParquetKeys.of(Options({**_options("k1,k2"), "parquet.encryption.footer.key": "k1"}), InMemoryKms)
    keys = replace(keys, column_keys=(("k2", ("b",)),))
    with pq.ParquetWriter(
        tmp_path / PATH, ROWS.schema, encryption_properties=keys.writing(ROWS.schema), store_schema=False
    ) as file:
        file.write_table(ROWS)
        file.add_key_value_metadata({"org.apache.spark.version": "2.4.8"})
    with pytest.raises(EncryptedFileError, match="column b"):
        list(read_base(storage_of(tmp_path, "k1"), PATH, columns=["a"]))
    assert len(list(read_base(storage_of(tmp_path), PATH, columns=["a"]))) == 1


class Failing(InMemoryKms):
    """Fails from some time on, and counts its calls."""

    fails: ClassVar[bool] = False
    calls: ClassVar[int] = 0

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        if Failing.fails:
            raise TimeoutError("no answer")
        Failing.calls += 1
        return super().unwrap_key(wrapped_key, master_key_identifier)


@pytest.mark.parametrize("wrapping", ["false", "true"])
@pytest.mark.parametrize("footer", ["false", "true"])
def test_a_kms_that_fails_ends_no_process_and_is_called_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, footer: str, wrapping: str
) -> None:
    write(storage_of(tmp_path, **COLUMNS, plaintext__footer=footer, double__wrapping=wrapping))
    for seconds in ("0", "600"):
        monkeypatch.setattr(Failing, "fails", False)
        monkeypatch.setattr(Failing, "calls", 0)
        options = Options({**_options("k1,k2"), "parquet.encryption.cache.lifetime.seconds": seconds})
        storage = keyed(LocalStorage(str(tmp_path)), ParquetKeys.of(options, Failing))
        with open_base(storage, PATH) as opened:
            opened.footer()
            if seconds == "600":
                for _ in range(5):
                    assert pa.Table.from_batches(read_base(storage, PATH)).num_rows == 100
                assert Failing.calls <= 3  # one for each key
            monkeypatch.setattr(Failing, "fails", True)
            assert opened.metadata is not None
            group = opened.metadata.row_group(0)
            assert [group.column(at).num_values for at in range(group.num_columns)] == [100] * 5
        if seconds == "0":
            with pytest.raises(EncryptedFileError, match="TimeoutError: no answer") as error:
                read_footer(storage, PATH)
            assert error.value.fields["path"] == PATH


def test_a_kms_that_only_wraps_ends_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "fails", True)
    options = Options({**_options("k1,k2"), "parquet.encryption.footer.key": "k1"})
    keys = replace(ParquetKeys.of(options, Failing), column_keys=(("k2", ("b",)),), plaintext_footer=True)
    writer = write(keyed(LocalStorage(str(tmp_path)), keys))
    with pytest.raises(EncryptedFileError, match="no answer"):
        writer.column_statistics()
