package skep;

import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/**
 * The changes of a table as a source of Spark's streams. Python decides what is new, and reads it; offsets are its texts,
 * which Spark keeps in the checkpoint of a stream.
 */
public final class ChangeSource
    implements org.apache.spark.sql.execution.streaming.Source,
        org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow {
  private $OWN_SESSION session;
  private org.apache.spark.sql.types.StructType schema;
  private java.util.function.BiFunction newest;
  private java.util.function.BiFunction rows;
  private ReadLimit limit;
  private String name;
  private String last;

  public org.apache.spark.sql.Dataset of(
      $OWN_SESSION session,
      String schema,
      java.util.function.BiFunction newest,
      java.util.function.BiFunction rows,
      ReadLimit limit,
      String name) {
    ChangeSource made = new ChangeSource();
    made.session = session;
    made.schema = (org.apache.spark.sql.types.StructType) org.apache.spark.sql.types.DataType.fromJson(schema);
    made.newest = newest;
    made.rows = rows;
    made.limit = limit;
    made.name = name;
    return $DATASET$.MODULE$.ofRows(
        session, $STREAMING.StreamingExecutionRelation$.MODULE$.apply(made, session));
  }

  public org.apache.spark.sql.types.StructType schema() { return schema; }
  public String toString() { return name; }
  public void stop() {}
  public void commit(org.apache.spark.sql.execution.streaming.Offset end) {}
  public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {}

  public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() {
    throw new IllegalStateException("a source of this kind has no first offset");
  }

  public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) {
    return new $STREAMING.SerializedOffset(json);
  }

  public scala.Option getOffset() { return scala.Option.apply(offset((String) newest.apply(null, Boolean.TRUE))); }

  /** {@code Trigger.AvailableNow}: what comes later is left to the next run. */
  public void prepareForTriggerAvailableNow() { last = (String) newest.apply(null, Boolean.TRUE); }

  /** It stands for as many commits as the reader was set to; a trigger may want all that there are. */
  public ReadLimit getDefaultReadLimit() { return limit; }

  public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
      org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
    Boolean all = Boolean.valueOf(!this.limit.equals(limit));
    String found = (String) newest.apply(start == null ? null : start.json(), all);
    return offset(found != null && last != null && found.compareTo(last) > 0 ? last : found);
  }

  private org.apache.spark.sql.execution.streaming.Offset offset(String time) {
    return time == null ? null : new $STREAMING.SerializedOffset(time);
  }

  public org.apache.spark.sql.Dataset getBatch(
      scala.Option start, org.apache.spark.sql.execution.streaming.Offset end) {
    String begin = start.isEmpty() ? null : ((org.apache.spark.sql.execution.streaming.Offset) start.get()).json();
    org.apache.spark.rdd.RDD found = (org.apache.spark.rdd.RDD) rows.apply(begin, end.json());
    return session.internalCreateDataFrame(found, schema, true);
  }
}
