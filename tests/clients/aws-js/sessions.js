// Sessions of a web application, kept by connect-dynamodb for express-session: `sessions.js HOST CQL_PORT torc`.
'use strict';

const assert = require('node:assert');
const { once } = require('node:events');

const connectDynamodb = require('connect-dynamodb');
const dynamodb = require('@aws-sdk/client-dynamodb');
const express = require('express');
const session = require('express-session');

const host = process.argv[2];
const port = process.env.TEST_DYNAMODB_PORT || '8000';
const credentials = { accessKeyId: 'any', secretAccessKey: 'any' };
const client = new dynamodb.DynamoDBClient({ endpoint: `http://${host}:${port}`, region: 'us-east-1', credentials });
const table = `sessions_${process.pid}_${Date.now()}`;
const store = new (connectDynamodb(session))({ client, table });
const tests = [];
let passed = 0;
let failed = 0;
let address;

const test = (name, body) => tests.push([name, body]);
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function application() {
  const app = express();
  app.use(session({ store, secret: 'secret', resave: false, saveUninitialized: false, rolling: true, cookie: { maxAge: 60_000 } }));
  app.get('/count', (request, response) => {
    request.session.count = (request.session.count || 0) + 1;
    response.send(`${request.session.count}`);
  });
  app.get('/look', (request, response) => response.send(`${request.session.count || 'nothing'}`));
  app.get('/short', (request, response) => {
    request.session.cookie.maxAge = 1000;
    request.session.count = 1;
    response.send(request.sessionID);
  });
  app.get('/leave', (request, response) => request.session.destroy(() => response.send('gone')));
  return app;
}

// A browser that keeps its cookie.
function browser() {
  let cookie = '';
  return async (path) => {
    const response = await fetch(`http://127.0.0.1:${address.port}${path}`, { headers: { cookie } });
    const set = response.headers.getSetCookie();
    if (set.length) [cookie] = set[0].split(';');
    assert.strictEqual(response.status, 200);
    return response.text();
  };
}

async function stored(id) {
  const key = { id: { S: `sess:${id}` } };
  return (await client.send(new dynamodb.GetItemCommand({ TableName: table, Key: key, ConsistentRead: true }))).Item;
}

const scan = async () => (await client.send(new dynamodb.ScanCommand({ TableName: table, ConsistentRead: true }))).Count;

test('the store makes its table', async () => {
  await store.initialize();
  const { Table } = await client.send(new dynamodb.DescribeTableCommand({ TableName: table }));
  assert.strictEqual(Table.ProvisionedThroughput.ReadCapacityUnits, 5);
});

test('sessions of browsers are their own', async () => {
  const [ann, bob] = [browser(), browser()];
  for (const expected of ['1', '2', '3']) assert.strictEqual(await ann('/count'), expected);
  assert.strictEqual(await bob('/count'), '1');
  assert.deepStrictEqual([await ann('/look'), await bob('/look')], ['3', '1']);
  assert.strictEqual(await scan(), 2);
});

test('many requests of many browsers', async () => {
  const counts = await Promise.all(Array.from({ length: 10 }, async () => {
    const visit = browser();
    for (let at = 0; at < 5; at += 1) await visit('/count');
    return visit('/look');
  }));
  assert.deepStrictEqual(counts, Array(10).fill('5'));
});

test('a request prolongs its session', async () => {
  const visit = browser();
  const id = await visit('/short');
  const before = Number((await stored(id)).expires.N);
  const touched = await new Promise((resolve, reject) => {
    store.touch(id, { cookie: { maxAge: 5_000_000 } }, (error, found) => (error ? reject(error) : resolve(found)));
  });
  assert.ok(Number(touched.expires) > before + 4000, touched.expires);
  assert.strictEqual(Number((await stored(id)).expires.N), Number(touched.expires));
});

test('a session that is left is deleted', async () => {
  const visit = browser();
  await visit('/count');
  const count = await scan();
  assert.strictEqual(await visit('/leave'), 'gone');
  assert.strictEqual(await scan(), count - 1);
  assert.strictEqual(await visit('/look'), 'nothing');
});

// `reap` finds them by a ScanFilter.
test('the store deletes what has expired', async () => {
  const visit = browser();
  const id = await visit('/short');
  const count = await scan();
  await sleep(2100);
  assert.ok(await stored(id));
  await new Promise((resolve, reject) => { store.reap((error) => (error ? reject(error) : resolve())); });
  assert.strictEqual(await stored(id), undefined);
  assert.strictEqual(await scan(), count - 1);
  assert.strictEqual(await visit('/look'), 'nothing');
});

test('the node deletes what has expired', async () => {
  const specification = { AttributeName: 'expires', Enabled: true };
  await client.send(new dynamodb.UpdateTimeToLiveCommand({ TableName: table, TimeToLiveSpecification: specification }));
  const id = await browser()('/short');
  const lasting = await scan();
  const deadline = Date.now() + 40_000;
  while (await stored(id) && Date.now() < deadline) await sleep(200);
  assert.strictEqual(await stored(id), undefined);
  assert.strictEqual(await scan(), lasting - 1);
});

async function main() {
  const server = application().listen(0, '127.0.0.1');
  await once(server, 'listening');
  address = server.address();
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
  } catch (error) {
    console.log(`could not clean up: ${error}`);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed > 0 || passed === 0 ? 1 : 0);
}

main();
