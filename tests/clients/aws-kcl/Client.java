// A stream of the DynamoDB API read by the Kinesis Client Library with AWS's adapter: `Client.java HOST CQL_PORT torc`.
//
// Workers keep a copy of a table by the records of its stream. The library's tables of leases, coordination and metrics are tables of the same node. A worker
// stops and another one goes on where it was, from its checkpoints.

import com.amazonaws.services.dynamodbv2.streamsadapter.AmazonDynamoDBStreamsAdapterClient;
import com.amazonaws.services.dynamodbv2.streamsadapter.StreamsSchedulerFactory;
import com.amazonaws.services.dynamodbv2.streamsadapter.model.DynamoDBStreamsProcessRecordsInput;
import com.amazonaws.services.dynamodbv2.streamsadapter.polling.DynamoDBStreamsPollingConfig;
import com.amazonaws.services.dynamodbv2.streamsadapter.processor.DynamoDBStreamsShardRecordProcessor;
import java.net.URI;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.*;
import software.amazon.awssdk.services.dynamodb.streams.DynamoDbStreamsClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.*;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;

public class Client {
    static final Region REGION = Region.US_EAST_1;
    static final Duration PATIENCE = Duration.ofSeconds(150);
    static final StaticCredentialsProvider CREDENTIALS =
            StaticCredentialsProvider.create(AwsBasicCredentials.create("any", "any"));
    static URI endpoint;
    static DynamoDbClient client;
    static DynamoDbAsyncClient async;
    static String table, stream, application;
    /** The copy, and the records that have made it. */
    static final Map<String, Map<String, AttributeValue>> copy = new ConcurrentHashMap<>();
    static final AtomicInteger records = new AtomicInteger();
    static int passed, failed;

    static void check(String name, Body test) {
        try {
            test.run();
            passed++;
            System.out.println("ok " + name);
        } catch (Throwable error) {
            failed++;
            System.out.println("FAIL " + name + ": " + error);
            for (StackTraceElement at : error.getStackTrace()) {
                if (at.getClassName().startsWith("Client")) System.out.println("     at " + at);
            }
        }
    }

    interface Body {
        void run() throws Exception;
    }

    /** A worker of the library: the records of the stream go into the copy. */
    static class Worker {
        final Scheduler scheduler;
        final Thread thread;

        Worker() {
            var streams = DynamoDbStreamsClient.builder().endpointOverride(endpoint).region(REGION).credentialsProvider(CREDENTIALS).build();
            var adapter = new AmazonDynamoDBStreamsAdapterClient(streams, REGION);
            // No metrics are sent: the client is asked for nothing.
            var metrics = CloudWatchAsyncClient.builder().endpointOverride(endpoint).region(REGION).credentialsProvider(CREDENTIALS).build();
            var tracker = StreamsSchedulerFactory.createSingleStreamTracker(
                    stream, InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON));
            var configs = new ConfigsBuilder(tracker, application, adapter, async, metrics, UUID.randomUUID().toString(), Processor::new);
            var polling = new DynamoDBStreamsPollingConfig(adapter).idleTimeBetweenReadsInMillis(200);
            scheduler = StreamsSchedulerFactory.createScheduler(
                    configs.checkpointConfig(),
                    configs.coordinatorConfig(),
                    configs.leaseManagementConfig().failoverTimeMillis(2_000L).leaseAssignmentIntervalMillis(2_000L),
                    configs.lifecycleConfig(),
                    configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                    configs.processorConfig(),
                    configs.retrievalConfig().retrievalSpecificConfig(polling),
                    adapter);
            thread = new Thread(scheduler);
            thread.setDaemon(true);
            thread.start();
        }

        void stop() throws Exception {
            scheduler.startGracefulShutdown().get(60, TimeUnit.SECONDS);
            thread.join(30_000);
        }
    }

    static class Processor implements DynamoDBStreamsShardRecordProcessor {
        public void initialize(InitializationInput input) {}

        public void processRecords(DynamoDBStreamsProcessRecordsInput input) {
            for (var one : input.records()) {
                var record = one.getRecord();
                var key = record.dynamodb().keys().get("p").s();
                records.incrementAndGet();
                if (record.eventName() == OperationType.REMOVE) copy.remove(key);
                else copy.put(key, record.dynamodb().newImage());
            }
            checkpoint(input.checkpointer());
        }

        public void leaseLost(LeaseLostInput input) {}

        public void shardEnded(ShardEndedInput input) {
            checkpoint(input.checkpointer());
        }

        public void shutdownRequested(ShutdownRequestedInput input) {
            checkpoint(input.checkpointer());
        }

        void checkpoint(RecordProcessorCheckpointer checkpointer) {
            try {
                checkpointer.checkpoint();
            } catch (Exception error) {
                // Another worker has the shard: the records come again, and the copy is the same.
            }
        }
    }

    static void put(int at, String value) {
        var item = Map.of("p", AttributeValue.fromS("p" + at), "v", AttributeValue.fromS(value), "n", AttributeValue.fromN("" + at));
        client.putItem(put -> put.tableName(table).item(item));
    }

    static void delete(int at) {
        client.deleteItem(delete -> delete.tableName(table).key(Map.of("p", AttributeValue.fromS("p" + at))));
    }

    static Map<String, Map<String, AttributeValue>> items() {
        Map<String, Map<String, AttributeValue>> all = new HashMap<>();
        client.scanPaginator(scan -> scan.tableName(table).consistentRead(true)).items().forEach(item -> all.put(item.get("p").s(), item));
        return all;
    }

    /** Returns when the copy is the table. */
    static void awaitCopy() throws Exception {
        var wanted = items();
        var deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!copy.equals(wanted)) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(copy.size() + " items of " + wanted.size() + " after " + records + " records");
            }
            Thread.sleep(100);
        }
    }

    static void twoWorkers() throws Exception {
        for (int at = 0; at < 200; at++) put(at, "first");
        for (int at = 0; at < 200; at += 3) put(at, "second");
        for (int at = 0; at < 200; at += 5) delete(at);
        var worker = new Worker();
        awaitCopy();
        int before = records.get();
        if (before < 200 + 67 + 40) throw new AssertionError("records are missing: " + before);
        worker.stop();
        // Nobody reads while these are written.
        for (int at = 100; at < 300; at++) put(at, "third");
        for (int at = 101; at < 300; at += 7) delete(at);
        worker = new Worker();
        awaitCopy();
        int more = records.get() - before;
        if (more > 200 + 29 + 20) throw new AssertionError("the second worker began before the checkpoint: " + more + " records");
        worker.stop();
    }

    public static void main(String[] arguments) throws Exception {
        // The library reports each of its steps.
        java.util.logging.Logger.getLogger("").setLevel(java.util.logging.Level.OFF);
        var port = System.getenv().getOrDefault("TEST_DYNAMODB_PORT", "8000");
        endpoint = URI.create("http://" + arguments[0] + ":" + port);
        client = DynamoDbClient.builder().endpointOverride(endpoint).region(REGION).credentialsProvider(CREDENTIALS).build();
        async = DynamoDbAsyncClient.builder().endpointOverride(endpoint).region(REGION).credentialsProvider(CREDENTIALS).build();
        var name = UUID.randomUUID().toString().substring(0, 8);
        table = "kcl_" + name;
        application = "application_" + name;
        var created = client.createTable(create -> create
                .tableName(table)
                .attributeDefinitions(AttributeDefinition.builder().attributeName("p").attributeType("S").build())
                .keySchema(KeySchemaElement.builder().attributeName("p").keyType("HASH").build())
                .billingMode(BillingMode.PAY_PER_REQUEST)
                .streamSpecification(of -> of.streamEnabled(true).streamViewType(StreamViewType.NEW_AND_OLD_IMAGES)));
        stream = created.tableDescription().latestStreamArn();
        check("a worker, and one that goes on after it", Client::twoWorkers);
        for (var made : client.listTablesPaginator().tableNames()) {
            if (made.endsWith(name) || made.startsWith(application)) client.deleteTable(delete -> delete.tableName(made));
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
