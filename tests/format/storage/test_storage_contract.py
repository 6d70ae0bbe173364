"""What every storage promises (`Storage`), stated once and run on each: local files, S3 on moto's server, HDFS."""

import contextlib
import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_storage import CountingStorage

from skep_format.errors import AlreadyExistsError, StorageError, UnsupportedError
from skep_format.storage import (
    AppendingStorage,
    FolderListing,
    FolderStorage,
    HdfsStorage,
    LocalStorage,
    ObjectStorage,
    open_storage,
)


class StorageContract:
    """Subclasses give `storage`, an empty one."""

    def test_bytes_come_back_whole_and_by_range(self, storage):
        storage.replace_atomic("a/b.bin", b"0123456789")
        assert storage.read("a/b.bin") == b"0123456789"
        assert storage.size("a/b.bin") == 10
        assert storage.read_range("a/b.bin", 2, 3) == b"234"
        assert storage.read_range("a/b.bin", 8, 100) == b"89"
        assert storage.read_range("a/b.bin", 100, 1) == b""
        assert storage.read_range("a/b.bin", 3, 0) == b""
        assert storage.read_suffix("a/b.bin", 3) == b"789"
        assert storage.read_suffix("a/b.bin", 10) == storage.read_suffix("a/b.bin", 100) == b"0123456789"
        assert storage.read_suffix("a/b.bin", 0) == b""
        storage.replace_atomic("empty", b"")
        assert storage.read_suffix("empty", 5) == storage.read_range("empty", 0, 5) == b""

    def test_the_status_of_a_file_is_what_a_listing_shows(self, storage):
        for name in ("f/a", "f/ab", "f/abc", "top"):
            storage.create_exclusive(name, name.encode())
        for name in ("f/a", "f/ab", "f/abc", "top"):
            (listed,) = [file for file in storage.list_prefix(name.rpartition("/")[0]) if file.path == name]
            assert storage.status(name) == listed
        for missing in ("f/aa", "f/abcd", "f/A", "nowhere/f", "zzz"):
            with pytest.raises(FileNotFoundError):
                storage.status(missing)

    def test_what_is_known_of_files_does_not_hide_which_are_there(self, storage):
        for name in ("f/a", "f/b", "f/c"):
            storage.create_exclusive(name, b"1")
        known = storage.list_folder("f").files
        storage.delete("f/b")
        storage.create_exclusive("f/d", b"22")
        assert storage.list_folder("f", known=known) == storage.list_folder("f")
        assert [file.path for file in storage.list_folder("f", known=known).files] == ["f/a", "f/c", "f/d"]

    def test_an_opened_file_reads_alike_with_and_without_its_size(self, storage):
        data = bytes(range(251)) * 4_000  # longer than what is fetched of the end at once
        storage.replace_atomic("f", data)
        for size in (None, len(data)):
            with storage.open_input("f", size=size) as file:
                assert file.size() == len(data)
                assert file.read_at(7, 3) == data[3:10]
                assert file.read_at(1_000, len(data) - 600) == data[-600:]
                assert file.read_at(20, len(data) - 524_300) == data[-524_300:][:20]
                file.seek(len(data) - 5)
                assert file.read() == data[-5:]
                file.seek(0)
                assert file.read() == data

    def test_what_is_not_there_is_file_not_found(self, storage):
        for call in (
            storage.read,
            storage.size,
            storage.open_input,
            lambda path: storage.open_input(path, size=9).read(),
            lambda path: storage.read_range(path, 0, 1),
            lambda path: storage.read_suffix(path, 1),
        ):
            with pytest.raises(FileNotFoundError):
                call("nothing/here")
        assert not storage.exists("nothing/here")
        storage.delete("nothing/here")
        storage.delete_many(["nothing/here", "nothing/else"])
        storage.delete_folder("nothing")
        assert storage.list_prefix("nothing", recursive=True) == []
        assert storage.list_folder("nothing") == FolderListing([], [])

    def test_listings_are_sorted_and_relative_to_the_root(self, storage):
        for path in ("p=2/b", "p=1/c", "p=1/a", "p=1/deep/er", "top", "p=1é x/odd"):
            storage.replace_atomic(path, path.encode())
        assert [file.path for file in storage.list_prefix("p=1")] == ["p=1/a", "p=1/c"]
        assert [file.path for file in storage.list_prefix("")] == ["top"]
        every = storage.list_prefix("", recursive=True)
        assert [file.path for file in every] == sorted(["p=2/b", "p=1/c", "p=1/a", "p=1/deep/er", "top", "p=1é x/odd"])
        assert {file.name: file.size_bytes for file in every}["er"] == len("p=1/deep/er")
        assert all(file.modified_ms > 1_700_000_000_000 for file in every)
        assert storage.list_folder("") == FolderListing(storage.list_prefix(""), ["p=1", "p=1é x", "p=2"])
        assert storage.list_folder("p=1") == FolderListing(storage.list_prefix("p=1"), ["deep"])
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

    def test_a_stream_is_complete_after_the_block_and_deleted_after_an_error(self, storage):
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

    def test_a_file_grows_where_the_storage_has_that(self, storage):
        if not isinstance(storage, AppendingStorage):
            assert not isinstance(storage, (LocalStorage, HdfsStorage))
            return
        with storage.open_write("a/grows") as file:
            file.write(b"one")
        with storage.open_append("a/grows") as file:
            file.write(b"two")
        with contextlib.suppress(ValueError), storage.open_append("a/grows") as file:
            file.write(b"three")
            raise ValueError("stop")
        storage.sync(["a/grows"])
        assert storage.read("a/grows")[:6] == b"onetwo"
        assert storage.size("a/grows") == len(storage.read("a/grows"))
        with pytest.raises(FileNotFoundError), storage.open_append("a/missing"):
            pass
        assert not storage.exists("a/missing")

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
        storage.delete("dd")
        assert storage.list_prefix("", recursive=True) == []

    @pytest.mark.parametrize("durable", [True, False])
    def test_many_files_are_deleted_and_missing_ones_are_no_error(self, storage, durable):
        names = [f"d{n % 3}/é {n}" for n in range(9)]
        for name in (*names, "d1/kept", "top"):
            storage.replace_atomic(name, b"")
        storage.delete_many([*names, "d7/never", "top"], durable=durable)
        assert [file.path for file in storage.list_prefix("", recursive=True)] == ["d1/kept"]
        storage.delete_many([], durable=durable)

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

    def test_of_many_files_those_that_cannot_be_deleted_are_named_and_the_others_deleted(self, storage, tmp_path):
        for name in ("a", "c", "stuck/inside"):
            storage.replace_atomic(name, b"")
        with pytest.raises(StorageError, match=r"1 of 3 files .* could not be deleted \(stuck\)") as caught:
            storage.delete_many(["a", "stuck", "c"])  # a folder is no file
        assert caught.value.fields["paths"] == ("stuck",)
        assert [file.path for file in storage.list_prefix("", recursive=True)] == ["stuck/inside"]

    def test_a_deleted_folder_is_synced_again_when_it_is_recreated(self, tmp_path, monkeypatch):
        from skep_format.storage import local

        inner = LocalStorage(str(tmp_path / "lake/db/t"))
        inner.create_exclusive("p/f", b"")
        LocalStorage(str(tmp_path)).delete_folder("lake")
        synced = []
        monkeypatch.setattr(local, "_sync", lambda place: synced.append(place))
        inner.create_exclusive("p/f", b"")
        assert {tmp_path, tmp_path / "lake", tmp_path / "lake/db", tmp_path / "lake/db/t"} <= set(synced)


class TestFolderOfLocal(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path):
        outer = LocalStorage(str(tmp_path))
        outer.replace_atomic("beside", b"")
        return FolderStorage(outer, "in/ner")


class TestFolderOfS3(StorageContract):
    @pytest.fixture
    def storage(self, s3_folder):
        outer = s3_folder()
        outer.replace_atomic("beside", b"")
        return FolderStorage(outer, "in/ner")


class TestCounting(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path):
        return CountingStorage(LocalStorage(str(tmp_path)))


class TestS3(StorageContract):
    @pytest.fixture
    def storage(self, s3_folder):
        return s3_folder()

    def test_the_scheme_is_kept(self, storage):
        assert isinstance(storage, ObjectStorage)
        assert storage.root.startswith("s3a://")
        assert storage.uri("p=1/f").endswith("/lake/table/p=1/f")

    @pytest.mark.parametrize(
        ("call", "requests"),
        [
            (lambda storage: storage.read_suffix("f", 3), {"GET": 1}),
            (lambda storage: storage.read_suffix("f", 100), {"GET": 1}),
            (lambda storage: storage.read_range("f", 8, 100), {"GET": 1}),
            (lambda storage: storage.open_input("f", size=10).read(), {"GET": 1}),
            (lambda storage: storage.open_input("f").read(), {"GET": 1}),
            (lambda storage: storage.list_folder(""), {"LIST": 1}),
            (lambda storage: storage.delete("f"), {"POST": 1}),
            (lambda storage: storage.delete("nothing"), {"POST": 1}),
            (lambda storage: storage.delete_many([f"{n}" for n in range(1_500)]), {"POST": 2}),
        ],
    )
    def test_requests_of_a_call(self, storage, s3_requests, call, requests):
        storage.replace_atomic("f", b"0123456789")
        s3_requests.clear()
        call(storage)
        assert s3_requests.counts() == requests

    def test_the_end_of_a_large_file_is_one_request(self, storage, s3_requests):
        data = bytes(range(251)) * 4_000
        storage.replace_atomic("f", data)
        s3_requests.clear()
        with storage.open_input("f", size=len(data)) as file:
            for back in (8, 400_000, 60_000):
                assert file.read_at(8, len(data) - back) == data[-back:][:8]
        assert s3_requests.counts() == {"GET": 1}

    def test_of_many_objects_those_that_cannot_be_deleted_are_named(self, storage, s3_options):
        away = open_storage("s3://b/t", {**s3_options, "fs.s3a.endpoint": "http://127.0.0.1:9", "aws_max_retries": "0"})
        with pytest.raises(StorageError, match="2 of 2 files below s3://b/t") as caught:
            away.delete_many(["a", "b"])
        assert caught.value.fields["paths"] == ("a", "b")

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
