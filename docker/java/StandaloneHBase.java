import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.LocalHBaseCluster;
import org.apache.hadoop.hbase.thrift.ThriftServer;
import org.apache.hadoop.hbase.zookeeper.MiniZooKeeperCluster;

/** HBase in one process: ZooKeeper, a master, a region server, and the Thrift gateway, whose arguments are these. */
public final class StandaloneHBase {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = HBaseConfiguration.create();
        MiniZooKeeperCluster zooKeeper = new MiniZooKeeperCluster(settings);
        zooKeeper.setDefaultClientPort(settings.getInt(HConstants.ZOOKEEPER_CLIENT_PORT, 0));
        zooKeeper.startup(new File(settings.get(HConstants.ZOOKEEPER_DATA_DIR)));
        new LocalHBaseCluster(settings, 1, 1).startup();
        ThriftServer.main(arguments);
    }
}
