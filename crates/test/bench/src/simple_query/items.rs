//! Requests of the DynamoDB API in process: a connection over a stream of memory, from the bytes of a request to those of its answer.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use dynamo::{Dynamo, HttpLimits, Isolation, Server, hand_over_mesh};
use exec::Executor;
use exec::backend::Coordinator;
use rt::driver::StreamDriver;
use rt::{LocalBoxFuture, Rt, Stream};
use serde_json::{Value as Json, json};

use super::workload::{CELLS, Requests};
use crate::load::Values;

/// The table of items by a partition key, that of items by a sort key, too, and that of items that have a global index.
const ITEMS: &str = "items";
const SERIES: &str = "series";
const INDEXED: &str = "indexed";
/// Items of a partition of the second, and of a page.
const PAGE_ITEMS: u64 = 100;
/// Writes of a batch.
const BATCH_WRITES: u64 = 25;
/// Writes of a transaction.
const TRANSACTION_WRITES: u64 = 4;

/// An operation that is measured. Items have five attributes, as rows have cells.
pub(super) struct ItemWorkload {
    /// Its name on the command line.
    pub(super) name: &'static str,
    operation: &'static str,
    /// The table that has items before.
    table: &'static str,
    isolation: Isolation,
    /// The parameters at a partition.
    parameters: fn(partition: u64, values: &Values) -> Json,
    /// Whether a body is that of the answer without an error.
    is_right: fn(&Json) -> bool,
}

/// All of them. Writes are lightweight transactions unless the name says plain.
pub(super) const ITEM_WORKLOADS: [ItemWorkload; 9] = [
    put("put-item", Isolation::Always),
    put("put-item-plain", Isolation::OnlyRmw),
    ItemWorkload {
        name: "get-item",
        operation: "GetItem",
        table: ITEMS,
        isolation: Isolation::Always,
        parameters: |partition, _| json!({ "TableName": ITEMS, "Key": { "p": { "S": key(partition) } } }),
        is_right: |answer| answer["Item"].as_object().is_some_and(|item| item.len() as u64 == CELLS + 1),
    },
    ItemWorkload {
        name: "update-item",
        operation: "UpdateItem",
        table: ITEMS,
        isolation: Isolation::Always,
        parameters: |partition, values| {
            json!({
                "TableName": ITEMS, "Key": { "p": { "S": key(partition) } },
                "UpdateExpression": "SET c0 = :v", "ConditionExpression": "attribute_exists(p)",
                "ExpressionAttributeValues": { ":v": { "S": text(values.of(partition, CELLS)) } },
            })
        },
        is_right: is_empty,
    },
    ItemWorkload {
        name: "query-100",
        operation: "Query",
        table: SERIES,
        isolation: Isolation::Always,
        parameters: |partition, _| {
            json!({
                "TableName": SERIES, "KeyConditionExpression": "p = :p",
                "ExpressionAttributeValues": { ":p": { "S": key(partition) } },
            })
        },
        is_right: |answer| answer["Count"] == PAGE_ITEMS,
    },
    ItemWorkload {
        name: "query-index-100",
        operation: "Query",
        table: INDEXED,
        isolation: Isolation::Always,
        parameters: |partition, _| {
            json!({
                "TableName": INDEXED, "IndexName": "by_g", "KeyConditionExpression": "g = :g",
                "ExpressionAttributeValues": { ":g": { "S": key(partition / PAGE_ITEMS) } },
            })
        },
        is_right: |answer| answer["Count"] == PAGE_ITEMS,
    },
    ItemWorkload {
        name: "scan-100",
        operation: "Scan",
        table: ITEMS,
        isolation: Isolation::Always,
        parameters: |_, _| json!({ "TableName": ITEMS, "Limit": PAGE_ITEMS }),
        is_right: |answer| answer["Count"].as_u64().is_some_and(|count| (1..=PAGE_ITEMS).contains(&count)),
    },
    ItemWorkload {
        name: "batch-write-25",
        operation: "BatchWriteItem",
        table: ITEMS,
        isolation: Isolation::Always,
        parameters: |partition, values| {
            let items = (partition..partition + BATCH_WRITES).map(|at| item(at, values));
            batch(ITEMS, items)
        },
        is_right: |answer| *answer == json!({ "UnprocessedItems": {} }),
    },
    ItemWorkload {
        name: "transact-write-4",
        operation: "TransactWriteItems",
        table: ITEMS,
        isolation: Isolation::Always,
        // Without a token: the second request with one would write nothing.
        parameters: |partition, values| {
            let items = (partition..partition + TRANSACTION_WRITES).map(|at| item(at, values));
            let puts = items.map(|item| json!({ "Put": { "TableName": ITEMS, "Item": item } }));
            json!({ "TransactItems": puts.collect::<Vec<_>>() })
        },
        is_right: is_empty,
    },
];

const fn put(name: &'static str, isolation: Isolation) -> ItemWorkload {
    ItemWorkload {
        name,
        operation: "PutItem",
        table: ITEMS,
        isolation,
        parameters: |partition, values| json!({ "TableName": ITEMS, "Item": item(partition, values) }),
        is_right: is_empty,
    }
}

fn is_empty(answer: &Json) -> bool {
    *answer == json!({})
}

fn key(partition: u64) -> String {
    format!("key-{partition:012}")
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// The item of a partition.
fn item(partition: u64, values: &Values) -> Json {
    let attributes = (0..CELLS).map(|at| (format!("c{at}"), json!({ "S": text(values.of(partition, at)) })));
    std::iter::once(("p".to_owned(), json!({ "S": key(partition) }))).chain(attributes).collect()
}

/// A BatchWriteItem of puts.
fn batch(table: &str, items: impl Iterator<Item = Json>) -> Json {
    let puts: Vec<Json> = items.map(|item| json!({ "PutRequest": { "Item": item } })).collect();
    json!({ "RequestItems": { table: puts } })
}

/// A request as an SDK sends it.
fn request(operation: &str, parameters: &Json) -> Vec<u8> {
    let (body, signature) = (parameters.to_string(), "0123456789abcdef".repeat(4));
    format!(
        "POST / HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/x-amz-json-1.0\r\n\
         x-amz-target: DynamoDB_20120810.{operation}\r\nx-amz-date: 20261129T120000Z\r\n\
         user-agent: aws-sdk-rust/1.3.9 os/linux lang/rust/1.90.0\r\namz-sdk-request: attempt=1; max=3\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=key/20261129/us-east-1/dynamodb/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature={signature}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A connection to the API over a stream of memory, which is polled by its client.
pub(super) struct Connection {
    pipe: Rc<Pipe>,
    serving: RefCell<LocalBoxFuture<()>>,
    requests: Vec<Vec<u8>>,
}

impl Connection {
    /// A connection to a node, with the tables and items of this workload and its requests, of which the first was answered without an error.
    pub(super) async fn open<C: Coordinator>(
        rt: &Rt,
        executor: &Rc<Executor<C>>,
        workload: &ItemWorkload,
        (items, values): (u64, &Values),
    ) -> Result<Self, String> {
        let endpoint = hand_over_mesh(1, 1).pop().expect("one shard, one end");
        let api = Dynamo::new(executor.clone(), workload.isolation);
        let server = Server::new(rt, api, HttpLimits::default(), Duration::MAX, endpoint);
        let pipe = Rc::new(Pipe::default());
        let stream = Stream::from_driver(Box::new(PipeEnd(pipe.clone())));
        let serving: LocalBoxFuture<()> = Box::pin(async move { server.serve(stream).await });
        let mut connection = Self { pipe, serving: RefCell::new(serving), requests: Vec::new() };
        let partitions = connection.fill(workload.table, items, values).await?;
        let requests = (0..partitions).map(|at| (workload.parameters)(at, values));
        connection.requests = requests.map(|parameters| request(workload.operation, &parameters)).collect();
        let answer = connection.answer(&connection.requests[0]).await?;
        match (workload.is_right)(&answer) {
            true => Ok(connection),
            false => Err(format!("{}: {answer}", workload.operation)),
        }
    }

    /// Makes a table with at least so many items; the number of its partitions.
    async fn fill(&self, table: &str, items: u64, values: &Values) -> Result<u64, String> {
        let (is_series, is_indexed) = (table == SERIES, table == INDEXED);
        let mut definitions = vec![json!({ "AttributeName": "p", "AttributeType": "S" })];
        let mut keys = vec![json!({ "AttributeName": "p", "KeyType": "HASH" })];
        if is_series {
            definitions.push(json!({ "AttributeName": "c", "AttributeType": "N" }));
            keys.push(json!({ "AttributeName": "c", "KeyType": "RANGE" }));
        }
        let mut definition =
            json!({ "TableName": table, "KeySchema": keys, "BillingMode": "PAY_PER_REQUEST" });
        if is_indexed {
            definitions.push(json!({ "AttributeName": "g", "AttributeType": "S" }));
            definitions.push(json!({ "AttributeName": "n", "AttributeType": "N" }));
            definition["GlobalSecondaryIndexes"] = json!([{
                "IndexName": "by_g", "Projection": { "ProjectionType": "ALL" },
                "KeySchema": [
                    { "AttributeName": "g", "KeyType": "HASH" }, { "AttributeName": "n", "KeyType": "RANGE" },
                ],
            }]);
        }
        definition["AttributeDefinitions"] = definitions.into();
        self.answer(&request("CreateTable", &definition)).await?;
        let in_partition = if is_series { PAGE_ITEMS } else { 1 };
        // As many items of each value of the index as a page has.
        let items = if is_indexed { items.next_multiple_of(PAGE_ITEMS) } else { items };
        let partitions = items.div_ceil(in_partition);
        let all: Vec<(u64, u64)> =
            (0..partitions).flat_map(|at| (0..in_partition).map(move |row| (at, row))).collect();
        for chunk in all.chunks(BATCH_WRITES as usize) {
            let items = chunk.iter().map(|(partition, row)| {
                let mut item = item(*partition, values);
                if is_series {
                    item["c"] = json!({ "N": row.to_string() });
                }
                if is_indexed {
                    item["g"] = json!({ "S": key(partition / PAGE_ITEMS) });
                    item["n"] = json!({ "N": (partition % PAGE_ITEMS).to_string() });
                }
                item
            });
            let answer = self.answer(&request("BatchWriteItem", &batch(table, items))).await?;
            if answer != json!({ "UnprocessedItems": {} }) {
                return Err(format!("the items of {table}: {answer}"));
            }
        }
        Ok(partitions)
    }

    /// Carries out a request, to the end of its answer, which has to be no error.
    async fn send(&self, request: &[u8]) -> Result<(), String> {
        self.pipe.request.borrow_mut().extend_from_slice(request);
        self.pipe.answer.borrow_mut().clear();
        // Nothing holds up a write to memory: the server waits again when the answer is whole.
        poll_fn(|cx| match self.serving.borrow_mut().as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err("the connection was closed".to_owned())),
            Poll::Pending if self.pipe.answer.borrow().is_empty() => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await?;
        let answer = self.pipe.answer.borrow();
        match answer.starts_with(b"HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&answer).into_owned()),
        }
    }

    /// The body of the answer to a request.
    async fn answer(&self, request: &[u8]) -> Result<Json, String> {
        self.send(request).await?;
        let answer = self.pipe.answer.borrow();
        let text = std::str::from_utf8(&answer).map_err(|error| error.to_string())?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without a body")?;
        if !head.contains(&format!("content-length: {}", body.len())) {
            return Err(format!("an answer that is cut short: {text}"));
        }
        serde_json::from_str(body).map_err(|error| error.to_string())
    }
}

impl Requests for Connection {
    fn count(&self) -> usize {
        self.requests.len()
    }

    async fn carry_out(&self, at: usize) -> Result<(), String> {
        self.send(&self.requests[at]).await
    }
}

/// The bytes between a client and the server.
#[derive(Default)]
struct Pipe {
    request: RefCell<BytesMut>,
    answer: RefCell<Vec<u8>>,
}

/// The server's end. It wakes nobody: the client polls the server when there is a request.
struct PipeEnd(Rc<Pipe>);

impl StreamDriver for PipeEnd {
    fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.request.borrow().is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_ready(cx).map_ok(|()| {
            let mut request = self.0.request.borrow_mut();
            let len = buf.len().min(request.len());
            request.copy_to_slice(&mut buf[..len]);
            len
        })
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let len = buf.len();
        buf.resize(buf.capacity(), 0);
        let read = self.poll_read(cx, &mut buf[len..]);
        buf.truncate(len + if let Poll::Ready(Ok(read)) = &read { *read } else { 0 });
        read
    }

    fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.answer.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        &self,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut answer = self.0.answer.borrow_mut();
        slices.iter().for_each(|slice| answer.extend_from_slice(slice));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn set_keepalive(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 40_000).into())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 8_000).into())
    }

    fn detach(self: Box<Self>) -> io::Result<Box<dyn Any + Send>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
