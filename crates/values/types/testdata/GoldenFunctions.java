// Writes functions.tsv, literals.tsv and json.tsv of this folder with a real Cassandra's classes; see README.md.
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.*;
import org.apache.cassandra.cql3.functions.*;
import org.apache.cassandra.db.marshal.*;
import org.apache.cassandra.serializers.MarshalException;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.JsonUtils;

public class GoldenFunctions {
    static final ProtocolVersion V = ProtocolVersion.V5;
    static PrintStream out;

    static String hex(ByteBuffer b) { return b == null ? "-" : ByteBufferUtil.bytesToHex(b); }

    static ByteBuffer argument(AbstractType<?> type, int round) {
        if (round == 0 && Golden.random.nextInt(8) == 0) return null;
        if (type == DurationType.instance && Golden.random.nextInt(3) > 0)
            return DurationType.instance.decompose(Duration.newInstance(Golden.random.nextInt(3) * 5, Golden.random.nextInt(40), Golden.random.nextInt(2) * 3600_000_000_000L));
        if (type instanceof CounterColumnType) return Golden.value(LongType.instance, false);
        if (type instanceof NumberType && Golden.random.nextInt(3) == 0) return ((AbstractType) type).fromString(String.valueOf(Golden.random.nextInt(7) - 1));
        if (type == DecimalType.instance) {
            ByteBuffer b = Golden.value(type, false);
            while (Math.abs(DecimalType.instance.compose(b).scale()) > 60) b = Golden.value(type, false);
            return b;
        }
        if (type == SimpleDateType.instance) return ByteBufferUtil.bytes(Integer.MIN_VALUE + Golden.random.nextInt(40000) - 10000);
        if (type == TimeUUIDType.instance || type == LegacyTimeUUIDType.instance) return org.apache.cassandra.utils.TimeUUID.minAtUnixMillis(Golden.random.nextInt(2000000000) * 1000L - 200000000000L + Golden.random.nextInt(1000)).toBytes();
        return Golden.value(type, false);
    }

    static String names(List<AbstractType<?>> types) {
        List<String> names = new ArrayList<>();
        for (AbstractType<?> t : types) names.add(t.asCQL3Type().toString());
        return String.join(";", names);
    }

    static void scalar(NativeScalarFunction f, int rounds) {
        for (int i = 0; i < rounds; i++) {
            Arguments args = f.newArguments(V);
            List<String> shown = new ArrayList<>();
            List<ByteBuffer> values = new ArrayList<>();
            for (int a = 0; a < f.argTypes().size(); a++) {
                ByteBuffer b = argument(f.argTypes().get(a), i);
                if (f.name().name.startsWith("blob") && Golden.random.nextBoolean()) b = argument(f.returnType(), 1);
                if (f.name().name.startsWith("mask_") && f.name().name.endsWith("ner") || f.name().name.equals("mask_outer")) {
                    if (a == 1 || a == 2) b = ByteBufferUtil.bytes(Golden.random.nextInt(5) - 1);
                    if (a == 3) b = ByteBufferUtil.bytes("#");
                }
                if (f.name().name.equals("mask_hash") && a == 1) b = null;
                if (f.name().name.equals("floor") && f.argTypes().get(a) == DurationType.instance && Golden.random.nextInt(4) > 0)
                    b = DurationType.instance.decompose(Duration.from(List.of("1h", "90m", "1d", "10d", "1mo", "2mo", "1y", "1mo10d", "3mo1d", "5m", "7s").get(Golden.random.nextInt(11))));
                shown.add(hex(b));
                values.add(b);
            }
            String result;
            try {
                for (int a = 0; a < values.size(); a++) args.set(a, values.get(a) == null ? null : values.get(a).duplicate());
                result = hex(f.execute(args)); } catch (Throwable e) { result = "!" + Golden.line(String.valueOf(e.getMessage())); }
            out.println(f.name().name + "\t" + names(f.argTypes()) + "\t" + f.returnType().asCQL3Type() + "\t" + String.join(";", shown) + "\t" + result);
        }
    }

    static void aggregate(NativeAggregateFunction f, int rounds) {
        for (int i = 0; i < rounds; i++) {
            AggregateFunction.Aggregate state = f.newAggregate();
            Arguments args = f.newArguments(V);
            List<String> shown = new ArrayList<>();
            for (int n = Golden.random.nextInt(6); n > 0; n--) {
                ByteBuffer b = f.argTypes().isEmpty() ? null : argument(f.argTypes().get(0), 0);
                if (!f.argTypes().isEmpty()) args.set(0, b == null ? null : b.duplicate());
                shown.add(hex(b));
                state.addInput(args);
            }
            String result;
            try { result = hex(state.compute(V)); } catch (Throwable e) { result = "!" + Golden.line(String.valueOf(e.getMessage())); }
            out.println(f.name().name + "\t" + names(f.argTypes()) + "\t" + f.returnType().asCQL3Type() + "\t" + String.join(";", shown) + "\t" + result);
        }
    }

    static void any(NativeFunction f, int rounds) {
        if (f instanceof NativeAggregateFunction) aggregate((NativeAggregateFunction) f, rounds);
        else scalar((NativeScalarFunction) f, rounds);
    }

    static void literal(AbstractType<?> type, String... texts) {
        for (String text : texts) {
            String result;
            try { result = hex((ByteBuffer) type.fromString(text)); } catch (Throwable e) { result = "!" + Golden.line(String.valueOf(e.getMessage())); }
            out.println(type.asCQL3Type() + "\t" + Golden.line(text) + "\t" + result);
        }
    }

    static void json(AbstractType<?> type, String... texts) {
        for (String text : texts) {
            String result;
            try {
                Object parsed = JsonUtils.JSON_OBJECT_MAPPER.readValue(text, Object.class);
                result = hex(type.fromJSONObject(parsed).bindAndGet(QueryOptions.forProtocolVersion(V)));
            } catch (Throwable e) { result = "!" + Golden.line(String.valueOf(e.getMessage())); }
            out.println(type + "\t" + text + "\t" + result);
        }
    }

    public static void main(String[] args) throws Exception {
        DatabaseDescriptor.clientInitialization();
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        out = new PrintStream(args[0] + "/functions.tsv", "UTF-8");
        out.println("# function, argument types, result type, arguments (aggregates: inputs), result; - is null, ! a failure");
        List<NativeFunction> all = new ArrayList<>(NativeFunctions.instance.getFunctions());
        all.sort(Comparator.comparing((NativeFunction f) -> f.name().name).thenComparing(f -> names(f.argTypes())));
        for (NativeFunction f : all) {
            String name = f.name().name;
            if (name.startsWith("castAs") || name.equals("countRows") || name.startsWith("now") || name.startsWith("current") || name.equals("uuid") || name.contains("token") || name.contains("empty")) continue;
            int rounds = name.startsWith("_") ? 4 : name.startsWith("blob") || name.endsWith("blob") ? 3 : name.startsWith("cast") ? 8 : 25;
            any(f, rounds);
        }
        AbstractType<?> ints = ListType.getInstance(Int32Type.instance, true), floats = VectorType.getInstance(FloatType.instance, 3);
        AbstractType<?>[] lists = { ints, SetType.getInstance(IntegerType.instance, false), ListType.getInstance(DoubleType.instance, true), ListType.getInstance(DecimalType.instance, false), ListType.getInstance(ByteType.instance, false) };
        for (String name : List.of("collection_count", "collection_min", "collection_max", "collection_sum", "collection_avg"))
            for (AbstractType<?> list : lists) factory(name, 6, list);
        factory("collection_count", 5, MapType.getInstance(UTF8Type.instance, Int32Type.instance, true));
        factory("collection_max", 5, ListType.getInstance(UTF8Type.instance, true));
        for (String name : List.of("map_keys", "map_values")) factory(name, 8, MapType.getInstance(UTF8Type.instance, Int32Type.instance, true));
        for (String name : List.of("similarity_cosine", "similarity_euclidean", "similarity_dot_product")) factory(name, 6, floats, floats);
        for (String name : List.of("min", "max"))
            for (AbstractType<?> type : List.<AbstractType<?>>of(UTF8Type.instance, TimeUUIDType.instance, DecimalType.instance, InetAddressType.instance, ints)) factory(name, 8, type);
        for (AbstractType<?> type : Golden.types()) { factory("mask_default", 1, type); factory("mask_null", 1, type); factory("to_json", 2, type); }
        for (String name : List.of("mask_inner", "mask_outer")) {
            factory(name, 12, UTF8Type.instance, Int32Type.instance, Int32Type.instance);
            factory(name, 6, AsciiType.instance, Int32Type.instance, Int32Type.instance, UTF8Type.instance);
        }
        factory("mask_hash", 4, UTF8Type.instance);
        factory("mask_replace", 4, Int32Type.instance, Int32Type.instance);
        out.close();

        out = new PrintStream(args[0] + "/literals.tsv", "UTF-8");
        out.println("# type, text, bytes; ! starts the message of a refusal");
        literal(Int32Type.instance, "0", "-1", "+5", "2147483647", "2147483648", "abc", "", " 1", "1.0", "0x1");
        literal(LongType.instance, "9223372036854775807", "9223372036854775808", "x", "");
        literal(ShortType.instance, "32767", "32768", "", "a");
        literal(ByteType.instance, "-128", "128", "", "a");
        literal(IntegerType.instance, "0", "-0", "123456789012345678901234567890", "-256", "+7", "1.5", "", "x");
        literal(DecimalType.instance, "0", "1.50", "-1e10", "1E-400", "+.5", "5.", ".", "1e", "1e99999999999", "abc", "", "1_0", " 1");
        literal(FloatType.instance, "1", "1.5", "-0", "NaN", "Infinity", "-Infinity", "inf", "1e40", "1e-50", "abc", "", " 2 ", "3f", "nan", "0.1");
        literal(DoubleType.instance, "1", "1.5", "-0.0", "NaN", "-Infinity", "infinity", "1e400", "4.9e-324", "abc", "", " 2d ", "1e", "0.1", ".5", "5.");
        literal(BooleanType.instance, "true", "FALSE", "", "1", "yes");
        literal(AsciiType.instance, "abc", "", "é");
        literal(UTF8Type.instance, "é", "");
        literal(BytesType.instance, "", "00ff", "0F", "abc", "zz", "0x00");
        literal(UUIDType.instance, "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-42D3-A456-426614174000", "1-1-1-1-1", "x", "");
        literal(TimeUUIDType.instance, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174000", "x", "");
        literal(InetAddressType.instance, "127.0.0.1", "::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "300.1.1.1.1.1", "");
        literal(SimpleDateType.instance, "1970-01-01", "2024-02-29", "2023-02-29", "0000-01-01", "-0001-12-31", "+12345-06-07", "12345-06-07", "2147483648", "0", "4294967295", "4294967296", "-1", "1970-1-1", "2015-05-03x", "x", "", "-5877641-06-23", "-5877641-06-22", "+5881580-07-11", "+5881580-07-12", "2147483647");
        literal(TimeType.instance, "00:00:00", "23:59:59.999999999", "24:00:00", "1:2:3", "12:34", "12:34:56.1", "12:34:56.", "12:34:56.1234567890", "0", "86399999999999", "86400000000000", "-1", " 12:00:00 ", "x", "", "12:60:00", "12:00:60");
        literal(TimestampType.instance, "0", "-1", "1234567890123", "99999999999999999999", "2011-02-03", "2011-02-03+0000", "2011-02-03 +0000", "2011-02-03Z", "2011-02-03+01:30", "2011-02-03 04:05", "2011-02-03 04:05+0000",
            "2011-02-03 04:05 +0000", "2011-02-03 04:05:00", "2011-02-03 04:05:00+0000", "2011-02-03T04:05", "2011-02-03T04:05+0000", "2011-02-03T04:05:00", "2011-02-03T04:05:00+0000", "2011-02-03T04:05:00.123", "2011-02-03T04:05:00.1",
            "2011-02-03T04:05:00.123456789Z", "2011-02-03T04:05:00.123+02:00", "2011-02-03T04:05:00-0730", "2011-02-03 04:05:06 UTC", "2011-02-03 04:05:06 GMT", "2011-02-03 04:05 PST", "2011-07-03 04:05 PDT", "2011-02-03 04:05 CET", "2011-02-03 04:05 Pacific Standard Time",
            "2011-2-3 4:5", "2011-2-3", "2011-02-30 00:00", "2011-02-30", "2011-13-01", "2011-02-03 25:00", "2011-02-03T04:05:00+01", "2011-02-03T04:05:00Z", "2011-02-03T04", "2011-02-03 04:05:60", "1582-10-01", "0001-01-01", "12345-01-01 00:00", "+12345-01-01", "abc", "", "2011-02-03T04:05:00.", "2011-02-03 04:05:06 UTC+1", "2011-02-03T24:00:00", "2011-02-03 04:05 +01:00", "2011-02-03+1", "99-01-01 00:00");
        literal(DurationType.instance, "1y2mo3w4d5h6m7s8ms9us10ns", "1Y2MO", "1h30m", "-1h", "1m2h", "1d1d", "5", "", "P1Y2M3DT4H5M6S", "P3W", "-P1D", "P", "PT", "P1YT", "P0001-02-03T04:05:06", "P1-2-3T4:5:6", "1x", "1d x", "12mo", "2147483648d", "99999999999999999999ns", "1µs", "1.5h", "P1H", "9223372036854775807ns", "-9223372036854775808ns", "3000000h");
        literal(ListType.getInstance(Int32Type.instance, true), "00000000", "x");
        literal(new TupleType(List.of(Int32Type.instance, UTF8Type.instance)), "1:a", "1", "@:b\\\\:c", "1:a:b", "", "x:a", ":");
        out.close();

        out = new PrintStream(args[0] + "/json.tsv", "UTF-8");
        out.println("# class, JSON, bytes; ! starts the message of a refusal");
        json(Int32Type.instance, "1", "\"1\"", "2147483648", "1.0", "true", "\"x\"", "[1]", "{\"a\":1}", "\"\"", "-7");
        json(LongType.instance, "1", "2147483648", "9223372036854775808", "1.0", "\"5\"", "false");
        json(ShortType.instance, "1", "70000", "1.0", "\"5\"", "true");
        json(ByteType.instance, "1", "300", "1.5", "\"5\"", "[]");
        json(IntegerType.instance, "1", "123456789012345678901234567890", "1.5", "\"12\"", "\"x\"", "true", "\"\"");
        json(DecimalType.instance, "1", "1.5", "1.50", "1e3", "0.10", "\"1.50\"", "\"x\"", "true", "\"\"", "123456789012345678901234567890");
        json(FloatType.instance, "1", "1.5", "\"NaN\"", "\"x\"", "true", "0.1", "\"\"");
        json(DoubleType.instance, "1", "1.5", "\"NaN\"", "true", "0.1", "1e400", "\"\"");
        json(BooleanType.instance, "true", "\"false\"", "1", "\"x\"", "\"\"");
        json(UTF8Type.instance, "\"a\"", "1", "\"\\u00e9\\ud834\\udd1e\\n\\/\"", "true", "\"\"");
        json(AsciiType.instance, "\"a\"", "1");
        json(BytesType.instance, "\"0x00ff\"", "\"00ff\"", "\"0xzz\"", "\"0x\"");
        json(UUIDType.instance, "\"123e4567-e89b-12d3-a456-426614174000\"", "\"x\"", "1");
        json(TimeUUIDType.instance, "\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567-e89b-42d3-a456-426614174000\"", "1");
        json(InetAddressType.instance, "\"127.0.0.1\"", "1");
        json(SimpleDateType.instance, "\"2024-02-29\"", "5", "\"x\"");
        json(TimeType.instance, "\"12:00:00\"", "5", "\"x\"");
        json(TimestampType.instance, "\"2024-02-29 01:02:03.004Z\"", "5", "5000000000", "\"x\"", "1.5", "true");
        json(DurationType.instance, "\"1h\"", "5");
        json(ListType.getInstance(Int32Type.instance, true), "[1, 2]", "\"[1, 2]\"", "[]", "[null]", "{\"a\": 1}", "[\"x\"]", "1", "\"1\"");
        json(SetType.getInstance(Int32Type.instance, true), "[2, 1, 2]", "[null]", "{}", "\"[3]\"");
        json(MapType.getInstance(Int32Type.instance, UTF8Type.instance, true), "{\"2\": \"b\", \"1\": \"a\"}", "{\"1\": null}", "[]", "\"{\\\"1\\\": \\\"a\\\"}\"", "{\"x\": \"a\"}", "{}");
        json(MapType.getInstance(ListType.getInstance(Int32Type.instance, false), BooleanType.instance, false), "{\"[1, 2]\": true}", "{\"1\": true}");
        json(new TupleType(List.of(Int32Type.instance, UTF8Type.instance)), "[1, \"a\"]", "[1, null]", "[1]", "[1, \"a\", 2]", "{}", "\"[1, \\\"a\\\"]\"");
        json(Golden.udt(false), "{\"a\": 1, \"\\\"Big B\\\"\": \"x\", \"c\": [1]}", "{\"A\": 1}", "{\"Big B\": \"x\"}", "{\"z\": 1}", "{}", "[]", "{\"a\": null}");
        json(VectorType.getInstance(FloatType.instance, 3), "[1, 2.5, 3]", "[1, 2]", "\"[1, 2, 3]\"", "[1, null, 3]", "{}");
        json(VectorType.getInstance(UTF8Type.instance, 2), "[\"a\", \"b\"]", "[\"a\", 1]");
        out.close();
    }

    static void factory(String name, int rounds, AbstractType<?>... types) {
        for (FunctionFactory f : NativeFunctions.instance.getFactories(FunctionName.nativeFunction(name))) {
            NativeFunction function = f.getOrCreateFunction(Arrays.asList(types), null, "ks", "t");
            any(function, rounds);
        }
    }
}
