package skep;

/**
 * Rows that Python tasks read, as a relation: Spark's plan decides which columns and which rows these are.
 *
 * <p>Adaptive execution plans a query again after each of its stages: the same question gets the same answer. Spark plans
 * in threads of any age ({@code toPandas} starts one for each call), and Py4J keeps a connection and a thread of Python's
 * for each thread that ever called Python: a few threads of the class's own make all calls.
 */
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
