// The Node.js driver against a running node: `client.js HOST PORT torc|cassandra`.
//
// One test a function, in order; each prints `ok NAME` or `FAIL NAME: why`.
'use strict';

const assert = require('assert');
const crypto = require('crypto');
const { EventEmitter } = require('events');
const cassandra = require('cassandra-driver');

const { types } = cassandra;
const [host, port, flavour] = process.argv.slice(2);
const keyspace = 'node_' + crypto.randomBytes(5).toString('hex');
const tests = [];
let passed = 0;
let failed = 0;
let client;

EventEmitter.defaultMaxListeners = 100;

function test(name, body) {
  tests.push([name, body]);
}

function connect(options) {
  return new cassandra.Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter: 'datacenter1',
    socketOptions: { readTimeout: 30000, connectTimeout: 20000 },
    refreshSchemaDelay: 0,
    ...options,
  });
}

async function rejects(action, check) {
  try {
    await action();
  } catch (error) {
    check(error);
    return;
  }
  throw new Error('no error was raised');
}

async function waitUntil(condition, what) {
  const deadline = Date.now() + 10000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen in 10 s`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

const run = (text, values, options) => client.execute(text, values, { prepare: Boolean(values), ...options });
const codes = types.responseErrorCodes;

test('connect', async () => {
  const { rows } = await run('SELECT key, release_version FROM system.local');
  assert.strictEqual(rows[0].key, 'local');
  assert.strictEqual(client.hosts.length, Number(process.env.TEST_NODES || '1'));
  assert.strictEqual(client.hosts.values()[0].datacenter, 'datacenter1');
});

test('ddl', async () => {
  await run(`CREATE KEYSPACE ${keyspace} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`);
  await run(`USE ${keyspace}`);
  assert.strictEqual(client.keyspace, keyspace);
  await run('CREATE TYPE address (street text, number int, phones frozen<map<text, text>>)');
  await run('CREATE TABLE t (k int, c text, v int, s text STATIC, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)');
  await run('ALTER TABLE t ADD extra list<int>');
  const table = await client.metadata.getTable(keyspace, 't');
  assert.deepStrictEqual(table.columns.map((column) => column.name).sort(), ['c', 'extra', 'k', 's', 'v']);
  assert.deepStrictEqual(table.partitionKeys.map((column) => column.name), ['k']);
  assert.deepStrictEqual(table.clusteringOrder, ['DESC']);
  const udt = await client.metadata.getUdt(keyspace, 'address');
  assert.deepStrictEqual(udt.fields.map((field) => field.name), ['street', 'number', 'phones']);
});

const long = types.Long.fromString;
const kinds = [
  ['ascii', ['', 'plain']],
  ['bigint', [long('0'), long('-9223372036854775808'), long('9223372036854775807')]],
  ['blob', [Buffer.alloc(0), Buffer.from('00ff'.repeat(100), 'hex')]],
  ['boolean', [true, false]],
  ['date', [types.LocalDate.fromString('1970-01-01'), types.LocalDate.fromString('2026-11-21')]],
  ['decimal', ['0', '-1.50', '3.14159265358979323846'].map((text) => types.BigDecimal.fromString(text))],
  ['double', [0, -1.5, 1e300, Infinity]],
  ['duration', [new types.Duration(14, 3, long('5000000007')), new types.Duration(-1, -2, long('-3'))]],
  ['float', [0, -1.5, Infinity]],
  ['inet', [types.InetAddress.fromString('127.0.0.1'), types.InetAddress.fromString('2001:db8::ff00:42:8329')]],
  ['int', [0, -1, 2147483647, -2147483648]],
  ['smallint', [0, 32767, -32768]],
  ['text', ['', 'žluťoučký kůň 🐎']],
  ['time', [types.LocalTime.fromString('00:00:00'), types.LocalTime.fromString('13:45:59.123456789')]],
  ['timestamp', [new Date(0), new Date('2026-11-21T05:20:00.123Z'), new Date('1900-01-01T00:00:00Z')]],
  ['timeuuid', [types.TimeUuid.fromDate(new Date('2026-01-01'))]],
  ['tinyint', [0, 127, -128]],
  ['uuid', [types.Uuid.fromString('6ba7b810-9dad-11d1-80b4-00c04fd430c8')]],
  ['varchar', ['same as text']],
  ['varint', ['0', '-129', '1606938044258990275541962092341162602522202993782792835301376'].map((text) => types.Integer.fromString(text))],
  ['list<int>', [[3, 1, 2, 2]]],
  ['set<text>', [['a', 'b']]],
  ['map<text, bigint>', [{ a: long('1'), b: long('-2') }]],
  ['frozen<list<timeuuid>>', [[types.TimeUuid.fromDate(new Date('2026-01-01'))]]],
  ['frozen<map<text, frozen<list<frozen<set<int>>>>>>', [{ a: [[1, 2], [3]] }]],
  ['tuple<int, text, frozen<list<int>>>', [new types.Tuple(1, 'a', [1, 2])]],
  ['vector<float, 3>', [new types.Vector([1, -2.5, 0], 'float')]],
  ['frozen<address>', [{ street: 'Main', number: 7, phones: { home: '1' } }]],
  ['address', [{ street: 'Side', number: 8, phones: { work: '2' } }]],
  ['list<frozen<address>>', [[{ street: 'x', number: 0, phones: {} }]]],
];

// Values of the driver's own classes, as text that compares.
function shown(value) {
  if (value === null || value === undefined) return 'null';
  if (Buffer.isBuffer(value)) return '0x' + value.toString('hex');
  if (value instanceof Date) return value.toISOString();
  if (value instanceof types.Vector) return 'v' + JSON.stringify(Array.from(value));
  if (value instanceof types.Tuple) return 't' + JSON.stringify(value.elements);
  if (Array.isArray(value)) return '[' + value.map(shown).join(', ') + ']';
  if (typeof value === 'object' && value.constructor === Object) {
    return '{' + Object.keys(value).map((key) => `${key}: ${shown(value[key])}`).join(', ') + '}';
  }
  return String(value);
}

test('types', async () => {
  const columns = kinds.map(([kind], index) => `c${index} ${kind}`).join(', ');
  await run(`CREATE TABLE types (id int PRIMARY KEY, ${columns})`);
  for (const [index, [kind, values]] of kinds.entries()) {
    for (const [number, value] of [...values, null].entries()) {
      const id = index * 100 + number;
      await run(`INSERT INTO types (id, c${index}) VALUES (?, ?)`, [id, value]);
      const { rows } = await run(`SELECT c${index} AS found FROM types WHERE id = ?`, [id]);
      assert.strictEqual(shown(rows[0].found), shown(value), kind);
    }
  }
});

test('prepared', async () => {
  await run('CREATE TABLE prep (k int, c text, v int, PRIMARY KEY (k, c))');
  await run('INSERT INTO prep (k, c, v) VALUES (?, ?, ?)', [1, 'a', 10]);
  await run('INSERT INTO prep (k, c, v) VALUES (:key, :cluster, :value)', { key: 1, cluster: 'b', value: 20 });
  const { rows } = await run('SELECT c, v FROM prep WHERE k = ? AND c > ?', [1, 'a']);
  assert.deepStrictEqual(rows.map((row) => [row.c, row.v]), [['b', 20]]);
  const many = await run('SELECT c FROM prep WHERE k IN ? AND c IN ?', [[1, 2], ['b', 'a', 'z']]);
  assert.deepStrictEqual(many.rows.map((row) => row.c), ['a', 'b']);
  await run('INSERT INTO prep (k, c, v) VALUES (?, ?, ?)', [1, 'a', types.unset]);
  assert.strictEqual((await run('SELECT v FROM prep WHERE k = 1 AND c = ?', ['a'])).rows[0].v, 10);
  const simple = await client.execute('SELECT v FROM prep WHERE k = ? AND c = ?', [1, 'b'], { prepare: false, hints: ['int', 'text'] });
  assert.strictEqual(simple.rows[0].v, 20);
});

test('batch', async () => {
  await run('CREATE TABLE bat (k int, c int, v int, PRIMARY KEY (k, c))');
  await run('CREATE TABLE cnt (k int PRIMARY KEY, n counter)');
  for (const logged of [true, false]) {
    const queries = [];
    for (let index = 0; index < 20; index++) {
      queries.push({ query: 'INSERT INTO bat (k, c, v) VALUES (?, ?, ?)', params: [Number(logged), index, index] });
    }
    await client.batch(queries, { prepare: true, logged });
    assert.strictEqual((await run('SELECT c FROM bat WHERE k = ?', [Number(logged)])).rowLength, 20);
  }
  const bump = { query: 'UPDATE cnt SET n = n + ? WHERE k = ?', params: [long('7'), 1] };
  await client.batch([bump, bump, bump], { prepare: true, counter: true });
  assert.strictEqual((await run('SELECT n FROM cnt WHERE k = 1')).rows[0].n.toString(), '21');
});

test('paging', async () => {
  await run('CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))');
  const values = Array.from({ length: 10000 }, (_, index) => [index % 4, index, `value ${index}`]);
  await cassandra.concurrent.executeConcurrent(client, 'INSERT INTO paged (k, c, v) VALUES (?, ?, ?)', values, { concurrencyLevel: 64 });
  const seen = new Set();
  for await (const row of await run('SELECT c FROM paged', [], { fetchSize: 777 })) seen.add(row.c);
  assert.strictEqual(seen.size, 10000);
  const down = [];
  await new Promise((resolve, reject) => {
    const options = { prepare: true, fetchSize: 100, autoPage: true };
    client.eachRow('SELECT c FROM paged WHERE k = ? ORDER BY c DESC', [0], options, (_, row) => down.push(row.c), (error) => (error ? reject(error) : resolve()));
  });
  assert.deepStrictEqual(down, Array.from({ length: 2500 }, (_, index) => 9996 - 4 * index));
  const first = await run('SELECT c FROM paged WHERE k = 1', [], { fetchSize: 10 });
  assert.strictEqual(first.rows.length, 10);
  const second = await run('SELECT c FROM paged WHERE k = 1', [], { fetchSize: 10, pageState: first.pageState });
  assert.strictEqual(second.rows[0].c, 41);
});

test('errors', async () => {
  await rejects(() => run('SELEC * FROM t'), (error) => assert.strictEqual(error.code, codes.syntaxError, error));
  await rejects(() => run('SELECT * FROM no_such_table'), (error) => {
    assert.strictEqual(error.code, codes.invalid);
    assert.match(error.message, /no_such_table/);
  });
  await rejects(() => run('CREATE TABLE prep (k int PRIMARY KEY)'), (error) => {
    assert.strictEqual(error.code, codes.alreadyExists);
    assert.strictEqual(error.table, 'prep');
  });
  await rejects(() => run('CREATE TABLE bad (k nosuchtype PRIMARY KEY)'), (error) => assert.strictEqual(error.code, codes.invalid));
  await rejects(() => run('SELECT * FROM prep WHERE k = ?', ['text']), (error) => assert.ok(error));
  await rejects(() => run('SELECT * FROM prep WHERE v = 1'), (error) => assert.match(error.message, /ALLOW FILTERING/));
  assert.strictEqual((await run('SELECT key FROM system.local')).rows[0].key, 'local');
});

test('reprepare', async () => {
  await run('CREATE TABLE rep (k int PRIMARY KEY, a int)');
  await run('INSERT INTO rep (k, a) VALUES (?, ?)', [1, 1]);
  await run('DROP TABLE rep');
  await run('CREATE TABLE rep (k int PRIMARY KEY, a int)');
  await run('INSERT INTO rep (k, a) VALUES (?, ?)', [5, 6]);
  assert.strictEqual((await run('SELECT a FROM rep WHERE k = ?', [5])).rows[0].a, 6);
});

test('schema_events', async () => {
  const other = connect();
  await other.connect();
  try {
    await waitUntil(async () => other.metadata.keyspaces[keyspace] !== undefined, 'the first metadata');
    await other.metadata.getTable(keyspace, 'rep');
    await run(`CREATE KEYSPACE ${keyspace}_event WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`);
    await waitUntil(async () => other.metadata.keyspaces[`${keyspace}_event`] !== undefined, 'the CREATE KEYSPACE event');
    await run('ALTER TABLE rep ADD later text');
    await waitUntil(async () => {
      const table = await other.metadata.getTable(keyspace, 'rep');
      return table.columnsByName.later !== undefined;
    }, 'the ALTER TABLE event');
    await run(`DROP KEYSPACE ${keyspace}_event`);
    await waitUntil(async () => other.metadata.keyspaces[`${keyspace}_event`] === undefined, 'the DROP KEYSPACE event');
  } finally {
    await other.shutdown();
  }
});

test('metadata', async () => {
  const replicas = client.metadata.getReplicas(keyspace, Buffer.from([0, 0, 0, 1]));
  assert.strictEqual(replicas.length, 1);
  assert.ok(client.metadata.getTokenRanges().size >= 1);
});

test('tracing', async () => {
  const result = await run('SELECT * FROM prep WHERE k = ?', [1], { traceQuery: true });
  const trace = await client.metadata.getTrace(result.info.traceId);
  assert.ok(trace.events.length > 0);
  assert.ok(trace.coordinator);
});

test('warnings', async () => {
  const result = await run('SELECT count(*) FROM prep');
  assert.match(result.info.warnings[0], /[Aa]ggregation/);
});

test('large_values', async () => {
  await run('CREATE TABLE large (k int PRIMARY KEY, v blob)');
  for (const size of [131071, 131072, 1000000]) {
    const value = Buffer.alloc(size, size % 251);
    await run('INSERT INTO large (k, v) VALUES (?, ?)', [size, value]);
    assert.ok((await run('SELECT v FROM large WHERE k = ?', [size])).rows[0].v.equals(value), `${size} bytes`);
  }
});

test('conditions', async () => {
  const conditional = () => run('INSERT INTO prep (k, c, v) VALUES (900, ?, 1) IF NOT EXISTS', ['x']);
  if (flavour === 'cassandra') {
    assert.strictEqual((await conditional()).wasApplied(), true);
    assert.strictEqual((await conditional()).wasApplied(), false);
    return;
  }
  let applied;
  try {
    applied = (await conditional()).wasApplied();
  } catch (error) {
    assert.strictEqual(error.code, codes.invalid, error);
    return;
  }
  assert.strictEqual(applied, true);
});

for (const version of [3, 4]) {
  test(`protocol_v${version}`, async () => {
    const other = connect({ protocolOptions: { maxVersion: version }, keyspace });
    await other.connect();
    try {
      assert.strictEqual(other.controlConnection.protocolVersion, version);
      await other.execute('INSERT INTO prep (k, c, v) VALUES (?, ?, ?)', [60 + version, 'v', 1], { prepare: true });
      const { rows } = await other.execute('SELECT c, v FROM prep WHERE k = ?', [60 + version], { prepare: true });
      assert.deepStrictEqual([rows[0].c, rows[0].v], ['v', 1]);
    } finally {
      await other.shutdown();
    }
  });
}

test('mapper', async () => {
  const { Mapper, q, UnderscoreCqlToCamelCaseMappings } = cassandra.mapping;
  const columns = 'user_id uuid, name text, added timestamp';
  await run(
    `CREATE TABLE ${keyspace}.videos (video_id uuid PRIMARY KEY, ${columns}, tags set<text>, ratings map<text, int>, preview list<text>, views bigint)`,
  );
  await run(
    `CREATE TABLE ${keyspace}.user_videos (video_id uuid, ${columns}, PRIMARY KEY (user_id, added, video_id))` +
      ' WITH CLUSTERING ORDER BY (added DESC, video_id ASC)',
  );
  const video = { tables: ['videos', 'user_videos'], keyspace, columns: { video_id: 'id' }, mappings: new UnderscoreCqlToCamelCaseMappings() };
  const mapper = new Mapper(client, { models: { Video: video } });
  const videos = mapper.forModel('Video');
  const userId = types.Uuid.random();
  const ids = Array.from({ length: 10 }, () => types.Uuid.random());
  for (const [n, id] of ids.entries()) {
    const added = new Date(1e12 + n * 1000);
    await videos.insert({ id, userId, name: `n${n}`, tags: ['a'], ratings: { x: n }, preview: ['p'], added, views: types.Long.fromNumber(n) });
  }
  assert.strictEqual((await videos.get({ id: ids[3] })).ratings.x, 3);
  const names = async (keys, options) => (await videos.find(keys, options)).toArray().map((one) => one.name);
  assert.deepStrictEqual((await names({ userId })).slice(0, 2), ['n9', 'n8']);
  const span = q.and(q.gte(new Date(1e12 + 2000)), q.lt(new Date(1e12 + 5000)));
  const options = { fields: ['name', 'id'], limit: 2, orderBy: { added: 'asc' } };
  assert.deepStrictEqual(await names({ userId, added: span }, options), ['n2', 'n3']);
  assert.strictEqual((await names({ id: q.in_(ids.slice(0, 4)) })).length, 4);
  await videos.update({ id: ids[1], tags: q.append(['b']), preview: q.prepend(['q']) });
  assert.deepStrictEqual((await videos.get({ id: ids[1] })).preview, ['q', 'p']);
  const applied = async (change) => (await change).wasApplied();
  assert.ok(!(await applied(videos.insert({ id: ids[1], name: 'z' }, { ifNotExists: true }))));
  const renamed = (views) => videos.update({ id: ids[1], name: 'z' }, { when: { views: types.Long.fromNumber(views) } });
  assert.ok(!(await applied(renamed(99))));
  assert.ok(await applied(renamed(1)));
  const changed = { id: ids[0], userId, name: 'b', added: new Date(5) };
  await mapper.batch([videos.batching.insert(changed), videos.batching.remove({ id: ids[2] })]);
  assert.strictEqual(await videos.get({ id: ids[2] }), null);
  assert.strictEqual((await videos.findAll({ limit: 3 })).toArray().length, 3);
});

async function main() {
  client = connect();
  try {
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
    await client.execute(`DROP KEYSPACE IF EXISTS ${keyspace}`).catch((error) => console.log(`could not clean up: ${error}`));
  } finally {
    await client.shutdown();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
}

main();
