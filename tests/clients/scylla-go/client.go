// ScyllaDB's Go driver and libraries over it against a running node: `client HOST PORT torc`.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

func connect(keyspace string) (*gocql.Session, error) {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return nil, err
	}
	cluster := gocql.NewCluster(os.Args[1])
	cluster.Port = port
	cluster.Keyspace = keyspace
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 20 * time.Second
	cluster.Consistency = gocql.Quorum
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	return cluster.CreateSession()
}

func main() {
	passed, failed := 0, 0
	check := func(name string, test func() error) {
		if err := test(); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", name, err)
			return
		}
		passed++
		fmt.Println("ok", name)
	}
	check("gocqlx", mapRows)
	check("cdc_library", consume)
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
