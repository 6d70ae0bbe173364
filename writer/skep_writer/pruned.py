"""Rows that Python tasks read, as a relation: Spark's plan decides which columns and which rows they have to read.

Spark can't see into `mapInArrow`: a frame made with it reads all columns of all rows, also where a query needs one. A
relation with Spark's interface `PrunedFilteredScan` receives the columns and filters when a query is planned. PySpark
has no way to implement it, so a small class is compiled in the driver's JVM, by the compiler that Spark itself uses for
generated code. The class calls this process, which builds a `mapInArrow` over just these columns. Executors do not load
it. Where a session can't do this, frames read all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skep_table.query.plan import ReadTask, matching
from skep_table.query.predicate import Predicate
from skep_table.schema.types import RECORD_KEY
from skep_writer.edge import Batches, forget_zip_finders
from skep_writer.executors import ensure_executors
from skep_writer.relation import reason_of, warn_slower
from skep_writer.schemas import spark_type
from skep_writer.shares import Task, bytes_of, rows_of_share, task_shares
from skep_writer.source_filters import predicate_of
from skep_writer.task_errors import carrying_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Adaptive execution plans a query again after each of its stages: the same question gets the same answer. Spark plans
# in threads of any age (`toPandas` starts one for each call), and Py4J keeps a connection and a thread of Python's for
# each thread that ever called Python: a few threads of the class's own make all calls.
_SOURCE: Final = """
package skep;

public final class PrunedRelation extends org.apache.spark.sql.sources.BaseRelation
    implements org.apache.spark.sql.sources.PrunedFilteredScan {
  private static final int MOST_KEPT = 16;
  private static final java.util.concurrent.ExecutorService CALLS =
      java.util.concurrent.Executors.newFixedThreadPool(
          4,
          new java.util.concurrent.ThreadFactory() {
            public Thread newThread(Runnable work) {
              Thread thread = new Thread(work, "skep-planning");
              thread.setDaemon(true);
              return thread;
            }
          });
  private org.apache.spark.sql.SQLContext context;
  private org.apache.spark.sql.types.StructType schema;
  private java.util.function.BiFunction rows;
  private String name;
  private long size;
  private final java.util.HashMap planned = new java.util.HashMap();

  public PrunedRelation of(
      org.apache.spark.sql.SQLContext context,
      String schema,
      java.util.function.BiFunction rows,
      String name,
      long size) {
    PrunedRelation made = new PrunedRelation();
    made.context = context;
    made.schema = (org.apache.spark.sql.types.StructType) org.apache.spark.sql.types.DataType.fromJson(schema);
    made.rows = rows;
    made.name = name;
    made.size = size;
    return made;
  }

  public org.apache.spark.sql.SQLContext sqlContext() { return context; }
  public org.apache.spark.sql.types.StructType schema() { return schema; }
  public boolean needConversion() { return false; }
  public long sizeInBytes() { return size; }
  public String toString() { return name; }

  public org.apache.spark.rdd.RDD buildScan(String[] columns, org.apache.spark.sql.sources.Filter[] filters) {
    Object asked = java.util.Arrays.asList(
        new Object[] {java.util.Arrays.asList((Object[]) columns), java.util.Arrays.asList((Object[]) filters)});
    synchronized (planned) {
      Object found = planned.get(asked);
      if (found != null) return (org.apache.spark.rdd.RDD) found;
    }
    Object made = call(columns, filters);
    synchronized (planned) {
      if (planned.size() >= MOST_KEPT) planned.clear();
      planned.put(asked, made);
    }
    return (org.apache.spark.rdd.RDD) made;
  }

  private Object call(final String[] columns, final org.apache.spark.sql.sources.Filter[] filters) {
    try {
      return CALLS.submit(new java.util.concurrent.Callable() {
        public Object call() { return rows.apply(columns, filters); }
      }).get();
    } catch (java.util.concurrent.ExecutionException error) {
      if (error.getCause() instanceof RuntimeException) throw (RuntimeException) error.getCause();
      throw new RuntimeException(error.getCause());
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new RuntimeException(error);
    }
  }
}
"""


def python_frame(spark: SparkSession, tasks: Sequence[Task], target: pa.Schema) -> DataFrame:
    """A lazy frame of the rows of `tasks` in the columns of `target`, read by Python tasks."""
    ensure_executors(spark)
    rows = _Rows(spark, tasks, target)
    return _relation(spark, rows) or rows.frame(target, None)


@dataclass
class _Rows:
    """The rows of some tasks, of which each query asks for some columns."""

    spark: SparkSession
    tasks: Sequence[Task]
    target: pa.Schema
    _shares: list[bytes] | None = field(default=None, init=False)

    def frame(self, target: pa.Schema, predicate: Predicate | None) -> DataFrame:
        """The columns of `target`; rows that fail the predicate may be left out."""
        shares = self._shares_with(predicate)

        def run(batches: Batches) -> Iterator[pa.RecordBatch]:
            try:
                with carrying_errors():
                    for batch in batches:
                        for number in batch.column(0).to_pylist():
                            yield from rows_of_share(shares[number], target, predicate)
            finally:
                forget_zip_finders()

        numbers = self.spark.range(0, len(shares), 1, max(1, len(shares)))
        return numbers.mapInArrow(run, spark_type(target))

    def planned(self, columns: Sequence[str], filters: Sequence[Any]) -> Any:
        """Spark's question while it plans, as an RDD of its internal rows, which have the columns asked for first."""
        predicate = predicate_of(filters, self._columns_to_filter())
        counted = RECORD_KEY if RECORD_KEY in self.target.names else self.target.names[0]
        chosen = pa.schema([self.target.field(name) for name in columns or (counted,)])
        return self.frame(chosen, predicate)._jdf.queryExecution().toRdd()

    def _columns_to_filter(self) -> pa.Schema:
        """Those that have the types of the table, so that a filter means the same to a task."""
        reads = [task for task in self.tasks if isinstance(task, ReadTask)]
        if not reads or len(reads) < len(self.tasks):
            return pa.schema([])
        held = reads[0].scan.arrow_schema
        return pa.schema([column for column in self.target if column.type == held.field(column.name).type])

    def _shares_with(self, predicate: Predicate | None) -> list[bytes]:
        cores = self.spark.sparkContext.defaultParallelism
        if predicate is not None:
            reads = [task for task in self.tasks if isinstance(task, ReadTask)]
            left = matching(reads, predicate)
            if len(left) < len(self.tasks):
                return task_shares(left, cores)
        if self._shares is None:
            self._shares = task_shares(self.tasks, cores)
        return self._shares


class _Callback:
    """`_Rows.planned` as Java's BiFunction."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def apply(self, columns: Any, filters: Any) -> Any:
        return self._rows.planned(list(columns), list(filters))

    class Java:
        implements: Final = ["java.util.function.BiFunction"]


def _relation(spark: SparkSession, rows: _Rows) -> DataFrame | None:
    """The rows as a relation; None where the session can't have one."""
    from pyspark.sql import DataFrame

    make = _maker(spark)
    if make is None:
        return None
    size = sum(map(bytes_of, rows.tasks))
    relation = make(spark_type(rows.target), _Callback(rows), f"skep({len(rows.tasks)} file slices)", size)
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)


def _maker(spark: SparkSession) -> Callable[[StructType, _Callback, str, int], Any] | None:
    """What makes relations in this session; looked for once, and None with a warning where there is none."""
    context: Any = spark.sparkContext
    if not hasattr(context, "_skep_pruned_relation"):
        try:
            context._skep_pruned_relation = _compiled(spark)
        except Exception as error:  # of whatever kind: there is another way
            warn_slower(f"Spark reads all columns of slices with logs: no relation can be made ({reason_of(error)})")
            context._skep_pruned_relation = None
    prototype = context._skep_pruned_relation
    if prototype is None:
        return None
    session: Any = spark._jsparkSession

    def make(struct: StructType, callback: _Callback, name: str, size: int) -> Any:
        return prototype.of(session.sqlContext(), struct.json(), callback, name, size)

    return make


def _compiled(spark: SparkSession) -> Any:
    """An object of the class above."""
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    gateway, jvm = context._gateway, context._jvm
    session: Any = spark._jsparkSession
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(session.getClass().getClassLoader())
    compiler.cook(_SOURCE)
    found = compiler.getClassLoader().loadClass("skep.PrunedRelation")
    ensure_callback_server_started(gateway)
    no_types, no_values = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return found.getDeclaredConstructor(no_types).newInstance(no_values)
