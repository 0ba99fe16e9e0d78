// Writes the golden tables of this folder with a real Cassandra's classes; see README.md.
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.Duration;
import org.apache.cassandra.cql3.FieldIdentifier;
import org.apache.cassandra.db.*;
import org.apache.cassandra.db.marshal.*;
import org.apache.cassandra.serializers.CollectionSerializer;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.bytecomparable.*;

public class Golden {
    static final Random random = new Random(42);
    static final ByteComparable.Version VERSION = ByteComparable.Version.OSS50;

    static AbstractType<?> udt(boolean multiCell) {
        List<FieldIdentifier> names = List.of(FieldIdentifier.forQuoted("a"), FieldIdentifier.forQuoted("Big B"), FieldIdentifier.forQuoted("c"));
        return new UserType("ks", ByteBufferUtil.bytes("Pair_x"), names,
            List.of(Int32Type.instance, UTF8Type.instance, ListType.getInstance(IntegerType.instance, multiCell)), multiCell);
    }

    static List<AbstractType<?>> types() {
        List<AbstractType<?>> types = new ArrayList<>(List.of(AsciiType.instance, LongType.instance, BytesType.instance, BooleanType.instance,
            SimpleDateType.instance, DecimalType.instance, DoubleType.instance, DurationType.instance, FloatType.instance,
            InetAddressType.instance, Int32Type.instance, ShortType.instance, UTF8Type.instance, TimeType.instance,
            TimestampType.instance, TimeUUIDType.instance, ByteType.instance, UUIDType.instance, IntegerType.instance));
        types.add(ListType.getInstance(Int32Type.instance, false));
        types.add(ListType.getInstance(UTF8Type.instance, true));
        types.add(SetType.getInstance(UTF8Type.instance, false));
        types.add(SetType.getInstance(TimeUUIDType.instance, true));
        types.add(SetType.getInstance(DecimalType.instance, false));
        types.add(MapType.getInstance(Int32Type.instance, UTF8Type.instance, false));
        types.add(MapType.getInstance(UTF8Type.instance, TimestampType.instance, true));
        types.add(MapType.getInstance(InetAddressType.instance, BooleanType.instance, false));
        types.add(new TupleType(List.of(Int32Type.instance, UTF8Type.instance, DoubleType.instance)));
        types.add(new TupleType(List.of(IntegerType.instance, new TupleType(List.of(BytesType.instance, LongType.instance)))));
        types.add(VectorType.getInstance(FloatType.instance, 3));
        types.add(VectorType.getInstance(UTF8Type.instance, 2));
        types.add(VectorType.getInstance(LongType.instance, 2));
        types.add(ListType.getInstance(SetType.getInstance(DateLike(), false), false));
        types.add(MapType.getInstance(UTF8Type.instance, ListType.getInstance(DoubleType.instance, false), true));
        types.add(udt(false));
        types.add(udt(true));
        types.add(ListType.getInstance(udt(false), true));
        types.add(SetType.getInstance(VectorType.getInstance(Int32Type.instance, 2), false));
        types.add(new TupleType(List.of(udt(false), MapType.getInstance(ByteType.instance, ShortType.instance, false))));
        return types;
    }

    static AbstractType<?> DateLike() { return SimpleDateType.instance; }

    static byte[] bytes(int n) {
        byte[] bytes = new byte[n];
        for (int i = 0; i < n; i++) {
            int pick = random.nextInt(6);
            bytes[i] = (byte) (pick == 0 ? 0 : pick == 1 ? 0xff : pick == 2 ? 0xfe : pick == 3 ? 1 : random.nextInt(256));
        }
        return bytes;
    }

    static long skewed() { return random.nextLong() >> random.nextInt(64); }

    static String text() {
        String[] letters = { "a", "b", "Z", "'", "\"", "\\", " ", "0", "é", "€", "𝄞", "\n", "\u0000", "\u0001", ":", "@", "/" };
        StringBuilder text = new StringBuilder();
        for (int n = random.nextInt(6); n > 0; n--) text.append(letters[random.nextInt(letters.length)]);
        return text.toString();
    }

    static BigInteger integer() {
        int pick = random.nextInt(4);
        if (pick == 0) return BigInteger.valueOf(skewed());
        if (pick == 1) return BigInteger.valueOf(random.nextInt(400) - 200);
        BigInteger power = BigInteger.ONE.shiftLeft(random.nextInt(pick == 2 ? 130 : 1400)).add(BigInteger.valueOf(random.nextInt(3) - 1));
        return random.nextBoolean() ? power : power.negate();
    }

    static BigDecimal decimal() {
        int pick = random.nextInt(5);
        if (pick == 0) return new BigDecimal(BigInteger.valueOf(random.nextInt(2000) - 1000), random.nextInt(5) - 2);
        if (pick == 1) return new BigDecimal(BigInteger.valueOf(skewed()), random.nextInt(40) - 20);
        if (pick == 2) return new BigDecimal(BigInteger.valueOf(random.nextInt(199) - 99), random.nextInt(5000) - 2500);
        if (pick == 3) return new BigDecimal(BigInteger.valueOf(random.nextInt(2000)).multiply(BigInteger.TEN.pow(random.nextInt(5))), random.nextInt(8) - 3);
        return new BigDecimal(new BigInteger(random.nextInt(200), random).multiply(BigInteger.valueOf(random.nextBoolean() ? 1 : -1)), random.nextInt(100));
    }

    static ByteBuffer value(AbstractType<?> type, boolean top) {
        boolean empty = top && type.allowsEmpty() && random.nextInt(30) == 0;
        if (empty) return ByteBufferUtil.EMPTY_BYTE_BUFFER;
        if (type == AsciiType.instance) return ByteBufferUtil.bytes(text().replaceAll("[^\\x00-\\x7f]", "x"));
        if (type == UTF8Type.instance) return ByteBufferUtil.bytes(text());
        if (type == BytesType.instance) return ByteBuffer.wrap(bytes(random.nextInt(8)));
        if (type == LongType.instance) return ByteBufferUtil.bytes(skewed());
        if (type == TimestampType.instance) return ByteBufferUtil.bytes(random.nextInt(4) == 0 ? skewed() >> 9 : random.nextInt(2000000000) * 1000L + random.nextInt(1000));
        if (type == BooleanType.instance) return ByteBuffer.wrap(new byte[] { (byte) random.nextInt(2) });
        if (type == SimpleDateType.instance) return ByteBufferUtil.bytes(random.nextInt(3) == 0 ? random.nextInt() : Integer.MIN_VALUE + random.nextInt(40000) - 20000);
        if (type == TimeType.instance) return ByteBufferUtil.bytes((long) (random.nextDouble() * 86400e9));
        if (type == Int32Type.instance) return ByteBufferUtil.bytes((int) (random.nextInt() >> random.nextInt(32)));
        if (type == ShortType.instance) return ByteBufferUtil.bytes((short) random.nextInt());
        if (type == ByteType.instance) return ByteBufferUtil.bytes((byte) random.nextInt());
        if (type == IntegerType.instance) return IntegerType.instance.decompose(integer());
        if (type == DecimalType.instance) return DecimalType.instance.decompose(decimal());
        if (type == FloatType.instance) return FloatType.instance.decompose(special() ? (float) specialDouble() : random.nextInt(3) == 0 ? (float) random.nextInt(1000) / 8 : Float.intBitsToFloat(random.nextInt() & 0x807fffff | (random.nextInt(250) + 1) << 23));
        if (type == DoubleType.instance) return DoubleType.instance.decompose(special() ? specialDouble() : random.nextInt(3) == 0 ? (random.nextInt(2000000) - 1000000) / 1000.0 : Double.longBitsToDouble(random.nextLong() & 0x800fffffffffffffL | (long) (random.nextInt(2040) + 1) << 52));
        if (type == InetAddressType.instance) return ByteBuffer.wrap(bytes(random.nextBoolean() ? 4 : 16));
        if (type == DurationType.instance) {
            int sign = random.nextBoolean() ? 1 : -1;
            return DurationType.instance.decompose(Duration.newInstance(sign * random.nextInt(30), sign * random.nextInt(500), sign * (Math.abs(skewed()) & Long.MAX_VALUE)));
        }
        if (type == UUIDType.instance || type == TimeUUIDType.instance) {
            byte[] bytes = bytes(16);
            int version = type == TimeUUIDType.instance ? 1 : random.nextInt(4) == 0 ? random.nextInt(16) : random.nextBoolean() ? 1 : 4;
            bytes[6] = (byte) (bytes[6] & 0x0f | version << 4);
            bytes[8] = (byte) (bytes[8] & 0x3f | 0x80);
            return ByteBuffer.wrap(bytes);
        }
        if (type instanceof ListType) return list(((ListType<?>) type).getElementsType());
        if (type instanceof SetType) {
            AbstractType<?> element = ((SetType<?>) type).getElementsType();
            TreeSet<ByteBuffer> set = new TreeSet<>(element);
            for (int n = random.nextInt(4); n > 0; n--) set.add(value(element, false));
            return CollectionSerializer.pack(new ArrayList<>(set), set.size());
        }
        if (type instanceof MapType) {
            MapType<?, ?> map = (MapType<?, ?>) type;
            TreeMap<ByteBuffer, ByteBuffer> entries = new TreeMap<>(map.getKeysType());
            for (int n = random.nextInt(4); n > 0; n--) entries.put(value(map.getKeysType(), false), value(map.getValuesType(), false));
            List<ByteBuffer> all = new ArrayList<>();
            entries.forEach((k, v) -> { all.add(k); all.add(v); });
            return CollectionSerializer.pack(all, entries.size());
        }
        if (type instanceof VectorType) {
            VectorType<?> vector = (VectorType<?>) type;
            List<ByteBuffer> elements = new ArrayList<>();
            for (int i = 0; i < vector.dimension; i++) elements.add(value(vector.elementType, false));
            return vector.decomposeRaw(elements);
        }
        TupleType tuple = (TupleType) type;
        int fields = random.nextInt(4) == 0 ? 1 + random.nextInt(tuple.size()) : tuple.size();
        ByteBuffer[] values = new ByteBuffer[fields];
        for (int i = 0; i < fields; i++) values[i] = random.nextInt(5) == 0 ? null : value(tuple.type(i), false);
        return TupleType.buildValue(values);
    }

    static boolean special() { return random.nextInt(6) == 0; }

    static double specialDouble() {
        double[] all = { 0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 1.0, -1.0, 1e7, 1e-3, 9999999.0, 0.1, 100.0, 1.5e10, Double.MIN_VALUE };
        return all[random.nextInt(all.length)];
    }

    static ByteBuffer list(AbstractType<?> element) {
        List<ByteBuffer> elements = new ArrayList<>();
        for (int n = random.nextInt(4); n > 0; n--) elements.add(value(element, false));
        return CollectionSerializer.pack(elements, elements.size());
    }

    static String comparable(AbstractType<?> type, ByteBuffer value) {
        ByteSource source = type.asComparableBytes(value.duplicate(), VERSION);
        return source == null ? "-" : hex(source);
    }

    static String hex(ByteSource source) {
        StringBuilder out = new StringBuilder();
        for (int b = source.next(); b != ByteSource.END_OF_STREAM; b = source.next()) out.append(String.format("%02x", b));
        return out.toString();
    }

    static String line(String text) {
        StringBuilder out = new StringBuilder();
        for (char c : text.toCharArray()) {
            if (c == '\\') out.append("\\\\");
            else if (c < ' ' || c == 0x7f) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.toString();
    }

    interface Show { String show(); }

    static String shown(Show show) {
        try { return line(show.show()); } catch (Throwable error) { return "!" + line(String.valueOf(error.getMessage())); }
    }

    public static void main(String[] args) throws Exception {
        DatabaseDescriptor.clientInitialization();
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        PrintStream out = new PrintStream(args[0] + "/values.tsv", "UTF-8");
        out.println("# type <class> <cql name>, then per value in ascending order: rank, bytes, byte-comparable bytes, CQL literal, JSON, string");
        for (AbstractType<?> type : types()) {
            out.println("type\t" + type + "\t" + type.asCQL3Type());
            List<ByteBuffer> values = new ArrayList<>();
            int count = type.subTypes().isEmpty() ? 120 : 50;
            for (int i = 0; i < count; i++) values.add(value(type, true));
            values.sort(type);
            int rank = 0;
            for (int i = 0; i < count; i++) {
                ByteBuffer value = values.get(i);
                if (i > 0 && type.compare(values.get(i - 1), value) != 0) rank++;
                type.validate(value);
                out.println(rank + "\t" + ByteBufferUtil.bytesToHex(value) + "\t" + comparable(type, value)
                    + "\t" + shown(() -> type.toCQLString(value.duplicate()))
                    + "\t" + shown(() -> type.toJSONString(value.duplicate(), ProtocolVersion.V5))
                    + "\t" + shown(() -> type.getString(value.duplicate())));
            }
        }
        out.close();

        out = new PrintStream(args[0] + "/clusterings.tsv", "UTF-8");
        out.println("# classes (comma-free, separated by ;), kind, component bytes (; between, - for null), byte-comparable bytes");
        List<AbstractType<?>> simple = types();
        for (int i = 0; i < 400; i++) {
            int n = 1 + random.nextInt(3);
            List<AbstractType<?>> columns = new ArrayList<>();
            List<String> names = new ArrayList<>();
            for (int c = 0; c < n; c++) {
                AbstractType<?> type = simple.get(random.nextInt(simple.size())).freeze();
                if (type == DurationType.instance) type = Int32Type.instance;
                columns.add(random.nextInt(3) == 0 ? ReversedType.getInstance(type) : type);
                names.add(columns.get(c).toString());
            }
            ClusteringComparator comparator = new ClusteringComparator(columns);
            int given = i % 3 == 0 ? n : random.nextInt(n + 1);
            ByteBuffer[] components = new ByteBuffer[given];
            List<String> shown = new ArrayList<>();
            for (int c = 0; c < given; c++) {
                components[c] = random.nextInt(10) == 0 ? null : value(columns.get(c).unwrap(), true);
                shown.add(components[c] == null ? "-" : ByteBufferUtil.bytesToHex(components[c]));
            }
            String kind;
            ClusteringPrefix<?> prefix;
            if (given == n && i % 3 == 0) { kind = "clustering"; prefix = Clustering.make(components); }
            else {
                boolean start = random.nextBoolean(), inclusive = random.nextBoolean();
                kind = (inclusive ? "incl_" : "excl_") + (start ? "start" : "end");
                prefix = ByteBufferAccessor.instance.factory().bound(ClusteringPrefix.Kind.valueOf(kind.toUpperCase() + "_BOUND"), components);
            }
            out.println(String.join(";", names) + "\t" + kind + "\t" + String.join(";", shown) + "\t"
                + hex(comparator.asByteComparable(prefix).asComparableBytes(VERSION)));
        }
        out.close();
    }
}
