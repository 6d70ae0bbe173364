import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Makes the lock tables of a metastore 2.3, which Hive itself makes only when it runs its own tests. */
public final class LockTables {
    public static void main(String[] arguments) throws Exception {
        TxnDbUtil.prepDb(new HiveConf(LockTables.class));
    }
}
