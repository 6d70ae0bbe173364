"""What a metastore's client must be able to do, whatever the metastore's version: a class that tests inherit.

They bring the fixtures `metastore`, a client, and `database`, a fresh and empty one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.client import Metastore
from skep_catalog.entities import (
    Column,
    ColumnStatistics,
    Database,
    Partition,
    StorageDescriptor,
    TableEntry,
    partition_name,
    values_of_name,
)
from skep_format.errors import (
    CatalogError,
    EntryChangedError,
    EntryExistsError,
    NoSuchLockError,
    NoSuchTableError,
    UnsupportedError,
)


def table(database: str, name: str = "t") -> TableEntry:
    storage = StorageDescriptor(
        columns=(Column("a", "int", "the a"), Column("b", "struct<x:int,y:array<string>>", None)),
        location=f"file:///nowhere/{database}/{name}",
        input_format="org.apache.hadoop.mapred.TextInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serde_library="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        serde_parameters={"serialization.format": "1"},
    )
    keys = (Column("p", "string", "the p"),)
    return TableEntry(database, name, storage, keys, {"EXTERNAL": "TRUE", "x": "ü"}, "EXTERNAL_TABLE", "me")


class EntriesContract:
    """Databases, tables and partitions: what all catalogs have that syncs write to."""

    nowhere = "file:/nowhere"
    """How the catalog writes the folder of these tables."""

    def test_a_table_comes_back_as_it_was_made(self, metastore: EntryCatalog, database: str) -> None:
        made = table(database)
        metastore.create_table(made)
        found = metastore.table(database.upper(), "T")
        assert found.storage == replace(made.storage, location=f"{self.nowhere}/{database}/t")
        assert found.partition_keys == made.partition_keys
        assert (found.table_type, found.owner) == ("EXTERNAL_TABLE", "me")
        assert {"EXTERNAL": "TRUE", "x": "ü"}.items() <= found.parameters.items()
        assert metastore.tables(database) == ["t"]

    def test_partitions_come_and_go(self, metastore: EntryCatalog, database: str) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        wanted = [Partition((f"v{i:03}",), storage, {"numFiles": "2", "totalSize": "10"}) for i in range(25)]
        metastore.add_partitions(database, "t", wanted)
        metastore.add_partitions(database, "t", wanted[:3])  # those that exist are left alone
        names = metastore.partition_names(database, "t")
        assert names == [f"p=v{i:03}" for i in range(25)]
        assert [p.values for p in metastore.partitions(database, "t", ["p=v007", "p=none"])] == [("v007",)]
        found = next(metastore.partitions(database, "t", ["p=v007"]))
        assert {"numFiles": "2", "totalSize": "10"}.items() <= found.parameters.items()
        moved = replace(found, storage=replace(found.storage, location="file:///elsewhere"))
        metastore.alter_partitions(database, "t", [moved])
        assert next(metastore.partitions(database, "t", ["p=v007"])).storage.location == "file:///elsewhere"
        metastore.drop_partitions(database, "t", ["p=none", *names[5:]])
        assert metastore.partition_names(database, "t") == names[:5]

    # each client's class calls it as its own, which is what is wanted
    @settings(
        max_examples=15,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(value=st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=40))
    def test_any_partition_value_is_found_again_by_its_name(
        self, metastore: EntryCatalog, database: str, value: str
    ) -> None:
        """Hive escapes values in names; skep's spelling must be the server's, or nothing is ever found or dropped."""
        if metastore.find_table(database, "t") is None:
            metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        metastore.add_partitions(database, "t", [Partition((value,), storage)])
        name = partition_name(["p"], [value])
        assert metastore.partition_names(database, "t") == [name]
        assert [p.values for p in metastore.partitions(database, "t", [name])] == [(value,)]
        assert values_of_name(name) == (value,)
        metastore.drop_partitions(database, "t", [name])
        assert metastore.partition_names(database, "t") == []

    def test_many_tables_in_few_calls(self, metastore: EntryCatalog, database: str) -> None:
        for i in range(3):
            metastore.create_table(table(database, f"t{i}"))
        before = metastore.calls
        assert [t.name for t in metastore.tables_of(database, ["t2", "none", "t0"])] in (["t0", "t2"], ["t2", "t0"])
        assert metastore.calls == before + 1
        assert {t.name: t.storage.location for t in metastore.tables_of(database)} == {
            f"t{i}": f"{self.nowhere}/{database}/t{i}" for i in range(3)
        }
        assert list(metastore.tables_of(database, [])) == []

    def test_an_expected_parameter_is_compared_where_the_server_knows_of_it(
        self, metastore: EntryCatalog, database: str
    ) -> None:
        metastore.create_table(table(database))
        found = metastore.table(database, "t")
        changed = replace(found, parameters={**found.parameters, "x": "2"})
        metastore.alter_table(database, "t", changed, expected=("x", "ü"))
        assert metastore.table(database, "t").parameters["x"] == "2"
        refused = False
        try:
            metastore.alter_table(
                database, "t", replace(found, parameters={**found.parameters, "x": "3"}), expected=("x", "ü")
            )
        except EntryChangedError:
            refused = True
        # 2.3.10 and 4.x refuse, 2.3.9 and 3.1.3 do not compare; the entry reports its content correctly either way.
        assert metastore.table(database, "t").parameters["x"] == ("2" if refused else "3")

    def test_no_such_table(self, metastore: EntryCatalog, database: str) -> None:
        with pytest.raises(NoSuchTableError) as error:
            metastore.table(database, "none")
        assert error.value.fields["table"] == f"{database}.none"
        assert error.value.fields["uri"] == metastore.uri
        assert metastore.find_table(database, "none") is None
        with pytest.raises(NoSuchTableError):
            metastore.alter_table(database, "none", table(database, "none"))
        with pytest.raises(NoSuchTableError):
            metastore.partition_names(database, "none")
        with pytest.raises(NoSuchTableError, match="has no database nothere"):
            metastore.create_table(table("nothere"))

    def test_exists_already(self, metastore: EntryCatalog, database: str) -> None:
        metastore.create_table(table(database))
        with pytest.raises(EntryExistsError, match="refused create_table"):
            metastore.create_table(table(database))
        with pytest.raises(EntryExistsError):
            metastore.create_database(Database(database))
        assert not metastore.create_database(Database(database), if_not_exists=True)


class ClientContract(EntriesContract):
    """And what Hive Metastores have beside them."""

    def test_what_has_no_name_here_survives_an_alteration(self, metastore: Metastore, database: str) -> None:
        metastore.create_table(table(database))
        found = metastore.table(database, "t")
        found.origin.retention = 77
        metastore.alter_table(database, "t", replace(found, parameters={**found.parameters, "y": "1"}))
        again = metastore.table(database, "t")
        assert again.origin.retention == 77
        assert again.parameters["y"] == "1"
        metastore.alter_table(database, "t", replace(again, name="u"))
        assert metastore.tables(database) == ["u"]

    def test_a_table_moves_to_another_name_and_database(
        self, metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        other = f"{database}_other"
        metastore.create_database(Database(other, location=f"file://{tmp_path}/{other}.db"))
        try:
            metastore.create_table(table(database))
            metastore.add_partitions(database, "t", [Partition(("1",), metastore.table(database, "t").storage)])
            metastore.rename_table(database, "t", database, "U")
            metastore.rename_table(database, "u", other, "v")
            assert (metastore.tables(database), metastore.tables(other)) == ([], ["v"])
            assert metastore.partition_names(other, "v") == ["p=1"]
            assert metastore.table(other, "v").storage.location == f"file:/nowhere/{database}/t"
            metastore.create_table(table(database))
            with pytest.raises(EntryExistsError, match=rf"table {other}\.v exists"):
                metastore.rename_table(database, "t", other, "v")
            assert metastore.tables(database) == ["t"]
        finally:
            metastore.drop_database(other, cascade=True)

    def test_a_role_stays_the_owner(self, metastore: Metastore, database: str) -> None:
        """Known from 3.1 on; older metastores have no kinds of owners."""
        metastore.create_table(table(database))
        found = metastore.table(database, "t")
        if found.origin.ownerType is None:
            return
        role = 2
        found.origin.ownerType = role
        metastore.alter_table(database, "t", replace(found, owner="admin"))
        again = metastore.table(database, "t")
        metastore.alter_table(database, "t", replace(again, parameters={**again.parameters, "y": "1"}))
        last = metastore.table(database, "t")
        assert (last.owner, last.origin.ownerType, last.parameters["y"]) == ("admin", role, "1")

    def test_statistics_come_back(self, metastore: Metastore, database: str) -> None:
        wanted = [
            ColumnStatistics("flag", "boolean", nulls=1, trues=3, falses=4),
            ColumnStatistics("n", "bigint", nulls=2, distinct=5, low=-7, high=2**62),
            ColumnStatistics("x", "double", distinct=9, low=-0.5, high=1e300),
            ColumnStatistics("name", "string", nulls=0, distinct=11, average_length=3.5, max_length=17),
            ColumnStatistics("raw", "binary", nulls=4, average_length=1.0, max_length=2),
            ColumnStatistics("price", "decimal(10,2)", distinct=1, low=Decimal("-12.34"), high=Decimal("99999999.99")),
            ColumnStatistics("day", "date", distinct=2, low=date(1969, 12, 31), high=date(2026, 1, 2)),
        ]
        made = table(database)
        columns = tuple(Column(one.column, one.type) for one in wanted)
        metastore.create_table(replace(made, partition_keys=(), storage=replace(made.storage, columns=columns)))
        names = [one.column for one in wanted]
        assert metastore.statistics(database, "t", names) == {}
        metastore.set_statistics(database, "t", wanted)
        assert metastore.statistics(database, "t", [*names, "none"]) == {one.column: one for one in wanted}
        metastore.set_statistics(database, "t", [replace(wanted[1], nulls=77)])
        assert metastore.statistics(database, "t", ["n"])["n"].nulls == 77
        with pytest.raises(UnsupportedError, match="no statistics of array<int>"):
            metastore.set_statistics(database, "t", [ColumnStatistics("c", "array<int>")])

    def test_statistics_of_partitions(self, metastore: Metastore, database: str) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        metastore.add_partitions(database, "t", [Partition((f"{i}/x",), storage) for i in range(3)])
        names = metastore.partition_names(database, "t")
        wanted = ColumnStatistics("a", "int", nulls=1, distinct=2, low=1, high=9)
        metastore.set_statistics(database, "t", [wanted], partition=names[1])
        assert metastore.partition_statistics(database, "t", ["a"], names) == {names[1]: {"a": wanted}}

    def test_a_refusal_names_server_call_and_table(self, metastore: Metastore, database: str) -> None:
        bad = replace(table(database), storage=replace(table(database).storage, columns=(Column("a", "nonsense<"),)))
        metastore.create_table(table(database))
        with pytest.raises(
            CatalogError, match=rf"table {database}\.t: metastore {metastore.uri} refused alter_table"
        ) as error:
            metastore.alter_table(database, "t", bad)
        assert error.value.fields["call"] == "alter_table"

    def test_a_lock_that_is_missing(self, metastore: Metastore) -> None:
        with pytest.raises(NoSuchLockError):
            metastore.check_lock(10**9)
