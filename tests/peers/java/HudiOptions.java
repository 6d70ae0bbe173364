import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** Prints the options that the classes of a jar of Hudi define: key, default, further keys and field, by tabs. */
public final class HudiOptions {
  public static void main(String[] jars) throws Exception {
    Class<?> kind = Class.forName("org.apache.hudi.common.config.ConfigProperty");
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    List<JarEntry> entries;
    try (JarFile jar = new JarFile(jars[0])) {
      entries = Collections.list(jar.entries());
    }
    for (JarEntry entry : entries) {
      for (Field field : fields(entry.getName())) {
        if (field.getType() == kind) {
          print(out, field, kind);
        }
      }
    }
  }

  /** Those of one of Hudi's classes whose name is that of options; none where it needs classes that are not here. */
  private static Field[] fields(String entry) {
    if (!entry.matches("org/apache/hudi/(?!org/|com/).*(Config|Options|Props)[^/]*\\.class")) {
      return new Field[0];
    }
    String name = entry.substring(0, entry.length() - ".class".length()).replace('/', '.');
    try {
      return Class.forName(name, false, HudiOptions.class.getClassLoader()).getDeclaredFields();
    } catch (LinkageError | ClassNotFoundException lacking) {
      System.err.println(name + " " + lacking);
      return new Field[0];
    }
  }

  private static void print(PrintStream out, Field field, Class<?> kind) throws Exception {
    boolean shared = Modifier.isStatic(field.getModifiers());
    field.setAccessible(true);
    Object owner = shared ? null : field.getDeclaringClass().getField("MODULE$").get(null); // an object of Scala
    Object option = field.get(owner);
    if (option == null) {
      return;
    }
    boolean hasDefault = (Boolean) kind.getMethod("hasDefaultValue").invoke(option);
    List<String> texts = new ArrayList<>();
    texts.add(String.valueOf(kind.getMethod("key").invoke(option)));
    texts.add(hasDefault ? String.valueOf(kind.getMethod("defaultValue").invoke(option)) : "");
    texts.add(String.join(",", (List<String>) kind.getMethod("getAlternatives").invoke(option)));
    texts.add(field.getDeclaringClass().getSimpleName() + "." + field.getName());
    out.println(String.join("\t", texts).replace('\n', ' '));
  }
}
