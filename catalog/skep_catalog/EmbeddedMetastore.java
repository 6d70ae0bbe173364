import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.RandomAccessFile;
import java.io.Writer;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
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
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantReadWriteLock;

import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.HouseKeeperService;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.api.Table;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.TBase;
import org.apache.thrift.TSerializer;
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
    static final int MOST_ENTRIES = 100; // that are kept for when no server runs: each takes some 4 ms
    static final int LONGEST_MS = 2000; // that is waited for as the server ends
    /** Calls besides those that only get something. */
    static final List CHANGE_NO_ENTRY =
        Arrays.asList(new Object[] {"set_ugi", "lock", "unlock", "check_lock", "heartbeat", "show_locks"});
    private static volatile TThreadPoolServer thrift;
    private static volatile HouseKeeper houseKeeper;
    private static volatile Gate gate;
    private static final Entries entries = new Entries();

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
                boolean isClosed = gate != null && gate.close();
                if (houseKeeper != null) {
                    houseKeeper.end();
                }
                if (isClosed) {
                    entries.leave();
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
        final IHMSHandler handler = HiveMetaStore.newRetryingHMSHandler(base, conf);
        database.join();
        if (!database.hasLockTables) { // Hive makes them only when it runs its own tests; older clients lock with them
            TxnDbUtil.prepDb(conf);
        }
        gate = new Gate(handler);
        stopWhenUnused(users);
        announce(folder, boundPort);
        HouseKeeper started = new HouseKeeper(conf);
        houseKeeper = started;
        started.start();
        final IHMSHandler calls = gate.proxy();
        Thread serving = new Thread("serve") {
            public void run() {
                try {
                    serve(socket, handler, calls);
                } catch (Exception error) {
                    System.err.println("cannot serve: " + error);
                    System.exit(1);
                }
            }
        };
        serving.start();
        entries.leaveWhenEnding(folder, handler);
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

    private static void serve(TServerSocket socket, final IHMSHandler handler, IHMSHandler calls) throws Exception {
        TThreadPoolServer.Args settings = new TThreadPoolServer.Args(socket);
        settings.processor(new TSetIpAddressProcessor(calls));
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

    /** What the calls of clients pass. Once it is closed, no call is under way, and no other ever reaches the database. */
    private static final class Gate implements InvocationHandler {
        final IHMSHandler handler;
        final AtomicLong changes = new AtomicLong(); // begun
        private final ReentrantReadWriteLock way = new ReentrantReadWriteLock();

        Gate(IHMSHandler handler) {
            this.handler = handler;
        }

        IHMSHandler proxy() {
            Class[] kinds = new Class[] {IHMSHandler.class};
            return (IHMSHandler) Proxy.newProxyInstance(IHMSHandler.class.getClassLoader(), kinds, this);
        }

        public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
            way.readLock().lock();
            try {
                if (!method.getName().startsWith("get") && !CHANGE_NO_ENTRY.contains(method.getName())) {
                    changes.incrementAndGet();
                }
                return method.invoke(handler, given);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            } finally {
                way.readLock().unlock();
            }
        }

        /** Whether the calls that were under way have ended. */
        boolean close() {
            try {
                return way.writeLock().tryLock(LONGEST_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException error) {
                return false;
            }
        }
    }

    /** Writes what reads of entries answer, for kept_entries.py, which describes the file. */
    private static final class Entries {
        private final CountDownLatch ending = new CountDownLatch(1);
        private final CountDownLatch left = new CountDownLatch(1);

        /** Nothing changes the entries any more. */
        void leave() {
            ending.countDown();
            try {
                left.await(LONGEST_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException error) {
                return;
            }
        }

        /**
         * In the thread that made the handler: its connection to the database is there. They are read ahead, since
         * many a server is only read, and a second time is faster.
         */
        void leaveWhenEnding(File folder, IHMSHandler handler) {
            try {
                ByteArrayOutputStream bytes = read(handler);
                ending.await();
                if (gate.changes.get() > 0) {
                    bytes = read(handler);
                }
                if (bytes != null) {
                    File next = new File(folder, "entries.next");
                    FileOutputStream file = new FileOutputStream(next);
                    bytes.writeTo(file);
                    file.close();
                    Files.move(next.toPath(), new File(folder, "entries.left").toPath(), StandardCopyOption.ATOMIC_MOVE);
                }
            } catch (Exception error) {
                System.err.println("the entries are not kept: " + error);
            } finally {
                left.countDown();
            }
        }
    }

    /** Null where they are too many. */
    private static ByteArrayOutputStream read(IHMSHandler handler) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        int entries = 0;
        for (Object each : handler.get_all_databases()) {
            String database = (String) each;
            List tables = handler.get_all_tables(database);
            entries += 1 + tables.size();
            if (entries > MOST_ENTRIES) {
                return null;
            }
            write(out, database.getBytes("UTF-8"));
            write(out, handler.get_database(database));
            write(out, Integer.toString(tables.size()).getBytes("UTF-8"));
            List found = tables.isEmpty() ? tables : handler.get_table_objects_by_name(database, tables);
            if (found.size() != tables.size()) {
                return null;
            }
            for (Object table : found) {
                write(out, ((Table) table).getTableName().getBytes("UTF-8"));
                write(out, (Table) table);
            }
        }
        return bytes;
    }

    private static void write(DataOutputStream out, TBase value) throws Exception {
        write(out, new TSerializer(new TBinaryProtocol.Factory()).serialize(value));
    }

    private static void write(DataOutputStream out, byte[] bytes) throws Exception {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static void closeDatabase() {
        try {
            DriverManager.getConnection("jdbc:derby:;shutdown=true");
        } catch (SQLException expected) {
            // Derby reports an orderly shutdown as an exception.
        }
    }
}
