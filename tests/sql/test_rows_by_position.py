"""Statements on copy-on-write tables change the rows that they have read, by their positions in the base files: nothing
is looked up by key, and of several rows with one key those change that the statement is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.handles.by_path import open_table
from skep.handles.table import Table
from skep_format.basefile import OpenBaseFile
from skep_format.errors import InputError
from skep_format.names import BaseFormat
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import POSITION
from skep_table.query import ReadRequest, read
from skep_table.query.filters.among import OneOf
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.local import LocalWriter
from tests.tables_at import create_at

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("word", pa.string()), ("part", pa.string())])
Row = dict[str, Any]
SMALL_GROUPS = {"hoodie.parquet.block.size": "3000"}


def rows(ids: list[int], n: int | None = None, word: str = "a") -> pa.Table:
    made = [{"id": at, "n": at if n is None else n, "word": word, "part": f"p{at % 2}"} for at in ids]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def make(path: Path, options: dict[str, str] | None = None, **spec: Any) -> Table:
    return create_at(str(path), SCHEMA, options or {}, key="id", partition_by="part", **spec)


def stored(table: Table) -> list[Row]:
    found = table.read(columns=SCHEMA.names).to_arrow().to_pylist()
    return sorted(found, key=lambda each: (each["id"], each["n"], each["word"]))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.just("delete"), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.just("merge"), st.lists(st.integers(0, 400), unique=True, max_size=40), st.integers(0, 6)),
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 400), unique=True, min_size=1, max_size=40)),
    ),
    max_size=5,
)


def step(table: Table, model: dict[int, Row], what: tuple[Any, ...], number: int) -> None:
    match what:
        case ("update", by, left):
            table.update(set={"n": "n + 7", "word": f"'u{number}'"}, where=f"n % 7 = {left} and id % 7 <> {by}")
            for each in model.values():
                if each["n"] % 7 == left and each["id"] % 7 != by:
                    each.update(n=each["n"] + 7, word=f"u{number}")
        case ("delete", by, left):
            table.delete(where=f"id % 7 = {by} and n % 7 <> {left}")
            for each in [each for each in model.values() if each["id"] % 7 == by and each["n"] % 7 != left]:
                del model[each["id"]]
        case ("merge", ids, left):
            merge = table.merge(rows(ids, n=number, word="m"), on="id").when_matched_delete(f"target.n % 7 = {left}")
            merge.when_matched_update({"word": "source.word"}).when_not_matched_insert_all().execute()
            for each in rows(ids, n=number, word="m").to_pylist():
                known = model.get(each["id"])
                if known is None:
                    model[each["id"]] = each
                elif known["n"] % 7 == left:
                    del model[each["id"]]
                else:
                    known["word"] = "m"
        case ("upsert", ids):
            table.upsert(rows(ids, n=number, word="x"))
            model.update({each["id"]: each for each in rows(ids, n=number, word="x").to_pylist()})


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=STEPS)
def test_histories_of_files_with_many_row_groups(
    todo: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = make(tmp_path_factory.mktemp("t") / "t", SMALL_GROUPS)
    table.bulk_insert(rows(list(range(300))))
    model = {each["id"]: each for each in rows(list(range(300))).to_pylist()}
    for number, what in enumerate(todo, 1):
        step(table, model, what, number)
        assert stored(table) == [model[at] for at in sorted(model)], what


def test_row_groups_of_which_a_filter_leaves_a_part(tmp_path: Path) -> None:
    """Row groups so large that the other columns are read of the rows left alone."""
    table = make(tmp_path / "t", {"hoodie.parquet.block.size": "1000000"})
    ids = list(range(60_000))
    table.bulk_insert(rows(ids))
    assert table.update(set={"word": "'u'"}, where="n % 501 = 5").updated == len(range(5, 60_000, 501))
    assert table.delete(where="n > 20000 and n < 20010").deleted == 9
    expected = [
        {"id": at, "n": at, "word": "u" if at % 501 == 5 else "a", "part": f"p{at % 2}"}
        for at in ids
        if not 20000 < at < 20010
    ]
    assert stored(table) == expected


def test_no_key_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the key column is read")

    table = make(tmp_path / "t", SMALL_GROUPS)
    table.bulk_insert(rows(list(range(300))))
    monkeypatch.setattr(OpenBaseFile, "text_among", fail)
    table.update(set={"word": "'u'"}, where="n = 11")
    table.delete(where="n = 12")
    table.merge(rows([13, 14], word="m"), on="id").when_matched_update({"word": "source.word"}).execute()
    found = {each["id"]: each["word"] for each in stored(table)}
    assert [found.get(at) for at in range(10, 16)] == ["a", "u", None, "m", "m", "a"]
    assert len(found) == 299


def test_positions_in_an_earlier_version_of_a_file_are_not_used(tmp_path: Path) -> None:
    """A caller's function may return rows that it has read before: they are found by key then."""
    table = make(tmp_path / "t")
    table.bulk_insert(rows(list(range(20))))
    columns = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name", POSITION)
    before = read(table.hudi, ReadRequest(columns=columns, where="n = 8", positions=True)).to_arrow()
    table.delete(where="n < 6")
    LocalWriter(table.hudi).delete_computed(lambda _: before)
    assert [each["id"] for each in stored(table)] == [6, 7, *range(9, 20)]


class TestRowsOfOneKey:
    """Rows that were inserted without a look-up of their keys."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        table = make(tmp_path / "t")
        table.bulk_insert(pa.concat_tables([rows([2, 4], n=1), rows([2, 4], n=2), rows([6], n=3)]))
        return table

    def found(self, table: Table) -> list[tuple[int, int, str]]:
        return [(each["id"], each["n"], each["word"]) for each in stored(table)]

    def test_one_is_updated(self, table: Table) -> None:
        table.update(set={"word": "'u'"}, where="n = 2 and id = 2")
        assert self.found(table) == [(2, 1, "a"), (2, 2, "u"), (4, 1, "a"), (4, 2, "a"), (6, 3, "a")]

    def test_all_are_updated(self, table: Table) -> None:
        table.update(set={"word": "'u'"}, where="id <= 4")
        assert [word for *_, word in self.found(table)] == ["u", "u", "u", "u", "a"]

    def test_one_is_deleted(self, table: Table) -> None:
        table.delete(where="n = 2")
        assert self.found(table) == [(2, 1, "a"), (4, 1, "a"), (6, 3, "a")]

    def test_all_are_deleted(self, table: Table) -> None:
        table.delete(where="id = 2")
        assert self.found(table) == [(4, 1, "a"), (4, 2, "a"), (6, 3, "a")]

    def test_all_that_match_are_merged(self, table: Table) -> None:
        merge = table.merge(rows([2, 8], n=9, word="m"), on="id").when_matched_update({"word": "source.word"})
        merge.when_not_matched_insert_all().execute()
        assert self.found(table) == [(2, 1, "m"), (2, 2, "m"), (4, 1, "a"), (4, 2, "a"), (6, 3, "a"), (8, 9, "m")]


@pytest.mark.parametrize("where", [None, "n < 30 or n = 77", "n >= 290"])
def test_positions_are_those_in_the_files(tmp_path: Path, where: str | None) -> None:
    table = make(tmp_path / "t", SMALL_GROUPS)
    table.bulk_insert(rows(list(range(300))))
    columns = ("_hoodie_file_name", "id", POSITION)
    found = read(table.hudi, ReadRequest(columns=columns, where=where, positions=True)).to_arrow()
    files: dict[str, list[int]] = {}
    for name, id in zip(*(read(table.hudi).to_arrow()[name].to_pylist() for name in columns[:2]), strict=True):
        files.setdefault(name, []).append(id)
    assert found.num_rows == {None: 300, "n < 30 or n = 77": 31, "n >= 290": 10}[where]
    for each in found.to_pylist():
        assert files[each["_hoodie_file_name"]][each[POSITION]] == each["id"]


@pytest.mark.parametrize("only", [None, OneOf("id", pa.array([4, 7, 8, 9_000], pa.int64()))], ids=["all", "some"])
def test_rows_name_the_file_that_they_were_read_in(
    tmp_path: Path, only: OneOf | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns of names and of partition paths, which are the same in all rows, are not decoded."""
    table = make(tmp_path / "t")
    table.bulk_insert(rows(list(range(10))))
    columns = ("_hoodie_file_name", "_hoodie_partition_path", "id")
    expected = read(table.hudi, ReadRequest(columns=columns, only=only)).to_arrow()
    decoded: list[str] = []
    read_rows = OpenBaseFile.rows

    def noted(file: OpenBaseFile, **how: Any) -> Any:
        decoded.extend(how["schema"].names())
        return read_rows(file, **how)

    monkeypatch.setattr(OpenBaseFile, "rows", noted)
    where = "_hoodie_partition_path >= 'p' and id < 8 and _hoodie_file_name <> ''"
    for condition, left in ((None, expected), (where, expected.filter(pc.less(expected.column("id"), 8)))):
        request = ReadRequest(columns=(*columns, POSITION), where=condition, only=only, positions=True)
        found = read(table.hudi, request).to_arrow()
        assert found.select(columns).equals(left)
        assert found.schema.field("_hoodie_file_name").type == pa.string()
    assert set(decoded) == {"id", POSITION}


@pytest.mark.parametrize("kind", ["logs", "orc"])
def test_rows_of_other_slices_have_none(tmp_path: Path, kind: str) -> None:
    if kind == "orc":
        spec = TableSpec(
            name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), base_format=BaseFormat.ORC
        )
        create_table(LocalStorage(str(tmp_path / "t")), spec)
        table = open_table(tmp_path / "t")
    else:
        table = make(tmp_path / "t", type="mor")
    table.upsert(rows(list(range(20))))
    table.upsert(rows([3, 5], word="b"))
    found = read(table.hudi, ReadRequest(columns=("id", POSITION), positions=True)).to_arrow()
    has = {each["id"]: each[POSITION] is not None for each in found.to_pylist()}
    assert not any(has[at] for at in range(1, 20, 2))
    table.update(set={"word": "'u'"}, where="n = 3")
    table.delete(where="n = 4")
    assert [each["word"] for each in stored(table)][2:6] == ["a", "u", "b", "a"]


class TestNewRowsOfAMerge:
    """Where ON compares the keys, the rows without a match are new: no index is consulted."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        table = make(tmp_path / "t", SMALL_GROUPS)
        table.bulk_insert(rows(list(range(100))))
        return table

    def merged(self, table: Table, on: str | list[str]) -> list[tuple[int, str]]:
        merge = table.merge(rows([5, 205, 206], word="m"), on=on).when_matched_update({"word": "source.word"})
        merge.when_not_matched_insert_all().execute()
        return [(each["id"], each["word"]) for each in stored(table) if each["word"] == "m"]

    @pytest.mark.parametrize("on", ["id", ["id", "part"]])
    def test_they_are_not_looked_up(self, table: Table, monkeypatch: pytest.MonkeyPatch, on: str | list[str]) -> None:
        def fail(*_: object) -> None:
            raise AssertionError("the index is consulted")

        monkeypatch.setattr(BloomLookUp, "candidates", fail)
        monkeypatch.setattr(OpenBaseFile, "text_among", fail)
        assert self.merged(table, on) == [(5, "m"), (205, "m"), (206, "m")]
        assert len(stored(table)) == 102

    @pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_BLOOM", "BUCKET", "RECORD_INDEX"])
    def test_with_other_indexes(self, tmp_path: Path, index: str) -> None:
        options = {"hoodie.index.type": index, "hoodie.metadata.enable": str(index == "RECORD_INDEX").lower()}
        if index == "RECORD_INDEX":
            options["hoodie.metadata.record.index.enable"] = "true"
        table = make(tmp_path / "t", options)
        table.upsert(rows(list(range(100))))
        assert self.merged(table, "id") == [(5, "m"), (205, "m"), (206, "m")]
        table.upsert(rows([205, 5], word="x"))
        assert len(stored(table)) == 102

    def test_others_are_looked_up(self, table: Table) -> None:
        """ON compares another column: what has no match may still have a key that is stored."""
        source = rows([300], n=7, word="m")
        merge = table.merge(source, on="target.n = source.id").when_matched_update({"word": "source.word"})
        merge.when_not_matched_insert_all().execute()
        assert len(stored(table)) == 101
        again = table.merge(rows([8], n=1000), on="target.n = source.n").when_matched_update({"word": "source.word"})
        with pytest.raises(InputError, match="with key 8, which is stored already"):
            again.when_not_matched_insert_all().execute()
