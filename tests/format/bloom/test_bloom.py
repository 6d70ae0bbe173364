"""Bloom filters (format guide 5.5): the hash functions against plain spellings of them, bytes against Hudi's own."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.bloom import BloomBuilder, BloomFilter, BloomKind, HashKind, KeyHashes, StoredBloom
from skep_format.bloom.filter import BloomRow
from skep_format.errors import CorruptFileError, FormatError, KeyFieldError, OptionError, UnsupportedError
from tests.blooms import build_bloom

MASK = 0xFFFFFFFF
KEYS = st.text(min_size=1, max_size=40).filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text))


def murmur(key: bytes, seed: int) -> int:
    """Hadoop's MurmurHash, one key at a time."""
    m = 0x5BD1E995
    h = (seed ^ len(key)) & MASK
    for at in range(0, len(key) // 4 * 4, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & MASK
        k = (k ^ k >> 24) * m & MASK
        h = h * m & MASK ^ k
    signed = [byte - 256 if byte > 127 else byte for byte in key]
    left = len(key) % 4
    if left >= 3:
        h ^= signed[-3] << 16 & MASK
    if left >= 2:
        h ^= signed[-2] << 8 & MASK
    if left:
        h = (h ^ signed[-1] & MASK) * m & MASK
    h = (h ^ h >> 13) * m & MASK
    return h ^ h >> 15


def jenkins(key: bytes, seed: int) -> int:
    """Bob Jenkins' lookup3 (hashlittle), one key at a time."""

    def rotated(x: int, k: int) -> int:
        return (x << k | x >> 32 - k) & MASK

    a = b = c = (0xDEADBEEF + len(key) + seed) & MASK
    while len(key) > 12:
        a, b, c = ((x + y) & MASK for x, y in zip((a, b, c), struct.unpack("<III", key[:12]), strict=True))
        key = key[12:]
        for x, y, z in ((4, 6, 8), (16, 19, 4)):
            a = (a - c) & MASK ^ rotated(c, x)
            c = (c + b) & MASK
            b = (b - a) & MASK ^ rotated(a, y)
            a = (a + c) & MASK
            c = (c - b) & MASK ^ rotated(b, z)
            b = (b + a) & MASK
    a, b, c = ((x + y) & MASK for x, y in zip((a, b, c), struct.unpack("<III", key.ljust(12, b"\0")), strict=True))
    c = ((c ^ b) - rotated(b, 14)) & MASK
    a = ((a ^ c) - rotated(c, 11)) & MASK
    b = ((b ^ a) - rotated(a, 25)) & MASK
    c = ((c ^ b) - rotated(b, 16)) & MASK
    a = ((a ^ c) - rotated(c, 4)) & MASK
    b = ((b ^ a) - rotated(a, 14)) & MASK
    return ((c ^ b) - rotated(b, 24)) & MASK


def test_the_plain_spelling_of_jenkins_gives_the_published_values() -> None:
    assert jenkins(b"Four score and seven years ago", 0) == 0x17770551
    assert jenkins(b"Four score and seven years ago", 1) == 0xCD628161


class TestHashes:
    @given(st.lists(KEYS, max_size=30))
    @pytest.mark.parametrize(("kind", "plain"), [(HashKind.MURMUR, murmur), (HashKind.JENKINS, jenkins)])
    def test_all_keys_at_once_as_one_by_one(self, kind: HashKind, plain, keys: list[str]) -> None:
        hashes = KeyHashes(pa.array(keys, pa.string()))
        seeds = [0] * len(keys)
        for number in range(3):
            seeds = [plain(key.encode(), seed) for key, seed in zip(keys, seeds, strict=True)]
            assert hashes.round(kind, number).tolist() == seeds

    @given(st.lists(KEYS, min_size=1, max_size=8), st.integers(1, 2**31 - 1))
    def test_positions_are_javas_remainder_without_its_sign(self, keys: list[str], bits: int) -> None:
        got = KeyHashes(pa.array(keys)).positions(HashKind.MURMUR, 0, bits).tolist()
        signed = [h - 2**32 if h >= 2**31 else h for h in (murmur(key.encode(), 0) for key in keys)]
        assert got == [abs(h) % bits for h in signed]

    @pytest.mark.parametrize(
        "cut",
        [
            lambda a: a[3:],
            lambda a: pa.chunked_array([a[:2], a[2:2], a[2:]])[3:],
            lambda a: a.cast("large_string")[3:],
        ],
    )
    def test_slices_chunks_and_large_strings_hash_as_their_values(self, cut) -> None:
        keys = pa.array(["a", "bc", "def", "ghij", "klmno", "überlänge"])
        expected = KeyHashes(pa.array(["ghij", "klmno", "überlänge"])).round(HashKind.MURMUR, 5)
        assert KeyHashes(cut(keys)).round(HashKind.MURMUR, 5).tolist() == expected.tolist()

    @pytest.mark.parametrize("keys", [["a", None], ["a", ""]])
    def test_null_and_empty_keys_are_refused(self, keys: list[str | None]) -> None:
        with pytest.raises(KeyFieldError):
            KeyHashes(pa.array(keys))


class TestSimple:
    @given(st.lists(KEYS, min_size=1, max_size=50, unique=True))
    def test_holds_what_was_added_and_survives_text(self, keys: list[str]) -> None:
        built = build_bloom(pa.array(keys), "SIMPLE", entries=len(keys))
        again = BloomFilter.parse(built.to_base64(), built.type_code)
        assert again.to_bytes() == built.to_bytes()
        assert again.might_contain(pa.array(keys)).to_pylist() == [True] * len(keys)

    def test_sizes_follow_entries_and_rate(self) -> None:
        row = build_bloom(pa.array(["k"]), "SIMPLE", entries=60_000, fpp=1e-9).rows[0]
        assert (row.k, row.m, len(row.bits)) == (30, 2_587_966, 323_496)

    def test_absent_keys_are_distinguished_at_the_promised_rate(self) -> None:
        present = pa.array([f"in-{i}" for i in range(20_000)])
        absent = pa.array([f"out-{i}" for i in range(50_000)])
        built = build_bloom(present, "SIMPLE", entries=20_000, fpp=0.01)
        assert built.might_contain(absent).true_count < 50_000 * 0.013

    def test_a_filter_from_before_versions_hashes_with_jenkins(self) -> None:
        bits = np.zeros(1000, np.bool_)
        h = 0
        for _ in range(4):
            h = jenkins(b"key", h)
            bits[abs(h - 2**32 if h >= 2**31 else h) % 1000] = True
        data = struct.pack(">ii", 4, 1000) + np.packbits(bits, bitorder="little").tobytes()
        old = BloomFilter.parse(base64.b64encode(data))
        assert old.might_contain(pa.array(["key", "other"])).to_pylist() == [True, False]
        assert old.to_bytes() == data


class TestDynamic:
    def test_header_of_the_guides_vector(self) -> None:
        built = build_bloom(pa.array(["k0", "k2", "k4"]))
        header = bytes.fromhex("ffffffff0000001e0100277d3e0000ea600000000300000001ffffffff0000001e0100277d3e")
        assert built.to_bytes().startswith(header)

    def test_rows_grow_to_the_maximum_then_keys_go_round(self) -> None:
        keys = [f"key-{i}" for i in range(100)]
        built = build_bloom(pa.array(keys), entries=10, fpp=1e-6, max_entries=25)
        # 10 keys a row, a third row since 20 < 25; key 30 and 31 to row 0, 32 to row 1, 33 to row 2, 34 to row 0 …
        turns = [i // 10 if i < 30 else max(0, i - 31) % 3 for i in range(100)]
        expected = []
        for row in range(3):
            mine = [key for key, turn in zip(keys, turns, strict=True) if turn == row]
            expected.append(build_bloom(pa.array(mine), "SIMPLE", entries=10, fpp=1e-6).to_bytes())
        assert [row.to_bytes() for row in built.rows] == expected
        assert (built.capacity, built.last_row_keys) == (10, 80)

    @given(st.lists(KEYS, min_size=9, max_size=12))
    def test_few_keys_are_hashed_as_many(self, keys: list[str]) -> None:
        many = KeyHashes(pa.array(keys))
        for at, key in enumerate(keys):
            alone = KeyHashes(pa.array([key]))
            assert [int(alone.round(HashKind.MURMUR, n)[0]) for n in range(3)] == [
                int(many.round(HashKind.MURMUR, n)[at]) for n in range(3)
            ]

    @pytest.mark.parametrize("length", [1, 4, 7, 12])
    def test_keys_of_one_length_are_hashed_as_others(self, length: int) -> None:
        keys = [f"{at:0{length}d}"[-length:] for at in range(10)]
        got = KeyHashes(pa.array(["first", *keys, "last"])[1:-1]).round(HashKind.MURMUR, 0).tolist()
        assert got == [murmur(key.encode(), 0) for key in keys]

    @pytest.mark.parametrize("kind", list(BloomKind))
    @pytest.mark.parametrize("batch", [1, 7, 1000])
    @pytest.mark.parametrize("count", [0, 1, 100, 125, 126, 1000, 1001])
    def test_few_keys_may_have_a_filter_of_their_size(self, count: int, batch: int, kind: BloomKind) -> None:
        """At the same rate of false positives; from an eighth of the entries on it is Hudi's."""
        keys = pa.array([f"key-{at}" for at in range(count)], pa.string())
        builder = BloomBuilder(kind, entries=1000, fits=True)
        for at in range(0, count, batch):
            builder.add(keys[at : at + batch])
        made = BloomFilter.parse(builder.finish().to_base64(), kind.value, path="a file")
        wanted = build_bloom(keys, kind.value, entries=max(count, 100) if count <= 125 else 1000)
        assert made.to_bytes() == wanted.to_bytes()
        assert made.might_contain(keys).to_pylist() == [True] * count
        assert not BloomBuilder(kind, entries=1000).resume(made) or count > 125

    def test_a_filter_is_the_same_whatever_the_batches_in_which_its_keys_come(self) -> None:
        keys = pa.array([f"k{number}" for number in range(400)])
        one_by_one = BloomBuilder(entries=300, max_entries=600)
        for at in range(len(keys)):
            one_by_one.add(keys.slice(at, 1))
        assert one_by_one.finish().to_bytes() == build_bloom(keys, entries=300, max_entries=600).to_bytes()

    @given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 30), st.integers(1, 60))
    def test_batches_do_not_matter(self, sizes: list[int], entries: int, maximum: int) -> None:
        keys = pa.array([f"k{i}" for i in range(sum(sizes))])
        builder = BloomBuilder(BloomKind.DYNAMIC_V0, entries, 1e-3, maximum)
        at = 0
        for size in sizes:
            builder.add(keys[at : at + size])
            at += size
        whole = build_bloom(keys, entries=entries, fpp=1e-3, max_entries=maximum)
        assert builder.finish().to_bytes() == whole.to_bytes()
        again = BloomFilter.parse(whole.to_base64(), "DYNAMIC_V0")
        assert again.to_bytes() == whole.to_bytes()
        assert all(again.might_contain(keys).to_pylist())


class TestStored:
    """Filters that go from one footer into the next: their bits are decoded when a key is added."""

    @pytest.mark.parametrize("kind", list(BloomKind))
    @pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (700, 0), (700, 1), (250, 900), (0, 40)])
    def test_it_goes_on_as_if_all_keys_were_added(self, kind: BloomKind, before: int, after: int) -> None:
        keys = pa.array([f"key-{at}" for at in range(before + after)], pa.string())
        how = {"entries": 200, "fpp": 1e-3, "max_entries": 600}
        first = build_bloom(keys[:before], kind.value, **how)
        stored = StoredBloom(first.to_base64(), kind.value)
        builder = BloomBuilder(kind, 200, 1e-3, 600)
        assert builder.resume(stored.without_bits(), stored)
        builder.add(keys[before:])
        made, whole = builder.finished(), build_bloom(keys, kind.value, **how)
        assert made.to_base64() == builder.finish().to_base64() == whole.to_base64()
        assert made.type_code == whole.type_code or kind is BloomKind.SIMPLE
        assert isinstance(made, StoredBloom) == (not after)

    def test_of_another_size_is_left_alone(self) -> None:
        stored = StoredBloom(build_bloom(pa.array(["a"]), entries=200).to_base64(), "DYNAMIC_V0")
        assert not BloomBuilder(entries=300).resume(stored.without_bits(), stored)

    @given(st.lists(st.text("abc", min_size=1), max_size=30), st.integers(1, 12), st.integers(1, 30))
    def test_its_headers_are_those_of_the_filter(self, keys: list[str], entries: int, maximum: int) -> None:
        whole = build_bloom(pa.array(keys, pa.string()), entries=entries, fpp=1e-2, max_entries=maximum)
        found = StoredBloom(whole.to_base64(), "DYNAMIC_V0").without_bits()
        assert (found.keys, found.capacity, found.last_row_keys) == (whole.keys, whole.capacity, whole.last_row_keys)
        assert [row.header() for row in found.rows] == [row.header() for row in whole.rows]
        assert not any(len(row.bits) for row in found.rows)

    @given(st.data())
    def test_damage_is_noticed_as_by_decoding_it(self, data: st.DataObject) -> None:
        text = build_bloom(pa.array(["a", "b", "c"]), entries=2, fpp=1e-2, max_entries=4).to_base64()
        at = data.draw(st.integers(0, len(text) - 1))
        cut = data.draw(st.sampled_from([text[:at], text[:at] + text[at + 1 :], text + text[at:]]))
        other = data.draw(st.sampled_from([b"A", b"=", b"!", b"\n", b"\xe9", b"/"]))
        for damaged in (cut, text[:at] + other + text[at + 1 :]):
            stored = StoredBloom(damaged, "DYNAMIC_V0", "f.parquet")
            try:
                wanted: BloomFilter | None = stored.parsed()
            except CorruptFileError:
                wanted = None
            if wanted is None:
                with pytest.raises(CorruptFileError, match=r"f\.parquet"):
                    stored.without_bits()
            else:
                assert stored.without_bits().keys == wanted.keys


def footers(golden: Path) -> list[tuple[Path, str, str | None]]:
    found = []
    for path in sorted(golden.glob("*/*/table/**/*.parquet")):
        facts = pq.read_metadata(path).metadata or {}
        if text := facts.get(b"org.apache.hudi.bloomfilter"):
            code = facts.get(b"hoodie_bloom_filter_type_code")
            found.append((path, text.decode(), code.decode() if code else None))
    return found


def test_every_footer_is_rebuilt_bit_by_bit_from_its_keys(golden: Path) -> None:
    every = footers(golden)
    assert len(every) > 500
    for path, text, code in every[::4]:
        keys = pq.read_table(path, columns=["_hoodie_record_key"])[0]
        read = BloomFilter.parse(text, code, path=str(path))
        assert read.to_base64().decode() == text
        assert build_bloom(keys, read.kind.value, entries=read.capacity).to_base64().decode() == text, path


@pytest.fixture
def footer(golden: Path) -> tuple[str, str | None]:
    _, text, code = footers(golden)[0]
    return text, code


class TestHostile:
    def test_cut_anywhere_is_corrupt(self, footer: tuple[str, str | None]) -> None:
        data = base64.b64decode(footer[0])
        for size in (*range(60), len(data) // 2, len(data) - 1):
            with pytest.raises(CorruptFileError) as problem:
                BloomFilter.parse(base64.b64encode(data[:size]), footer[1], path="p/f.parquet")
            assert problem.value.fields["path"] == "p/f.parquet"
            assert "offset" in problem.value.fields

    def test_flipped_header_bits_never_hang_or_crash(self, footer: tuple[str, str | None]) -> None:
        data = base64.b64decode(footer[0])
        keys = pa.array(["a", "b"])
        for bit in range(38 * 8):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            try:
                BloomFilter.parse(base64.b64encode(broken), footer[1]).might_contain(keys)
            except FormatError:
                continue

    @pytest.mark.parametrize(
        "text", ["", "ÄÖ", "abc", "!!!!", "////", base64.b64encode(struct.pack(">ii", 3, -5)).decode()]
    )
    def test_texts_that_are_no_filter(self, text: str) -> None:
        with pytest.raises(CorruptFileError):
            BloomFilter.parse(text)

    def test_bytes_behind_the_end_are_corrupt(self, footer: tuple[str, str | None]) -> None:
        data = base64.b64decode(footer[0]) + b"\0"
        with pytest.raises(CorruptFileError, match="after the end"):
            BloomFilter.parse(base64.b64encode(data), footer[1])

    def test_an_unknown_type_is_unsupported(self, footer: tuple[str, str | None]) -> None:
        with pytest.raises(UnsupportedError, match="DYNAMIC_V7"):
            BloomFilter.parse(footer[0], "DYNAMIC_V7", path="f")

    @pytest.mark.parametrize(("entries", "fpp"), [(0, 0.1), (10, 0.0), (10, 1.0), (2**31, 1e-9)])
    def test_impossible_sizes_are_refused(self, entries: int, fpp: float) -> None:
        with pytest.raises(OptionError):
            BloomBuilder(BloomKind.SIMPLE, entries, fpp)


def test_an_empty_batch_asks_and_adds_nothing() -> None:
    built = build_bloom(pa.array([], pa.string()))
    assert len(built.might_contain(pa.array([], pa.string()))) == 0
    assert isinstance(built.rows[0], BloomRow)
    assert not built.rows[0].bits.any()


@given(st.binary(max_size=80), st.sampled_from([None, "SIMPLE", "DYNAMIC_V0"]))
def test_any_bytes_are_a_filter_or_a_format_error(data: bytes, code: str | None) -> None:
    try:
        parsed = BloomFilter.parse(base64.b64encode(data), code)
    except FormatError:
        return
    parsed.might_contain(pa.array(["key"]))
