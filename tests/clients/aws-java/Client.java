// AWS's SDK for Java 2 with the Enhanced Client against a running node: `Client.java HOST CQL_PORT torc`.
//
// Beans by their annotations, a secondary index, versions, conditions, batches, transactions, paginators, waiters, documents.

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.CreateDynamoDBTableOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.enhanced.dynamodb.DynamoDbEnhancedClient;
import software.amazon.awssdk.enhanced.dynamodb.DynamoDbTable;
import software.amazon.awssdk.enhanced.dynamodb.AttributeConverterProvider;
import software.amazon.awssdk.enhanced.dynamodb.AttributeValueType;
import software.amazon.awssdk.enhanced.dynamodb.Expression;
import software.amazon.awssdk.enhanced.dynamodb.Key;
import software.amazon.awssdk.enhanced.dynamodb.TableMetadata;
import software.amazon.awssdk.enhanced.dynamodb.TableSchema;
import software.amazon.awssdk.enhanced.dynamodb.document.EnhancedDocument;
import software.amazon.awssdk.enhanced.dynamodb.extensions.annotations.DynamoDbAtomicCounter;
import software.amazon.awssdk.enhanced.dynamodb.extensions.annotations.DynamoDbVersionAttribute;
import software.amazon.awssdk.enhanced.dynamodb.mapper.annotations.DynamoDbBean;
import software.amazon.awssdk.enhanced.dynamodb.mapper.annotations.DynamoDbPartitionKey;
import software.amazon.awssdk.enhanced.dynamodb.mapper.annotations.DynamoDbSecondaryPartitionKey;
import software.amazon.awssdk.enhanced.dynamodb.mapper.annotations.DynamoDbSecondarySortKey;
import software.amazon.awssdk.enhanced.dynamodb.mapper.annotations.DynamoDbSortKey;
import software.amazon.awssdk.enhanced.dynamodb.model.BatchGetItemEnhancedRequest;
import software.amazon.awssdk.enhanced.dynamodb.model.BatchWriteItemEnhancedRequest;
import software.amazon.awssdk.enhanced.dynamodb.model.EnhancedGlobalSecondaryIndex;
import software.amazon.awssdk.enhanced.dynamodb.model.PutItemEnhancedRequest;
import software.amazon.awssdk.enhanced.dynamodb.model.QueryConditional;
import software.amazon.awssdk.enhanced.dynamodb.model.ReadBatch;
import software.amazon.awssdk.enhanced.dynamodb.model.TransactWriteItemsEnhancedRequest;
import software.amazon.awssdk.enhanced.dynamodb.model.WriteBatch;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.ConditionalCheckFailedException;
import software.amazon.awssdk.services.dynamodb.model.ProjectionType;
import software.amazon.awssdk.services.dynamodb.model.ProvisionedThroughput;
import software.amazon.awssdk.services.dynamodb.model.ResourceNotFoundException;
import software.amazon.awssdk.services.dynamodb.model.TransactionCanceledException;
import software.amazon.awssdk.services.dynamodb.waiters.DynamoDbWaiter;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;

public class Client {
    @DynamoDbBean
    public static class Order {
        private String customer;
        private Long number;
        private String state;
        private Double total;
        private Set<String> labels;
        private Map<String, Integer> parts;
        private List<String> notes;
        private Long version;
        private Long visits;

        @DynamoDbPartitionKey
        public String getCustomer() { return customer; }
        public void setCustomer(String customer) { this.customer = customer; }
        @DynamoDbSortKey
        @DynamoDbSecondarySortKey(indexNames = "states")
        public Long getNumber() { return number; }
        public void setNumber(Long number) { this.number = number; }
        @DynamoDbSecondaryPartitionKey(indexNames = "states")
        public String getState() { return state; }
        public void setState(String state) { this.state = state; }
        public Double getTotal() { return total; }
        public void setTotal(Double total) { this.total = total; }
        public Set<String> getLabels() { return labels; }
        public void setLabels(Set<String> labels) { this.labels = labels; }
        public Map<String, Integer> getParts() { return parts; }
        public void setParts(Map<String, Integer> parts) { this.parts = parts; }
        public List<String> getNotes() { return notes; }
        public void setNotes(List<String> notes) { this.notes = notes; }
        @DynamoDbVersionAttribute
        public Long getVersion() { return version; }
        public void setVersion(Long version) { this.version = version; }
        @DynamoDbAtomicCounter(delta = 1, startValue = 1)
        public Long getVisits() { return visits; }
        public void setVisits(Long visits) { this.visits = visits; }
    }

    interface Test {
        void run() throws Exception;
    }

    static DynamoDbClient client;
    static DynamoDbEnhancedClient enhanced;
    static DynamoDbTable<Order> orders;
    /** The same without versions and counters, which batches and plain puts cannot have. */
    static DynamoDbTable<Order> plain;
    static DynamoDbEnhancedClient withoutExtensions;
    static int passed;
    static int failed;

    static void equal(Object found, Object expected, String what) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(what + ": found " + found + ", expected " + expected);
        }
    }

    static <E extends Throwable> E fails(Class<E> kind, Test body) throws Exception {
        try {
            body.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("another error: " + error, error);
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    static Order order(String customer, long number) {
        Order order = new Order();
        order.setCustomer(customer);
        order.setNumber(number);
        return order;
    }

    static Key key(String customer, long number) {
        return Key.builder().partitionValue(customer).sortValue(number).build();
    }

    static void table() throws Exception {
        fails(ResourceNotFoundException.class, () -> orders.describeTable());
        EnhancedGlobalSecondaryIndex states = EnhancedGlobalSecondaryIndex.builder().indexName("states")
            .projection(projection -> projection.projectionType(ProjectionType.ALL)).build();
        orders.createTable(request -> request.globalSecondaryIndices(states));
        try (DynamoDbWaiter waiter = DynamoDbWaiter.builder().client(client).build()) {
            waiter.waitUntilTableExists(request -> request.tableName(orders.tableName()));
        }
        equal(orders.describeTable().table().keySchema().size(), 2, "keys");
    }

    static void beans() {
        Order order = order("b", 1);
        order.setTotal(12.5);
        order.setLabels(Set.of("new", "große"));
        order.setParts(Map.of("screw", 40));
        order.setNotes(List.of("", "second"));
        orders.putItem(order);
        Order read = orders.getItem(request -> request.key(key("b", 1)).consistentRead(true));
        equal(List.of(read.getTotal(), read.getLabels(), read.getParts(), read.getNotes()),
            List.of(12.5, Set.of("new", "große"), Map.of("screw", 40), List.of("", "second")), "a bean");
        equal(read.getVersion(), 1L, "the first version");
        equal(orders.getItem(key("b", 2)), null, "a bean that is not there");
    }

    static void versions() throws Exception {
        orders.putItem(order("v", 1));
        Order first = orders.getItem(key("v", 1));
        Order second = orders.getItem(key("v", 1));
        first.setTotal(1.0);
        equal(orders.updateItem(first).getVersion(), 2L, "the version after an update");
        second.setTotal(2.0);
        fails(ConditionalCheckFailedException.class, () -> orders.updateItem(second));
        Order now = orders.getItem(key("v", 1));
        equal(List.of(now.getTotal(), now.getVisits()), List.of(1.0, 2L), "the bean and its counter");
        Expression cheap = Expression.builder().expression("#total < :limit").putExpressionName("#total", "total")
            .putExpressionValue(":limit", AttributeValue.fromN("1")).build();
        fails(ConditionalCheckFailedException.class,
            () -> orders.deleteItem(request -> request.key(key("v", 1)).conditionExpression(cheap)));
    }

    static void queries() throws Exception {
        List<Order> all = new ArrayList<>();
        for (long number = 0; number < 25; number++) {
            Order order = order("q", number);
            order.setState(number % 2 == 0 ? "open" : "done");
            order.setTotal((double) number);
            all.add(order);
        }
        WriteBatch.Builder<Order> batch = WriteBatch.builder(Order.class).mappedTableResource(plain);
        all.forEach(batch::addPutItem);
        var written = withoutExtensions.batchWriteItem(BatchWriteItemEnhancedRequest.builder().writeBatches(batch.build()).build());
        equal(written.unprocessedPutItemsForTable(plain).size(), 0, "unprocessed items");
        QueryConditional some = QueryConditional.sortBetween(key("q", 5), key("q", 14));
        List<Long> found = new ArrayList<>();
        orders.query(request -> request.queryConditional(some).limit(3).scanIndexForward(false)).items()
            .forEach(order -> found.add(order.getNumber()));
        equal(found, List.of(14L, 13L, 12L, 11L, 10L, 9L, 8L, 7L, 6L, 5L), "a query in pages");
        Expression dear = Expression.builder().expression("#total >= :least").putExpressionName("#total", "total")
            .putExpressionValue(":least", AttributeValue.fromN("10")).build();
        QueryConditional open = QueryConditional.keyEqualTo(Key.builder().partitionValue("open").build());
        long count = 0;
        for (long end = System.nanoTime() + 10_000_000_000L; count != 8 && System.nanoTime() < end;) {
            count = orders.index("states").query(request -> request.queryConditional(open).filterExpression(dear)).stream()
                .mapToLong(page -> page.items().size()).sum();
        }
        equal(count, 8L, "items of the index");
        ReadBatch.Builder<Order> reads = ReadBatch.builder(Order.class).mappedTableResource(orders);
        for (long number = 20; number < 30; number++) {
            reads.addGetItem(key("q", number));
        }
        var read = enhanced.batchGetItem(BatchGetItemEnhancedRequest.builder().readBatches(reads.build()).build());
        equal(read.resultsForTable(orders).stream().count(), 5L, "items of a batch");
        equal(orders.scan(request -> request.limit(7)).items().stream().count(), 27L, "items of a scan");
    }

    static void transactions() throws Exception {
        Order one = order("t", 1);
        one.setTotal(5.0);
        withoutExtensions.transactWriteItems(request -> request.addPutItem(plain, one).addDeleteItem(plain, key("q", 0)));
        Expression absent = Expression.builder().expression("attribute_not_exists(customer)").build();
        PutItemEnhancedRequest<Order> again = PutItemEnhancedRequest.builder(Order.class).item(order("t", 1))
            .conditionExpression(absent).build();
        TransactionCanceledException canceled = fails(TransactionCanceledException.class, () -> withoutExtensions.transactWriteItems(
            TransactWriteItemsEnhancedRequest.builder().addDeleteItem(plain, key("q", 1)).addPutItem(plain, again).build()));
        List<String> codes = new ArrayList<>();
        canceled.cancellationReasons().forEach(reason -> codes.add(reason.code()));
        equal(codes, List.of("None", "ConditionalCheckFailed"), "reasons");
        var read = enhanced.transactGetItems(request -> request.addGetItem(orders, key("t", 1)).addGetItem(orders, key("q", 0)));
        equal(read.get(0).getItem(orders).getTotal(), 5.0, "an item of a transaction");
        equal(read.get(1).getItem(orders), null, "an item that the transaction deleted");
        if (orders.getItem(key("q", 1)) == null) {
            throw new AssertionError("a transaction that was canceled has deleted");
        }
    }

    static void documents() {
        TableSchema<EnhancedDocument> schema = TableSchema.documentSchemaBuilder()
            .addIndexPartitionKey(TableMetadata.primaryIndexName(), "customer", AttributeValueType.S)
            .addIndexSortKey(TableMetadata.primaryIndexName(), "number", AttributeValueType.N)
            .attributeConverterProviders(AttributeConverterProvider.defaultProvider()).build();
        DynamoDbTable<EnhancedDocument> documents = enhanced.table(orders.tableName(), schema);
        String json = "{\"customer\":\"d\",\"number\":1,\"deep\":{\"list\":[1,{\"x\":null},\"ü\"],\"yes\":true}}";
        documents.putItem(EnhancedDocument.fromJson(json));
        EnhancedDocument read = documents.getItem(key("d", 1));
        equal(read.getMapOfUnknownType("deep").get("list").l().size(), 3, "a list in a document");
        equal(read.toJson().replace(" ", ""), EnhancedDocument.fromJson(read.toJson()).toJson().replace(" ", ""), "a document as JSON");
    }

    static AmazonDynamoDBLockClient locks(String table, String owner) {
        return new AmazonDynamoDBLockClient(AmazonDynamoDBLockClientOptions.builder(client, table).withTimeUnit(TimeUnit.MILLISECONDS)
            .withLeaseDuration(2_000L).withHeartbeatPeriod(500L).withOwnerName(owner).withCreateHeartbeatBackgroundThread(true).build());
    }

    /** Amazon's lock client: one owner at a time, a lease that heartbeats extend, a lock whose owner is gone. */
    static void locks() throws Exception {
        String table = orders.tableName() + "_locks";
        AmazonDynamoDBLockClient first = locks(table, "first");
        AmazonDynamoDBLockClient.createLockTableInDynamoDB(
            CreateDynamoDBTableOptions.builder(client, ProvisionedThroughput.builder().readCapacityUnits(5L).writeCapacityUnits(5L).build(), table)
                .build());
        try (DynamoDbWaiter waiter = DynamoDbWaiter.builder().client(client).build()) {
            waiter.waitUntilTableExists(request -> request.tableName(table));
        }
        AmazonDynamoDBLockClient second = locks(table, "second");
        AcquireLockOptions soon = AcquireLockOptions.builder("job").withRefreshPeriod(200L).withTimeUnit(TimeUnit.MILLISECONDS)
            .withAdditionalTimeToWaitForLock(200L).build();
        LockItem held = first.acquireLock(AcquireLockOptions.builder("job").build());
        // Longer than the lease: heartbeats have extended it.
        Thread.sleep(2_500);
        fails(LockCurrentlyUnavailableException.class, () -> second.acquireLock(
            AcquireLockOptions.builder("job").withShouldSkipBlockingWait(true).build()));
        equal(first.releaseLock(held), true, "the release of a lock");
        LockItem taken = second.acquireLock(soon);
        equal(taken.getOwnerName(), "second", "the owner of a lock");
        equal(first.getLock("job", java.util.Optional.empty()).get().getOwnerName(), "second", "the owner as another one sees it");
        second.close();
        first.close();
        client.deleteTable(request -> request.tableName(table));
    }

    static void drop() {
        orders.deleteTable();
        try (DynamoDbWaiter waiter = DynamoDbWaiter.builder().client(client).build()) {
            waiter.waitUntilTableNotExists(request -> request.tableName(orders.tableName()));
        }
    }

    static void note(String name, Test test) {
        try {
            test.run();
            passed++;
            System.out.println("ok " + name);
        } catch (Throwable error) {
            failed++;
            System.out.println("FAIL " + name + ": " + error);
        }
    }

    public static void main(String[] arguments) {
        String port = Objects.requireNonNullElse(System.getenv("TEST_DYNAMODB_PORT"), "8000");
        client = DynamoDbClient.builder().region(Region.US_EAST_1).endpointOverride(URI.create("http://" + arguments[0] + ":" + port))
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("any", "any")))
            .httpClient(UrlConnectionHttpClient.create()).build();
        enhanced = DynamoDbEnhancedClient.builder().dynamoDbClient(client).build();
        String name = "java_" + UUID.randomUUID().toString().substring(0, 8);
        orders = enhanced.table(name, TableSchema.fromBean(Order.class));
        withoutExtensions = DynamoDbEnhancedClient.builder().dynamoDbClient(client).extensions(List.of()).build();
        plain = withoutExtensions.table(name, TableSchema.fromBean(Order.class));
        note("table", Client::table);
        note("beans", Client::beans);
        note("versions", Client::versions);
        note("queries", Client::queries);
        note("transactions", Client::transactions);
        note("documents", Client::documents);
        note("locks", Client::locks);
        note("drop", Client::drop);
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
