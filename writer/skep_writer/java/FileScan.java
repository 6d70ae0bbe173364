package skep;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.SharedInMemoryCache;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.python.EvaluatePython;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Makes relations over given Parquet files. Janino compiles it for one Spark: `$SESSION` and `$SEQ` are its classes. */
public final class FileScan {
  // Each relation fills a cache of its own and empties it at once: nothing is evicted before Spark has read it.
  private static final long CACHE_BYTES = 1L << 40;
  private static final long WITHOUT_EXPIRY = -1L;
  // Spark splits files by its own settings, never by these.
  private static final int COPIES = 1;
  private static final long BLOCK_BYTES = 128L << 20;

  /**
   * A relation over files, made without asking storage.
   *
   * @param pickled a list of folders, each a tuple: URI, values of its columns in Spark's internal form, files as tuples
   *     of name and size; and a list of expressions, the columns of the result
   * @param data the columns of the files, as Spark's JSON
   * @param columns those of the folders
   * @param inFiles whether the folders' columns are among those of the files: then they only leave out folders
   * @param holding by filters, which files can hold such rows: a byte for each, 0 for none; null where nothing is known
   */
  public Object of(
      Object session,
      byte[] pickled,
      String data,
      String columns,
      Map options,
      boolean inFiles,
      java.util.function.BiFunction holding)
      throws Exception {
    Object[] given = (Object[]) new net.razorvine.pickle.Unpickler().loads(pickled);
    List folders = (List) given[0];
    List result = (List) given[1];
    StructType stored = (StructType) DataType.fromJson(data);
    StructType ofFolders = (StructType) DataType.fromJson(columns);
    scala.Function1 toRow = EvaluatePython.makeFromJava(ofFolders);
    FileStatusCache cache = new SharedInMemoryCache(CACHE_BYTES, WITHOUT_EXPIRY).createForNewClient();
    List paths = new ArrayList();
    List described = new ArrayList();
    for (int at = 0; at < folders.size(); at++) {
      Object[] folder = (Object[]) folders.get(at);
      List files = (List) folder[2];
      for (int number = 0; number < files.size(); number++) {
        Object[] file = (Object[]) files.get(number);
        Path path = new Path(folder[0] + "/" + file[0]);
        FileStatus status = new FileStatus(((Number) file[1]).longValue(), false, COPIES, BLOCK_BYTES, 0L, path);
        cache.putLeafFiles(path, new FileStatus[] {status});
        paths.add(path);
        if (number == 0 && ofFolders.length() > 0) {
          described.add(new PartitionPath((InternalRow) toRow.apply(folder[1]), path.getParent()));
        }
      }
    }
    StructType partition = inFiles ? new StructType() : ofFolders;
    PartitionSpec spec = new PartitionSpec(ofFolders, PythonUtils.toSeq(described));
    GivenFiles index =
        new GivenFiles(($SESSION) session, paths, stored, cache, spec, inFiles, holding);
    cache.invalidateAll();
    if (index.allFiles().size() != paths.size()) {
      throw new IllegalStateException(
          "it takes " + index.allFiles().size() + " of " + paths.size() + " for files with rows");
    }
    HadoopFsRelation relation =
        new HadoopFsRelation(
            index,
            partition,
            stored.asNullable(),
            scala.Option.empty(),
            new ParquetFileFormat(),
            PythonUtils.toScalaMap(options),
            ($SESSION) session);
    return (($SESSION) session)
        .baseRelationToDataFrame(relation)
        .selectExpr((String[]) result.toArray(new String[result.size()]));
  }

  /** Files of which no folder is listed. */
  private static final class GivenFiles extends InMemoryFileIndex {
    private final boolean inFiles;
    private final java.util.function.BiFunction holding;
    private final Map numbers = new HashMap();

    GivenFiles(
        $SESSION session,
        List paths,
        StructType data,
        FileStatusCache cache,
        PartitionSpec folders,
        boolean inFiles,
        java.util.function.BiFunction holding) {
      super(
          session,
          PythonUtils.toSeq(paths),
          PythonUtils.toScalaMap(new HashMap()),
          scala.Option.apply(data),
          cache,
          scala.Option.apply(folders),
          scala.Option.empty());
      this.inFiles = inFiles;
      this.holding = holding;
      for (int at = 0; holding != null && at < paths.size(); at++) numbers.put(paths.get(at), new Integer(at));
    }

    public $SEQ listFiles($SEQ partitionFilters, $SEQ dataFilters) {
      List filters = new ArrayList();
      for (int at = 0; at < dataFilters.size(); at++) {
        Expression filter = (Expression) dataFilters.apply(at);
        if (filter.deterministic() && !hasSubquery(filter)) filters.add(filter);
      }
      $SEQ found = inFiles ? inFolders(filters, dataFilters) : super.listFiles(partitionFilters, dataFilters);
      return holding == null ? found : holdingRows(found, filters);
    }

    private $SEQ inFolders(List filters, $SEQ dataFilters) {
      // Spark takes those filters that refer to nothing but the columns of folders.
      $SEQ found = super.listFiles(PythonUtils.toSeq(filters), dataFilters);
      List withoutValues = new ArrayList();
      for (int at = 0; at < found.size(); at++) {
        PartitionDirectory folder = (PartitionDirectory) found.apply(at);
        withoutValues.add(new PartitionDirectory(new GenericInternalRow(new Object[0]), folder.files()));
      }
      return PythonUtils.toSeq(withoutValues);
    }

    private $SEQ holdingRows($SEQ folders, List expressions) {
      List filters = new ArrayList();
      for (int at = 0; at < expressions.size(); at++) {
        scala.Option filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) expressions.get(at), false);
        if (filter.isDefined()) filters.add(filter.get());
      }
      if (filters.isEmpty()) return folders;
      byte[] wanted = (byte[]) holding.apply(new String[0], filters.toArray(new Filter[filters.size()]));
      List left = new ArrayList();
      for (int at = 0; at < folders.size(); at++) {
        PartitionDirectory folder = (PartitionDirectory) folders.apply(at);
        List files = new ArrayList();
        for (int number = 0; number < folder.files().size(); number++) {
          FileStatusWithMetadata file = (FileStatusWithMetadata) folder.files().apply(number);
          if (wanted[((Integer) numbers.get(file.getPath())).intValue()] != 0) files.add(file);
        }
        if (!files.isEmpty()) left.add(new PartitionDirectory(folder.values(), PythonUtils.toSeq(files)));
      }
      return PythonUtils.toSeq(left);
    }

    /** A subquery has no value before the query runs. */
    private static boolean hasSubquery(Expression expression) {
      if (expression instanceof PlanExpression) return true;
      $SEQ children = expression.children();
      for (int at = 0; at < children.size(); at++) {
        if (hasSubquery((Expression) children.apply(at))) return true;
      }
      return false;
    }
  }
}
