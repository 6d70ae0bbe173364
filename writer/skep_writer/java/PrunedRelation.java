package skep;

/** Rows that Python tasks read, as a relation: Spark's plan decides which columns and which rows these are. */
public final class PrunedRelation extends org.apache.spark.sql.sources.BaseRelation
    implements org.apache.spark.sql.sources.PrunedFilteredScan {
  private org.apache.spark.sql.SQLContext context;
  private org.apache.spark.sql.types.StructType schema;
  private java.util.function.BiFunction rows;
  private String name;
  private long size;

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
    return (org.apache.spark.rdd.RDD) rows.apply(columns, filters);
  }
}
