//! Statements that are small to write and were large to carry out: each ends at once, with a result or with a clear error.

use std::fmt::Write as _;

use wire::ErrorKind;
use wire::client::AnswerBody;

use crate::golden::Node;

fn node() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run(
        "CREATE TABLE ks.t (k int PRIMARY KEY, i int, v varint, d decimal, f double, s text, b blob, m map<int, int>)",
    );
    node.run("INSERT INTO ks.t (k, i, v, d, f, s, m) VALUES (1, 2, 3, 4.5, 5.5, '\"', {1: 2})");
    node
}

/// The message of a refusal.
fn refused(node: &Node, statement: &str) -> String {
    match node.query(statement).body {
        AnswerBody::Error(error) => {
            assert!(
                matches!(error.kind, ErrorKind::Invalid | ErrorKind::SyntaxError | ErrorKind::ConfigError),
                "{error}"
            );
            assert!(error.message.len() < 2_000, "the message is long");
            error.message
        }
        other => panic!("{}: {other:?}", statement.chars().take(200).collect::<String>()),
    }
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

/// Processor time of this thread.
pub fn cpu() -> std::time::Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn choosing_overloads_costs_as_much_as_the_expression_is_long() {
    let node = node();
    let nested = |open: &str, close: &str, inner: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let mut shapes = vec![];
    for inner in ["i", "v", "d", "f", "1", "1.5"] {
        for (open, close) in [
            ("abs(", ")"),
            ("(i + ", ")"),
            ("2 * (", ")"),
            ("(2.5 - ", ")"),
            ("round(", ")"),
            ("-(", ")"),
            ("(int)abs(", ")"),
            ("CAST(", " AS int)"),
            ("text_as_blob(blob_as_text(", "))"),
            ("blob_as_int(int_as_blob(", "))"),
            ("[", "]"),
            ("abs(i + ", ")"),
        ] {
            // The parser lets brackets nest 64 deep; some of these are two a level.
            for depth in [7, 12, 28] {
                shapes.push(nested(open, close, inner, depth));
            }
        }
        for operator in ["+", "-", "*", "/", "%"] {
            shapes.push(format!("{inner}{}", format!(" {operator} i").repeat(220)));
            shapes.push(format!("{inner}{}", format!(" {operator} v").repeat(220)));
            shapes.push(format!("{inner}{}", format!(" {operator} (i + {inner})").repeat(100)));
        }
    }
    let begin = cpu();
    let (mut taken, mut statements) = (0, 0);
    for shape in &shapes {
        for statement in [
            format!("SELECT {shape} FROM ks.t"),
            format!("SELECT max({shape}) FROM ks.t"),
            format!("INSERT INTO ks.t (k, v) VALUES (1, {shape})"),
            format!("UPDATE ks.t SET d = {shape} WHERE k = {shape}"),
            format!("SELECT k FROM ks.t WHERE k = {shape}"),
        ] {
            let before = cpu();
            let ok = matches!(node.query(&statement).body, AnswerBody::Result(_));
            let took = cpu() - before;
            assert!(took.as_secs() < 5, "{took:?} for {statement}");
            taken += u32::from(ok);
            statements += 1;
        }
    }
    println!("{statements} statements, {taken} carried out, in {:?}", cpu() - begin);
    assert!(taken > 200, "{taken} of {statements} were carried out: the shapes are no expressions");
}

#[test]
fn a_result_has_a_limit_within_a_row() {
    let node = node();
    let blob = "61".repeat(1 << 20);
    node.run(&format!("UPDATE ks.t SET b = 0x{blob} WHERE k = 1"));
    let many = |item: &str| vec![item; 3_000].join(", ");
    for statement in [
        format!("SELECT {} FROM ks.t", many("b")),
        format!("SELECT {} FROM ks.t WHERE k = 1", many("b")),
        format!("SELECT {} FROM ks.t", many("(blob)b")),
        format!("SELECT [{}] FROM ks.t", many("b")),
        format!("SELECT ({}) FROM ks.t", many("b")),
        format!("SELECT {} FROM ks.t", many("max(b)")),
        format!("SELECT {} FROM ks.t GROUP BY k", many("max(b)")),
        format!(
            "SELECT JSON {} FROM ks.t",
            (0..3_000).map(|at| format!("b AS b{at}")).collect::<Vec<_>>().join(", ")
        ),
    ] {
        let message = refused(&node, &statement);
        assert!(message.contains("bytes"), "{message}");
    }
    let peak = peak_mib();
    assert!(peak < 2_048, "{peak} MiB were taken for results that are refused");
    // A result below the limit is returned.
    assert_eq!(node.rows(&format!("SELECT {} FROM ks.t", vec!["b"; 60].join(", ")))[0].len(), 60);
}

#[test]
fn functions_of_functions_do_not_grow_without_end() {
    let node = node();
    let json = format!("{}s{}", "to_json(".repeat(60), ")".repeat(60));
    assert!(refused(&node, &format!("SELECT {json} FROM ks.t")).contains("bytes"));
    let doubled =
        |depth: usize| (0..depth).fold("v".to_owned(), |inner, _| format!("({inner} * 10000000000)"));
    assert_eq!(node.rows(&format!("SELECT {} FROM ks.t", doubled(30))).len(), 1);
    assert!(peak_mib() < 2_048);
}

#[test]
fn a_table_may_have_65_535_columns_and_no_more() {
    let node = node();
    let columns = |range: std::ops::Range<usize>| {
        range.fold(String::new(), |mut text, at| {
            write!(text, "{}c{at} int", if text.is_empty() { "" } else { ", " }).unwrap();
            text
        })
    };
    let message = refused(&node, &format!("CREATE TABLE ks.w (k int PRIMARY KEY, {})", columns(0..65_535)));
    assert!(message.contains("at most 65535"), "{message}");
    node.run(&format!("CREATE TABLE ks.w (k int PRIMARY KEY, {})", columns(0..65_534)));
    assert!(refused(&node, "ALTER TABLE ks.w ADD x int").contains("at most 65535"));
    assert!(
        refused(&node, &format!("ALTER TABLE ks.w ADD ({})", columns(65_534..131_070)))
            .contains("at most 65535")
    );
    node.run("ALTER TABLE ks.w DROP c7");
    assert!(refused(&node, "ALTER TABLE ks.w ADD x int").contains("remember 1"));
    node.run("ALTER TABLE ks.w ADD c7 int");
    node.run("INSERT INTO ks.w (k, c7, c65533) VALUES (1, 2, 3)");
    assert_eq!(node.rows("SELECT c7, c65533 FROM ks.w")[0][1], Some(vec![0, 0, 0, 3]));
}

#[test]
fn columns_can_be_added_and_dropped_for_ever() {
    let node = node();
    let names: Vec<String> = (0..3_000).map(|at| format!("c{at}")).collect();
    node.run("CREATE TABLE ks.w (k int PRIMARY KEY, v int)");
    for at in 0..24 {
        node.run(&format!("ALTER TABLE ks.w ADD ({} int)", names.join(" int, ")));
        node.run(&format!("INSERT INTO ks.w (k, v, c2999) VALUES ({at}, 1, {at})"));
        node.run(&format!("ALTER TABLE ks.w DROP ({})", names.join(", ")));
    }
    node.run("ALTER TABLE ks.w ADD c2999 int");
    let rows = node.rows("SELECT k, c2999 FROM ks.w");
    assert_eq!(rows.len(), 24);
    assert!(rows.iter().all(|row| row[1].is_none()), "a column that came back shows what it held before");
}

#[test]
fn a_type_has_a_limit_of_fields() {
    let node = node();
    let fields: Vec<String> = (0..32_768).map(|at| format!("f{at} int")).collect();
    assert!(refused(&node, &format!("CREATE TYPE ks.u ({})", fields.join(", "))).contains("at most 32767"));
    node.run(&format!("CREATE TYPE ks.u ({})", fields[1..].join(", ")));
    assert!(refused(&node, "ALTER TYPE ks.u ADD f0 int").contains("at most 32767"));
}

#[test]
fn user_types_of_user_types_have_a_limit() {
    let node = node();
    let fields = |count: usize, of: &str| {
        let fields: Vec<String> = (0..count).map(|at| format!("f{at} {of}")).collect();
        fields.join(", ")
    };
    node.run(&format!("CREATE TYPE ks.u1 ({})", fields(1_000, "int")));
    let begun = cpu();
    let refusal = refused(&node, &format!("CREATE TYPE ks.u2 ({})", fields(20_000, "frozen<u1>")));
    assert!(refusal.contains("'u2' would have more than 65536 types inside of each other"), "{refusal}");
    node.run(&format!("CREATE TYPE ks.u2 ({})", fields(60, "frozen<u1>")));
    let refusal =
        refused(&node, &format!("CREATE TABLE ks.wide (k int PRIMARY KEY, {})", fields(100, "frozen<u2>")));
    assert!(refusal.contains("'ks.wide' would have more than 1000000 types"), "{refusal}");
    node.run(&format!("CREATE TABLE ks.wide (k int PRIMARY KEY, {})", fields(10, "frozen<u2>")));
    // A field more of the inner type is one in each of its uses.
    node.run("CREATE TYPE ks.small (f int)");
    node.run(&format!("CREATE TYPE ks.u3 ({})", fields(32_000, "frozen<small>")));
    let refusal = refused(&node, "ALTER TYPE ks.small ADD g int");
    assert!(refusal.contains("'u3' would have more than 65536 types"), "{refusal}");
    assert!(begun + std::time::Duration::from_secs(20) > cpu(), "{:?}", cpu() - begun);
}

#[test]
fn named_values_cost_as_much_as_there_are() {
    let node = node();
    let named = |text: &str, values: &[(&str, &[u8])]| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let values: Vec<wire::Value<'_>> = values.iter().map(|(_, value)| wire::Value::Set(value)).collect();
        let parameters = wire::client::Parameters { names: &names, ..crate::golden::Node::values(&values) };
        node.request(|writer| writer.query(text, &parameters)).body
    };
    // Each of many markers looks for its value among as many.
    let count = 60_000;
    let names: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
    let one = 1_i32.to_be_bytes();
    let values: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &one[..])).collect();
    let last = format!(":n{}", count - 1);
    let markers = vec![last.as_str(); count].join(", ");
    let begun = cpu();
    let body = named(&format!("SELECT k FROM ks.t WHERE k IN ({markers})"), &values);
    assert!(matches!(body, AnswerBody::Result(_)), "{body:?}");
    assert!(begun + std::time::Duration::from_secs(10) > cpu(), "{:?}", cpu() - begun);
    // One large value under many names' worth of markers is not copied for each without end.
    let large = vec![b'x'; 3 << 20];
    node.run("CREATE TABLE ks.texts (k int PRIMARY KEY, m map<int, text>)");
    let set: Vec<String> = (0..1_000).map(|at| format!("m[{at}] = :v")).collect();
    let text = format!("UPDATE ks.texts SET {} WHERE k = :k", set.join(", "));
    let AnswerBody::Error(error) = named(&text, &[("k", &one), ("v", &large)]) else {
        panic!("it was accepted")
    };
    assert!(error.message.starts_with("The 1001 bind variables come to more than"), "{error}");
    // The first of two values of a name counts.
    let text = "INSERT INTO ks.t (k, s) VALUES (:k, :v)";
    let body = named(text, &[("v", b"first"), ("k", &one), ("v", b"second")]);
    assert!(matches!(body, AnswerBody::Result(_)), "{body:?}");
    let rows = node.rows("SELECT s FROM ks.t WHERE k = 1");
    assert_eq!(rows[0][0].as_deref(), Some(&b"first"[..]));
}

#[test]
fn many_assignments_to_one_collection_cost_as_much_as_there_are() {
    let node = node();
    let set: Vec<String> = (0..30_000).rev().map(|at| format!("m[{at}] = {at}")).collect();
    let begun = cpu();
    node.run(&format!("UPDATE ks.t SET {} WHERE k = 7", set.join(", ")));
    assert!(begun + std::time::Duration::from_secs(5) > cpu(), "{:?}", cpu() - begun);
    let rows = node.rows("SELECT m[0], m[29999], i FROM ks.t WHERE k = 7");
    assert_eq!(rows[0], [Some(vec![0; 4]), Some(29_999_i32.to_be_bytes().to_vec()), None]);
    for text in [
        "UPDATE ks.t SET m[1] = 1, m = {} WHERE k = 7",
        "UPDATE ks.t SET m = {}, m[1] = 1 WHERE k = 7",
        "UPDATE ks.t SET i = 1, m[1] = 1, i = 2 WHERE k = 7",
    ] {
        assert!(refused(&node, text).starts_with("Multiple incompatible setting of column"), "{text}");
    }
    // The later of two assignments to one element of a statement counts as two cells of one time do.
    node.run("UPDATE ks.t SET m[5] = 1, m[5] = 9, m[4] = 3 WHERE k = 8");
    assert_eq!(node.rows("SELECT m[5] FROM ks.t WHERE k = 8")[0][0], Some(9_i32.to_be_bytes().to_vec()));
}

#[test]
fn a_long_conditional_batch_costs_as_much_as_it_is_long() {
    let node = node();
    node.run("CREATE TABLE ks.rows (k int, c int, v int, PRIMARY KEY (k, c))");
    let count = 10_000;
    let batch = |of: &dyn Fn(i32) -> String| {
        let statements: Vec<String> = (0..count).rev().map(of).collect();
        format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", statements.join("; "))
    };
    node.run(&batch(&|c| format!("INSERT INTO ks.rows (k, c, v) VALUES (1, {c}, 0)")));
    let begun = cpu();
    node.run(&batch(&|c| format!("UPDATE ks.rows SET v = 1 WHERE k = 1 AND c = {c} IF v = 0")));
    assert!(begun + std::time::Duration::from_secs(8) > cpu(), "{:?}", cpu() - begun);
    let rows = node.rows("SELECT c FROM ks.rows WHERE k = 1 AND v = 1 ALLOW FILTERING");
    assert_eq!(rows.len(), count as usize);
}

#[test]
fn the_least_timestamp_is_refused_in_a_batch_too() {
    let node = node();
    for text in [
        "BEGIN BATCH USING TIMESTAMP ? INSERT INTO ks.t (k) VALUES (9); APPLY BATCH",
        "INSERT INTO ks.t (k) VALUES (9) USING TIMESTAMP ?",
    ] {
        let values = [wire::Value::Set(&[0x80, 0, 0, 0, 0, 0, 0, 0])];
        let parameters = crate::golden::Node::values(&values);
        let AnswerBody::Error(error) = node.request(|writer| writer.query(text, &parameters)).body else {
            panic!("{text} was accepted")
        };
        assert!(error.message.starts_with("Out of bound timestamp"), "{error}");
    }
}

#[test]
fn a_filter_by_many_values_costs_a_few_comparisons_a_row() {
    let node = node();
    node.run("CREATE TABLE ks.rows (k int, c int, v int, m map<int, int>, PRIMARY KEY (k, c))");
    let count = 2_000;
    let rows: Vec<String> = (0..count)
        .map(|c| format!("INSERT INTO ks.rows (k, c, v, m) VALUES (1, {c}, {c}, {{1: {c}}})"))
        .collect();
    node.run(&format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", rows.join("; ")));
    // In no order, two of them there, one of these twice.
    let values: Vec<String> = (0..60_000).map(|at| format!("{}", (at * 7_919) % 60_000 + 1_990)).collect();
    let list = format!("({}, 5, 5)", values.join(", "));
    let begun = cpu();
    let found = |condition: &str| {
        node.rows(&format!("SELECT c FROM ks.rows WHERE {condition} ALLOW FILTERING")).len()
    };
    assert_eq!(found(&format!("v IN {list}")), 11);
    assert_eq!(found(&format!("v NOT IN {list}")), count - 11);
    assert_eq!(found(&format!("m[1] IN {list}")), 11);
    assert!(begun + std::time::Duration::from_secs(5) > cpu(), "{:?}", cpu() - begun);
}

/// The bound form of a list of ints.
fn ints(values: impl ExactSizeIterator<Item = Option<i32>>) -> Vec<u8> {
    let mut out = (values.len() as i32).to_be_bytes().to_vec();
    for value in values {
        match value {
            None => out.extend((-1i32).to_be_bytes()),
            Some(value) => out.extend([4i32, value].map(i32::to_be_bytes).concat()),
        }
    }
    out
}

fn bound(node: &Node, text: &str, values: &[&[u8]]) -> String {
    let values: Vec<wire::Value<'_>> = values.iter().map(|value| wire::Value::Set(value)).collect();
    let answer = node.request(|writer| writer.query(text, &Node::values(&values)));
    crate::golden::show(&answer)
}

#[test]
fn changes_and_conditions_of_large_collections_cost_a_few_comparisons_an_element() {
    let node = node();
    node.run("CREATE TABLE ks.c (k int PRIMARY KEY, l list<int>, m map<int, int>, v int)");
    let all = ints((0..40_000).map(Some));
    let begun = cpu();
    assert_eq!(bound(&node, "UPDATE ks.c SET l = ? WHERE k = 1", &[&all]), "void");
    let places: Vec<String> = (0..3_000).map(|at| format!("l[{}] = -1", 39_999 - at)).collect();
    node.run(&format!("UPDATE ks.c SET {} WHERE k = 1", places.join(", ")));
    assert_eq!(bound(&node, "UPDATE ks.c SET l = l - ? WHERE k = 1", &[&all]), "void");
    assert_eq!(
        node.rows("SELECT collection_count(l) FROM ks.c")[0][0],
        Some(3_000i32.to_be_bytes().to_vec())
    );
    let entries: Vec<String> = (0..10_000).map(|at| format!("{at}: {at}")).collect();
    node.run(&format!("UPDATE ks.c SET m = {{{}}} WHERE k = 1", entries.join(", ")));
    let conditions = |part: &str| {
        let all: Vec<String> = (0..2_900).map(|at| format!("{part}[{at}] >= -1")).collect();
        format!("UPDATE ks.c SET v = 1 WHERE k = 1 IF {}", all.join(" AND "))
    };
    assert_eq!(node.rows(&conditions("m"))[0][0], Some(vec![1]), "it is applied");
    assert_eq!(node.rows(&conditions("l"))[0][0], Some(vec![1]), "it is applied");
    assert!(begun + std::time::Duration::from_secs(20) > cpu(), "{:?}", cpu() - begun);
    bound(&node, "UPDATE ks.c SET l = ? WHERE k = 1", &[&all]);
    let message = refused(&node, &conditions("l"));
    assert!(message.contains("look through more than 256 MiB"), "{message}");
    let answer = node.query_at("UPDATE ks.c SET l[0] = 1 WHERE k = 1", wire::Consistency::Any);
    assert!(crate::golden::show(&answer).contains("only supported for writes"));
}

#[test]
fn partitions_and_rows_of_one_statement_are_limited_together() {
    let node = node();
    node.run("CREATE TABLE ks.rows (k int, c int, v int, PRIMARY KEY (k, c))");
    let many = |count: i32| ints((0..count).map(Some));
    for text in
        ["UPDATE ks.rows SET v = 1 WHERE k IN ? AND c IN ?", "DELETE v FROM ks.rows WHERE k IN ? AND c IN ?"]
    {
        let answer = bound(&node, text, &[&many(257), &many(256)]);
        assert!(answer.contains("more than 65536 combinations"), "{text}: {answer}");
        assert_eq!(bound(&node, text, &[&many(20), &many(30)]), "void", "{text}");
    }
    let text = "SELECT v FROM ks.rows WHERE k IN ? AND c IN ?";
    let answer = bound(&node, text, &[&many(4_097), &many(1_024)]);
    assert!(answer.contains("more than 4194304 combinations"), "{answer}");
}

#[test]
fn the_bound_time_to_live_of_a_conditional_document_is_its_own() {
    let node = node();
    node.run("CREATE TABLE ks.j (k int PRIMARY KEY, v int)");
    let text = "INSERT INTO ks.j JSON ? IF NOT EXISTS USING TTL ?";
    let applied = bound(&node, text, &[br#"{"k": 1, "v": 5}"#, &86_400i32.to_be_bytes()]);
    assert!(applied.contains("true"), "{applied}");
    let ttl = node.rows("SELECT ttl(v) FROM ks.j")[0][0].clone().unwrap();
    assert!(
        i32::from_be_bytes(ttl.try_into().unwrap()) > 80_000,
        "the seconds of USING, and not of a column"
    );
}

#[test]
fn nulls_among_values_of_in_are_met_alike_by_all_markers() {
    let node = node();
    node.run("CREATE TABLE ks.n (k int PRIMARY KEY, v int)");
    node.run("INSERT INTO ks.n (k, v) VALUES (1, 7)");
    let values = ints([None, Some(7)].into_iter());
    for marker in ["?", ":vals"] {
        let text = format!("UPDATE ks.n SET v = 7 WHERE k = 1 IF v IN {marker}");
        let answer = bound(&node, &text, &[&values]);
        assert!(answer.contains("true"), "{text}: {answer}");
        let text = format!("SELECT v FROM ks.n WHERE v IN {marker} ALLOW FILTERING");
        assert_eq!(bound(&node, &text, &[&values]).lines().count(), 2, "a header and a row");
        let text = format!("SELECT v FROM ks.n WHERE k IN {marker}");
        let answer = bound(&node, &text, &[&values]);
        assert!(answer.contains("Invalid null value in condition for column k"), "{text}: {answer}");
        let wrong = [0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3];
        assert!(bound(&node, &text, &[&wrong]).contains("Expected 4 or 0 byte int"), "elements are checked");
    }
    node.run("CREATE TABLE ks.odd (k int PRIMARY KEY, \"in(x\" frozen<list<int>>)");
    let answer = bound(&node, "INSERT INTO ks.odd (k, \"in(x\") VALUES (1, ?)", &[&values]);
    assert!(answer.starts_with("! Invalid"), "{answer}");
}
