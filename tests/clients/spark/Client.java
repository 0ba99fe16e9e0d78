// Spark with spark-cassandra-connector over a running node: `Client.java HOST PORT torc|cassandra`.
//
// A job in this process writes tables and reads them by token ranges, which it plans by `system.size_estimates`. Predicates go down to the node, joins ask for
// partitions by their keys, and the catalog makes and changes tables.

import static com.datastax.spark.connector.japi.CassandraJavaUtil.*;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.spark.connector.rdd.ReadConf;
import java.io.Serializable;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.*;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import scala.Option;

public class Client {
    static final String KEYSPACE = "spark_" + UUID.randomUUID().toString().substring(0, 8);
    static final String MADE = KEYSPACE + "_made";
    static final int DEVICES = 200;
    static final int READINGS = 100;
    static String host, port, nodes;
    static SparkSession spark;
    static JavaSparkContext context;
    static CqlSession session;
    static int passed, failed;

    interface Body {
        void run() throws Exception;
    }

    static void check(String name, Body test) {
        long begun = System.nanoTime();
        try {
            test.run();
            passed++;
            System.out.printf("ok %s (%.1f s)%n", name, (System.nanoTime() - begun) / 1e9);
        } catch (Throwable error) {
            failed++;
            System.out.println("FAIL " + name + ": " + error);
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause != error) System.out.println("     because of " + cause);
                for (StackTraceElement at : cause.getStackTrace()) {
                    if (at.getClassName().startsWith("Client")) System.out.println("     at line " + at.getLineNumber());
                }
            }
        }
    }

    static void equal(Object found, Object expected, String what) {
        if (!Objects.equals(found, expected)) throw new AssertionError(what + ": found " + found + ", expected " + expected);
    }

    public static class Device implements Serializable {
        private int device;
        private long day;

        public Device() {}

        public Device(int device, long day) {
            this.device = device;
            this.day = day;
        }

        public int getDevice() {
            return device;
        }

        public long getDay() {
            return day;
        }
    }

    static void start() {
        session = CqlSession.builder().addContactPoint(new InetSocketAddress(host, Integer.parseInt(port))).withLocalDatacenter("datacenter1")
                .withConfigLoader(DriverConfigLoader.programmaticBuilder().withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30)).build()).build();
        session.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': " + nodes + "}");
        session.execute("CREATE TABLE " + KEYSPACE + ".readings (device int, day bigint, at int, kind text, value double, PRIMARY KEY ((device, day), at))"
                + " WITH CLUSTERING ORDER BY (at DESC)");
        session.execute("CREATE INDEX ON " + KEYSPACE + ".readings (kind)");
        session.execute("CREATE TYPE " + KEYSPACE + ".point (x int, y int)");
        session.execute("CREATE TABLE " + KEYSPACE + ".types (k int PRIMARY KEY, a ascii, b bigint, bl blob, bo boolean, d date, de decimal, f float, i inet, s smallint,"
                + " ti tinyint, ts timestamp, u uuid, tu timeuuid, vi varint, t time, l list<int>, se set<text>, m map<text, int>, p frozen<point>, tp tuple<int, text>)");
        session.execute("CREATE TABLE " + KEYSPACE + ".visits (page text PRIMARY KEY, count counter)");
        spark = SparkSession.builder().master("local[2]").appName("test")
                .config("spark.ui.enabled", "false")
                .config("spark.log.level", "ERROR")
                .config("spark.sql.shuffle.partitions", "4")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.cassandra.connection.host", host)
                .config("spark.cassandra.connection.port", port)
                .config("spark.cassandra.connection.localDC", "datacenter1")
                .config("spark.cassandra.connection.timeoutMS", "20000")
                .config("spark.cassandra.input.consistency.level", "LOCAL_QUORUM")
                .config("spark.cassandra.input.fetch.sizeInRows", "100")
                .config("spark.sql.extensions", "com.datastax.spark.connector.CassandraSparkExtensions")
                .config("spark.sql.catalog.torc", "com.datastax.spark.connector.datasource.CassandraCatalog")
                .getOrCreate();
        context = new JavaSparkContext(spark.sparkContext());
    }

    static Dataset<Row> table(String name, String... options) {
        var reader = spark.read().format("org.apache.spark.sql.cassandra").option("keyspace", KEYSPACE).option("table", name);
        for (int at = 0; at < options.length; at += 2) reader = reader.option(options[at], options[at + 1]);
        return reader.load();
    }

    static void save(Dataset<Row> rows, String name, String... options) {
        var writer = rows.write().format("org.apache.spark.sql.cassandra").option("keyspace", KEYSPACE).option("table", name).mode("append");
        for (int at = 0; at < options.length; at += 2) writer = writer.option(options[at], options[at + 1]);
        writer.save();
    }

    /** What the plan asks the node for, and what Spark does itself. */
    static String plan(Dataset<Row> rows) {
        return rows.queryExecution().executedPlan().toString().replace("\"", "");
    }

    static void pushed(Dataset<Row> rows, long expected, String... filters) {
        String plan = plan(rows);
        for (String filter : filters) {
            if (!plan.contains(filter)) throw new AssertionError(filter + " is not in the plan: " + plan);
        }
        equal(rows.count(), expected, "rows of " + String.join(" and ", filters));
    }

    static void write() {
        Dataset<Row> rows = spark.range(DEVICES * READINGS).selectExpr(
                "cast(id / " + READINGS + " as int) as device", "id div " + READINGS + " % 7 as day", "cast(id % " + READINGS + " as int) as at",
                "concat('kind', id % 10) as kind", "id * 0.5D as value");
        save(rows, "readings");
        equal(session.execute("SELECT count(*) FROM " + KEYSPACE + ".readings").one().getLong(0), (long) DEVICES * READINGS, "rows that the node counts");
    }

    /** Scans by token ranges see each row once, however many splits there are. */
    static void scan() {
        equal(table("readings").count(), (long) DEVICES * READINGS, "rows");
        var conf = ReadConf.fromSparkConf(context.getConf());
        for (Object splits : List.of(1, 7, 64)) {
            var all = javaFunctions(context).cassandraTable(KEYSPACE, "readings").withReadConf(conf.copy(Option.apply(splits), conf.splitSizeInMB(),
                    conf.fetchSizeInRows(), conf.consistencyLevel(), conf.taskMetricsEnabled(), conf.throughputMiBPS(), conf.readsPerSec(),
                    conf.parallelismLevel(), conf.executeAs()));
            var ids = all.map(row -> row.getInt("device") * READINGS + row.getInt("at")).collect();
            equal(ids.size(), DEVICES * READINGS, "rows over splits");
            equal(new HashSet<>(ids).size(), DEVICES * READINGS, "different rows over splits");
        }
        var sums = table("readings").agg(functions.sum("value"), functions.max("at"), functions.countDistinct("device", "day")).first();
        equal(sums, org.apache.spark.sql.RowFactory.create(LongStream.range(0, DEVICES * READINGS).sum() * 0.5, READINGS - 1, (long) DEVICES), "aggregates");
        equal(javaFunctions(context).cassandraTable(KEYSPACE, "readings").cassandraCount(), (long) DEVICES * READINGS, "the node's own counts");
        var byKind = new TreeMap<String, Long>();
        for (Row row : table("readings").groupBy("kind").count().collectAsList()) byKind.put(row.getString(0), row.getLong(1));
        equal(byKind.size(), 10, "kinds");
        equal(new HashSet<>(byKind.values()), Set.of((long) DEVICES * READINGS / 10), "rows of each kind");
    }

    /** A table of some megabytes is more than one split of a megabyte, by the estimates of the node. */
    static void estimates() throws Exception {
        session.execute("CREATE TABLE " + KEYSPACE + ".large (k int PRIMARY KEY, v blob) WITH compression = {'enabled': false}");
        save(spark.range(4_000).selectExpr("cast(id as int) as k", "cast(repeat(sha2(cast(id as string), 512), 24) as binary) as v"), "large");
        long deadline = System.nanoTime() + 400_000_000_000L;
        while (true) {
            long bytes = 0;
            for (var row : session.execute("SELECT * FROM system.size_estimates WHERE keyspace_name = ? AND table_name = 'large'", KEYSPACE)) {
                bytes += row.getLong("partitions_count") * row.getLong("mean_partition_size");
            }
            System.out.println("     estimated bytes of the large table " + bytes);
            if (bytes > 2_000_000) break;
            if (System.nanoTime() > deadline) throw new AssertionError("no estimates");
            Thread.sleep(2_000);
        }
        var large = table("large", "spark.cassandra.input.split.sizeInMB", "1");
        if (large.rdd().getNumPartitions() < 4) throw new AssertionError(large.rdd().getNumPartitions() + " splits of a large table");
        equal(large.select("k").distinct().count(), 4_000L, "rows of a large table");
    }

    static void pushDown() {
        var readings = table("readings");
        pushed(readings.where("device = 12 AND day = 5"), READINGS, "[device = ?, 12]", "[day = ?, 5]");
        pushed(readings.where("device IN (12, 13) AND day IN (5, 6)"), 2 * READINGS, "[device IN (?, ?)", "[day IN (?, ?)");
        pushed(readings.where("device = 12 AND day = 5 AND at >= 10 AND at < 20"), 10, "[at >= ?, 10]", "[at < ?, 20]");
        pushed(readings.where("kind = 'kind3'"), DEVICES * READINGS / 10, "[kind = ?, kind3]");
        // What cannot be asked for, Spark filters itself.
        var filtered = readings.where("value < 100");
        equal(plan(filtered).contains("[value < ?"), false, "no filter on a column without an index");
        equal(filtered.count(), 200L, "rows of a filter by Spark");
        equal(readings.where("device = 12").count(), (long) READINGS, "rows by a part of the partition key");
        pushed(readings.where("device = 12 AND day = 5 AND value > 604.6"), 90, "[device = ?, 12]");
        var rows = javaFunctions(context).cassandraTable(KEYSPACE, "readings").where("device = ? AND day = ? AND at > ?", 12, 5L, 90);
        equal(rows.map(row -> row.getInt("at")).collect(), List.of(99, 98, 97, 96, 95, 94, 93, 92, 91), "clustering order");
        equal(rows.limit(2L).map(row -> row.getInt("at")).collect(), List.of(99, 98), "limited");
        equal(rows.withAscOrder().map(row -> row.getInt("at")).first(), 91, "ascending");
        var first = javaFunctions(context).cassandraTable(KEYSPACE, "readings").perPartitionLimit(1L);
        equal(first.map(row -> row.getInt("at")).distinct().collect(), List.of(READINGS - 1), "first rows of partitions");
        equal(first.count(), (long) DEVICES, "partitions");
    }

    static void join() {
        var wanted = context.parallelize(IntStream.range(0, 50).mapToObj(at -> new Device(at * 5, at * 5 % 7)).toList(), 4);
        var joined = javaFunctions(wanted).joinWithCassandraTable(KEYSPACE, "readings", someColumns("at", "value"), someColumns("device", "day"),
                mapRowToTuple(Integer.class, Double.class), mapToRow(Device.class));
        // The devices 200 to 245 are not there.
        equal(joined.count(), 40L * READINGS, "rows of the join");
        equal(joined.where("at = ?", 7).map(pair -> pair._2()._2() - (pair._1().getDevice() * READINGS + 7) * 0.5).distinct().collect(), List.of(0.0), "values of the join");
        var near = javaFunctions(wanted).repartitionByCassandraReplica(KEYSPACE, "readings", 4, someColumns("device", "day"), mapToRow(Device.class));
        equal(near.count(), 50L, "keys beside their replicas");
        equal(near.map(Device::getDevice).distinct().count(), 50L, "different keys beside their replicas");
        // In SQL: keys ask for their rows instead of a scan.
        var keys = spark.range(50).selectExpr("cast(id * 5 as int) as device", "id * 5 % 7 as day");
        var direct = keys.join(table("readings", "directJoinSetting", "on"), scala.jdk.javaapi.CollectionConverters.asScala(List.of("device", "day")).toSeq());
        pushed(direct, 40L * READINGS, "Cassandra Direct Join");
    }

    static void types() {
        var row = spark.sql("SELECT 1 AS k, 'ascii' AS a, 9000000000L AS b, X'00ff10' AS bl, true AS bo, DATE'1969-12-31' AS d, 12.5BD AS de, 1.5F AS f, '10.0.0.1' AS i,"
                + " 7S AS s, -7Y AS ti, TIMESTAMP'2024-02-29 12:30:15.123' AS ts, '8a9b9a8e-5b5a-4b0e-9d0f-2f6f1d1b7c11' AS u,"
                + " 'd2177dd0-eaa2-11de-a572-001b779c76e3' AS tu, 123456789012345678BD AS vi, 3600000000000L AS t, array(3, 1, 3) AS l, array('x', 'y') AS se,"
                + " map('one', 1, 'two', 2) AS m, named_struct('x', 1, 'y', 2) AS p, named_struct('0', 5, '1', 'five') AS tp");
        save(row, "types");
        Row found = table("types").first();
        for (String name : List.of("a", "b", "bo", "d", "f", "i", "s", "ti", "ts", "u", "tu", "t", "l")) {
            equal("" + found.getAs(name), "" + row.first().getAs(name), name);
        }
        equal(Arrays.toString(found.<byte[]>getAs("bl")), "[0, -1, 16]", "bl");
        equal(found.<BigDecimal>getAs("de").compareTo(new BigDecimal("12.5")), 0, "de");
        equal(found.getAs("vi").toString().startsWith("123456789012345678"), true, "vi");
        equal(new TreeSet<>(found.getList(found.fieldIndex("se"))), new TreeSet<>(Set.of("x", "y")), "se");
        equal(found.getJavaMap(found.fieldIndex("m")), Map.of("one", 1, "two", 2), "m");
        equal("" + found.getAs("p"), "[1,2]", "p");
        equal("" + found.getAs("tp"), "[5,five]", "tp");
        var point = session.execute("SELECT p.y, tp, l FROM " + KEYSPACE + ".types").one();
        equal(point.getInt(0), 2, "a field of the user type");
        equal(point.getList(2, Integer.class), List.of(3, 1, 3), "the list");
    }

    static void writes() {
        // TTL and timestamps of rows, IF NOT EXISTS, columns that are left out, counters, deletions.
        var one = spark.sql("SELECT 1000 AS device, 1L AS day, 1 AS at, 'new' AS kind, 1D AS value");
        save(one, "readings", "spark.cassandra.output.ttl", "1000", "spark.cassandra.output.timestamp", "1700000000000000");
        var read = table("readings").where("device = 1000 AND day = 1").selectExpr("ttl(value) AS ttl", "writetime(value) AS time").first();
        int left = read.getInt(0);
        if (left < 900 || left > 1000) throw new AssertionError("TTL " + left);
        equal(read.getLong(1), 1_700_000_000_000_000L, "the timestamp");
        var again = spark.sql("SELECT 1000 AS device, 1L AS day, 1 AS at, 'again' AS kind, 2D AS value");
        save(again, "readings", "spark.cassandra.output.ifNotExists", "true");
        equal(table("readings").where("device = 1000 AND day = 1").first().getAs("kind"), "new", "a row that was there");
        var empty = spark.sql("SELECT 1000 AS device, 1L AS day, 1 AS at, cast(null AS string) AS kind, 3D AS value");
        save(empty, "readings", "spark.cassandra.output.ignoreNulls", "true");
        equal(table("readings").where("device = 1000 AND day = 1").first().getAs("kind"), "new", "a null that is left out");
        for (int at = 0; at < 3; at++) save(spark.sql("SELECT 'front' AS page, 5L AS count UNION SELECT 'back', 1L"), "visits");
        equal(table("visits").orderBy("page").select("count").collectAsList().toString(), "[[3], [15]]", "counters");
        var gone = context.parallelize(IntStream.range(0, 20).mapToObj(at -> new Device(at, at % 7)).toList(), 2);
        javaFunctions(gone).deleteFromCassandra(KEYSPACE, "readings", mapToRow(Device.class), someColumns(), someColumns("device", "day"),
                javaFunctions(gone).defaultWriteConf(), javaFunctions(gone).defaultConnector());
        equal(table("readings").count(), (long) (DEVICES - 20) * READINGS + 1, "rows after deletions");
        // The mode `overwrite` truncates.
        spark.sql("SELECT 5 AS device, 5L AS day, 5 AS at, 'last' AS kind, 5D AS value").write().format("org.apache.spark.sql.cassandra")
                .option("keyspace", KEYSPACE).option("table", "readings").option("confirm.truncate", "true").mode("overwrite").save();
        equal(table("readings").count(), 1L, "rows after an overwrite");
    }

    static void append(String name, String rows) throws Exception {
        spark.sql(rows).writeTo(name).append();
    }

    static void catalog() throws Exception {
        spark.sql("CREATE DATABASE torc." + MADE + " WITH DBPROPERTIES (class='NetworkTopologyStrategy', datacenter1='" + nodes + "', durable_writes='true')");
        String name = "torc." + MADE + ".events";
        spark.sql("CREATE TABLE " + name + " (k int, c timestamp, d string, v array<int>, m map<string, double>) USING cassandra PARTITIONED BY (k)"
                + " TBLPROPERTIES (clustering_key='c.desc, d.asc', compaction='{class=SizeTieredCompactionStrategy,bucket_high=1001}', gc_grace_seconds='1000')");
        append(name, "SELECT cast(id % 10 AS int) AS k, timestamp_seconds(id) AS c, 'd' AS d, array(1, 2) AS v, map('x', 0.5D) AS m FROM range(100)");
        equal(spark.sql("SELECT * FROM " + name + " WHERE k = 3").count(), 10L, "rows of a partition");
        equal(spark.sql("SHOW TABLES IN torc." + MADE).collectAsList().size(), 1, "tables");
        equal(spark.sql("SHOW NAMESPACES IN torc").collectAsList().stream().anyMatch(row -> row.getString(0).equals(KEYSPACE)), true, "keyspaces");
        String described = spark.sql("DESCRIBE TABLE EXTENDED " + name).collectAsList().toString();
        for (String part : List.of("gc_grace_seconds=1000", "[c.DESC,d.ASC]", "bucket_high=1001")) {
            if (!described.contains(part)) throw new AssertionError(part + " is not in " + described);
        }
        spark.sql("ALTER TABLE " + name + " ADD COLUMNS (note string)");
        spark.sql("ALTER TABLE " + name + " SET TBLPROPERTIES (gc_grace_seconds='2000')");
        spark.sql("ALTER TABLE " + name + " DROP COLUMN v");
        append(name, "SELECT 100 AS k, timestamp_seconds(5) AS c, 'e' AS d, map('y', 1D) AS m, 'noted' AS note");
        equal(spark.sql("SELECT note FROM " + name + " WHERE k = 100").first().getString(0), "noted", "the new column");
        equal(session.execute("SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = '" + MADE + "'").one().getInt(0), 2000, "the option");
        spark.sql("DROP TABLE " + name);
        spark.sql("DROP DATABASE torc." + MADE);
        equal(session.execute("SELECT * FROM system_schema.keyspaces WHERE keyspace_name = '" + MADE + "'").all().size(), 0, "the keyspace is gone");
    }

    public static void main(String[] args) {
        host = args[0];
        port = args[1];
        nodes = System.getenv().getOrDefault("TEST_NODES", "1");
        check("start", Client::start);
        if (failed == 0) {
            check("write", Client::write);
            check("scan", Client::scan);
            if (args[2].equals("torc")) check("estimates", Client::estimates);
            check("push_down", Client::pushDown);
            check("join", Client::join);
            check("types", Client::types);
            check("writes", Client::writes);
            check("catalog", Client::catalog);
            session.execute("DROP KEYSPACE " + KEYSPACE);
            spark.stop();
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 || passed == 0 ? 1 : 0);
    }
}
