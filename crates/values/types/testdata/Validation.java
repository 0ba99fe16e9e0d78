// Writes validation.tsv of this folder with a real Cassandra's classes; see README.md.
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.marshal.*;
import org.apache.cassandra.utils.ByteBufferUtil;

public class Validation {
    public static void main(String[] args) throws Exception {
        DatabaseDescriptor.clientInitialization();
        PrintStream out = new PrintStream(args[0] + "/validation.tsv", "UTF-8");
        out.println("# class, bytes, ok or the message of the refusal");
        for (AbstractType<?> type : Golden.types()) {
            for (int i = 0; i < 24; i++) {
                ByteBuffer b;
                if (i < 10) b = ByteBuffer.wrap(Golden.bytes(i < 6 ? i : i * 2 - 4));
                else {
                    byte[] bytes = ByteBufferUtil.getArray(Golden.value(type, false));
                    if (i % 2 == 0 && bytes.length > 0) bytes = Arrays.copyOf(bytes, Golden.random.nextInt(bytes.length));
                    else if (i % 4 == 1) bytes = Arrays.copyOf(bytes, bytes.length + 1 + Golden.random.nextInt(4));
                    else if (bytes.length > 0) bytes[Golden.random.nextInt(bytes.length)] ^= 1 << Golden.random.nextInt(8);
                    b = ByteBuffer.wrap(bytes);
                }
                String result;
                try { type.validate(b.duplicate()); result = "ok"; } catch (Throwable e) { result = Golden.line(e.getClass().getSimpleName() + ": " + e.getMessage()); }
                out.println(type + "\t" + ByteBufferUtil.bytesToHex(b) + "\t" + result);
            }
        }
        out.close();
    }
}
