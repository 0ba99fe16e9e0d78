//! Paging: pages of any size put together are the whole result, and a paging state is trusted with nothing.

use bytes::Bytes;
use wire::Value;
use wire::client::{AnswerBody, ResultBody};

use crate::golden::{Node, show};

fn filled() -> Node {
    let functions = exec::FunctionLimits { enabled: true, ..exec::FunctionLimits::default() };
    let node = Node::with_limits(
        crate::memory::Memory::new(),
        exec::ExecLimits { functions, ..exec::ExecLimits::default() },
    );
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run(
        "CREATE TABLE ks.t (k int, c int, d text, s int static, v int, PRIMARY KEY (k, c, d)) \
              WITH CLUSTERING ORDER BY (c DESC, d ASC)",
    );
    for k in 0..5 {
        for c in 0..6 {
            for d in ["a", "b"] {
                node.run(&format!("INSERT INTO ks.t (k, c, d, v) VALUES ({k}, {c}, '{d}', {})", k * 100 + c));
            }
        }
    }
    node.run("INSERT INTO ks.t (k, s) VALUES (77, 1)");
    for text in [
        "CREATE FUNCTION ks.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return (a or 0) * 2'",
        "CREATE FUNCTION ks.plus(s int, a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return s + a'",
        "CREATE AGGREGATE ks.total(int) SFUNC plus STYPE int FINALFUNC f INITCOND 1",
    ] {
        node.run(text);
    }
    node
}

/// All rows of a query, fetched in pages of this size, of which there must be at most `pages_max`.
pub fn paged_within(node: &Node, text: &str, size: i32, pages_max: usize) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut all = Vec::new();
    let mut state: Option<Bytes> = None;
    for _ in 0..pages_max {
        let answer = node.request(|request| {
            let mut parameters = Node::values(&[]);
            parameters.page_size = Some(size);
            parameters.paging_state = state.as_deref();
            request.query(text, &parameters);
        });
        let AnswerBody::Result(ResultBody::Rows(rows)) = answer.body else {
            panic!("{text}: {}", show(&answer));
        };
        let page = rows.to_vec().unwrap();
        assert!(page.len() <= size as usize, "{text}: a page of {} rows", page.len());
        all.extend(page);
        state = rows.paging_state;
        if state.is_none() {
            return all;
        }
    }
    panic!("{text}: the pages do not end");
}

fn paged(node: &Node, text: &str, size: i32) -> Vec<Vec<Option<Vec<u8>>>> {
    paged_within(node, text, size, 1000)
}

const QUERIES: [&str; 27] = [
    "SELECT (int)1 FROM ks.t GROUP BY k",
    "SELECT ks.f(1) FROM ks.t GROUP BY k, c",
    "SELECT JSON ks.f(1) FROM ks.t GROUP BY k PER PARTITION LIMIT 1",
    "SELECT * FROM ks.t WHERE k = 3 AND c IN (1, 2, 9) AND d IN ('a', 'b')",
    "SELECT * FROM ks.t WHERE k = 3 AND (c, d) IN ((1, 'a'), (2, 'b'), (4, 'a'))",
    "SELECT * FROM ks.t",
    "SELECT k, c, v FROM ks.t WHERE k = 3",
    "SELECT k, c, d FROM ks.t WHERE k = 3 ORDER BY c ASC",
    "SELECT k, c, d FROM ks.t WHERE k = 3 AND c > 1 AND c < 5",
    "SELECT * FROM ks.t WHERE k IN (1, 3, 99)",
    "SELECT * FROM ks.t LIMIT 17",
    "SELECT * FROM ks.t PER PARTITION LIMIT 3",
    "SELECT * FROM ks.t PER PARTITION LIMIT 3 LIMIT 8",
    "SELECT DISTINCT k, s FROM ks.t",
    "SELECT * FROM ks.t WHERE v = 103 ALLOW FILTERING",
    "SELECT * FROM ks.t WHERE d = 'b' PER PARTITION LIMIT 2 ALLOW FILTERING",
    "SELECT k, c, count(*), max(v) FROM ks.t GROUP BY k, c",
    "SELECT k, count(*) FROM ks.t GROUP BY k",
    "SELECT k, c, count(*) FROM ks.t GROUP BY k, c PER PARTITION LIMIT 2",
    "SELECT k, c, count(*) FROM ks.t GROUP BY k, c LIMIT 7",
    "SELECT count(*) FROM ks.t",
    "SELECT k, c, ks.f(v), ks.f(s) FROM ks.t",
    "SELECT k, ks.f(ks.f(v)) FROM ks.t WHERE d = 'b' PER PARTITION LIMIT 2 ALLOW FILTERING",
    "SELECT k, ks.f(c) FROM ks.t WHERE k IN (1, 3, 99) LIMIT 17",
    "SELECT k, c, ks.total(v), ks.f(k), sum(ks.f(v)) FROM ks.t GROUP BY k, c",
    "SELECT k, ks.f(ks.total(ks.f(v))) FROM ks.t GROUP BY k PER PARTITION LIMIT 1 LIMIT 4",
    "SELECT ks.total(v) FROM ks.t",
];

#[test]
fn pages_make_the_whole() {
    let node = filled();
    for text in QUERIES {
        let whole = node.rows(text);
        for size in [1, 2, 3, 5, 7, 100] {
            assert_eq!(paged(&node, text, size), whole, "{text} in pages of {size}");
        }
    }
}

#[test]
fn a_hostile_state_is_an_error() {
    let node = filled();
    let text = "SELECT * FROM ks.t";
    let mut parameters = Node::values(&[]);
    parameters.page_size = Some(4);
    let answer = node.request(|request| request.query(text, &parameters));
    let AnswerBody::Result(ResultBody::Rows(rows)) = answer.body else { panic!("rows") };
    let state = rows.paging_state.unwrap().to_vec();
    let mut tried = 0;
    for at in 0..state.len() {
        for change in [1u8, 0x80, 0xFF] {
            let mut forged = state.clone();
            forged[at] ^= change;
            // With the checksum put right, only the content can give it away; nothing may panic.
            let body = forged.len() - 4;
            let sum = crc32fast::hash(&forged[..body]).to_be_bytes();
            let resealed = if at < body { [&forged[..body], &sum[..]].concat() } else { forged.clone() };
            for bytes in [forged, resealed, state[..at].to_vec()] {
                let mut parameters = Node::values(&[]);
                parameters.page_size = Some(4);
                parameters.paging_state = Some(&bytes);
                let answer = node.request(|request| request.query(text, &parameters));
                tried += usize::from(matches!(answer.body, AnswerBody::Error(_)));
            }
        }
    }
    assert!(tried > state.len() * 3, "broken states are refused: {tried}");
    node.run("CREATE TABLE ks.other (k int PRIMARY KEY, v int)");
    let answer = node.request(|request| {
        let mut parameters = Node::values(&[]);
        parameters.paging_state = Some(&state);
        request.query("SELECT * FROM ks.other", &parameters);
    });
    assert!(show(&answer).contains("paging state"), "{}", show(&answer));
}

#[test]
fn groups_are_counted_where_no_column_is_selected() {
    let node = filled();
    let two = Some(2i32.to_be_bytes().to_vec());
    assert_eq!(node.rows("SELECT ks.f(1) FROM ks.t WHERE k IN (1, 2) GROUP BY k"), [[two.clone()], [two]]);
    assert_eq!(node.rows("SELECT (int)1 FROM ks.t WHERE k = 1 GROUP BY k, c").len(), 6);
    assert_eq!(node.rows("SELECT (int)1 FROM ks.t WHERE k = 1 GROUP BY k, c LIMIT 4").len(), 4);
}

#[test]
fn a_state_of_other_partitions_is_refused() {
    let node = filled();
    let page = |text: &str, state: Option<&[u8]>| {
        node.request(|request| {
            let mut parameters = Node::values(&[]);
            (parameters.page_size, parameters.paging_state) = (Some(3), state);
            request.query(text, &parameters);
        })
    };
    let state = |text: &str| match page(text, None).body {
        AnswerBody::Result(ResultBody::Rows(rows)) => rows.paging_state.unwrap().to_vec(),
        other => panic!("{other:?}"),
    };
    let of_one = state("SELECT * FROM ks.t WHERE k = 1");
    for other in [
        "SELECT * FROM ks.t WHERE k = 2".to_owned(),
        "SELECT * FROM ks.t WHERE k IN (2, 3)".to_owned(),
        "SELECT * FROM ks.t WHERE token(k) > token(1)".to_owned(),
        "SELECT v FROM ks.t WHERE token(k) < token(1)".to_owned(),
        "SELECT * FROM ks.t WHERE k = 2 AND v = 201 ALLOW FILTERING".to_owned(),
    ] {
        let answer = show(&page(&other, Some(&of_one)));
        assert!(answer.contains("paging state belongs to another"), "{other}: {answer}");
    }
    for same in ["SELECT * FROM ks.t WHERE k IN (2, 1)", "SELECT * FROM ks.t WHERE token(k) >= token(1)"] {
        let answer = page(same, Some(&of_one));
        assert!(matches!(answer.body, AnswerBody::Result(ResultBody::Rows(_))), "{same}: {}", show(&answer));
    }
}

#[test]
fn prepared_statements_bind_and_survive_schema_changes() {
    let node = filled();
    let prepare = |text: &str| {
        let answer = node.request(|request| request.prepare(text, None));
        match answer.body {
            AnswerBody::Result(ResultBody::Prepared(prepared)) => prepared,
            _ => panic!("{text}: {}", show(&answer)),
        }
    };
    let insert = prepare("INSERT INTO ks.t (k, c, d, v) VALUES (?, ?, ?, ?)");
    let select = prepare("SELECT v FROM ks.t WHERE k = ? AND c = ? AND d = ?");
    let execute = |prepared: &wire::client::Prepared, values: &[Value<'_>]| {
        let id = prepared.metadata.id.clone();
        let known = prepared.result_metadata_id.clone().unwrap_or_default();
        show(&node.request(|request| request.execute(&id, &known, &Node::values(values))))
    };
    let (one, two) = (1i32.to_be_bytes(), 2i32.to_be_bytes());
    let row = [Value::Set(&one), Value::Set(&two), Value::Set(b"zz"), Value::Set(&two)];
    assert_eq!(execute(&insert, &row), "void");
    assert_eq!(execute(&select, &row[..3]), "| v int\n  2");
    // Unset leaves the column alone, null deletes it.
    assert_eq!(execute(&insert, &[row[0], row[1], row[2], Value::Unset]), "void");
    assert_eq!(execute(&select, &row[..3]), "| v int\n  2");
    assert_eq!(execute(&insert, &[row[0], row[1], row[2], Value::Null]), "void");
    assert_eq!(execute(&select, &row[..3]), "| v int\n  null");
    let unset = execute(&insert, &[row[0], Value::Unset, row[2], row[3]]);
    assert_eq!(unset, "! Invalid: Invalid unset value for column c");
    assert_eq!(
        execute(&insert, &row[..3]),
        "! Invalid: there were 4 markers(?) in CQL but 3 bound variables"
    );
    let wrong = execute(&insert, &[Value::Set(b"abc"), row[1], row[2], row[3]]);
    assert_eq!(wrong, "! Invalid: Expected 4 or 0 byte int (3)");
    let empty = execute(&insert, &[Value::Set(b""), row[1], row[2], row[3]]);
    assert_eq!(empty, "! Invalid: Key may not be empty");
    let long = vec![b'x'; 65_536];
    let too_long = execute(&insert, &[row[0], row[1], Value::Set(&long), row[3]]);
    // The clustering columns of a row count together.
    assert_eq!(too_long, "! Invalid: Key length of 65540 is longer than maximum of 65535");
    let one_more = vec![b'x'; 65_532];
    let too_long = execute(&insert, &[row[0], row[1], Value::Set(&one_more), row[3]]);
    assert_eq!(too_long, "! Invalid: Key length of 65536 is longer than maximum of 65535");
    // No row has such a value, so that a read finds those before it, which begin so, too.
    let stored = vec![b'x'; 65_531];
    assert_eq!(execute(&insert, &[row[0], row[1], Value::Set(&stored), row[3]]), "void");
    for (relation, found) in
        [("= ?", ""), ("IN (?)", ""), ("> ?", ""), (">= ?", ""), ("< ?", "\n  2"), ("<= ?", "\n  2")]
    {
        let read = prepare(&format!("SELECT v FROM ks.t WHERE k = ? AND c = ? AND d {relation}"));
        let answer = execute(&read, &[row[0], row[1], Value::Set(&long)]);
        assert!(answer.starts_with("| v int") && answer.ends_with(found), "{relation}: {answer}");
        assert_eq!(answer.contains("\n  2"), !found.is_empty(), "{relation}: {answer}");
    }
    let remove = prepare("DELETE FROM ks.t WHERE k = ? AND c = ? AND d = ?");
    assert!(execute(&remove, &[row[0], row[1], Value::Set(&long)]).starts_with("! Invalid: Key length"));
    assert_eq!(execute(&remove, &[row[0], row[1], Value::Set(&stored)]), "void");
    node.run("ALTER TABLE ks.t WITH comment = 'columns as before'");
    assert_eq!(execute(&insert, &row), "void");
    // Other columns: the client has to learn them, by preparing again.
    node.run("ALTER TABLE ks.t ADD w int");
    assert!(execute(&insert, &row).starts_with("! Unprepared: "));
    let insert = prepare("INSERT INTO ks.t (k, c, d, v) VALUES (?, ?, ?, ?)");
    assert_eq!(execute(&insert, &row), "void");
    prepare("SELECT * FROM ks.t WHERE k = 1 LIMIT 1");
    node.run("ALTER TABLE ks.t DROP w");
    let all = prepare("SELECT * FROM ks.t WHERE k = 1 LIMIT 1");
    assert!(execute(&all, &[]).starts_with("| k int | c int | d text | s int | v int\n"));
    node.run("DROP TABLE ks.t");
    assert!(execute(&insert, &row).starts_with("! Unprepared: "));
    let unknown = node.request(|request| request.execute(b"0123456789abcdef", b"", &Node::values(&[])));
    assert!(show(&unknown).starts_with("! Unprepared: "), "{}", show(&unknown));
}

#[test]
fn a_trace_is_written_where_cqlsh_looks_for_it() {
    let node = filled();
    let answer = node.request(|request| {
        request.query("SELECT * FROM ks.t WHERE k = 1", &Node::values(&[]));
        request.set_tracing(true);
    });
    let id = types::uuid::format(&answer.tracing_id.expect("a tracing id")).unwrap();
    let session = node.rows(&format!(
        "SELECT request, duration, parameters, client FROM system_traces.sessions WHERE session_id = {id}"
    ));
    assert_eq!(session[0][0].as_deref(), Some(&b"Execute CQL3 query"[..]));
    assert!(session[0][1].is_some(), "the duration says that the trace is complete");
    let events = node
        .rows(&format!("SELECT activity, source_elapsed FROM system_traces.events WHERE session_id = {id}"));
    assert!(events.len() >= 4, "{events:?}");
}

/// The node books memory for the sizes that are reported.
#[test]
fn an_answer_that_grows_is_reported() {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, b blob, PRIMARY KEY (k, c))");
    let blob = "07".repeat(100 << 10);
    for c in 0..40 {
        node.run(&format!("INSERT INTO ks.t (k, c, b) VALUES (1, {c}, 0x{blob})"));
    }
    assert_eq!(node.rows("SELECT * FROM ks.t WHERE k = 1 AND c < 2").len(), 2);
    assert_eq!(*node.grown.borrow(), [0_usize; 0], "200 KiB are booked before");
    assert_eq!(node.rows("SELECT * FROM ks.t WHERE k = 1").len(), 40);
    assert_eq!(*node.grown.borrow(), [512 << 10, 1 << 20, 2 << 20, 4 << 20]);
}
