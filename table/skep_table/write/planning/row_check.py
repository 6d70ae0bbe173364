"""Whether rows can be written, before a write: what one would refuse them for, with nothing read of them twice."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from skep_format.errors import InexactValueError
from skep_format.timeline.metadata import WriteOperation
from skep_table.table import HudiTable
from skep_table.write.partial import SetColumns
from skep_table.write.planning.plan import plan_write
from skep_table.write.planning.write_settings import WriteSettings


class RowCheck:
    """Raises what a write of rows with these columns raises before it has an instant: InputError.

    Values, keys, partition paths and ordering values are looked at. As by a write, a column gets a wider type where its
    own does not hold a value.
    """

    def __init__(
        self,
        table: HudiTable,
        operation: WriteOperation,
        columns: pa.Schema,
        settings: WriteSettings,
        sets: SetColumns | None = None,
    ) -> None:
        """`table` may be a planned one, see `plan_write` for `sets`. InputError where the columns don't fit it."""
        # rows without ordering value are refused here, whether the write would count them or not
        self._given = (table, operation, columns, replace(settings, commit_on_errors=False))
        self._sets, self._widened = sets, frozenset[str]()
        self._plan = plan_write(*self._given, sets=sets)

    def __call__(self, rows: pa.Table) -> None:
        """InputError where one of these rows can't be written."""
        while True:
            try:
                self._plan.checking_keyer.keyed(rows)
            except InexactValueError as error:
                widened = self._widened | {str(error.fields["column"])}
                wider = plan_write(*self._given, widened, sets=self._sets)
                if wider.schema == self._plan.schema:
                    raise
                self._widened, self._plan = widened, wider
            else:
                return
