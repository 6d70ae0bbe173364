"""What every storage promises (`Storage`), stated once and run on each: local files, S3 on moto's server, HDFS."""

import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_table.errors import AlreadyExistsError, StorageError, UnsupportedError
from skep_table.storage import HdfsStorage, LocalStorage, ObjectStorage, open_storage


class StorageContract:
    """Subclasses give `storage`, an empty one."""

    def test_bytes_come_back_whole_and_by_range(self, storage):
        storage.replace_atomic("a/b.bin", b"0123456789")
        assert storage.read("a/b.bin") == b"0123456789"
        assert storage.size("a/b.bin") == 10
        assert storage.read_range("a/b.bin", 2, 3) == b"234"
        assert storage.read_range("a/b.bin", 8, 100) == b"89"
        assert storage.read_range("a/b.bin", 100, 1) == b""
        assert storage.read_range("a/b.bin", -3, 3) == b"789"
        assert storage.read_range("a/b.bin", -100, 100) == b"0123456789"
        assert storage.read_range("a/b.bin", -4, 2) == b"67"
        assert storage.read_range("a/b.bin", 3, 0) == b""
        storage.replace_atomic("empty", b"")
        assert storage.read_range("empty", -5, 5) == storage.read_range("empty", 0, 5) == b""

    def test_what_is_not_there_is_file_not_found(self, storage):
        for call in (storage.read, storage.size, storage.open_input, lambda path: storage.read_range(path, 0, 1)):
            with pytest.raises(FileNotFoundError):
                call("nothing/here")
        assert not storage.exists("nothing/here")
        assert storage.delete("nothing/here") is False
        storage.delete_folder("nothing")
        assert storage.list_prefix("nothing", recursive=True) == []
        assert storage.list_folders("nothing") == []

    def test_listings_are_sorted_and_relative_to_the_root(self, storage):
        for path in ("p=2/b", "p=1/c", "p=1/a", "p=1/deep/er", "top", "p=1é x/odd"):
            storage.replace_atomic(path, path.encode())
        assert [file.path for file in storage.list_prefix("p=1")] == ["p=1/a", "p=1/c"]
        assert [file.path for file in storage.list_prefix("")] == ["top"]
        every = storage.list_prefix("", recursive=True)
        assert [file.path for file in every] == sorted(["p=2/b", "p=1/c", "p=1/a", "p=1/deep/er", "top", "p=1é x/odd"])
        assert {file.name: file.size_bytes for file in every}["er"] == len("p=1/deep/er")
        assert all(file.modified_ms > 1_700_000_000_000 for file in every)
        assert storage.list_folders("") == ["p=1", "p=1é x", "p=2"]
        assert storage.list_folders("p=1") == ["deep"]
        assert storage.exists("p=1")

    def test_one_of_many_exclusive_creators_wins(self, storage):
        outcomes = []

        def create(number):
            try:
                storage.create_exclusive("one", str(number).encode())
                outcomes.append(number)
            except AlreadyExistsError:
                pass

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 1
        assert storage.read("one") == str(outcomes[0]).encode()
        assert [file.path for file in storage.list_prefix("", recursive=True)] == ["one"]

    def test_replacing_leaves_the_new_bytes_only(self, storage):
        storage.replace_atomic("f", b"old and longer")
        storage.replace_atomic("f", b"new")
        assert storage.read("f") == b"new"
        assert len(storage.list_prefix("")) == 1

    def test_rename_moves_and_never_replaces(self, storage):
        storage.replace_atomic("from", b"1")
        storage.rename("from", "to/here")
        assert not storage.exists("from")
        assert storage.read("to/here") == b"1"
        storage.replace_atomic("other", b"2")
        with pytest.raises(AlreadyExistsError):
            storage.rename("other", "to/here")
        assert storage.read("other") == b"2"
        with pytest.raises(FileNotFoundError):
            storage.rename("nobody", "else")

    def test_a_stream_is_complete_after_the_block_and_gone_after_an_error(self, storage):
        with storage.open_write("s/good") as out:
            out.write(b"a" * 100_000)
            out.write(b"b")
        assert storage.size("s/good") == 100_001

        def fail():
            with storage.open_write("s/bad") as out:
                out.write(b"half")
                raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            fail()
        assert [file.path for file in storage.list_prefix("s")] == ["s/good"]

    def test_arrow_reads_and_writes_parquet_through_it(self, storage):
        table = pa.table({"n": list(range(10_000)), "text": ["x"] * 10_000})
        with storage.open_write("t.parquet") as out:
            pq.write_table(table, out)
        with storage.open_input("t.parquet") as source:
            assert pq.read_table(source).equals(table)

    def test_deleting_a_folder_takes_all_below(self, storage):
        for path in ("d/1", "d/e/2", "dd"):
            storage.replace_atomic(path, b"")
        storage.delete_folder("d")
        assert [file.path for file in storage.list_prefix("", recursive=True)] == ["dd"]
        assert storage.delete("dd") is True

    def test_it_travels(self, storage):
        storage.replace_atomic("f", b"1")
        there = pickle.loads(pickle.dumps(storage))
        assert there.read("f") == b"1"
        assert there.root == storage.root
        assert there.uri("f") == storage.uri("f")


class TestLocal(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path):
        return LocalStorage(str(tmp_path))

    def test_checksum_side_files_go_with_their_file(self, storage, tmp_path):
        for change in (lambda: storage.replace_atomic("f", b"new"), lambda: storage.delete("f")):
            storage.replace_atomic("f", b"old")
            (tmp_path / ".f.crc").write_bytes(b"crc of old")
            change()
            assert not (tmp_path / ".f.crc").exists()

    def test_schemes_of_local_paths(self, tmp_path):
        for root in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}", f"{tmp_path}/"):
            assert open_storage(root).uri("x") == f"file://{tmp_path}/x"


class TestS3(StorageContract):
    @pytest.fixture
    def storage(self, s3_folder):
        return s3_folder()

    def test_the_scheme_is_kept(self, storage):
        assert isinstance(storage, ObjectStorage)
        assert storage.root.startswith("s3a://")
        assert storage.uri("p=1/f").endswith("/lake/table/p=1/f")

    def test_a_range_inside_of_the_file_takes_no_request_for_its_size(self, storage, monkeypatch):
        storage.replace_atomic("f", b"0123456789")
        monkeypatch.setattr(ObjectStorage, "size", lambda *_: pytest.fail("the size was asked for"))
        assert storage.read_range("f", -3, 3) == b"789"
        assert storage.read_range("f", 8, 100) == b"89"

    def test_an_unreachable_store_is_a_storage_error(self, s3_options):
        away = open_storage("s3://b/t", {**s3_options, "fs.s3a.endpoint": "http://127.0.0.1:9", "aws_max_retries": "0"})
        with pytest.raises(StorageError, match="s3://b/t"):
            away.read("f")


@pytest.mark.peer("hdfs")
class TestHdfs(StorageContract):
    @pytest.fixture
    def storage(self, hdfs_folder):
        return hdfs_folder()

    def test_only_whole_files_have_a_name(self, storage):
        """Readers, and a writer that died, never leave a part under it; what is staged goes when the name is taken."""
        storage.create_exclusive("f", b"1")
        with pytest.raises(AlreadyExistsError):
            storage.create_exclusive("f", b"2")
        storage.replace_atomic("f", b"3")
        assert [file.path for file in storage.list_prefix("")] == ["f"]
        assert storage.read("f") == b"3"

    def test_large_files_are_read_from_any_place(self, storage):
        data = bytes(range(256)) * 20_000
        with storage.open_write("large") as out:
            for at in range(0, len(data), 777):
                out.write(data[at : at + 777])
            assert out.tell() == len(data)
        with storage.open_input("large") as source:
            assert source.size() == len(data)
            source.seek(len(data) - 5)
            assert source.read() == data[-5:]
            assert source.read() == b""
            assert source.read_at(10, 3_000_000) == data[3_000_000:3_000_010]
        assert storage.read("large") == data

    def test_an_unreachable_name_node_is_a_storage_error(self):
        away = open_storage("hdfs://127.0.0.1:9/t", {"spark.hadoop.dfs.client.failover.max.attempts": "1"})
        with pytest.raises(StorageError, match=r"hdfs://127\.0\.0\.1:9/t/f"):
            away.read("f")


@pytest.mark.parametrize(
    ("root", "server", "folder"),
    [
        ("hdfs://nn:8020/lake/t/", "hdfs://nn:8020", "/lake/t"),
        ("hdfs://nameservice", "hdfs://nameservice", ""),
        ("hdfs:///lake/t", None, "/lake/t"),
        ("hdfs:/lake/t", None, "/lake/t"),
        ("viewfs://cluster/lake", "viewfs://cluster", "/lake"),
    ],
)
def test_addresses_of_hdfs(root, server, folder):
    storage = open_storage(root)
    assert isinstance(storage, HdfsStorage)
    assert (storage._server, storage._folder) == (server, folder)
    assert storage.uri("p=1/f") == f"{root.rstrip('/')}/p=1/f"


def test_a_scheme_that_nobody_serves_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="ftp"):
        open_storage("ftp://host/table")
