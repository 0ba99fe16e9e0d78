package main

import (
	"fmt"
	"math/rand"
	"reflect"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v3"
	"github.com/scylladb/gocqlx/v3/qb"
	"github.com/scylladb/gocqlx/v3/table"
)

type address struct {
	gocqlx.UDT
	Street string
	Number int
}

type person struct {
	FirstName string
	LastName  string
	Email     []string
	Address   address
	Counts    map[string]int
	Number    int64
	Born      time.Time
	ID        gocql.UUID
}

func equal(found, expected any, what string) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s: found %v, expected %v", what, found, expected)
	}
	return nil
}

// first is the first error, if any.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// mapRows has gocqlx make statements and map rows to structures.
func mapRows() error {
	session, err := gocqlx.WrapSession(connect(""))
	if err != nil {
		return err
	}
	defer session.Close()
	keyspace := fmt.Sprintf("gocqlx_%010x", rand.Int63n(1<<40))
	for _, text := range []string{
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
		"CREATE TYPE " + keyspace + ".address (street text, number int)",
		"CREATE TABLE " + keyspace + ".person (first_name text, last_name text, email list<text>, address frozen<address>, counts map<text, int>," +
			" number bigint, born timestamp, id timeuuid, PRIMARY KEY (first_name, last_name))",
	} {
		if err := session.ExecStmt(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	name := keyspace + ".person"
	people := table.New(table.Metadata{
		Name:    name,
		Columns: []string{"first_name", "last_name", "email", "address", "counts", "number", "born", "id"},
		PartKey: []string{"first_name"},
		SortKey: []string{"last_name"},
	})
	born := time.UnixMilli(1_700_000_000_123).UTC()
	one := func(n int) person {
		return person{"A", fmt.Sprintf("L%02d", n), []string{"x"}, address{Street: "s", Number: n}, map[string]int{"a": n}, int64(n), born, gocql.TimeUUID()}
	}
	for n := range 50 {
		if err := session.Query(people.Insert()).BindStruct(one(n)).ExecRelease(); err != nil {
			return err
		}
	}
	var all, some, none []person
	var third person
	if err := first(
		session.Query(people.Select()).BindMap(qb.M{"first_name": "A"}).PageSize(7).SelectRelease(&all),
		session.Query(people.Get()).BindStruct(person{FirstName: "A", LastName: "L03"}).GetRelease(&third),
		equal(len(all), 50, "rows in pages"),
	); err != nil {
		return err
	}
	if err := equal([]any{third.Address.Number, third.Counts, third.Born.UTC()}, []any{3, map[string]int{"a": 3}, born}, "a row"); err != nil {
		return err
	}
	text, names := qb.Select(name).Where(qb.Eq("first_name"), qb.In("last_name")).Columns("last_name", "number").ToCql()
	keys := qb.M{"first_name": "A", "last_name": []string{"L01", "L02"}}
	if err := first(session.Query(text, names).BindMap(keys).SelectRelease(&some), equal(len(some), 2, "rows of IN")); err != nil {
		return err
	}
	text, names = qb.Update(name).Set("number").Add("email").Where(qb.Eq("first_name"), qb.Eq("last_name")).If(qb.EqNamed("number", "old")).ToCql()
	change := qb.M{"number": 5, "email": []string{"y"}, "first_name": "A", "last_name": "L01", "old": 1}
	for _, expected := range []bool{true, false} {
		applied, err := session.Query(text, names).BindMap(change).ExecCASRelease()
		if err := first(err, equal(applied, expected, "a condition")); err != nil {
			return err
		}
	}
	batch := session.NewBatch(gocql.LoggedBatch)
	insert := session.Query(people.Insert())
	for n := range 10 {
		if err := batch.BindStruct(insert, person{FirstName: "B", LastName: fmt.Sprint(n), ID: gocql.TimeUUID()}); err != nil {
			return err
		}
	}
	if err := session.ExecuteBatch(batch); err != nil {
		return err
	}
	text, names = qb.Delete(name).Where(qb.Eq("first_name")).Timeout(time.Second).ToCql()
	remove := session.Query(text, names).Bind("B")
	text, names = qb.Select(name).CountAll().Where(qb.Eq("first_name")).ToCql()
	for _, expected := range []int{10, 0} {
		var count int
		if err := first(session.Query(text, names).Bind("B").GetRelease(&count), equal(count, expected, "rows of a batch"), remove.Exec()); err != nil {
			return err
		}
	}
	text, _ = qb.Insert(name).Columns("first_name", "last_name").Json().ToCql()
	if err := first(
		session.Query(text, nil).Bind(`{"first_name": "J", "last_name": "j", "number": 7}`).ExecRelease(),
		session.Query("SELECT first_name, number FROM "+name+" WHERE first_name = 'J' BYPASS CACHE", nil).SelectRelease(&none),
		equal(len(none), 1, "rows of JSON"),
		equal(none[0].Number, int64(7), "a value of JSON"),
	); err != nil {
		return err
	}
	return session.ExecStmt("DROP KEYSPACE " + keyspace)
}
