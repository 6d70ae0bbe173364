import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.RandomAccessFile;
import java.io.Writer;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;

import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.HouseKeeperService;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.server.ServerContext;
import org.apache.thrift.server.TServerEventHandler;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.TTransportException;
import org.apache.thrift.transport.TTransportFactory;

/**
 * Serves the Hive Metastore of Spark's jars on one loopback port, with its own Derby database.
 *
 * Hive's own main class listens on every interface, has no lock tables outside of its tests, never expires locks
 * unless a compactor runs, and outlives whoever started it; hence this one. It is compiled where it is used, by the
 * Janino in Spark's jars, since the Java runtimes that come as Python wheels carry no compiler: no lambdas, no
 * diamonds here. Arguments: the state folder, the port (0: any free one), the URL of the database.
 *
 * Exit codes: 0 stopped, 3 another server has this folder, 4 the port is taken.
 */
public final class EmbeddedMetastore {
    static final int ANOTHER_SERVER = 3;
    static final int PORT_TAKEN = 4;
    private static volatile TThreadPoolServer thrift;
    private static volatile HouseKeeper houseKeeper;

    public static void main(String[] arguments) throws Exception {
        final File folder = new File(arguments[0]);
        int port = Integer.parseInt(arguments[1]);

        // Held until the process ends, however it ends: whoever can take this lock knows that no server lives.
        final FileChannel server = channel(folder, "server.lock");
        final FileChannel users = channel(folder, "users.lock");
        FileLock alive = server.tryLock();
        for (int attempt = 0; alive == null && attempt < 30; attempt++) { // someone may be looking, just now
            Thread.sleep(100);
            alive = server.tryLock();
        }
        if (alive == null) {
            System.exit(ANOTHER_SERVER);
        }
        Database database = new Database(arguments[2]);
        database.start();
        final TServerSocket socket = listen(port);
        int boundPort = socket.getServerSocket().getLocalPort();

        Runtime.getRuntime().addShutdownHook(new Thread("shutdown") {
            public void run() {
                if (thrift != null) {
                    thrift.stop();
                }
                socket.close();
                if (houseKeeper != null) {
                    houseKeeper.end();
                }
                closeDatabase();
                try { // now, since the process may go on for seconds: it writes the archive of its classes
                    users.close();
                    server.close();
                } catch (Exception error) {
                    System.err.println("giving back the locks: " + error);
                }
            }
        });
        HiveConf.setHiveSiteLocation(new File(folder, "hive-site.xml").toURI().toURL());
        HiveConf conf = new HiveConf(EmbeddedMetastore.class);
        HiveMetaStore.HMSHandler base = new HiveMetaStore.HMSHandler("skep", conf, false);
        IHMSHandler handler = HiveMetaStore.newRetryingHMSHandler(base, conf);
        database.join();
        if (!database.hasLockTables) { // Hive makes them only when it runs its own tests; older clients lock with them
            TxnDbUtil.prepDb(conf);
        }
        stopWhenUnused(users);
        announce(folder, boundPort);
        HouseKeeper started = new HouseKeeper(conf);
        houseKeeper = started;
        started.start();
        serve(socket, handler);
    }

    /** Opens the database while logging and settings are read. Hive reports what fails. */
    private static final class Database extends Thread {
        private final String url;
        volatile boolean hasLockTables;

        Database(String url) {
            super("database");
            setDaemon(true);
            this.url = url;
        }

        public void run() {
            try {
                Connection connection = DriverManager.getConnection(url);
                try {
                    ResultSet found = connection.getMetaData().getTables(null, null, "HIVE_LOCKS", null);
                    hasLockTables = found.next();
                } finally {
                    connection.close();
                }
            } catch (SQLException error) {
                return;
            }
        }
    }

    private static FileChannel channel(File folder, String name) throws Exception {
        return new RandomAccessFile(new File(folder, name), "rw").getChannel();
    }

    private static TServerSocket listen(int port) throws Exception {
        try {
            return new TServerSocket(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port));
        } catch (TTransportException error) {
            System.err.println("cannot listen on 127.0.0.1:" + port + ": " + error);
            System.exit(PORT_TAKEN);
            throw error;
        }
    }

    /** Expires the locks of holders that no longer send heartbeats. */
    private static final class HouseKeeper extends Thread {
        private final HiveConf conf;
        private HouseKeeperService service;
        private boolean stopped;

        HouseKeeper(HiveConf conf) {
            super("house keeper");
            setDaemon(true);
            this.conf = conf;
        }

        /** In a thread of its own: no client waits for it. */
        public void run() {
            try {
                startUnlessStopped();
            } catch (Exception error) {
                System.err.println("the locks of dead holders can't be expired: " + error);
                System.exit(1);
            }
        }

        private synchronized void startUnlessStopped() throws Exception {
            if (!stopped) {
                Object made = Class.forName("org.apache.hadoop.hive.ql.txn.AcidHouseKeeperService").newInstance();
                service = (HouseKeeperService) made;
                service.start(conf);
            }
        }

        /** Before the database is closed, which a later round would open again. */
        synchronized void end() {
            stopped = true;
            if (service != null) {
                service.stop();
            }
        }
    }

    /** Every user of this metastore holds a shared lock on one file; when none does, killed ones included, it ends. */
    private static void stopWhenUnused(final FileChannel users) {
        Thread watcher = new Thread("users") {
            public void run() {
                try {
                    while (users.tryLock() == null) {
                        Thread.sleep(2000);
                    }
                } catch (ClosedChannelException stopping) {
                    return;
                } catch (Exception error) {
                    System.err.println("cannot watch the users of this metastore: " + error);
                }
                System.err.println("no user is left: the metastore stops");
                System.exit(0); // with the lock held, so that nobody joins a server that is going away
            }
        };
        watcher.setDaemon(true);
        watcher.start();
    }

    private static void announce(File folder, int port) throws Exception {
        File next = new File(folder, "server.json.new");
        Writer writer = new OutputStreamWriter(new FileOutputStream(next), "UTF-8");
        String pid = ManagementFactory.getRuntimeMXBean().getName().split("@")[0];
        writer.write("{\"pid\": " + pid + ", \"port\": " + port + "}\n");
        writer.close();
        Files.move(next.toPath(), new File(folder, "server.json").toPath(), StandardCopyOption.ATOMIC_MOVE);
    }

    private static void serve(TServerSocket socket, final IHMSHandler handler) throws Exception {
        TThreadPoolServer.Args settings = new TThreadPoolServer.Args(socket);
        settings.processor(new TSetIpAddressProcessor(handler));
        settings.protocolFactory(new TBinaryProtocol.Factory());
        settings.transportFactory(new TTransportFactory());
        settings.minWorkerThreads(4);
        settings.maxWorkerThreads(1000);
        TThreadPoolServer server = new TThreadPoolServer(settings);
        thrift = server;
        server.setServerEventHandler(new TServerEventHandler() {
            public void preServe() {}

            public ServerContext createContext(TProtocol input, TProtocol output) {
                return null;
            }

            public void deleteContext(ServerContext context, TProtocol input, TProtocol output) {
                try {
                    handler.shutdown(); // gives back this thread's database connection
                } catch (Exception error) {
                    System.err.println("closing a session: " + error);
                }
            }

            public void processContext(ServerContext context, TTransport input, TTransport output) {}
        });
        server.serve();
    }

    private static void closeDatabase() {
        try {
            DriverManager.getConnection("jdbc:derby:;shutdown=true");
        } catch (SQLException expected) {
            // Derby reports an orderly shutdown as an exception.
        }
    }
}
