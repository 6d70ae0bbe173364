import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Runs a main class of Hive 2 or 3 on Java 9 and later: Hive takes the application's class loader for a URLClassLoader,
 * which it has not been since Java 8, so everything is loaded through one.
 *
 * Arguments: the main class, its class path (folders and jars, in the system's spelling), the main class's arguments.
 */
public final class Launcher {
    public static void main(String[] arguments) throws Exception {
        List<URL> places = new ArrayList<>();
        for (String place : arguments[1].split(File.pathSeparator)) {
            places.add(new File(place).getAbsoluteFile().toURI().toURL());
        }
        URLClassLoader loader =
                new URLClassLoader(places.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        String[] rest = Arrays.copyOfRange(arguments, 2, arguments.length);
        Class.forName(arguments[0], true, loader).getMethod("main", String[].class).invoke(null, (Object) rest);
    }
}
