// JanusGraph over a running node with its CQL backend: `Client.java HOST PORT torc|cassandra`.
//
// A graph with a schema, unique indexes under JanusGraph's own locks (claims with timestamps and TTLs), thousands of elements, jobs that scan all rows,
// two instances beside each other, and a restart.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.tinkerpop.gremlin.process.traversal.P;
import org.apache.tinkerpop.gremlin.process.traversal.Order;
import org.apache.tinkerpop.gremlin.process.traversal.dsl.graph.GraphTraversalSource;
import org.apache.tinkerpop.gremlin.process.traversal.dsl.graph.__;
import org.apache.tinkerpop.gremlin.structure.Direction;
import org.apache.tinkerpop.gremlin.structure.Vertex;
import org.apache.tinkerpop.gremlin.structure.VertexProperty;
import org.janusgraph.core.*;
import org.janusgraph.core.schema.*;
import org.janusgraph.diskstorage.keycolumnvalue.scan.ScanMetrics;
import org.janusgraph.graphdb.database.management.ManagementSystem;

public class Client {
    static final int PEOPLE = 1_000;
    static final int TOWNS = 20;
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final String KEYSPACE = "janusgraph_" + UUID.randomUUID().toString().substring(0, 8);
    static final List<JanusGraph> open = new ArrayList<>();
    static String host, port;
    static int nodes;
    static JanusGraph graph;
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

    static JanusGraph open(String name) {
        var found = JanusGraphFactory.build()
                .set("storage.backend", "cql")
                .set("storage.hostname", host)
                .set("storage.port", Integer.parseInt(port))
                .set("storage.cql.keyspace", KEYSPACE)
                .set("storage.cql.local-datacenter", "datacenter1")
                .set("storage.cql.replication-factor", nodes)
                .set("graph.unique-instance-id", name)
                .set("graph.replace-instance-if-exists", true)
                .set("ids.block-size", 2_000)
                .set("schema.default", "none")
                .set("cache.db-cache", false)
                .open();
        open.add(found);
        return found;
    }

    static void close(JanusGraph closed) {
        open.remove(closed);
        closed.close();
    }

    static void makeSchema() {
        JanusGraphManagement management = graph.openManagement();
        var name = management.makePropertyKey("name").dataType(String.class).cardinality(Cardinality.SINGLE).make();
        var age = management.makePropertyKey("age").dataType(Integer.class).make();
        var mail = management.makePropertyKey("mail").dataType(String.class).cardinality(Cardinality.SET).make();
        management.makePropertyKey("note").dataType(String.class).cardinality(Cardinality.LIST).make();
        management.makePropertyKey("place").dataType(org.janusgraph.core.attribute.Geoshape.class).make();
        var since = management.makePropertyKey("since").dataType(Integer.class).make();
        management.makeVertexLabel("person").make();
        management.makeVertexLabel("town").make();
        management.setTTL(management.makeVertexLabel("visitor").setStatic().make(), Duration.ofSeconds(2));
        var knows = management.makeEdgeLabel("knows").multiplicity(Multiplicity.MULTI).make();
        management.makeEdgeLabel("lives").multiplicity(Multiplicity.MANY2ONE).make();
        management.buildEdgeIndex(knows, "knowsBySince", Direction.BOTH, Order.desc, since);
        var unique = management.buildIndex("byName", Vertex.class).addKey(name).unique().buildCompositeIndex();
        management.setConsistency(name, ConsistencyModifier.LOCK);
        management.setConsistency(unique, ConsistencyModifier.LOCK);
        management.buildIndex("byAge", Vertex.class).addKey(age).buildCompositeIndex();
        management.buildIndex("byMail", Vertex.class).addKey(mail).buildCompositeIndex();
        management.commit();
        var keys = graph.openManagement();
        equal(keys.getGraphIndex("byName").isUnique(), true, "the index is unique");
        equal(keys.getGraphIndex("byAge").getIndexStatus(keys.getPropertyKey("age")), SchemaStatus.ENABLED, "the index's status");
        keys.rollback();
    }

    /** Person n knows the next one and the one of twice the number, and lives in a town. */
    static void load() {
        var towns = new ArrayList<Vertex>();
        for (int at = 0; at < TOWNS; at++) {
            towns.add(graph.addVertex(org.apache.tinkerpop.gremlin.structure.T.label, "town", "name", "town" + at));
        }
        var people = new ArrayList<Vertex>();
        for (int at = 0; at < PEOPLE; at++) {
            Vertex person = graph.addVertex(org.apache.tinkerpop.gremlin.structure.T.label, "person", "name", "person" + at, "age", at % 90);
            person.property(VertexProperty.Cardinality.set, "mail", "p" + at + "@example.org");
            person.property(VertexProperty.Cardinality.set, "mail", "all@town" + at % TOWNS);
            person.addEdge("lives", towns.get(at % TOWNS));
            people.add(person);
        }
        for (int at = 0; at < PEOPLE; at++) {
            people.get(at).addEdge("knows", people.get((at + 1) % PEOPLE), "since", at);
            people.get(at).addEdge("knows", people.get(2 * at % PEOPLE), "since", at + PEOPLE);
        }
        graph.tx().commit();
    }

    static void traverse(JanusGraph over) {
        GraphTraversalSource g = over.traversal();
        equal(g.V().has("name", "person17").values("age").next(), 17, "a vertex by its unique name");
        equal(g.V().has("age", 5).count().next(), (long) (PEOPLE / 90 + (5 < PEOPLE % 90 ? 1 : 0)), "vertices by age");
        equal(g.V().has("mail", "all@town3").count().next(), (long) PEOPLE / TOWNS, "vertices by a mail of several");
        equal(g.V().has("name", "town7").in("lives").count().next(), (long) PEOPLE / TOWNS, "people of a town");
        equal(g.V().has("name", "person10").out("knows").order().by("name").values("name").toList(), List.of("person11", "person20"), "friends");
        equal(g.V().has("name", "person20").in("knows").values("name").toSet(), Set.of("person10", "person" + (PEOPLE / 2 + 10), "person19"), "known by");
        equal(g.V().has("name", "person10").repeat(__.out("knows")).times(3).dedup().values("name").toSet(),
                Set.of("person13", "person24", "person23", "person44", "person22", "person42", "person41", "person80"), "friends of friends");
        // The edges of a vertex by a range of their sort key: a slice of its row.
        equal(g.V().has("name", "person10").outE("knows").has("since", P.gt(PEOPLE)).inV().values("name").toList(), List.of("person20"), "by since");
        equal(g.V().has("name", "person10").bothE("knows").order().by("since", org.apache.tinkerpop.gremlin.process.traversal.Order.desc).limit(2)
                .values("since").toList(), List.of(PEOPLE + PEOPLE / 2 + 5, PEOPLE + 10), "newest edges");
        equal(g.V().has("name", P.within("person1", "person2", "nobody")).count().next(), 2L, "several names");
        // Everything: scans of all rows.
        equal(g.V().count().next(), (long) PEOPLE + TOWNS, "all vertices");
        equal(g.E().count().next(), 3L * PEOPLE, "all edges");
        equal(g.V().hasLabel("town").in("lives").dedup().count().next(), (long) PEOPLE, "people of all towns");
        over.tx().rollback();
    }

    static void change() {
        GraphTraversalSource g = graph.traversal();
        g.V().has("name", "person1").property("age", 1000).iterate();
        g.V().has("name", "person2").properties("mail").hasValue("all@town2").drop().iterate();
        g.V().has("name", "person2").property(VertexProperty.Cardinality.list, "note", "b").property(VertexProperty.Cardinality.list, "note", "a").iterate();
        g.V().has("name", "person3").drop().iterate();
        graph.tx().commit();
        equal(g.V().has("age", 1000).values("name").toList(), List.of("person1"), "by the new age");
        equal(g.V().has("age", 1).has("name", "person1").hasNext(), false, "by the former age");
        equal(g.V().has("mail", "all@town2").count().next(), (long) PEOPLE / TOWNS - 1, "by the removed mail");
        equal(g.V().has("name", "person2").values("note").order().toList(), List.of("a", "b"), "a list");
        equal(g.V().has("name", "person3").hasNext(), false, "a removed vertex");
        equal(g.V().has("name", "person2").out("knows").order().by("name").values("name").toList(), List.of("person4"), "friends that are left");
        graph.tx().rollback();
        g.addV("person").property("name", "nobody").iterate();
        graph.tx().rollback();
        equal(g.V().has("name", "nobody").hasNext(), false, "a transaction that was rolled back");
    }

    static void expire() throws InterruptedException {
        GraphTraversalSource g = graph.traversal();
        g.addV("visitor").property("name", "visitor").iterate();
        graph.tx().commit();
        equal(g.V().has("name", "visitor").hasNext(), true, "a vertex before its TTL");
        graph.tx().rollback();
        Thread.sleep(2_500);
        equal(g.V().has("name", "visitor").hasNext(), false, "a vertex after its TTL");
        graph.tx().rollback();
    }

    /** Whether a transaction that adds this name is committed. */
    static boolean add(JanusGraph to, String name) {
        JanusGraphTransaction transaction = to.newTransaction();
        try {
            transaction.addVertex("person").property("name", name);
            transaction.commit();
            return true;
        } catch (SchemaViolationException refused) {
            transaction.rollback();
            return false;
        } catch (JanusGraphException refused) {
            for (Throwable cause = refused; cause != null; cause = cause.getCause()) {
                if (cause instanceof org.janusgraph.diskstorage.locking.PermanentLockingException
                        || cause instanceof org.janusgraph.diskstorage.locking.TemporaryLockingException) return false;
            }
            throw refused;
        }
    }

    /** Instances that add the same names at the same time: one of them at most wins, and the index agrees. */
    static void compete() throws Exception {
        JanusGraph second = open("second");
        traverse(second);
        equal(add(second, "person5"), false, "a name that another instance has added");
        var threads = Executors.newFixedThreadPool(8);
        int won = 0;
        for (int round = 0; round < 5; round++) {
            String name = "unique" + round;
            var adding = new ArrayList<Callable<Boolean>>();
            for (int at = 0; at < 8; at++) {
                JanusGraph to = at % 2 == 0 ? graph : second;
                adding.add(() -> add(to, name));
            }
            int winners = 0;
            for (Future<Boolean> added : threads.invokeAll(adding)) winners += added.get() ? 1 : 0;
            long found = graph.traversal().V().has("name", name).count().next();
            graph.tx().rollback();
            if (winners > 1) throw new AssertionError(winners + " added " + name);
            equal(found, (long) winners, "vertices of " + name);
            won += winners;
        }
        threads.shutdown();
        if (!threads.awaitTermination(10, TimeUnit.SECONDS)) throw new AssertionError("threads are left");
        if (won == 0) throw new AssertionError("nobody has won");
        // Identifiers are blocks that each instance has reserved for itself.
        var ids = new HashSet<Object>();
        for (JanusGraph to : List.of(graph, second)) {
            for (int at = 0; at < 500; at++) ids.add(to.addVertex("town").id());
            to.tx().rollback();
        }
        equal(ids.size(), 1000, "different identifiers");
        close(second);
    }

    /** A new index over data that is there: a job that scans all rows. */
    static void reindex() throws Exception {
        JanusGraphManagement management = graph.openManagement();
        management.buildIndex("byNote", Vertex.class).addKey(management.getPropertyKey("note")).buildCompositeIndex();
        management.commit();
        // All instances acknowledge it by way of the log of the graph, a table.
        var report = ManagementSystem.awaitGraphIndexStatus(graph, "byNote").status(SchemaStatus.REGISTERED).timeout(PATIENCE.toSeconds(), java.time.temporal.ChronoUnit.SECONDS).call();
        equal(report.getSucceeded(), true, "the index is registered (" + report + ")");
        management = graph.openManagement();
        ScanMetrics metrics = management.updateIndex(management.getGraphIndex("byNote"), SchemaAction.REINDEX).get();
        management.commit();
        equal(metrics.getCustom("adds"), 2L, "rows of the index that were added");
        ManagementSystem.awaitGraphIndexStatus(graph, "byNote").status(SchemaStatus.ENABLED).call();
        equal(graph.traversal().V().has("note", "a").values("name").toList(), List.of("person2"), "by the new index");
        graph.tx().rollback();
    }

    static void restart() {
        long before = graph.traversal().V().count().next();
        graph.tx().rollback();
        close(graph);
        graph = open("first");
        GraphTraversalSource g = graph.traversal();
        equal(g.V().count().next(), before, "vertices after the restart");
        equal(g.V().has("name", "person1").values("age").next(), 1000, "a property after the restart");
        equal(g.V().has("note", "a").count().next(), 1L, "the index after the restart");
        equal(add(graph, "person5"), false, "a name that is there");
        equal(add(graph, "later"), true, "a new name");
        graph.tx().rollback();
    }

    static void drop() throws Exception {
        close(graph);
        JanusGraph last = open("last");
        open.remove(last);
        JanusGraphFactory.drop(last);
        // The keyspace is gone, so that a new graph is empty.
        graph = open("first");
        equal(graph.traversal().V().hasNext(), false, "an empty graph");
        open.remove(graph);
        JanusGraphFactory.drop(graph);
    }

    public static void main(String[] args) {
        host = args[0];
        port = args[1];
        nodes = Integer.parseInt(System.getenv().getOrDefault("TEST_NODES", "1"));
        check("open", () -> graph = open("first"));
        if (failed == 0) {
            check("schema", Client::makeSchema);
            check("load", Client::load);
            check("traverse", () -> traverse(graph));
            check("compete", Client::compete);
            check("change", Client::change);
            check("expire", Client::expire);
            check("reindex", Client::reindex);
            check("restart", Client::restart);
            check("drop", Client::drop);
        }
        for (JanusGraph left : List.copyOf(open)) left.close();
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 || passed == 0 ? 1 : 0);
    }
}
