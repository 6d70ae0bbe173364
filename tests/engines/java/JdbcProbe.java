import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;

/** Asks a server through hive-jdbc, and prints what it answered: arguments are the address, user, password, statements. */
public class JdbcProbe {
  public static void main(String[] arguments) throws Exception {
    Class.forName("org.apache.hive.jdbc.HiveDriver");
    try (Connection connection = DriverManager.getConnection(arguments[0], arguments[1], arguments[2])) {
      DatabaseMetaData metadata = connection.getMetaData();
      System.out.println("product " + metadata.getDatabaseProductName());
      try {
        connection.setClientInfo("ApplicationName", "probe"); // drivers of Hive 4 call the server
      } catch (SQLException error) {
        System.err.println(error);
      }
      System.out.println("client info");
      try (Statement statement = connection.createStatement()) {
        statement.setFetchSize(2);
        for (int at = 3; at < arguments.length; at++) {
          ask(statement, arguments[at]);
        }
      }
      print("tables", metadata.getTables(null, connection.getSchema(), "%", new String[] {"TABLE"}), 2, 3, 4);
      print("columns", metadata.getColumns(null, connection.getSchema(), "typed", "%"), 4, 5, 6, 7, 17);
      print("keys", metadata.getPrimaryKeys(null, connection.getSchema(), "typed"), 3, 4, 5);
      print("types", metadata.getTypeInfo(), 1, 2);
      print("schemas", metadata.getSchemas(null, connection.getSchema()), 1);
      print("catalogs", metadata.getCatalogs(), 1);
      print("table types", metadata.getTableTypes(), 1);
      print("functions", metadata.getFunctions(null, null, "hudi_q%"), 3);
      try (PreparedStatement prepared = connection.prepareStatement("select n from typed where n = ?")) {
        prepared.setLong(1, 1L);
        print("prepared", prepared.executeQuery(), 1);
      }
    }
  }

  static void ask(Statement statement, String text) {
    try {
      if (statement.execute(text)) {
        ResultSet rows = statement.getResultSet();
        ResultSetMetaData metadata = rows.getMetaData();
        int[] columns = new int[metadata.getColumnCount()];
        StringBuilder line = new StringBuilder("columns");
        for (int at = 0; at < columns.length; at++) {
          columns[at] = at + 1;
          line.append(' ').append(metadata.getColumnName(at + 1)).append(':').append(metadata.getColumnTypeName(at + 1));
        }
        System.out.println(line);
        print("row", rows, columns);
      } else {
        System.out.println("done " + statement.getUpdateCount());
      }
    } catch (SQLException error) {
      System.out.println("error " + error.getSQLState() + " " + error.getMessage().split("\n")[0]);
    }
  }

  static void print(String what, ResultSet rows, int... columns) throws SQLException {
    while (rows.next()) {
      StringBuilder line = new StringBuilder(what);
      for (int column : columns) {
        line.append('|').append(rows.getObject(column) instanceof byte[] ? "bytes" : rows.getString(column));
      }
      System.out.println(line);
    }
    rows.close();
  }
}
