// An application of Spring Boot with Spring Data Cassandra over a running node: `Client.java HOST PORT torc|cassandra`.
//
// Boot makes the session and the schema of the entities (user types, tuples, indexes of three kinds). Repositories and templates write and read them: derived
// queries, pages, lightweight transactions of @Version, batches, counters, vectors, and the reactive forms.

package app;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchType;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.util.*;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.cassandra.autoconfigure.DriverConfigLoaderBuilderCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.OptimisticLockingFailureException;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.cassandra.core.*;
import org.springframework.data.cassandra.core.cql.Ordering;
import org.springframework.data.cassandra.core.cql.PrimaryKeyType;
import org.springframework.data.cassandra.core.mapping.*;
import org.springframework.data.cassandra.core.query.*;
import org.springframework.data.cassandra.repository.*;
import org.springframework.data.cassandra.repository.Query;
import org.springframework.data.domain.*;
import org.springframework.data.domain.Vector;

@UserDefinedType("place")
record Place(double latitude, double longitude) {}

@UserDefinedType("address")
record Address(String street, @Frozen Place place, Set<String> phones) {}

@Tuple
record Size(@Element(0) int width, @Element(1) String unit) {}

enum Grade { LOW, HIGH }

@PrimaryKeyClass
record PersonKey(
        @PrimaryKeyColumn(name = "tenant", ordinal = 0, type = PrimaryKeyType.PARTITIONED) String tenant,
        @PrimaryKeyColumn(name = "number", ordinal = 1, type = PrimaryKeyType.CLUSTERED, ordering = Ordering.DESCENDING) Integer number) {}

@Table("people")
class Person {
    @PrimaryKey PersonKey key;
    @Indexed String name;
    @SASI(indexMode = SASI.IndexMode.CONTAINS) String title;
    @SaiIndexed(caseSensitive = false) String city;
    int age;
    @Indexed Set<String> mails;
    Map<@Indexed String, String> tags;
    Address address;
    List<Address> addresses;
    Size size;
    Grade grade;
    BigDecimal balance;
    LocalDate birthday;
    Instant created;
    @Column("keep") boolean kept;

    List<Object> values() {
        return Arrays.asList(key, name, title, city, age, mails, tags, address, addresses, size, grade, balance, birthday, created, kept);
    }
}

record Named(String name, String city) {}

interface PersonRepository extends CassandraRepository<Person, PersonKey> {
    List<Person> findByKeyTenant(String tenant);

    List<Person> findByKeyTenantAndKeyNumberBetween(String tenant, int from, int to);

    Stream<Person> findByKeyTenantAndKeyNumberInOrderByKeyNumberAsc(String tenant, Collection<Integer> numbers);

    Slice<Person> findByKeyTenant(String tenant, Pageable page);

    Window<Person> findByKeyTenant(String tenant, ScrollPosition from, Limit limit);

    List<Named> findByName(String name);

    List<Person> findByMailsContaining(String mail);

    List<Person> findByTagsContaining(String tag);

    List<Person> findByTitleContaining(String part);

    List<Person> findByCity(String city);

    @AllowFiltering
    List<Person> findByGradeAndKeyTenant(Grade grade, String tenant);

    long countByKeyTenant(String tenant);

    boolean existsByKeyTenantAndKeyNumber(String tenant, int number);

    void deleteByKeyTenantAndKeyNumberGreaterThan(String tenant, int number);

    Optional<Person> findFirstByKeyTenant(String tenant);

    @Query("SELECT * FROM people WHERE tenant = :tenant AND number < :number LIMIT 2")
    @Consistency(DefaultConsistencyLevel.LOCAL_QUORUM)
    List<Person> below(String tenant, int number);

    @Query("SELECT max(age) FROM people WHERE tenant = ?0 GROUP BY tenant")
    Integer oldest(String tenant);

    @Query("UPDATE people USING TTL ?2 SET title = ?1 WHERE tenant = ?0 AND number = 0")
    void rename(String tenant, String title, int seconds);
}

@Table("accounts")
class Account {
    @Id String id;
    @Version Long version;
    int amount;

    Account(String id, int amount) {
        this.id = id;
        this.amount = amount;
    }
}

interface AccountRepository extends CassandraRepository<Account, String> {}

interface ReactiveAccounts extends ReactiveCassandraRepository<Account, String> {}

@Table("visits")
class Visits {
    @PrimaryKey String page;
    @CassandraType(type = CassandraType.Name.COUNTER) Long count;
}

@Table("notes")
class Note {
    @Id int id;
    String text;
    @VectorType(dimensions = 3) @SaiIndexed Vector embedding;
    List<String> lines;
    Set<Integer> marks;
    Map<String, Integer> counts;

    Note(int id, String text, Vector embedding) {
        this.id = id;
        this.text = text;
        this.embedding = embedding;
    }
}

interface NoteRepository extends CassandraRepository<Note, Integer> {
    SearchResults<Note> searchTop3ByEmbeddingNear(Vector vector, ScoringFunction function);
}

@SpringBootApplication
public class Client {
    /** The driver waits a second for further changes of the schema after each, unless it is told otherwise. */
    @Bean
    DriverConfigLoaderBuilderCustomizer window() {
        return builder -> builder.withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(20));
    }

    static final String KEYSPACE = "spring_" + UUID.randomUUID().toString().substring(0, 8);
    static final int PEOPLE = 250;
    static ConfigurableApplicationContext context;
    static CassandraTemplate template;
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
                    if (at.getClassName().startsWith("app.Client")) System.out.println("     at line " + at.getLineNumber());
                }
            }
        }
    }

    static void equal(Object found, Object expected, String what) {
        if (!Objects.equals(found, expected)) throw new AssertionError(what + ": found " + found + ", expected " + expected);
    }

    static <T extends Throwable> void raises(Class<T> kind, Body body) {
        try {
            body.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) return;
            throw new AssertionError("not " + kind.getSimpleName() + " but " + error, error);
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    static Person person(String tenant, int number) {
        Person person = new Person();
        person.key = new PersonKey(tenant, number);
        person.name = "name" + number % 5;
        person.title = "Dr. of " + number;
        person.city = number % 25 == 0 ? "Zürich" : "BERN";
        person.age = number % 50;
        person.mails = new HashSet<>(Set.of(number + "@example.org", "all@" + tenant));
        person.tags = new HashMap<>(Map.of("color", "c" + number % 3, "even", "" + (number % 2 == 0)));
        person.address = new Address("street " + number, new Place(number, -0.5), Set.of("+41", "+x" + number));
        person.addresses = List.of(person.address, new Address("other", null, Set.of()));
        person.size = new Size(number, "cm");
        person.grade = number % 10 == 0 ? Grade.HIGH : Grade.LOW;
        person.balance = new BigDecimal("12345678901234567890.125").add(BigDecimal.valueOf(number));
        person.birthday = LocalDate.of(1960, 1, 1).plusDays(number);
        person.created = Instant.ofEpochMilli(1_700_000_000_123L + number);
        person.kept = number % 2 == 1;
        return person;
    }

    static List<Integer> numbers(Iterable<Person> people) {
        var numbers = new ArrayList<Integer>();
        people.forEach(person -> numbers.add(person.key.number()));
        return numbers;
    }

    static org.springframework.data.cassandra.core.query.Query where(CriteriaDefinition criteria) {
        return org.springframework.data.cassandra.core.query.Query.query(criteria);
    }

    static List<Integer> range(int from, int to, int step) {
        return IntStream.iterate(from, at -> step > 0 ? at < to : at > to, at -> at + step).boxed().toList();
    }

    static Set<Integer> set(Iterable<Person> people) {
        return new TreeSet<>(numbers(people));
    }

    static void start(String host, String port, String action) {
        var application = new SpringApplication(Client.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        var settings = new HashMap<String, Object>();
        settings.put("spring.cassandra.contact-points", host);
        settings.put("spring.cassandra.port", port);
        settings.put("spring.cassandra.local-datacenter", "datacenter1");
        settings.put("spring.cassandra.keyspace-name", KEYSPACE);
        settings.put("spring.cassandra.schema-action", action);
        settings.put("spring.cassandra.request.timeout", "20s");
        settings.put("spring.cassandra.request.consistency", "quorum");
        settings.put("spring.cassandra.request.page-size", "100");
        settings.put("spring.cassandra.connection.init-query-timeout", "20s");
        settings.put("spring.cassandra.controlconnection.timeout", "20s");
        settings.put("spring.main.banner-mode", "off");
        settings.put("logging.level.root", "ERROR");
        application.setDefaultProperties(settings);
        context = application.run();
        template = context.getBean(CassandraTemplate.class);
    }

    static void schema() {
        var keyspace = context.getBean(CqlSession.class).refreshSchema().getKeyspace(KEYSPACE).orElseThrow();
        equal(new TreeSet<>(keyspace.getTables().keySet().stream().map(Object::toString).toList()), new TreeSet<>(Set.of("accounts", "notes", "people", "visits")), "tables");
        equal(new TreeSet<>(keyspace.getUserDefinedTypes().keySet().stream().map(Object::toString).toList()), new TreeSet<>(Set.of("address", "place")), "types");
        var people = keyspace.getTable("people").orElseThrow();
        equal(people.getIndexes().size(), 5, "indexes of people");
        equal(people.getColumn("size").orElseThrow().getType().asCql(false, false), "tuple<int, text>", "the tuple");
    }

    static void save() {
        var people = context.getBean(PersonRepository.class);
        people.saveAll(IntStream.range(0, PEOPLE).mapToObj(number -> person("a", number)).toList());
        people.insert(IntStream.range(0, 20).mapToObj(number -> person("b", number)).toList());
        equal(people.count(), PEOPLE + 20L, "people");
        for (int number : List.of(0, 7, PEOPLE - 1)) {
            equal(people.findById(new PersonKey("a", number)).orElseThrow().values(), person("a", number).values(), "a person");
        }
        equal(people.existsById(new PersonKey("a", PEOPLE)), false, "a person who is not there");
        // Null is written as a deletion by `save`, and not by `insert`.
        Person poor = person("a", 1);
        poor.address = null;
        poor.mails = null;
        people.insert(poor);
        equal(people.findById(poor.key).orElseThrow().address, person("a", 1).address, "the address after an insert without it");
        people.save(poor);
        equal(people.findById(poor.key).orElseThrow().address, null, "the address after an update without it");
        people.save(person("a", 1));
    }

    static void derived() {
        var people = context.getBean(PersonRepository.class);
        equal(numbers(people.findByKeyTenant("a")), range(PEOPLE - 1, -1, -1), "by tenant, over pages");
        equal(numbers(people.findByKeyTenantAndKeyNumberBetween("a", 3, 6)), List.of(5, 4), "between");
        try (var stream = people.findByKeyTenantAndKeyNumberInOrderByKeyNumberAsc("a", List.of(9, 2, 300))) {
            equal(stream.map(person -> person.key.number()).toList(), List.of(2, 9), "in a list");
        }
        equal(people.findByName("name1").size(), PEOPLE / 5 + 4, "by the index of a text");
        equal(people.findByName("name1").get(0).name(), "name1", "a projection");
        equal(set(people.findByMailsContaining("7@example.org")), Set.of(7), "by an element of a set");
        equal(people.findByMailsContaining("all@b").size(), 20, "by an element of many sets");
        equal(set(people.findByTitleContaining("f 24")), new TreeSet<>(Stream.concat(Stream.of(24), range(240, 250, 1).stream()).toList()), "by a part of a text");
        equal(people.findByCity("zÜRICH").size(), PEOPLE / 25 + 1, "by an index of lower case");
        equal(numbers(people.findByGradeAndKeyTenant(Grade.HIGH, "b")), List.of(10, 0), "filtered");
        equal(people.countByKeyTenant("b"), 20L, "count");
        equal(people.existsByKeyTenantAndKeyNumber("b", 19), true, "exists");
        equal(people.findFirstByKeyTenant("b").orElseThrow().key.number(), 19, "first");
        equal(numbers(people.below("b", 5)), List.of(4, 3), "a query");
        equal(people.oldest("a"), 49, "an aggregate");
        people.deleteByKeyTenantAndKeyNumberGreaterThan("b", 9);
        equal(people.countByKeyTenant("b"), 10L, "after a delete of a range");
        raises(DataAccessException.class, () -> template.select("SELECT * FROM people WHERE balance = 1", Person.class));
    }

    static void contains() {
        raises(DataAccessException.class, () -> context.getBean(PersonRepository.class).findByTagsContaining("c1"));
        equal(template.select(where(Criteria.where("tags").containsKey("color")), Person.class).size(), PEOPLE + 10, "by a key of a map");
    }

    static void pages() {
        var people = context.getBean(PersonRepository.class);
        var seen = new ArrayList<Integer>();
        Pageable next = CassandraPageRequest.first(37);
        int pages = 0;
        while (true) {
            Slice<Person> slice = people.findByKeyTenant("a", next);
            seen.addAll(numbers(slice));
            pages++;
            if (!slice.hasNext()) break;
            next = slice.nextPageable();
        }
        equal(seen, range(PEOPLE - 1, -1, -1), "rows of all pages");
        equal(pages, 7, "pages");
        // A position can be kept as bytes, and be gone on from.
        seen.clear();
        Window<Person> window = people.findByKeyTenant("a", CassandraScrollPosition.initial(), Limit.of(100));
        seen.addAll(numbers(window));
        while (window.hasNext()) {
            var state = ((CassandraScrollPosition) window.positionAt(window.size() - 1)).getPagingState();
            window = people.findByKeyTenant("a", CassandraScrollPosition.of(state), Limit.of(100));
            seen.addAll(numbers(window));
        }
        equal(seen, range(PEOPLE - 1, -1, -1), "rows of all windows");
        var all = new TreeSet<String>();
        Slice<Person> slice = people.findAll(CassandraPageRequest.first(50));
        while (true) {
            slice.forEach(person -> all.add("" + person.key));
            if (!slice.hasNext()) break;
            slice = people.findAll(slice.nextPageable());
        }
        equal(all.size(), PEOPLE + 10, "rows of the table by slices");
        Sort sort = Sort.by("key.number").ascending();
        equal(numbers(people.findByKeyTenant("b", CassandraPageRequest.first(3, sort))), List.of(0, 1, 2), "a sorted page");
    }

    static void ttl() throws Exception {
        var people = context.getBean(PersonRepository.class);
        people.rename("b", "soon gone", 2);
        equal(people.findById(new PersonKey("b", 0)).orElseThrow().title, "soon gone", "a title with a TTL");
        Note note = new Note(100, "short", Vector.of(1f, 0f, 0f));
        template.insert(note, InsertOptions.builder().ttl(Duration.ofSeconds(100)).timestamp(Instant.now()).build());
        int left = template.getCqlOperations().queryForObject("SELECT ttl(text) FROM notes WHERE id = 100", Integer.class);
        if (left < 90 || left > 100) throw new AssertionError("TTL " + left);
        // An older write loses.
        note.text = "older";
        template.insert(note, InsertOptions.builder().timestamp(1_000).build());
        equal(template.selectOneById(100, Note.class).text, "short", "the newer text");
        Thread.sleep(2_500);
        equal(people.findById(new PersonKey("b", 0)).orElseThrow().title, null, "a title after its TTL");
    }

    static void conditions() {
        Note note = new Note(1, "first", Vector.of(0f, 1f, 0f));
        equal(template.insert(note, InsertOptions.builder().withIfNotExists().build()).wasApplied(), true, "the first insert");
        equal(template.insert(new Note(1, "second", null), InsertOptions.builder().withIfNotExists().build()).wasApplied(), false, "the second insert");
        equal(template.selectOneById(1, Note.class).text, "first", "the text that has won");
        Filter first = Filter.from(Criteria.where("text").is("first"));
        note.text = "changed";
        equal(template.update(note, UpdateOptions.builder().ifCondition(first).build()).wasApplied(), true, "an update that holds");
        equal(template.update(note, UpdateOptions.builder().ifCondition(first).build()).wasApplied(), false, "an update that does not hold");
        equal(template.update(new Note(999, "x", null), UpdateOptions.builder().withIfExists().build()).wasApplied(), false, "an update of no row");
        equal(template.selectOneById(999, Note.class), null, "no row");
        var deletion = DeleteOptions.builder().ifCondition(Criteria.where("text").in("a", "b")).build();
        equal(template.delete(note, deletion).wasApplied(), false, "a delete that does not hold");
        equal(template.delete(note, DeleteOptions.builder().withIfExists().build()).wasApplied(), true, "a delete of a row");
        equal(template.delete(note, DeleteOptions.builder().withIfExists().build()).wasApplied(), false, "a delete of no row");
    }

    static void updates() {
        Note note = new Note(2, "collections", null);
        note.lines = List.of("b", "c");
        note.marks = Set.of(1, 2);
        note.counts = Map.of("x", 1);
        template.insert(note);
        var row = where(Criteria.where("id").is(2));
        template.update(row, Update.empty().addTo("lines").append("d"), Note.class);
        template.update(row, Update.empty().addTo("lines").prepend("a"), Note.class);
        template.update(row, Update.empty().set("lines").atIndex(1).to("B"), Note.class);
        template.update(row, Update.empty().addTo("marks").append(3), Note.class);
        template.update(row, Update.empty().removeFrom("marks").value(1), Note.class);
        template.update(row, Update.empty().addTo("counts").entry("y", 2), Note.class);
        template.update(row, Update.empty().set("counts").atKey("x").to(5), Note.class);
        Note found = template.selectOne(row, Note.class);
        equal(found.lines, List.of("a", "B", "c", "d"), "the list");
        equal(found.marks, Set.of(2, 3), "the set");
        equal(found.counts, Map.of("x", 5, "y", 2), "the map");
        template.update(row, Update.empty().clear("lines").remove("marks", 2).removeFrom("counts").value("y"), Note.class);
        found = template.selectOne(row, Note.class);
        equal(found.lines == null || found.lines.isEmpty(), true, "no list");
        equal(found.marks, Set.of(3), "the rest of the set");
        equal(found.counts, Map.of("x", 5), "the rest of the map");
        equal(template.exists(row, Note.class), true, "exists");
        equal(template.delete(row.columns(Columns.from("counts")), Note.class), true, "a delete of a column");
        equal(template.selectOne(row, Note.class).text, "collections", "the other columns");
        var ttl = row.columns(Columns.empty().include("id").include("text").ttl("text"));
        equal(template.selectOne(ttl, Note.class).text, "collections", "columns and TTL");
    }

    static void counters() {
        var page = where(Criteria.where("page").is("front"));
        for (int at = 0; at < 5; at++) template.update(page, Update.empty().increment("count", 3), Visits.class);
        template.update(page, Update.empty().decrement("count"), Visits.class);
        equal(template.selectOne(page, Visits.class).count, 14L, "the counter");
    }

    static void batches() {
        long now = System.currentTimeMillis() * 1000;
        var result = template.batchOps(BatchType.LOGGED)
                .insert(new Note(10, "ten", null), new Note(11, "eleven", null))
                .insert(List.of(new Note(12, "twelve", null)), InsertOptions.builder().ttl(500).build())
                .delete(new Note(100, null, null))
                .withTimestamp(now)
                .execute();
        equal(result.wasApplied(), true, "the batch");
        equal(template.getCqlOperations().queryForObject("SELECT writetime(text) FROM notes WHERE id = 11", Long.class), now, "its timestamp");
        equal(template.selectOneById(100, Note.class), null, "the row that it has deleted");
        template.batchOps(BatchType.UNLOGGED).update(new Note(10, "TEN", null)).execute();
        equal(template.selectOneById(10, Note.class).text, "TEN", "the row that it has updated");
        // A batch with conditions is applied as a whole or not at all.
        var refused = template.batchOps(BatchType.LOGGED).insert(List.of(new Note(10, "again", null)), InsertOptions.builder().withIfNotExists().build());
        equal(refused.execute().wasApplied(), false, "a batch with a condition");
    }

    static void versions() {
        var accounts = context.getBean(AccountRepository.class);
        Account account = accounts.save(new Account("one", 10));
        equal(account.version, 0L, "the first version");
        raises(OptimisticLockingFailureException.class, () -> accounts.save(new Account("one", 99)));
        Account other = accounts.findById("one").orElseThrow();
        Account stale = accounts.findById("one").orElseThrow();
        account.amount = 20;
        accounts.save(account);
        other.amount = 30;
        raises(OptimisticLockingFailureException.class, () -> accounts.save(other));
        equal(accounts.findById("one").orElseThrow().amount, 20, "the amount that has won");
        equal(accounts.findById("one").orElseThrow().version, 1L, "the second version");
        raises(OptimisticLockingFailureException.class, () -> template.delete(stale));
        // Transfers of threads at the same time: each is tried again until its version is the newest.
        int threads = 4, each = 10;
        IntStream.range(0, threads).parallel().forEach(thread -> {
            for (int at = 0; at < each; ) {
                Account found = accounts.findById("one").orElseThrow();
                found.amount++;
                try {
                    accounts.save(found);
                    at++;
                } catch (OptimisticLockingFailureException lost) {
                    // Another thread was faster.
                }
            }
        });
        Account last = accounts.findById("one").orElseThrow();
        equal(last.amount, 20 + threads * each, "the amount after all transfers");
        equal(last.version, 1L + threads * each, "the version after all transfers");
        accounts.delete(last);
        equal(accounts.existsById("one"), false, "the deleted account");
    }

    static void vectors() {
        var notes = context.getBean(NoteRepository.class);
        for (int at = 0; at < 20; at++) notes.save(new Note(200 + at, "v" + at, Vector.of((float) Math.cos(at / 10.0), (float) Math.sin(at / 10.0), 0f)));
        var found = notes.searchTop3ByEmbeddingNear(Vector.of(1f, 0f, 0f), ScoringFunction.cosine());
        equal(found.contentStream().map(note -> note.text).toList(), List.of("v0", "v1", "v2"), "the nearest");
        equal(Math.abs(found.getContent().get(0).getScore().getValue() - 1) < 0.001, true, "the score of the nearest");
        var near = org.springframework.data.cassandra.core.query.Query.empty().sort(VectorSort.ann("embedding", 0f, 1f, 0f)).limit(1);
        equal(template.selectOne(near, Note.class).text, "v16", "the nearest by the template");
    }

    static void reactive() {
        var accounts = context.getBean(ReactiveAccounts.class);
        var all = reactor.core.publisher.Flux.range(0, 500).map(at -> new Account("r" + at, at));
        equal(accounts.saveAll(all).count().block(), 500L, "saved");
        equal(accounts.findAll().map(account -> account.amount).reduce(Integer::sum).block(), 499 * 250, "read over pages");
        equal(accounts.findById("r7").map(account -> account.version).block(), 0L, "a version");
        equal(accounts.findById("nobody").hasElement().block(), false, "nobody");
        raises(OptimisticLockingFailureException.class, () -> accounts.save(new Account("r7", 1)).block());
        var reactive = context.getBean(ReactiveCassandraTemplate.class);
        equal(reactive.count(Account.class).block(), 500L, "count");
        equal(reactive.batchOps(BatchType.LOGGED).insert(new Note(31, "reactive", null)).execute().block().wasApplied(), true, "a batch");
        reactive.truncate(Account.class).block();
        equal(accounts.count().block(), 0L, "after TRUNCATE");
    }

    static void again(String host, String port) {
        context.close();
        start(host, port, "create_if_not_exists");
        equal(context.getBean(PersonRepository.class).countByKeyTenant("a"), (long) PEOPLE, "rows after a second start");
        context.close();
        // Tables and types that no entity has are dropped, all others are made anew.
        try (CqlSession session = connect(host, port)) {
            session.execute("CREATE TYPE " + KEYSPACE + ".unused (a int)");
            session.execute("CREATE TABLE " + KEYSPACE + ".unused (k int PRIMARY KEY, v frozen<unused>)");
        }
        start(host, port, "recreate_drop_unused");
        schema();
        equal(context.getBean(PersonRepository.class).count(), 0L, "rows after the schema is made anew");
    }

    static CqlSession connect(String host, String port) {
        var options = DriverConfigLoader.programmaticBuilder().withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20));
        var at = new InetSocketAddress(host, Integer.parseInt(port));
        return CqlSession.builder().addContactPoint(at).withLocalDatacenter("datacenter1").withConfigLoader(options.build()).build();
    }

    public static void main(String[] args) {
        String host = args[0], port = args[1];
        String nodes = System.getenv().getOrDefault("TEST_NODES", "1");
        try (CqlSession session = connect(host, port)) {
            session.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': " + nodes + "}");
        }
        check("start", () -> start(host, port, "create_if_not_exists"));
        if (failed == 0) {
            check("schema", Client::schema);
            check("save", Client::save);
            check("derived", Client::derived);
            check("contains", Client::contains);
            check("pages", Client::pages);
            check("ttl", Client::ttl);
            check("conditions", Client::conditions);
            check("updates", Client::updates);
            check("counters", Client::counters);
            check("batches", Client::batches);
            check("versions", Client::versions);
            check("vectors", Client::vectors);
            check("reactive", Client::reactive);
            check("again", () -> again(host, port));
        }
        if (context != null && context.isActive()) context.close();
        try (CqlSession session = connect(host, port)) {
            session.execute("DROP KEYSPACE " + KEYSPACE);
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 || passed == 0 ? 1 : 0);
    }
}
