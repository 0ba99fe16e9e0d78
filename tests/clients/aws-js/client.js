// Clients of the DynamoDB API for JavaScript against a running node: `client.js HOST CQL_PORT torc`.
//
// AWS's SDK with its document client, and the libraries ElectroDB (one table for several kinds of items), DynamoDB-Toolbox and Dynamoose.
'use strict';

const assert = require('assert');
const crypto = require('crypto');
const dynamodb = require('@aws-sdk/client-dynamodb');
const documents = require('@aws-sdk/lib-dynamodb');
const { Entity, Service } = require('electrodb');
const toolbox = require('dynamodb-toolbox');
const dynamoose = require('dynamoose');

const [host] = process.argv.slice(2);
const endpoint = `http://${host}:${process.env.TEST_DYNAMODB_PORT || '8000'}`;
const settings = { endpoint, region: 'us-east-1', credentials: { accessKeyId: 'any', secretAccessKey: 'any' } };
const client = new dynamodb.DynamoDBClient(settings);
const documentClient = documents.DynamoDBDocumentClient.from(client, { marshallOptions: { removeUndefinedValues: true } });
const table = 'js_' + crypto.randomBytes(5).toString('hex');
const soon = { client, minDelay: 1, maxWaitTime: 30 };
const tests = [];
let passed = 0;
let failed = 0;

const test = (name, body) => tests.push([name, body]);
const send = (command) => documentClient.send(command);
const named = (name) => (error) => error.name === name;

test('table', async () => {
  const attribute = (AttributeName) => ({ AttributeName, AttributeType: 'S' });
  const keys = (hash, range) => [
    { AttributeName: hash, KeyType: 'HASH' },
    { AttributeName: range, KeyType: 'RANGE' },
  ];
  await assert.rejects(client.send(new dynamodb.DescribeTableCommand({ TableName: table })), named('ResourceNotFoundException'));
  const index = { IndexName: 'gsi1', KeySchema: keys('gsi1pk', 'gsi1sk'), Projection: { ProjectionType: 'ALL' } };
  const AttributeDefinitions = ['pk', 'sk', 'gsi1pk', 'gsi1sk'].map(attribute);
  const definition = { TableName: table, BillingMode: 'PAY_PER_REQUEST', KeySchema: keys('pk', 'sk'), AttributeDefinitions };
  await client.send(new dynamodb.CreateTableCommand({ ...definition, GlobalSecondaryIndexes: [index] }));
  await dynamodb.waitUntilTableExists(soon, { TableName: table });
});

test('document_client', async () => {
  const Key = { pk: 'd', sk: '1' };
  const nested = { l: [1, { x: null }], b: new Uint8Array([1, 2]) };
  const Item = { ...Key, n: 1.5, s: new Set(['a', 'b']), ns: new Set([1, 2]), m: nested, big: 12345678901234567890n };
  await send(new documents.PutCommand({ TableName: table, Item }));
  const got = await send(new documents.GetCommand({ TableName: table, Key, ConsistentRead: true }));
  assert.deepStrictEqual([got.Item.s, got.Item.m.l], [Item.s, Item.m.l]);
  const updated = await send(
    new documents.UpdateCommand({
      TableName: table,
      Key,
      UpdateExpression: 'SET n = n + :one, #m.#l[0] = :text ADD ns :more REMOVE big',
      ExpressionAttributeNames: { '#m': 'm', '#l': 'l' },
      ExpressionAttributeValues: { ':one': 1, ':text': 'q', ':more': new Set([9]) },
      ReturnValues: 'ALL_NEW',
    }),
  );
  assert.deepStrictEqual([updated.Attributes.n, updated.Attributes.m.l[0], updated.Attributes.ns.size], [2.5, 'q', 3]);
  const item = (n) => ({ pk: 'b', sk: 'k' + String(n).padStart(2, '0'), gsi1pk: 'g', gsi1sk: String(n) });
  const puts = Array.from({ length: 25 }, (_, n) => ({ PutRequest: { Item: item(n) } }));
  await send(new documents.BatchWriteCommand({ RequestItems: { [table]: puts } }));
  const count = async (input) => {
    let found = 0;
    const pages = documents.paginateQuery({ client: documentClient, pageSize: 4 }, { TableName: table, ...input });
    for await (const page of pages) found += page.Items.length;
    return found;
  };
  assert.strictEqual(await count({ KeyConditionExpression: 'pk = :p', ExpressionAttributeValues: { ':p': 'b' } }), 25);
  const KeyConditionExpression = 'gsi1pk = :p AND begins_with(gsi1sk, :s)';
  assert.strictEqual(await count({ IndexName: 'gsi1', KeyConditionExpression, ExpressionAttributeValues: { ':p': 'g', ':s': '1' } }), 11);
  const statement = { Statement: `SELECT * FROM "${table}" WHERE pk = ?`, Parameters: ['b'], Limit: 5 };
  assert.strictEqual((await send(new documents.ExecuteStatementCommand(statement))).Items.length, 5);
});

test('transactions', async () => {
  const put = { TableName: table, Item: { pk: 't', sk: '1' } };
  const update = {
    TableName: table,
    Key: { pk: 'd', sk: '1' },
    UpdateExpression: 'SET z = :z',
    ExpressionAttributeValues: { ':z': 1 },
    ConditionExpression: 'attribute_exists(pk)',
  };
  await send(new documents.TransactWriteCommand({ TransactItems: [{ Put: put }, { Update: update }] }));
  const again = { ...put, ConditionExpression: 'attribute_not_exists(pk)', ReturnValuesOnConditionCheckFailure: 'ALL_OLD' };
  await assert.rejects(send(new documents.TransactWriteCommand({ TransactItems: [{ Put: again }] })), (error) => {
    assert.strictEqual(error.name, 'TransactionCanceledException');
    assert.strictEqual(error.CancellationReasons[0].Code, 'ConditionalCheckFailed');
    return error.CancellationReasons[0].Item.pk.S === 't';
  });
});

test('electrodb', async () => {
  const text = { type: 'string' };
  const index = {
    primary: { pk: { field: 'pk', composite: ['org'] }, sk: { field: 'sk', composite: ['id'] } },
    byName: {
      index: 'gsi1',
      collection: 'people',
      pk: { field: 'gsi1pk', composite: ['org'] },
      sk: { field: 'gsi1sk', composite: ['name'] },
    },
  };
  const entity = (name, attributes) =>
    new Entity(
      {
        model: { entity: name, version: '1', service: 'app' },
        attributes: { id: { ...text, required: true }, org: { ...text, required: true }, name: text, ...attributes },
        indexes: index,
      },
      { client: documentClient, table },
    );
  const user = entity('user', { age: { type: 'number' }, roles: { type: 'set', items: 'string' }, tags: { type: 'list', items: text } });
  const task = entity('task', { points: { type: 'number' } });
  const org = 'acme';
  for (let n = 0; n < 12; n++) await user.create({ id: `u${n}`, org, name: `n${n}`, age: n, roles: ['a'], tags: ['t'] }).go();
  await task.put([1, 2].map((n) => ({ id: `t${n}`, org, name: `n${n}`, points: n }))).go();
  const older = await user.query.primary({ org }).where(({ age }, { gt }) => gt(age, 5)).go({ pages: 'all' });
  assert.strictEqual(older.data.length, 6);
  const service = new Service({ user, task });
  const people = (await service.collections.people({ org }).go()).data;
  assert.deepStrictEqual([people.user.length, people.task.length], [12, 2]);
  assert.strictEqual((await user.query.byName({ org }).begins({ name: 'n1' }).go()).data.length, 3);
  const patch = user.patch({ id: 'u1', org }).set({ name: 'z' }).add({ age: 10 }).append({ tags: ['w'] }).delete({ roles: ['a'] });
  await patch.where(({ age }, { eq }) => eq(age, 1)).go();
  const patched = (await user.get({ id: 'u1', org }).go()).data;
  assert.deepStrictEqual([patched.age, patched.tags, patched.roles], [11, ['t', 'w'], undefined]);
  await assert.rejects(user.create({ id: 'u1', org }).go());
  await user.upsert({ id: 'u99', org, name: 'up', age: 1 }).go();
  const write = (all) => [all.user.delete({ id: 'u2', org }).commit(), all.task.patch({ id: 't1', org }).set({ points: 9 }).commit()];
  await service.transaction.write(write).go();
  assert.strictEqual((await task.get({ id: 't1', org }).go()).data.points, 9);
  assert.strictEqual((await user.scan.go({ pages: 'all' })).data.length, 12);
});

test('dynamodb_toolbox', async () => {
  const key = (name) => ({ name, type: 'string' });
  const partitionKey = key('pk');
  const home = new toolbox.Table({ documentClient, name: table, partitionKey, sortKey: key('sk') });
  const { string, number, set, list, item, $add, $append } = toolbox;
  const schema = item({
    pk: string().key(),
    sk: string().key(),
    level: number().optional(),
    types: set(string()).optional(),
    moves: list(string()).optional(),
  });
  const animal = new toolbox.Entity({ name: 'animal', table: home, schema });
  const at = { pk: 'p', sk: '1' };
  await animal.build(toolbox.PutItemCommand).item({ ...at, level: 3, types: new Set(['a']), moves: ['a'] }).send();
  const change = { ...at, level: $add(2), types: $add(new Set(['w'])), moves: $append(['b']) };
  const updated = await animal.build(toolbox.UpdateItemCommand).item(change).options({ returnValues: 'ALL_NEW' }).send();
  assert.deepStrictEqual([updated.Attributes.level, updated.Attributes.moves], [5, ['a', 'b']]);
  const found = await home.build(toolbox.QueryCommand).query({ partition: 'p' }).entities(animal).send();
  assert.strictEqual(found.Items.length, 1);
  const remove = animal.build(toolbox.DeleteItemCommand).key(at).options({ condition: { attr: 'level', gt: 100 } });
  await assert.rejects(remove.send(), named('ConditionalCheckFailedException'));
});

test('dynamoose', async () => {
  const name = `${table}_cats`;
  dynamoose.aws.ddb.set(new dynamoose.aws.ddb.DynamoDB(settings));
  const attributes = {
    id: { type: String, hashKey: true },
    age: { type: Number, rangeKey: true },
    name: { type: String, index: { name: 'byname', type: 'global' } },
    born: Date,
    o: { type: Object, schema: { a: Number } },
    s: { type: Set, schema: [String] },
  };
  const Cat = dynamoose.model(name, new dynamoose.Schema(attributes, { timestamps: true }));
  const home = new dynamoose.Table(name, [Cat], { create: true, initialize: false, waitForActive: { enabled: true } });
  await home.initialize();
  await Cat.batchPut(Array.from({ length: 10 }, (_, n) => ({ id: 'c', age: n, name: `n${n % 2}`, born: new Date(5), o: { a: n }, s: new Set(['q']) })));
  assert.strictEqual((await Cat.query('id').eq('c').where('age').between(2, 5).exec()).length, 4);
  assert.strictEqual((await Cat.query('name').eq('n1').using('byname').exec()).length, 5);
  await Cat.update({ id: 'c', age: 1 }, { $SET: { name: 'z' }, $REMOVE: { o: null } });
  const cat = await Cat.get({ id: 'c', age: 1 });
  assert.deepStrictEqual([cat.name, cat.o, cat.born.getTime()], ['z', undefined, 5]);
  assert.strictEqual((await Cat.scan('name').contains('n').count().exec()).count, 9);
  await dynamoose.transaction([Cat.transaction.delete({ id: 'c', age: 2 }), Cat.transaction.create({ id: 'c', age: 77, name: 't' })]);
  assert.strictEqual((await Cat.scan().count().exec()).count, 10);
  await client.send(new dynamodb.DeleteTableCommand({ TableName: name }));
});

async function main() {
  for (const [name, body] of tests) {
    try {
      await body();
      passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}: ${String((error && error.stack) || error).slice(0, 900)}`);
    }
  }
  try {
    await client.send(new dynamodb.DeleteTableCommand({ TableName: table }));
    await dynamodb.waitUntilTableNotExists(soon, { TableName: table });
  } catch (error) {
    console.log(`could not clean up: ${error}`);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed > 0 || passed === 0 ? 1 : 0);
}

main();
