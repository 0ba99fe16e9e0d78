// Prints SSTables as Cassandra's SSTableExport does, many of them in one virtual machine: starting one takes seconds, and
// the tool ends its process after one file. What is called here is all that the tool does between its options and its end.
//
// A line of the input is the path of a Data.db. The answer is a line `EXIT OUT ERR` (0 when it could be read, and how many
// bytes of JSON and of errors follow) and these bytes.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.io.sstable.Descriptor;
import org.apache.cassandra.io.sstable.ISSTableScanner;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;
import org.apache.cassandra.tools.JsonTransformer;
import org.apache.cassandra.tools.Util;

public class Export {
    static void export(String path, OutputStream out) throws Exception {
        Descriptor descriptor = Descriptor.fromFileWithComponent(new File(path), false).left;
        TableMetadata table = Util.metadataFromSSTable(descriptor);
        SSTableReader sstable = SSTableReader.openNoValidation(null, descriptor, TableMetadataRef.forOfflineTools(table));
        try (ISSTableScanner scanner = sstable.getScanner()) {
            JsonTransformer.toJson(scanner, Util.iterToStream(scanner), false, table, out);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(System.err);
        DatabaseDescriptor.toolInitialization();
        BufferedReader paths = new BufferedReader(new InputStreamReader(System.in));
        for (String path; (path = paths.readLine()) != null;) {
            ByteArrayOutputStream out = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
            int code = 0;
            try {
                export(path, out);
            } catch (Throwable thrown) {
                code = 1;
                thrown.printStackTrace(new PrintStream(errors, true));
            }
            answers.print(code + " " + out.size() + " " + errors.size() + "\n");
            answers.write(out.toByteArray());
            answers.write(errors.toByteArray());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
