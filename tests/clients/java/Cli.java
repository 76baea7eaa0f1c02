import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;

/**
 * What the programs here share: {@code key=value} arguments, JSON lines on stdout, record values.
 *
 * <p>An argument {@code p.NAME=VALUE} is the client property NAME.
 */
final class Cli {
    private final Map<String, String> given = new TreeMap<>();

    Cli(String[] args) {
        for (String arg : args) {
            int at = arg.indexOf('=');
            if (at < 1) {
                throw new IllegalArgumentException("not key=value: " + arg);
            }
            given.put(arg.substring(0, at), arg.substring(at + 1));
        }
    }

    /** An argument that must be there. */
    String get(String key) {
        String value = given.get(key);
        if (value == null) {
            throw new IllegalArgumentException("missing argument: " + key + "=");
        }
        return value;
    }

    String get(String key, String otherwise) {
        return given.getOrDefault(key, otherwise);
    }

    int getInt(String key, int otherwise) {
        return given.containsKey(key) ? Integer.parseInt(given.get(key)) : otherwise;
    }

    /** Client properties: {@code bootstrap} and every {@code p.NAME}; pairs of defaults come first. */
    Properties client(Object... defaults) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", get("bootstrap"));
        for (int i = 0; i < defaults.length; i += 2) {
            properties.put(defaults[i], String.valueOf(defaults[i + 1]));
        }
        given.forEach((key, value) -> {
            if (key.startsWith("p.")) {
                properties.put(key.substring(2), value);
            }
        });
        return properties;
    }

    /** Prints one JSON object: keys and values in turn. */
    static synchronized void line(Object... pairs) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            object.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(json(object));
    }

    /** A failed call as JSON fields: the class and text that an application sees. */
    static Object[] failure(Throwable thrown, Object... before) {
        Throwable cause = thrown instanceof java.util.concurrent.ExecutionException && thrown.getCause() != null
            ? thrown.getCause() : thrown;
        Object[] all = java.util.Arrays.copyOf(before, before.length + 6);
        all[before.length] = "ok";
        all[before.length + 1] = false;
        all[before.length + 2] = "exception";
        all[before.length + 3] = cause.getClass().getSimpleName();
        all[before.length + 4] = "text";
        all[before.length + 5] = cause.getMessage();
        return all;
    }

    /** A record's value: {@code a} is so many 'A's, {@code random} seeded noise, {@code hex} noise that shrinks by half. */
    static byte[] value(String content, int bytes, long seed) {
        byte[] value = new byte[bytes];
        if (content.equals("random")) {
            new Random(seed).nextBytes(value);
        } else if (content.equals("hex")) {
            Random random = new Random(seed);
            for (int i = 0; i < bytes; i++) {
                value[i] = (byte) "0123456789abcdef".charAt(random.nextInt(16));
            }
        } else {
            java.util.Arrays.fill(value, (byte) 'A');
        }
        return value;
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder out = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            out.append('{');
            map.forEach((key, inner) ->
                out.append(out.length() > 1 ? "," : "").append(json(String.valueOf(key))).append(':').append(json(inner)));
            return out.append('}').toString();
        }
        if (value instanceof Iterable<?> list) {
            out.append('[');
            for (Iterator<?> each = list.iterator(); each.hasNext();) {
                out.append(json(each.next())).append(each.hasNext() ? "," : "");
            }
            return out.append(']').toString();
        }
        out.append('"');
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
