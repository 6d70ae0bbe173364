"""What a write may do to a table's columns: Hudi's options of schema evolution on write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from skep_format.options import WRITES_OF_ROWS, Options, Status, boolean, option

RECONCILE = option(
    "hoodie.datasource.write.reconcile.schema",
    boolean,
    False,
    "Rows are brought to the table's schema: columns that they lack are null, new ones become nullable",
    only=WRITES_OF_ROWS,
)
NULL_FOR_MISSING = option(
    "hoodie.write.set.null.for.missing.columns",
    boolean,
    False,
    "Nullable columns that the rows lack are null; else a write without them is refused",
    only=WRITES_OF_ROWS,
)
COLUMN_DROP = option(
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
    boolean,
    False,
    "Columns that the rows lack are taken out of the table's schema",
    only=(*WRITES_OF_ROWS, "alter_schema"),  # Hudi's DROP COLUMN needs it, too
)
# Of reads, too: Hudi keeps the column in its files, and not in the schema that its commits state.
OPERATION_FIELD = option(
    "hoodie.allow.operation.metadata.field",
    boolean,
    False,
    "Files have a column _hoodie_operation, also when rows came without; D and -U there are deletes",
)
CASE_SENSITIVE = option(
    "skep.write.case.sensitive",
    boolean,
    True,
    "A frame's columns are the table's when their names agree in case, too; on Spark as spark.sql.caseSensitive has it",
)
for _key in ("hoodie.avro.schema.validate", "hoodie.datasource.write.schema.canonicalize"):
    option(_key, str, "", "schemas are always checked, and compared by what they mean", status=Status.NO_EFFECT)
SCHEMA_ON_READ = option(
    "hoodie.schema.on.read.enable",
    boolean,
    False,
    "ALTER TABLE may rename, drop, move and retype columns by their ids, which Hudi's readers need this option for",
)


class Missing(Enum):
    """What becomes of a column of the table that the rows have not."""

    KEPT = "kept"  # the rows set other columns; a struct that they set has to be whole
    REFUSED = "refused"
    NULL = "null"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """How a write treats differences of schema. `required_become_nullable`: a new column that the rows declare as never
    null is added as nullable."""

    missing: Missing = Missing.NULL
    required_become_nullable: bool = True

    @classmethod
    def of(cls, options: Options) -> SchemaPolicy:
        """From a write's options."""
        reconciles = options.value(RECONCILE)
        if options.value(COLUMN_DROP):
            return cls(Missing.DROPPED, reconciles)
        fills = reconciles or options.value(NULL_FOR_MISSING)
        return cls(Missing.NULL if fills else Missing.REFUSED, reconciles)


LENIENT = SchemaPolicy()


def hint_of_case(name: str, given: Iterable[str]) -> str | None:
    """What to do about a column that is missing, where one that is given has its name in another case."""
    other = next((each for each in given if each.lower() == name.lower() and each != name), None)
    return other and f"{other} differs from it in case only: rename it, or {CASE_SENSITIVE.key}=false takes it"
