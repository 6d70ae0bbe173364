package skep;

/**
 * Questions of Spark's planning to Python. Adaptive execution plans a query again after each of its stages: the same
 * question gets the same answer.
 *
 * <p>Spark plans in threads of any age ({@code toPandas} starts one for each call), and Py4J keeps a connection and a
 * thread of Python's for each thread that ever called Python: a few threads of the class's own make all calls.
 */
public final class PlanningCalls implements java.util.function.BiFunction {
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
  private java.util.function.BiFunction python;
  private final java.util.HashMap known = new java.util.HashMap();

  public java.util.function.BiFunction of(java.util.function.BiFunction python) {
    PlanningCalls made = new PlanningCalls();
    made.python = python;
    return made;
  }

  /** Of columns, as strings, and filters of a source: both are arrays. */
  public Object apply(Object columns, Object filters) {
    Object asked = java.util.Arrays.asList(
        new Object[] {java.util.Arrays.asList((Object[]) columns), java.util.Arrays.asList((Object[]) filters)});
    synchronized (known) {
      Object found = known.get(asked);
      if (found != null) return found;
    }
    Object made = call(columns, filters);
    synchronized (known) {
      if (known.size() >= MOST_KEPT) known.clear();
      known.put(asked, made);
    }
    return made;
  }

  private Object call(final Object columns, final Object filters) {
    try {
      return CALLS.submit(new java.util.concurrent.Callable() {
        public Object call() { return python.apply(columns, filters); }
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
