"""HFiles (format guide 7.5): what is printed is read back, Hudi's own files are read whole, damage is noticed."""

import base64
import io
import itertools
import random
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format import protobuf
from skep_format.errors import CorruptFileError, FormatError, UnsupportedError
from skep_format.hfile import HFile, HFileWriter, StorageSource, format_hfile, layout, reader
from skep_format.hfile.layout import Codec
from skep_format.storage import LocalStorage


def written(entries, info=None, **options):
    keys, values = ([pair[at] for pair in entries] for at in (0, 1))
    return format_hfile(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), info, **options)


def pairs(*batches):
    return [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


entries_of = st.dictionaries(st.binary(max_size=200), st.binary(max_size=300), max_size=60).map(
    lambda pairs: sorted(pairs.items())
)


@given(entries_of, st.sampled_from([Codec.GZ, Codec.NONE]), st.integers(1, 2000))
def test_entries_come_back_as_they_were(entries, codec, block_bytes):
    file = HFile(written(entries, {"schema": b"{}"}, codec=codec, block_bytes=block_bytes), "f.hfile")
    assert pairs(*file.scan()) == entries
    assert file.num_entries == len(entries)
    assert file.schema_text == "{}"
    assert pairs(file.get(pa.array([key for key, _ in reversed(entries)], pa.binary()))) == entries
    assert pairs(file.get(pa.array([b"\xff" * 201, b"\xff" * 201]))) == []


@given(entries_of, st.binary(max_size=2))
def test_a_prefix_finds_its_keys_only(entries, prefix):
    file = HFile(written(entries, block_bytes=50), "f.hfile")
    assert pairs(file.scan_prefix(prefix)) == [(key, value) for key, value in entries if key.startswith(prefix)]


@given(entries_of, st.integers(1, 2000), st.integers(1, 7))
def test_a_file_that_is_written_piece_by_piece_is_the_same(entries, block_bytes, piece):
    sink = io.BytesIO()
    writer = HFileWriter(sink, {"schema": b"{}"}, block_bytes=block_bytes)
    for at in range(0, len(entries), piece):
        keys, values = ([pair[number] for pair in entries[at : at + piece]] for number in (0, 1))
        writer.add(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    writer.close()
    assert sink.getvalue() == written(entries, {"schema": b"{}"}, block_bytes=block_bytes)
    assert (writer.entries, writer.size_bytes) == (len(entries), len(sink.getvalue()))


@pytest.mark.parametrize("repeats", [False, True])
def test_large_values_come_back_and_take_few_bytes(repeats):
    """As the text of few bits, which repeats nothing, or of names that do."""
    some = random.Random(5)
    bits = bytes(1 << some.randrange(8) if some.random() < 0.4 else 0 for _ in range(3 << 16))
    value = b"a name that is there again " * 10_000 if repeats else base64.b64encode(bits)
    entries = [(b"a", value), (b"b", b"small")]
    data = written(entries)
    assert pairs(*HFile(data, "f.hfile").scan()) == entries
    assert len(data) < (0.05 * len(value) if repeats else 0.95 * len(zlib.compress(value, 1)))


def test_pieces_ascend_too():
    writer = HFileWriter(io.BytesIO())
    writer.add(pa.array([b"b"]), pa.array([b""]))
    with pytest.raises(ValueError, match="ascend"):
        writer.add(pa.array([b"a"]), pa.array([b""]))


@given(entries_of, st.binary(max_size=2))
def test_whether_there_is_a_prefix(entries, prefix):
    file = HFile(written(entries, block_bytes=50), "f.hfile")
    assert file.has_prefix(prefix) == any(key.startswith(prefix) for key, _ in entries)


@given(st.integers(0, 2**63 - 1))
def test_integers_of_both_kinds_come_back(value):
    for print_number, read in (
        (protobuf.format_varint, protobuf.read_varint),
        (layout.format_vlong, layout.read_vlong),
    ):
        data = print_number(value)
        assert read(b"x" + data, 1) == (value, len(data) + 1)


@pytest.mark.parametrize("length", [*range(130), 142, 143, 200, 270, 5000])
@pytest.mark.parametrize("tail", [layout.KEY_TAIL, b""])
def test_index_keys_are_read_in_either_spelling_of_their_length(length, tail):
    key = layout.ROW_LENGTH.pack(length) + b"k" * length + tail
    for print_number in (protobuf.format_varint, layout.format_vlong):
        data = print_number(len(key)) + key + b"following bytes" * 1000
        assert layout.index_key(data, 0)[0] == b"k" * length


def test_keys_must_ascend():
    with pytest.raises(ValueError, match="ascend"):
        written([(b"b", b""), (b"a", b"")])
    with pytest.raises(ValueError, match="ascend"):
        written([("\U00010000".encode(), b""), ("\uffff".encode(), b"")])
    with pytest.raises(ValueError, match="ascend"):
        written([(b"a", b""), (b"b", b""), (b"b", b"")])


def test_keys_longer_than_java_reads_are_refused():
    assert pairs(*HFile(written([(b"k" * 32_767, b"v")]), "f.hfile").scan()) == [(b"k" * 32_767, b"v")]
    with pytest.raises(ValueError, match="32768"):
        written([(b"k" * 32_768, b"v")])


def test_keys_and_values_come_in_pairs():
    for keys, values in ((["a"], []), ([None], ["x"]), (["a"], [None])):
        with pytest.raises(ValueError, match="nulls"):
            format_hfile(pa.array(keys, pa.string()), pa.array(values, pa.string()))


@pytest.mark.parametrize("mvcc", [b"\x00", b"\x07", b"\x8f\x99"])
def test_entries_are_found_whatever_lies_between_them(mvcc):
    """Values with the form of entries, and versions behind the values, which HBase itself may write."""
    inner = written([(b"a", b"1"), (b"b", b"2")], codec=Codec.NONE)
    entries = [(b"x", b""), (b"y", inner), (b"z", b"\x00" * 50)]
    block = b"".join(
        layout.KEY_VALUE.pack(12 + len(key), len(value)) + layout.ROW_LENGTH.pack(len(key)) + key + layout.KEY_TAIL
        + value + mvcc
        for key, value in entries
    )  # fmt: skip
    bounds = reader._entry_bounds(block)
    assert [(block[a:b], block[c:d]) for a, b, c, d in bounds.tolist()] == entries


@pytest.fixture(scope="module")
def real_files(golden):
    files = sorted(golden.rglob("*.hfile"))
    assert len(files) >= 10
    return files


def test_files_that_hudi_wrote_are_read_whole(real_files):
    for path in real_files:
        storage = LocalStorage(str(path.parent))
        file = HFile(StorageSource(storage, path.name), path.name)
        entries = pairs(*file.scan())
        assert len(entries) == file.num_entries
        assert [key for key, _ in entries] == sorted(key for key, _ in entries)
        assert all(pairs(file.get(pa.array([key]))) == [(key, value)] for key, value in entries[:50])
        assert pairs(file.get(pa.array([key for key, _ in entries[::2]], pa.binary()))) == entries[::2]


def test_a_cut_file_is_an_error(real_files):
    for path in real_files[:4]:
        data = path.read_bytes()
        for keep in {0, 1, 100, len(data) // 2, len(data) - layout.TRAILER_BYTES, len(data) - 1}:
            with pytest.raises(FormatError, match="hfile"):
                list(HFile(data[:keep], path.name).scan())


def test_flipped_bits_are_noticed_or_do_not_matter(real_files):
    """Never other entries without an error. (Hudi 1.1 guards uncompressed files by nothing: these are left out.)"""
    chance = random.Random(7)
    guarded = [path for path in real_files if not (".bootstrap" in str(path) and "1.1.1" in str(path))]
    for path in guarded[:8]:
        data = path.read_bytes()
        right = pairs(*HFile(data, path.name).scan())
        for position in itertools.chain(range(40), (chance.randrange(len(data)) for _ in range(150))):
            assert entries_or_error(flipped(data, position, chance.randrange(8)), path.name) in (right, None)


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def entries_or_error(data: bytes, name: str):
    """None for an error that names the file; any other error fails the test."""
    try:
        return pairs(*HFile(data, name).scan())
    except (CorruptFileError, UnsupportedError) as error:
        return None if name in error.message else error
