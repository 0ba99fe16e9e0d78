// Writes placement.tsv with the replication strategies of a real Cassandra; see README.md.
import java.io.PrintStream;
import java.util.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.locator.*;

public class Placement {
    static final Random random = new Random(7);
    static final Map<InetAddressAndPort, String[]> places = new HashMap<>();

    static class Snitch extends AbstractNetworkTopologySnitch {
        public String getRack(InetAddressAndPort node) { return places.get(node)[1]; }
        public String getDatacenter(InetAddressAndPort node) { return places.get(node)[0]; }
    }

    public static void main(String[] args) throws Exception {
        DatabaseDescriptor.toolInitialization();
        Snitch snitch = new Snitch();
        DatabaseDescriptor.setEndpointSnitch(snitch);
        DatabaseDescriptor.setPartitionerUnsafe(Murmur3Partitioner.instance);
        try (PrintStream out = new PrintStream(args[0] + "/placement.tsv", "UTF-8")) {
            for (int number = 0; number < 40; number++) ring(number, snitch, out);
        }
    }

    static void ring(int number, Snitch snitch, PrintStream out) throws Exception {
        places.clear();
        TokenMetadata metadata = new TokenMetadata(snitch);
        int datacenters = 1 + random.nextInt(3), nodes = 1 + random.nextInt(12), tokens = 1 + random.nextInt(8);
        int[] racks = new int[datacenters];
        for (int i = 0; i < datacenters; i++) racks[i] = 1 + random.nextInt(4);
        List<InetAddressAndPort> all = new ArrayList<>();
        out.println("ring\t" + number);
        for (int node = 0; node < nodes; node++) {
            InetAddressAndPort address = InetAddressAndPort.getByName("127.0.0." + (node + 1));
            int dc = random.nextInt(datacenters);
            places.put(address, new String[] { "dc" + dc, "r" + random.nextInt(racks[dc]) });
            all.add(address);
            metadata.updateHostId(UUID.nameUUIDFromBytes(new byte[] { (byte) node }), address);
            List<Token> own = new ArrayList<>();
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < tokens; i++) {
                long token = random.nextLong();
                own.add(new Murmur3Partitioner.LongToken(token));
                text.append(i == 0 ? "" : " ").append(token);
            }
            metadata.updateNormalTokens(own, address);
            out.println("node\t" + places.get(address)[0] + "\t" + places.get(address)[1] + "\t" + text);
        }
        List<Token> probes = new ArrayList<>(metadata.sortedTokens());
        for (int i = 0; i < 6; i++) probes.add(new Murmur3Partitioner.LongToken(random.nextLong()));
        probes.add(new Murmur3Partitioner.LongToken(Long.MIN_VALUE + 1));
        probes.add(new Murmur3Partitioner.LongToken(Long.MAX_VALUE));
        int factor = 1 + random.nextInt(4);
        write(new SimpleStrategy("ks", metadata, snitch, Map.of("replication_factor", "" + factor)), "simple " + factor, metadata, probes, all, out);
        for (int i = 0; i < 2; i++) {
            Map<String, String> options = new TreeMap<>();
            StringBuilder text = new StringBuilder("network");
            for (int dc = 0; dc < datacenters; dc++) {
                int rf = random.nextInt(5);
                options.put("dc" + dc, "" + rf);
                text.append(" dc").append(dc).append('=').append(rf);
            }
            write(new NetworkTopologyStrategy("ks", metadata, snitch, options), text.toString(), metadata, probes, all, out);
        }
    }

    static void write(AbstractReplicationStrategy strategy, String name, TokenMetadata metadata, List<Token> probes, List<InetAddressAndPort> all, PrintStream out) {
        out.println("strategy\t" + name);
        for (Token probe : probes) {
            StringBuilder text = new StringBuilder();
            for (Replica replica : strategy.calculateNaturalReplicas(probe, metadata.cloneOnlyTokenMap()))
                text.append(text.length() == 0 ? "" : " ").append(all.indexOf(replica.endpoint()));
            out.println("token\t" + probe + "\t" + text);
        }
    }
}
