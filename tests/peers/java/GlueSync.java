import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool;

/** Syncs one table for each file of properties, by Hudi's own tool for AWS Glue. */
public class GlueSync {
  public static void main(String[] files) throws Exception {
    for (String file : files) {
      Properties properties = new Properties();
      properties.load(new StringReader(Files.readString(Path.of(file))));
      try (AwsGlueCatalogSyncTool tool = new AwsGlueCatalogSyncTool(properties, new Configuration())) {
        tool.syncHoodieTable();
      }
    }
    System.exit(0);
  }
}
