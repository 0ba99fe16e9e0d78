// The Go driver against a running node: `client HOST PORT torc|cassandra`.
//
// One test a function, in order; each prints `ok NAME` or `FAIL NAME: why`.
package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"gopkg.in/inf.v0"
)

var (
	host     = os.Args[1]
	flavour  = os.Args[3]
	keyspace = fmt.Sprintf("go_%010x", rand.Int63n(1<<40))
	session  *gocql.Session
	passed   int
	failed   int
)

type settings func(*gocql.ClusterConfig)

func connect(changes ...settings) (*gocql.Session, error) {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return nil, err
	}
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = 5
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 20 * time.Second
	cluster.Consistency = gocql.One
	for _, change := range changes {
		change(cluster)
	}
	return cluster.CreateSession()
}

func inKeyspace(cluster *gocql.ClusterConfig) { cluster.Keyspace = keyspace }

func check(name string, test func() error) {
	err := func() (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v", cause)
			}
		}()
		return test()
	}()
	if err != nil {
		failed++
		text := err.Error()
		fmt.Printf("FAIL %s: %.900s\n", name, text)
		return
	}
	passed++
	fmt.Printf("ok %s\n", name)
}

func run(text string, values ...interface{}) error {
	if err := session.Query(text, values...).Exec(); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

func runAll(texts ...string) error {
	for _, text := range texts {
		if err := run(text); err != nil {
			return err
		}
	}
	return nil
}

func want(found, expected interface{}, what string) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s: found %v, expected %v", what, found, expected)
	}
	return nil
}

func waitUntil(what string, condition func() bool) error {
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not happen in 10 s", what)
		}
	}
	return nil
}

func testConnect() error {
	var key, version string
	if err := session.Query("SELECT key, release_version FROM system.local").Scan(&key, &version); err != nil {
		return err
	}
	nodes, hosts := 1, session.GetHosts()
	if text := os.Getenv("TEST_NODES"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		nodes = number
	}
	if len(hosts) != nodes || hosts[0].DataCenter() != "datacenter1" || len(hosts[0].Tokens()) == 0 {
		return fmt.Errorf("hosts: %v", hosts)
	}
	return want(key, "local", "key")
}

func testDDL() error {
	text := "CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
	if err := run(text); err != nil {
		return err
	}
	other, err := connect(inKeyspace)
	if err != nil {
		return err
	}
	session.Close()
	session = other
	err = runAll(
		"CREATE TYPE address (street text, number int, phones frozen<map<text, text>>)",
		"CREATE TABLE t (k int, c text, v int, s text STATIC, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
		"ALTER TABLE t ADD extra list<int>",
	)
	if err != nil {
		return err
	}
	return waitUntil("the metadata of table t", func() bool {
		meta, err := session.KeyspaceMetadata(keyspace)
		if err != nil || meta.Tables["t"] == nil {
			return false
		}
		table := meta.Tables["t"]
		return len(table.Columns) == 5 && table.ClusteringColumns[0].Name == "c" && meta.UserTypes["address"] != nil
	})
}

type address struct {
	Street string            `cql:"street"`
	Number int               `cql:"number"`
	Phones map[string]string `cql:"phones"`
}

func testTypes() error {
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	huge, _ := new(big.Int).SetString("-1606938044258990275541962092341162602522202993782792835301376", 10)
	timed := gocql.UUIDFromTime(time.Unix(1_700_000_000, 0))
	home := address{"Main", 7, map[string]string{"home": "1"}}
	text, number := "a", 1
	kinds := []struct {
		kind   string
		values []interface{}
	}{
		{"ascii", []interface{}{"", "plain"}},
		{"bigint", []interface{}{int64(0), int64(math.MaxInt64), int64(math.MinInt64)}},
		{"blob", []interface{}{[]byte{}, bytes.Repeat([]byte{0, 255}, 100)}},
		{"boolean", []interface{}{true, false}},
		{"date", []interface{}{day, time.Unix(0, 0).UTC()}},
		{"decimal", []interface{}{inf.NewDec(-150, 2), inf.NewDec(0, 0), inf.NewDec(314159, 30)}},
		{"double", []interface{}{0.0, -1.5, 1e300, math.Inf(1)}},
		{"duration", []interface{}{gocql.Duration{Months: 14, Days: 3, Nanoseconds: 5_000_000_007}, gocql.Duration{Months: -1, Days: -2, Nanoseconds: -3}}},
		{"float", []interface{}{float32(0), float32(-1.5)}},
		{"inet", []interface{}{net.ParseIP("127.0.0.1").To4(), net.ParseIP("2001:db8::1")}},
		{"int", []interface{}{0, math.MaxInt32, math.MinInt32}},
		{"smallint", []interface{}{int16(0), int16(math.MaxInt16), int16(math.MinInt16)}},
		{"text", []interface{}{"", "žluťoučký kůň 🐎"}},
		{"time", []interface{}{time.Duration(0), 13*time.Hour + 45*time.Minute + 123456789}},
		{"timestamp", []interface{}{day.Add(123 * time.Millisecond), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"timeuuid", []interface{}{timed}},
		{"tinyint", []interface{}{int8(0), int8(127), int8(-128)}},
		{"uuid", []interface{}{gocql.MustRandomUUID()}},
		{"varint", []interface{}{big.NewInt(0), big.NewInt(-129), huge}},
		{"list<int>", []interface{}{[]int{3, 1, 2, 2}}},
		{"set<text>", []interface{}{[]string{"a", "b"}}},
		{"map<text, bigint>", []interface{}{map[string]int64{"a": 1, "b": -2}}},
		{"frozen<list<timeuuid>>", []interface{}{[]gocql.UUID{timed}, []gocql.UUID{}}},
		{"frozen<map<text, frozen<list<frozen<set<int>>>>>>", []interface{}{map[string][][]int{"a": {{1, 2}, {}}}}},
		{"vector<float, 3>", []interface{}{[]float32{1, -2.5, 0}}},
		{"vector<text, 2>", []interface{}{[]string{"", "longer"}}},
		{"frozen<address>", []interface{}{home}},
		{"address", []interface{}{home}},
		{"list<frozen<address>>", []interface{}{[]address{home, {"x", 0, map[string]string{}}}}},
	}
	columns := make([]string, len(kinds))
	for index, kind := range kinds {
		columns[index] = fmt.Sprintf("c%d %s", index, kind.kind)
	}
	if err := run("CREATE TABLE types (id int PRIMARY KEY, tup tuple<int, text, int>, " + strings.Join(columns, ", ") + ")"); err != nil {
		return err
	}
	for index, kind := range kinds {
		for number, value := range kind.values {
			id := index*100 + number
			if err := run(fmt.Sprintf("INSERT INTO types (id, c%d) VALUES (?, ?)", index), id, value); err != nil {
				return fmt.Errorf("%s: %w", kind.kind, err)
			}
			found := reflect.New(reflect.TypeOf(value))
			if err := session.Query(fmt.Sprintf("SELECT c%d FROM types WHERE id = ?", index), id).Scan(found.Interface()); err != nil {
				return fmt.Errorf("%s: %w", kind.kind, err)
			}
			// Pointers and the driver's own classes compare by what they print.
			if err := want(fmt.Sprint(found.Elem().Interface()), fmt.Sprint(value), kind.kind); err != nil {
				return err
			}
		}
	}
	if err := run("INSERT INTO types (id, tup) VALUES (-1, (?, ?, ?))", number, text, nil); err != nil {
		return err
	}
	var one int
	var two string
	var three *int
	if err := session.Query("SELECT tup FROM types WHERE id = -1").Scan(&one, &two, &three); err != nil {
		return err
	}
	return want(fmt.Sprint(one, two, three == nil), "1atrue", "tuple")
}

func testPrepared() error {
	if err := run("CREATE TABLE prep (k int, c text, v int, PRIMARY KEY (k, c))"); err != nil {
		return err
	}
	if err := run("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)", 1, "a", 10); err != nil {
		return err
	}
	named := []interface{}{gocql.NamedValue("value", 20), gocql.NamedValue("key", 1), gocql.NamedValue("cluster", "b")}
	if err := run("INSERT INTO prep (k, c, v) VALUES (:key, :cluster, :value)", named[1], named[2], named[0]); err != nil {
		return err
	}
	var text string
	var value int
	if err := session.Query("SELECT c, v FROM prep WHERE k = ? AND c > ?", 1, "a").Scan(&text, &value); err != nil {
		return err
	}
	if err := want(fmt.Sprint(text, value), "b20", "slice"); err != nil {
		return err
	}
	if err := run("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)", 1, "a", gocql.UnsetValue); err != nil {
		return err
	}
	if err := session.Query("SELECT v FROM prep WHERE k = ? AND c = ?", 1, "a").Scan(&value); err != nil {
		return err
	}
	if err := want(value, 10, "a value left unset"); err != nil {
		return err
	}
	var names []string
	iter := session.Query("SELECT c FROM prep WHERE k IN ? AND c IN ?", []int{1, 2}, []string{"b", "a"}).Iter()
	for iter.Scan(&text) {
		names = append(names, text)
	}
	if err := iter.Close(); err != nil {
		return err
	}
	return want(names, []string{"a", "b"}, "IN")
}

func testBatch() error {
	err := runAll("CREATE TABLE bat (k int, c int, v int, PRIMARY KEY (k, c))", "CREATE TABLE cnt (k int PRIMARY KEY, n counter)")
	if err != nil {
		return err
	}
	for key, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		batch := session.Batch(kind)
		for index := 0; index < 20; index++ {
			batch.Query("INSERT INTO bat (k, c, v) VALUES (?, ?, ?)", key, index, index)
		}
		if err := batch.Exec(); err != nil {
			return err
		}
		var count int
		if err := session.Query("SELECT count(*) FROM bat WHERE k = ?", key).Scan(&count); err != nil {
			return err
		}
		if err := want(count, 20, "rows of the batch"); err != nil {
			return err
		}
	}
	batch := session.Batch(gocql.CounterBatch)
	for index := 0; index < 3; index++ {
		batch.Query("UPDATE cnt SET n = n + ? WHERE k = ?", int64(7), 1)
	}
	if err := batch.Exec(); err != nil {
		return err
	}
	var total int64
	if err := session.Query("SELECT n FROM cnt WHERE k = 1").Scan(&total); err != nil {
		return err
	}
	return want(total, int64(21), "counter")
}

const pagedRows = 10_000

func testPaging() error {
	if err := run("CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))"); err != nil {
		return err
	}
	var group sync.WaitGroup
	problems := make(chan error, 16)
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for index := worker; index < pagedRows; index += 16 {
				if err := run("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)", index%4, index, "value"); err != nil {
					problems <- err
					return
				}
			}
		}()
	}
	group.Wait()
	select {
	case err := <-problems:
		return err
	default:
	}
	seen := map[int]bool{}
	var value int
	iter := session.Query("SELECT c FROM paged").PageSize(777).Iter()
	for iter.Scan(&value) {
		seen[value] = true
	}
	if err := iter.Close(); err != nil {
		return err
	}
	if err := want(len(seen), pagedRows, "rows over pages"); err != nil {
		return err
	}
	next := pagedRows - 4
	iter = session.Query("SELECT c FROM paged WHERE k = 0 ORDER BY c DESC").PageSize(100).Iter()
	for iter.Scan(&value) {
		if value != next {
			return fmt.Errorf("found %d where %d was expected", value, next)
		}
		next -= 4
	}
	if err := iter.Close(); err != nil {
		return err
	}
	if err := want(next, -4, "the row after the last"); err != nil {
		return err
	}
	iter = session.Query("SELECT c FROM paged WHERE k = 1").PageSize(10).PageState(nil).Iter()
	rows, state := iter.NumRows(), iter.PageState()
	if err := iter.Close(); err != nil {
		return err
	}
	if rows != 10 || len(state) == 0 {
		return fmt.Errorf("a page of %d rows, state %s", rows, hex.EncodeToString(state))
	}
	if err := session.Query("SELECT c FROM paged WHERE k = 1").PageSize(10).PageState(state).Scan(&value); err != nil {
		return err
	}
	return want(value, 41, "first row of the second page")
}

func testErrors() error {
	var exists *gocql.RequestErrAlreadyExists
	var request gocql.RequestError
	cases := []struct {
		text string
		code int
		says string
	}{
		{"SELEC * FROM t", gocql.ErrCodeSyntax, "line 1:0"},
		{"SELECT * FROM no_such_table", gocql.ErrCodeInvalid, "no_such_table"},
		{"SELECT nope FROM prep", gocql.ErrCodeInvalid, "nope"},
		{"SELECT * FROM prep WHERE v = 1", gocql.ErrCodeInvalid, "ALLOW FILTERING"},
		{"CREATE TABLE bad (k nosuchtype PRIMARY KEY)", gocql.ErrCodeInvalid, "nosuchtype"},
		{"CREATE TABLE prep (k int PRIMARY KEY)", gocql.ErrCodeAlreadyExists, "prep"},
	}
	for _, test := range cases {
		err := session.Query(test.text).Exec()
		if !errors.As(err, &request) {
			return fmt.Errorf("%s: %T %v", test.text, err, err)
		}
		if request.Code() != test.code || !strings.Contains(strings.ToLower(request.Message()), strings.ToLower(test.says)) {
			return fmt.Errorf("%s: %x %s", test.text, request.Code(), request.Message())
		}
	}
	err := session.Query("CREATE TABLE prep (k int PRIMARY KEY)").Exec()
	if !errors.As(err, &exists) || exists.Table != "prep" || exists.Keyspace != keyspace {
		return fmt.Errorf("already exists: %#v", err)
	}
	return run("SELECT key FROM system.local")
}

func testReprepare() error {
	if err := runAll("CREATE TABLE rep (k int PRIMARY KEY, a int)"); err != nil {
		return err
	}
	if err := run("INSERT INTO rep (k, a) VALUES (?, ?)", 1, 1); err != nil {
		return err
	}
	row := map[string]interface{}{}
	if err := session.Query("SELECT * FROM rep WHERE k = ?", 1).MapScan(row); err != nil {
		return err
	}
	if err := runAll("ALTER TABLE rep ADD b text", "UPDATE rep SET b = 'new' WHERE k = 1"); err != nil {
		return err
	}
	row = map[string]interface{}{}
	if err := session.Query("SELECT * FROM rep WHERE k = ?", 1).MapScan(row); err != nil {
		return err
	}
	if err := want(fmt.Sprint(row["b"]), "new", "the new column"); err != nil {
		return err
	}
	if err := runAll("DROP TABLE rep", "CREATE TABLE rep (k int PRIMARY KEY, a int)"); err != nil {
		return err
	}
	return run("INSERT INTO rep (k, a) VALUES (?, ?)", 5, 6)
}

type listener struct {
	lock   sync.Mutex
	events []string
}

func (seen *listener) note(text string) {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	seen.events = append(seen.events, text)
}

func (seen *listener) has(text string) func() bool {
	return func() bool {
		seen.lock.Lock()
		defer seen.lock.Unlock()
		for _, event := range seen.events {
			if event == text {
				return true
			}
		}
		return false
	}
}

func (seen *listener) OnTableCreated(event gocql.OnTableCreatedEvent) { seen.note("table created") }
func (seen *listener) OnTableUpdated(event gocql.OnTableUpdatedEvent) { seen.note("table updated") }
func (seen *listener) OnTableDropped(event gocql.OnTableDroppedEvent) { seen.note("table dropped") }

func testSchemaEvents() error {
	seen := &listener{}
	watcher, err := connect(func(cluster *gocql.ClusterConfig) {
		cluster.Metadata.CacheMode = gocql.Full
		cluster.Metadata.SchemaListener.TableChangeListener = seen
	})
	if err != nil {
		return err
	}
	defer watcher.Close()
	steps := []struct{ text, event string }{
		{"CREATE TABLE seen (k int PRIMARY KEY)", "table created"},
		{"ALTER TABLE seen ADD v int", "table updated"},
		{"DROP TABLE seen", "table dropped"},
	}
	for _, step := range steps {
		if err := run(step.text); err != nil {
			return err
		}
		if err := waitUntil(step.event, seen.has(step.event)); err != nil {
			return err
		}
	}
	return nil
}

func testTracing() error {
	var out bytes.Buffer
	var text string
	trace := gocql.NewTraceWriter(session, &out)
	if err := session.Query("SELECT c FROM prep WHERE k = ? LIMIT 1", 1).Trace(trace).Scan(&text); err != nil {
		return err
	}
	if !strings.Contains(out.String(), "Tracing session") || strings.Count(out.String(), "\n") < 2 {
		return fmt.Errorf("no events in the trace: %q", out.String())
	}
	return nil
}

func testWarnings() error {
	iter := session.Query("SELECT count(*) FROM prep").Iter()
	warnings := iter.Warnings()
	if err := iter.Close(); err != nil {
		return err
	}
	if len(warnings) == 0 || !strings.Contains(strings.ToLower(warnings[0]), "aggregation") {
		return fmt.Errorf("warnings: %q", warnings)
	}
	return nil
}

func testConditions() error {
	applied, err := session.Query("INSERT INTO prep (k, c, v) VALUES (900, 'x', 1) IF NOT EXISTS").MapScanCAS(map[string]interface{}{})
	var request gocql.RequestError
	if flavour == "torc" && errors.As(err, &request) && request.Code() == gocql.ErrCodeInvalid {
		return nil // not executed yet: an error with this reason
	}
	if err != nil {
		return err
	}
	return want(applied, true, "applied")
}

func testProtocol(version int, compressor gocql.Compressor) error {
	other, err := connect(inKeyspace, func(cluster *gocql.ClusterConfig) {
		cluster.ProtoVersion = version
		cluster.Compressor = compressor
	})
	if err != nil {
		return err
	}
	defer other.Close()
	text := strings.Repeat("squeeze me ", 1000)
	key := 100 + rand.Intn(1_000_000)
	if err := other.Query("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)", key, text, 1).Exec(); err != nil {
		return err
	}
	var found string
	if err := other.Query("SELECT c FROM prep WHERE k = ?", key).Scan(&found); err != nil {
		return err
	}
	if found != text {
		return fmt.Errorf("%d bytes came back", len(found))
	}
	var count int
	if err := other.Query("SELECT count(*) FROM paged WHERE k = 2").PageSize(100).Scan(&count); err != nil {
		return err
	}
	return want(count, pagedRows/4, "rows")
}

func main() {
	var err error
	if session, err = connect(); err != nil {
		fmt.Printf("FAIL connect: %v\n0 passed, 1 failed\n", err)
		os.Exit(1)
	}
	check("connect", testConnect)
	check("ddl", testDDL)
	check("types", testTypes)
	check("prepared", testPrepared)
	check("batch", testBatch)
	check("paging", testPaging)
	check("errors", testErrors)
	check("reprepare", testReprepare)
	check("schema_events", testSchemaEvents)
	check("tracing", testTracing)
	check("warnings", testWarnings)
	check("conditions", testConditions)
	compressors := map[string]gocql.Compressor{"plain": nil, "lz4": lz4.LZ4Compressor{}, "snappy": snappy.SnappyCompressor{}}
	for version := 3; version <= 5; version++ {
		for _, name := range []string{"plain", "lz4", "snappy"} {
			if version == 5 && name == "snappy" {
				continue // protocol 5 has LZ4 only
			}
			check(fmt.Sprintf("protocol_v%d_%s", version, name), func() error { return testProtocol(version, compressors[name]) })
		}
	}
	if err := run("DROP KEYSPACE IF EXISTS " + keyspace); err != nil {
		fmt.Printf("could not clean up: %v\n", err)
	}
	session.Close()
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
