package main

// ScyllaDB's library for consumers of change data capture: each change comes once, in the order of its partition, with the images
// before and after it, also when a second reader continues from the progress that the first one has saved.

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

const (
	writes     = 300
	partitions = 7
	rows       = 5
)

// place is the key of a row.
type place struct{ k, c int }

// change is what a log has of a write; -1 stands for no value.
type change struct {
	operation string
	c, v      int
	before    int
	after     int
}

// collector has the changes of each partition, in their order.
type collector struct {
	mutex   sync.Mutex
	changes map[int][]change
}

// consumer takes the changes of a stream.
type consumer struct {
	into     *collector
	reporter *scyllacdc.ProgressReporter
}

func (into *collector) CreateChangeConsumer(_ context.Context, input scyllacdc.CreateChangeConsumerInput) (scyllacdc.ChangeConsumer, error) {
	return &consumer{into, input.ProgressReporter}, nil
}

func number(row *scyllacdc.ChangeRow, name string) int {
	if value, ok := row.GetValue(name); ok {
		if number, ok := value.(*int); ok && number != nil {
			return *number
		}
	}
	return -1
}

func (one *consumer) Consume(ctx context.Context, found scyllacdc.Change) error {
	if len(found.Delta) != 1 || len(found.PreImage) > 1 || len(found.PostImage) > 1 {
		return fmt.Errorf("%d, %d and %d rows of a change", len(found.PreImage), len(found.Delta), len(found.PostImage))
	}
	row := found.Delta[0]
	is := change{row.GetOperation().String(), number(row, "c"), number(row, "v"), -1, -1}
	for _, image := range found.PreImage {
		is.before = number(image, "v")
	}
	for _, image := range found.PostImage {
		is.after = number(image, "v")
	}
	one.into.mutex.Lock()
	k := number(row, "k")
	one.into.changes[k] = append(one.into.changes[k], is)
	one.into.mutex.Unlock()
	return one.reporter.MarkProgress(ctx, scyllacdc.Progress{LastProcessedRecordTime: found.Time})
}

func (one *consumer) End() error { return nil }

// model has the rows of the table and the changes that its log has to have.
type model struct {
	rows    map[place]int
	changes map[int][]change
}

// write gives the nth statement, and adds it to the model.
func (m *model) write(n int) string {
	k, c := n%partitions, n*3%rows
	at := place{k, c}
	before, known := m.rows[at]
	if !known {
		before = -1
	}
	note := func(is change) { m.changes[k] = append(m.changes[k], is) }
	switch {
	case n%29 == 28:
		for c := range rows {
			delete(m.rows, place{k, c})
		}
		note(change{"PARTITION_DELETE", -1, -1, -1, -1})
		return fmt.Sprintf("DELETE FROM t WHERE k = %d", k)
	case n%11 == 10:
		delete(m.rows, at)
		note(change{"ROW_DELETE", c, -1, before, -1})
		return fmt.Sprintf("DELETE FROM t WHERE k = %d AND c = %d", k, c)
	case n%2 == 0:
		m.rows[at] = n
		note(change{"INSERT", c, n, before, n})
		return fmt.Sprintf("INSERT INTO t (k, c, v) VALUES (%d, %d, %d)", k, c, n)
	default:
		m.rows[at] = n
		note(change{"UPDATE", c, n, before, n})
		return fmt.Sprintf("UPDATE t SET v = %d WHERE k = %d AND c = %d", n, k, c)
	}
}

// read collects the changes up to now.
func read(session *gocql.Session, keyspace string, into *collector) error {
	manager, err := scyllacdc.NewTableBackedProgressManager(session, keyspace+".progress", "client")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{keyspace + ".t"},
		Consistency:           gocql.Quorum,
		ChangeConsumerFactory: into,
		ProgressManager:       manager,
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:     200 * time.Millisecond,
			PostNonEmptyQueryDelay:   100 * time.Millisecond,
			PostEmptyQueryDelay:      100 * time.Millisecond,
			PostGenerationFetchDelay: time.Second,
		},
	})
	if err != nil {
		return err
	}
	// Times of windows are whole milliseconds.
	upto := time.Now().Add(5 * time.Millisecond)
	// A reader that is stopped before it has found the streams reads nothing.
	time.AfterFunc(1500*time.Millisecond, func() { reader.StopAt(upto) })
	return reader.Run(ctx)
}

func consume() error {
	replicas, err := strconv.Atoi(os.Getenv("TEST_NODES"))
	if err != nil {
		replicas = 1
	}
	keyspace := fmt.Sprintf("go_cdc_%010x", rand.Int63n(1<<40))
	first, err := connect("")
	if err != nil {
		return err
	}
	defer first.Close()
	replication := fmt.Sprintf("{'class': 'NetworkTopologyStrategy', 'datacenter1': %d}", min(replicas, 3))
	if err := first.Query("CREATE KEYSPACE " + keyspace + " WITH replication = " + replication).Exec(); err != nil {
		return err
	}
	session, err := connect(keyspace)
	if err != nil {
		return err
	}
	defer session.Close()
	const capture = "cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
	if err := session.Query("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH " + capture).Exec(); err != nil {
		return err
	}
	// The driver reads the schema some time after the event of its change.
	metadata, err := session.TableMetadata(keyspace, "t")
	for tries := 0; err != nil && tries < 100; tries++ {
		time.Sleep(100 * time.Millisecond)
		metadata, err = session.TableMetadata(keyspace, "t")
	}
	if err != nil {
		return err
	}
	if options := metadata.Options.CDC; options["enabled"] != "true" || options["preimage"] != "true" {
		return fmt.Errorf("the driver reads the capture as %v", options)
	}
	expected := model{map[place]int{}, map[int][]change{}}
	into := &collector{changes: map[int][]change{}}
	for n := range writes {
		text := expected.write(n)
		if err := session.Query(text).Exec(); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if n != writes/2-1 && n != writes-1 {
			continue
		}
		if err := read(session, keyspace, into); err != nil {
			return err
		}
		for k := range partitions {
			if !reflect.DeepEqual(into.changes[k], expected.changes[k]) {
				return fmt.Errorf("partition %d: found %v, expected %v", k, into.changes[k], expected.changes[k])
			}
		}
	}
	return session.Query("DROP KEYSPACE " + keyspace).Exec()
}
