import java.math.BigDecimal;
import java.sql.Date;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.util.HexFormat;
import java.util.TimeZone;
import org.apache.avro.util.Utf8;
import org.apache.hudi.common.model.DeleteRecord;
import org.apache.hudi.common.model.HoodieKey;
import org.apache.hudi.common.util.SerializationUtils;

/** Prints what stands in kryo_deletes.tsv: delete blocks as Hudi's own classes write them, with keys k1, k2, ... */
public class KryoDeletes {
  private static final String PARTITION = "2021/03";

  private static HoodieKey key(String key, String partition) {
    return new HoodieKey(key, partition);
  }

  private static void keys(String name, HoodieKey... keys) throws Exception {
    System.out.println("keys_" + name + "\t" + HexFormat.of().formatHex(SerializationUtils.serialize(keys)));
  }

  private static void deletes(String name, DeleteRecord... deletes) throws Exception {
    System.out.println("deletes_" + name + "\t" + HexFormat.of().formatHex(SerializationUtils.serialize(deletes)));
  }

  private static void ordered(String name, Comparable<?>... ordering) throws Exception {
    DeleteRecord[] deletes = new DeleteRecord[ordering.length];
    for (int i = 0; i < ordering.length; i++) {
      deletes[i] = DeleteRecord.create(key("k" + (i + 1), PARTITION), ordering[i]);
    }
    deletes(name, deletes);
  }

  public static void main(String[] arguments) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    HoodieKey same = key("k1", "p");
    keys("none");
    keys("one", same);
    keys("of_one_partition", key("k1", PARTITION), key("k2", PARTITION), key("k3", new String(PARTITION)));
    keys("without_partition", key("k1", null), key("k2", null));
    keys("empty", key("", ""), key("a", ""));
    keys("texts", key("\u00e9", "stra\u00dfe"), key("\u65e5\u672c", "\ud83d\ude00"), key("\u0000", "x\u0000y"));
    keys("lengths", key("k".repeat(63), "k".repeat(64)), key("k".repeat(200), "\u00e9".repeat(70)));
    keys("twice", same, same, key("k2", "p"));
    keys("null", same, null);
    ordered("none");
    ordered("int", 7, -1, Integer.MIN_VALUE, Integer.MAX_VALUE, 0);
    ordered("long", 1700000000000L, -5L, Long.MIN_VALUE, 0L, Long.MAX_VALUE);
    ordered("double", 20.5, -0.0, 9.999, 10.0, Double.NEGATIVE_INFINITY);
    ordered("float", 20.5f, -1.5f);
    ordered("boolean", true, false);
    ordered("string", "2021-03-01", "", "\u00e9\u65e5", "k".repeat(64), "0");
    ordered("decimal", new BigDecimal("12.34"), new BigDecimal("-99999999999999999999.5"), BigDecimal.ZERO,
        new BigDecimal("0.00"), new BigDecimal("1E+3"));
    ordered("date", Date.valueOf("2021-03-01"), Date.valueOf("1969-03-01"));
    ordered("local_date", LocalDate.of(2021, 3, 1), LocalDate.of(1969, 12, 31));
    ordered("year_before_christ", LocalDate.of(-5, 12, 31));
    ordered("timestamp", Timestamp.from(Instant.parse("2021-03-01T10:11:12.123456Z")), new Timestamp(-1));
    ordered("utf8", new Utf8("2021"), new Utf8("\u00e9"), new Utf8(""));
    ordered("null", (Comparable<?>) null);
    ordered("some_zero", 0, 5L, 0);
    ordered("different", 5, 5L);
    ordered("short", (short) 5);
    ordered("instant", Instant.parse("2021-03-01T10:11:12Z"));
    String text = "2021";
    ordered("one_text", text, text, PARTITION);
    BigDecimal number = new BigDecimal("1.5");
    ordered("one_decimal", number, number);
    DeleteRecord one = DeleteRecord.create(key("k1", PARTITION), 5L);
    deletes("twice", one, one);
    deletes("default", DeleteRecord.create(same));
    DeleteRecord[] many = new DeleteRecord[300];
    for (int i = 0; i < many.length; i++) {
      many[i] = DeleteRecord.create(key("key-" + i, "p" + i % 3), i * 997L + 1);
    }
    deletes("many", many);
  }
}
