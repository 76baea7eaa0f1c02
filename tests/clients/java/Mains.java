import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Runs the main methods that a file names, in its order and in one JVM: a command a line, its words parted by U+001F,
 * the class first. A tool that fails ends the JVM itself, with its exit code.
 */
public class Mains {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] words = line.split("\u001f", -1);
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        }
    }
}
