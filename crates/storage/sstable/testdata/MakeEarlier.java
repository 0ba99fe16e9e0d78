// Makes the SSTables of mc/, md/, me/ and na/ with the Cassandra whose jars are on the class path: `java -cp "jars/*"
// MakeEarlier.java OUT`, where `jars` holds cassandra-all 3.11.0 (mc), 3.11.6 (md), 3.11.19 (me; these three with
// cassandra-driver-core 3.0.1) or 4.0-beta4 (na) and what they depend on, from Maven Central. Java 17 needs the `--add-opens`
// of tests/oracle/cassandra; 3.11.19 prints an exception that does no harm.

import java.io.File;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

import org.apache.cassandra.io.sstable.CQLSSTableWriter;

public class MakeEarlier {
    static final long T = 1_700_000_000_000_000L;

    static CQLSSTableWriter writer(String out, String name, String schema, String statement, String compression) {
        File dir = new File(out, name);
        dir.mkdirs();
        return CQLSSTableWriter.builder().inDirectory(dir)
            .forTable("CREATE TABLE fixtures." + name + " " + schema + (schema.contains(" WITH ") ? " AND " : " WITH ") + "compression = " + compression)
            .using(statement.replace("{t}", "fixtures." + name)).build();
    }

    static final String LZ4 = "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}";

    public static void main(String[] arguments) throws Exception {
        String out = arguments[0];
        CQLSSTableWriter w = writer(out, "plain", "(k int PRIMARY KEY, a ascii, b bigint, t text, d decimal, u uuid)",
            "INSERT INTO {t} (k, a, b, t, d, u) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?", "{'enabled': 'false'}");
        for (int k = 0; k < 40; k++)
            w.addRow(k, "a" + k, k * 7L, k % 3 == 0 ? null : "text " + k, new BigDecimal(k + ".5"), new UUID(k, 7), T + k);
        w.close();
        w = writer(out, "clustered", "(k text, c int, d text, v int, m map<int, text>, s set<text>, l frozen<list<int>>, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)",
            "INSERT INTO {t} (k, c, d, v, m, s, l) VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?", LZ4);
        for (int k = 0; k < 4; k++)
            for (int c = 0; c < 12; c++)
                w.addRow("key" + k, c - 6, "d" + c, c * k, c % 4 == 0 ? null : new HashMap<>(Map.of(c, "m" + c, 1000, "n")), new HashSet<>(Set.of("x", "y" + c)), Arrays.asList(c, k), T + c, c % 5 == 1 ? 100_000_000 : 0);
        w.close();
        w = writer(out, "statics", "(k int, c int, s text static, v int, PRIMARY KEY (k, c))",
            "INSERT INTO {t} (k, c, s, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?", LZ4);
        for (int k = 0; k < 3; k++)
            for (int c = 0; c < 3; c++)
                w.addRow(k, c, "static " + k, c == 1 ? null : c, T + c);
        w.close();
        w = writer(out, "wide", "(k int, c int, v text, PRIMARY KEY (k, c))",
            "INSERT INTO {t} (k, c, v) VALUES (?, ?, ?) USING TIMESTAMP ?", LZ4);
        for (int c = 0; c < 2500; c++)
            w.addRow(1, c, String.format("%05d", c) + "x".repeat(100), T + c % 3);
        for (int k = 2; k < 200; k++)
            w.addRow(k, 1, "small", T);
        w.close();
        System.exit(0);
    }
}
