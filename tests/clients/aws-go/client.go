// AWS's SDK for Go 2 against a running node: `client HOST CQL_PORT torc`.
//
// Structs by their tags (attributevalue), expressions by the builder, paginators, waiters, transactions and typed errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"sort"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streams "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

var (
	ctx    = context.Background()
	client *dynamodb.Client
	table  = fmt.Sprintf("go_%x", rand.Int63())
)

// Reading is an item of the table.
type Reading struct {
	Sensor  string            `dynamodbav:"sensor"`
	At      int64             `dynamodbav:"at"`
	Value   float64           `dynamodbav:"value"`
	Tags    []string          `dynamodbav:"tags,stringset,omitempty"`
	Place   map[string]string `dynamodbav:"place,omitempty"`
	Raw     []byte            `dynamodbav:"raw,omitempty"`
	Expires time.Time         `dynamodbav:"expires,unixtime"`
	Kind    string            `dynamodbav:"kind,omitempty"`
}

func equal(found, expected any, what string) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s: found %v, expected %v", what, found, expected)
	}
	return nil
}

func key(sensor string, at int64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"sensor": &types.AttributeValueMemberS{Value: sensor},
		"at":     &types.AttributeValueMemberN{Value: fmt.Sprint(at)},
	}
}

func put(reading Reading) error {
	item, err := attributevalue.MarshalMap(reading)
	if err != nil {
		return err
	}
	_, err = client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item})
	return err
}

func get(sensor string, at int64) (Reading, error) {
	var reading Reading
	found, err := client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &table, Key: key(sensor, at), ConsistentRead: aws.Bool(true),
	})
	if err == nil {
		err = attributevalue.UnmarshalMap(found.Item, &reading)
	}
	return reading, err
}

func tableTest() error {
	_, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	var missing *types.ResourceNotFoundException
	if !errors.As(err, &missing) {
		return fmt.Errorf("a table that is not there: %v", err)
	}
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	keys := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange},
		}
	}
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keys("sensor", "at"),
		AttributeDefinitions: []types.AttributeDefinition{
			attribute("sensor", types.ScalarAttributeTypeS), attribute("at", types.ScalarAttributeTypeN),
			attribute("kind", types.ScalarAttributeTypeS),
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String("kinds"), KeySchema: keys("kind", "at"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: []string{"value"}},
		}},
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		},
	})
	if err != nil {
		return err
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(options *dynamodb.TableExistsWaiterOptions) {
		options.MinDelay, options.MaxDelay = 50*time.Millisecond, time.Second
	})
	return waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, 30*time.Second)
}

func structs() error {
	written := Reading{
		Sensor: "s", At: 1, Value: 21.5, Tags: []string{"a", "b"}, Place: map[string]string{"room": "ü"}, Raw: []byte{0, 255},
		Expires: time.Unix(2_000_000_000, 0),
	}
	if err := put(written); err != nil {
		return err
	}
	read, err := get("s", 1)
	if err != nil {
		return err
	}
	sort.Strings(read.Tags)
	return equal(read, written, "an item")
}

func updates() error {
	if err := put(Reading{Sensor: "u", At: 1, Value: 1}); err != nil {
		return err
	}
	change := expression.Set(expression.Name("value"), expression.Name("value").Plus(expression.Value(2))).
		Add(expression.Name("tags"), expression.Value(&types.AttributeValueMemberSS{Value: []string{"x"}})).
		Remove(expression.Name("raw"))
	update := func(condition expression.ConditionBuilder) (*dynamodb.UpdateItemOutput, error) {
		built, err := expression.NewBuilder().WithUpdate(change).WithCondition(condition).Build()
		if err != nil {
			return nil, err
		}
		return client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &table, Key: key("u", 1), UpdateExpression: built.Update(), ConditionExpression: built.Condition(),
			ExpressionAttributeNames: built.Names(), ExpressionAttributeValues: built.Values(), ReturnValues: types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
	}
	updated, err := update(expression.Name("value").LessThan(expression.Value(2)))
	if err != nil {
		return err
	}
	var reading Reading
	if err := attributevalue.UnmarshalMap(updated.Attributes, &reading); err != nil {
		return err
	}
	if err := equal([]any{reading.Value, reading.Tags}, []any{3.0, []string{"x"}}, "the updated item"); err != nil {
		return err
	}
	_, err = update(expression.AttributeExists(expression.Name("value")).And(expression.Name("value").LessThan(expression.Value(2))))
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return fmt.Errorf("a condition that does not hold: %v", err)
	}
	return equal(refused.Item["value"], types.AttributeValue(&types.AttributeValueMemberN{Value: "3"}), "the old item")
}

func queries() error {
	requests := []types.WriteRequest{}
	for at := int64(0); at < 25; at++ {
		item, err := attributevalue.MarshalMap(Reading{Sensor: "q", At: at, Value: float64(at), Kind: "temperature"})
		if err != nil {
			return err
		}
		requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
	}
	left := map[string][]types.WriteRequest{table: requests}
	for len(left) > 0 {
		written, err := client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: left})
		if err != nil {
			return err
		}
		left = written.UnprocessedItems
	}
	count := func(index *string, condition expression.KeyConditionBuilder, filter expression.ConditionBuilder) (int, error) {
		built, err := expression.NewBuilder().WithKeyCondition(condition).WithFilter(filter).Build()
		if err != nil {
			return 0, err
		}
		pages := dynamodb.NewQueryPaginator(client, &dynamodb.QueryInput{
			TableName: &table, IndexName: index, KeyConditionExpression: built.KeyCondition(), FilterExpression: built.Filter(),
			ExpressionAttributeNames: built.Names(), ExpressionAttributeValues: built.Values(), Limit: aws.Int32(4),
			ScanIndexForward: aws.Bool(false),
		})
		found, last := 0, int64(1<<62)
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return 0, err
			}
			var readings []Reading
			if err := attributevalue.UnmarshalListOfMaps(page.Items, &readings); err != nil {
				return 0, err
			}
			for _, reading := range readings {
				if reading.At >= last {
					return 0, fmt.Errorf("%d came behind %d", reading.At, last)
				}
				last = reading.At
			}
			found += len(readings)
		}
		return found, nil
	}
	above := expression.Name("value").GreaterThanEqual(expression.Value(10))
	of := expression.Key("sensor").Equal(expression.Value("q"))
	between := of.And(expression.Key("at").Between(expression.Value(5), expression.Value(14)))
	if found, err := count(nil, between, above); err != nil || found != 5 {
		return fmt.Errorf("a query found %d: %v", found, err)
	}
	kinds := expression.Key("kind").Equal(expression.Value("temperature"))
	found := 0
	for deadline := time.Now().Add(10 * time.Second); found != 15 && time.Now().Before(deadline); {
		var err error
		if found, err = count(aws.String("kinds"), kinds, above); err != nil {
			return err
		}
	}
	return equal(found, 15, "items of the index")
}

func scans() error {
	var wait sync.WaitGroup
	counts, failures := make([]int, 4), make([]error, 4)
	for segment := range counts {
		wait.Add(1)
		go func() {
			defer wait.Done()
			pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
				TableName: &table, Segment: aws.Int32(int32(segment)), TotalSegments: aws.Int32(4), Select: types.SelectCount,
			})
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					failures[segment] = err
					return
				}
				counts[segment] += int(page.Count)
			}
		}()
	}
	wait.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return equal(counts[0]+counts[1]+counts[2]+counts[3], 27, "items of all segments")
}

func transactions() error {
	one := types.TransactWriteItem{Update: &types.Update{
		TableName: &table, Key: key("t", 1), UpdateExpression: aws.String("ADD #v :n"), ExpressionAttributeNames: map[string]string{"#v": "value"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "1"}},
	}}
	check := func(sensor string) types.TransactWriteItem {
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &table, Key: key(sensor, 1), ConditionExpression: aws.String("attribute_exists(sensor)"),
		}}
	}
	token := aws.String(fmt.Sprintf("%x", rand.Int63()))
	for range 2 {
		// The second time is the first one.
		_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{one, check("s")}, ClientRequestToken: token,
		})
		if err != nil {
			return err
		}
	}
	_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{one, check("nobody")},
	})
	var canceled *types.TransactionCanceledException
	if !errors.As(err, &canceled) || len(canceled.CancellationReasons) != 2 {
		return fmt.Errorf("a transaction whose check fails: %v", err)
	}
	reasons := []string{*canceled.CancellationReasons[0].Code, *canceled.CancellationReasons[1].Code}
	if err := equal(reasons, []string{"None", "ConditionalCheckFailed"}, "reasons"); err != nil {
		return err
	}
	read, err := client.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: &table, Key: key("t", 1)}}, {Get: &types.Get{TableName: &table, Key: key("nobody", 1)}},
	}})
	if err != nil {
		return err
	}
	var reading Reading
	if err := attributevalue.UnmarshalMap(read.Responses[0].Item, &reading); err != nil {
		return err
	}
	return equal([]any{reading.Value, len(read.Responses[1].Item)}, []any{1.0, 0}, "items of a transaction")
}

func partiql() error {
	parameters, err := attributevalue.MarshalList([]any{"p", 1, 2.5})
	if err != nil {
		return err
	}
	statement := fmt.Sprintf(`INSERT INTO "%s" VALUE {'sensor': ?, 'at': ?, 'value': ?}`, table)
	if _, err := client.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: &statement, Parameters: parameters}); err != nil {
		return err
	}
	_, err = client.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: &statement, Parameters: parameters})
	var duplicate *types.DuplicateItemException
	if !errors.As(err, &duplicate) {
		return fmt.Errorf("an item that is there: %v", err)
	}
	statement = fmt.Sprintf(`SELECT "value" FROM "%s" WHERE sensor = 'p' AND "at" = 1`, table)
	found, err := client.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: &statement})
	if err != nil {
		return err
	}
	expected := []map[string]types.AttributeValue{{"value": &types.AttributeValueMemberN{Value: "2.5"}}}
	return equal(found.Items, expected, "items of a statement")
}

func streamTest(settings dynamodbstreams.Options) error {
	described, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return err
	}
	reader := dynamodbstreams.New(settings)
	stream, err := reader.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: described.Table.LatestStreamArn})
	if err != nil {
		return err
	}
	// Each change of the item that `transactions` wrote, once.
	var changes []streams.OperationType
	for deadline := time.Now().Add(30 * time.Second); len(changes) == 0 && time.Now().Before(deadline); {
		for _, shard := range stream.StreamDescription.Shards {
			iterator, err := reader.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
				StreamArn: described.Table.LatestStreamArn, ShardId: shard.ShardId, ShardIteratorType: streams.ShardIteratorTypeTrimHorizon,
			})
			if err != nil {
				return err
			}
			next := iterator.ShardIterator
			for next != nil {
				records, err := reader.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
				if err != nil {
					return err
				}
				if len(records.Records) == 0 {
					break
				}
				for _, record := range records.Records {
					sensor, is := record.Dynamodb.Keys["sensor"].(*streams.AttributeValueMemberS)
					if is && sensor.Value == "t" {
						changes = append(changes, record.EventName)
					}
				}
				next = records.NextShardIterator
			}
		}
	}
	return equal(changes, []streams.OperationType{streams.OperationTypeInsert}, "changes of an item")
}

func drop() error {
	if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
		return err
	}
	waiter := dynamodb.NewTableNotExistsWaiter(client, func(options *dynamodb.TableNotExistsWaiterOptions) {
		options.MinDelay, options.MaxDelay = 50*time.Millisecond, time.Second
	})
	return waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, 30*time.Second)
}

func main() {
	port := os.Getenv("TEST_DYNAMODB_PORT")
	if port == "" {
		port = "8000"
	}
	endpoint := aws.String(fmt.Sprintf("http://%s:%s", os.Args[1], port))
	keys := credentials.NewStaticCredentialsProvider("any", "any", "")
	client = dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: endpoint, Credentials: keys})
	streaming := dynamodbstreams.Options{Region: "us-east-1", BaseEndpoint: endpoint, Credentials: keys}
	passed, failed := 0, 0
	for _, test := range []struct {
		name string
		run  func() error
	}{
		{"table", tableTest}, {"structs", structs}, {"updates", updates}, {"queries", queries}, {"scans", scans},
		{"transactions", transactions}, {"partiql", partiql}, {"streams", func() error { return streamTest(streaming) }}, {"drop", drop},
	} {
		if err := test.run(); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", test.name, err)
			continue
		}
		passed++
		fmt.Printf("ok %s\n", test.name)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
