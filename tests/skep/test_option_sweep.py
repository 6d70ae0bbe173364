"""Every registered option takes effect somewhere, or is refused or warned about by its name where it does not.

What reads an option is recorded while real operations run, so an option that is registered and then forgotten fails
here, and so does one that an operation ignores without a word.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import pkgutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
import skep_catalog
import skep_format
import skep_sql
import skep_stream
import skep_sync
import skep_table
import skep_writer
from skep_format import options as registry
from skep_format.errors import DuplicateKeyError, OptionError, TableMismatchError, UnsupportedError
from skep_format.options import REGISTRY, IneffectiveOptionWarning, Option, Options, Status
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.view import StorageListing
from skep_table.write.local import LocalWriter
from skep_table.write.planning.options import DUPLICATES, DUPLICATES_DROPPED

PACKAGES = (skep_format, skep_table, skep_catalog, skep_writer, skep_sync, skep_sql, skep_stream, skep)
NAMES = {package.__name__ for package in PACKAGES}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
OPERATIONS = ("bulk_insert", "insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table")
"""Those that write rows. delete_partition writes none, so that options of files and keys are not about it."""
VARIANTS: tuple[dict[str, object], ...] = (
    {},
    {"hoodie.index.type": "GLOBAL_SIMPLE"},
    {"hoodie.index.type": "GLOBAL_BLOOM"},
    {"hoodie.copyonwrite.insert.auto.split": "false"},
    # without it, a bulk insert does not hold its rows
    {"hoodie.combine.before.insert": "true"},
    {"hoodie.combine.before.insert": "true", "hoodie.copyonwrite.insert.auto.split": "false"},
)


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    """All packages have registered their options."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "__main__" not in module.name:
                with contextlib.suppress(ModuleNotFoundError):  # what needs a package that is not installed
                    importlib.import_module(module.name)


Reads = dict[str, set[str]]


@contextlib.contextmanager
def recorded(into: set[str]) -> Iterator[None]:
    """Adds the keys of all options that are read meanwhile, in whatever thread."""
    patch = pytest.MonkeyPatch()
    for name in ("value", "is_set", "__getitem__", "get"):
        former: Callable[..., Any] = getattr(Options, name)

        def reading(self: Options, wanted: Any, *more: Any, _former: Callable[..., Any] = former) -> Any:
            known = wanted if isinstance(wanted, Option) else REGISTRY.find(wanted)
            into.update([known.key] if known else [])
            return _former(self, wanted, *more)

        patch.setattr(Options, name, reading)
    # These look at what is given, whether or not anything uses it.
    patch.setattr(Options, "check_operation", lambda *_: None)
    try:
        yield
    finally:
        patch.undo()


def frame(ts: int, number: int = 6) -> pa.Table:
    return pa.table([[str(n) for n in range(number)], ["p"] * number, [ts] * number], schema=SCHEMA)


def new_table(folder: Path, kind: TableType = TableType.COPY_ON_WRITE) -> HudiTable:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    return create_table(LocalStorage(str(folder)), spec)


def writer(table: HudiTable, options: dict[str, object]) -> LocalWriter:
    return LocalWriter(table.reload().with_context(options=Options(options)))


@pytest.fixture(scope="module")
def of_operations(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """By operation: what it reads, with any index."""
    found: Reads = defaultdict(set)
    for variant in VARIANTS:
        for operation in OPERATIONS:
            table = new_table(tmp_path_factory.mktemp("t"))
            writer(table, variant).insert(frame(1, 4))
            with recorded(found[operation]):
                getattr(writer(table, variant), operation)(frame(3))
    return found


def test_options_name_the_operations_that_read_them(of_operations: Reads) -> None:
    """`only` may be narrower than what was recorded (a context holds more than each operation uses), never wider."""
    wrong = {}
    for option in REGISTRY:
        readers = {operation for operation in OPERATIONS if option.key in of_operations[operation]}
        declared = set(option.only or OPERATIONS) & set(OPERATIONS)
        if readers and not declared <= readers:
            wrong[option.key] = f"not read by {sorted(declared - readers)}, which does not warn"
    assert not wrong


def referred_to() -> Counter[str]:
    """How often code names a variable, an attribute or a text, not counting assignments."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for file in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                match node:
                    case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                        found[name] += 1
                    case ast.Constant(value=str(text)):
                        found[text] += 1
    return found


def texts(key: str, counts: Counter[str]) -> list[str]:
    """The key, and what follows a prefix that code writes out."""
    ends = [at + 1 for at, letter in enumerate(key) if letter == "."]
    return [key, *(key[end:] for end in ends if counts[key[:end]])]


def test_what_is_supported_is_read_somewhere() -> None:
    """By its constant, as a field of settings, or by its key in text beside the one that registers it."""
    names = defaultdict(set)
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] in NAMES]:
        for name, value in vars(module).items():
            if isinstance(value, Option):
                names[value.key].add(name)
            elif isinstance(value, type) and is_dataclass(value):
                for each in fields(value):
                    if "option" in each.metadata:
                        names[each.metadata["option"].key].add(each.name)
    counts = referred_to()
    supported = [option for option in REGISTRY if option.status is Status.SUPPORTED]
    assert len(supported) > 200
    unread = [
        option.key
        for option in supported
        if not any(counts[name] for name in names[option.key])
        and max(map(counts.__getitem__, texts(option.key, counts))) < 2
    ]
    assert not unread


def unlike_default(option: Option[Any]) -> str:
    """A text that parses to another value than the default."""
    for text in ("true", "false", "7", "x", "drop", "GLOBAL_SORT"):
        with contextlib.suppress(ValueError):
            if option.parse(text) != option.default:
                return text
    raise AssertionError(f"no value for {option.key}")


def cases() -> Iterator[tuple[str, str]]:
    for option in REGISTRY:
        for operation in OPERATIONS:
            if option.only and operation not in option.only:
                yield option.key, operation


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_warned", set())


def test_an_option_of_other_operations_is_a_warning_or_an_error_by_name(tmp_path: Path, unwarned: None) -> None:
    table = new_table(tmp_path / "t")
    writer(table, {}).insert(frame(1))
    timeline = table.reload().timeline.instants
    seen = list(cases())
    assert len(seen) > 40
    for key, operation in seen:
        option = REGISTRY.find(key)
        assert option is not None
        given = {key: unlike_default(option)}
        with pytest.raises((IneffectiveOptionWarning, OptionError), match=key.replace(".", r"\.")):
            getattr(writer(table, given), operation)(frame(2))
    assert table.reload().timeline.instants == timeline


@pytest.mark.parametrize("option", [DUPLICATES_DROPPED, DUPLICATES], ids=lambda option: option.key)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_bulk_insert_leaves_keys_out_that_are_there(option: Option[Any], kind: str, tmp_path: Path) -> None:
    """As Hudi does without its row writer, which refuses that."""
    named = {"hoodie.table.name": "t", "hoodie.datasource.write.operation": "bulk_insert"}
    how = {**named, "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.table.type": kind}
    how[option.key] = "drop" if option is DUPLICATES else "true"
    path = tmp_path / "t"

    def save(*rows: tuple[str, int]) -> None:
        columns = [list(each) for each in zip(*rows, strict=True)]
        skep.write(pa.table(columns, ["id", "n"])).options(**how).mode("append").save(path)

    save(("a", 1), ("a", 1), ("b", 1))
    save(("a", 2), ("c", 2))
    rows = skep.load(path).to_arrow().select(["id", "n"]).sort_by("id").to_pylist()
    assert [(row["id"], row["n"]) for row in rows] == [("a", 1), ("b", 1), ("c", 2)]
    how[DUPLICATES.key], how[DUPLICATES_DROPPED.key] = "fail", "false"
    with pytest.raises(DuplicateKeyError, match="1 rows have keys that the table holds"):
        save(("a", 3))


def test_what_has_no_effect_is_a_warning_once(unwarned: None) -> None:
    without = [option for option in REGISTRY if option.status is Status.NO_EFFECT]
    assert len(without) > 50
    for option in without:
        with pytest.warns(IneffectiveOptionWarning, match=f"{option.key} has no effect"):
            Options({option.key: "something"}).check()
        Options({option.key: "something"}).check()  # warnings are errors here
        if option.default not in (None, ""):
            Options({option.key: str(option.default).lower()}).check()


def test_what_is_not_built_is_an_error() -> None:
    for option in REGISTRY:
        if option.status is Status.PLANNED:
            with pytest.raises(UnsupportedError, match=option.key):
                Options({option.key: "false" if option.default == "true" else "true"}).check()


def test_a_metadata_table_is_made_by_the_option_and_kept_without_it(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    given: dict[str, object] = {METADATA_ENABLE.key: "true"}
    writer(table, given).insert(frame(1))
    writer(table, {}).insert(frame(2))
    assert HudiTable.open(table.storage).metadata_table() is not None
    writer(table, {METADATA_ENABLE.key: "false"}).insert(frame(3))
    assert HudiTable.open(table.storage).metadata_table() is None


def test_reads_use_a_metadata_table_unless_it_is_switched_off(golden: Path) -> None:
    path = str(golden / "0.15.0" / "cow_column_stats" / "table")
    assert HudiTable.open(path).metadata_table() is not None
    listed = {value: HudiTable.open(path, {METADATA_ENABLE.key: value})._listing(True) for value in ("true", "false")}
    assert isinstance(listed["false"], StorageListing)
    assert not isinstance(listed["true"], StorageListing)


def test_a_dropped_partition_is_checked_against_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    writer(table, {}).insert(frame(1))
    with pytest.raises(TableMismatchError, match=r"recordkey\.field id, not part"):
        writer(table, {"hoodie.datasource.write.recordkey.field": "part"}).delete_partitions(["p"])
