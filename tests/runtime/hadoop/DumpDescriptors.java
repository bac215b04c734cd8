import java.io.ByteArrayOutputStream;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Prints the protobuf descriptors of the generated classes named as arguments, with all that they import,
 * as one serialised FileDescriptorSet. Everything goes through reflection: Hadoop 2 uses com.google.protobuf,
 * Hadoop 3 a shaded copy.
 */
public final class DumpDescriptors {
    private static final int FILE_FIELD_TAG = 0x0A; // FileDescriptorSet.file = 1, length-delimited

    public static void main(String[] classNames) throws Exception {
        Map<String, byte[]> files = new LinkedHashMap<>();
        for (String className : classNames) {
            collect(Class.forName(className).getMethod("getDescriptor").invoke(null), files);
        }
        ByteArrayOutputStream set = new ByteArrayOutputStream();
        for (byte[] file : files.values()) {
            set.write(FILE_FIELD_TAG);
            int length = file.length;
            while (length > 0x7F) {
                set.write(length & 0x7F | 0x80);
                length >>>= 7;
            }
            set.write(length);
            set.write(file);
        }
        System.out.write(set.toByteArray());
        System.out.flush();
    }

    private static void collect(Object file, Map<String, byte[]> files) throws Exception {
        for (Object imported : (Collection<?>) file.getClass().getMethod("getDependencies").invoke(file)) {
            collect(imported, files);
        }
        Object proto = file.getClass().getMethod("toProto").invoke(file);
        String name = (String) file.getClass().getMethod("getName").invoke(file);
        files.put(name, (byte[]) proto.getClass().getMethod("toByteArray").invoke(proto));
    }
}
