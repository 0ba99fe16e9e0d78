//! Hostile nesting and length: an error, never a stack overflow, and time linear in the text.

use std::fmt::Write;

const HOSTILE: usize = 100_000;

fn fails(text: &str) {
    let error = cql::parse(text).expect_err("this is no CQL");
    assert!(error.to_string().len() < 2_000, "{error}");
}

fn too_deep(text: &str) {
    let error = cql::parse(text).expect_err("this is too deep");
    assert!(matches!(error.reason, cql::Reason::TooDeep { .. }), "{error}");
}

#[test]
fn brackets_do_not_overflow_the_stack() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{", "}"), ("{1: ", "}"), ("{a: ", "}"), ("f(", ")"), ("(int) ", "")]
    {
        let value = format!("{}1{}", open.repeat(HOSTILE), close.repeat(HOSTILE));
        too_deep(&format!("INSERT INTO t (a) VALUES ({value})"));
        too_deep(&format!("SELECT {value} FROM t"));
        too_deep(&format!("SELECT a FROM t WHERE a = {value}"));
        let open_only = open.repeat(HOSTILE);
        too_deep(&format!("INSERT INTO t (a) VALUES ({open_only}"));
        too_deep(&format!("SELECT {open_only}"));
    }
    too_deep(&format!("SELECT a FROM t WHERE {}a = 1{}", "(".repeat(HOSTILE), ")".repeat(HOSTILE)));
    too_deep(&format!("SELECT {}a FROM t", "- ".repeat(HOSTILE)));
    too_deep(&format!("SELECT {} FROM t", "CAST(".repeat(HOSTILE)));
    too_deep(&format!("SELECT a[{} FROM t", "f([".repeat(HOSTILE)));
    fails(&format!("INSERT INTO t (a) VALUES ({})", "- ".repeat(HOSTILE)));
}

#[test]
fn types_do_not_overflow_the_stack() {
    for open in ["list<", "frozen<", "map<int, ", "tuple<int, ", "vector<"] {
        let hostile = open.repeat(HOSTILE);
        too_deep(&format!("CREATE TABLE t (a {hostile}int"));
        too_deep(&format!("CREATE FUNCTION f(a {hostile}int"));
        assert!(cql::parse_type(&hostile).is_err());
        // Not even looked at as a type hint: no bracket closes it.
        fails(&format!("INSERT INTO t (a) VALUES (({hostile}int"));
    }
    too_deep(&format!(
        "INSERT INTO t (a) VALUES (({}int{}) 1)",
        "list<".repeat(HOSTILE),
        ">".repeat(HOSTILE)
    ));
}

#[test]
fn chains_do_not_make_deep_trees() {
    too_deep(&format!("SELECT a{} FROM t", " + 1".repeat(HOSTILE)));
    too_deep(&format!("SELECT a{} FROM t", " -1".repeat(HOSTILE)));
    too_deep(&format!("SELECT a{} FROM t", " * 1".repeat(HOSTILE)));
    too_deep(&format!("SELECT a{} FROM t", ".b".repeat(HOSTILE)));
    too_deep(&format!("SELECT a{} FROM t", "[1]".repeat(HOSTILE)));
    too_deep(&format!("SELECT ttl(a{}) FROM t", ".b".repeat(HOSTILE)));
    too_deep(&format!("INSERT INTO t (a) VALUES (1{})", " + 1".repeat(HOSTILE)));
}

#[test]
fn nesting_below_the_limit_is_fine() {
    let depth = cql::NESTING_MAX as usize - 2;
    let value = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let text = format!("INSERT INTO t (a) VALUES ({value})");
    let parsed = cql::parse(&text).expect("this is within the limit");
    assert_eq!(parsed.statement.to_string(), text);
    assert_eq!(parsed.clone(), parsed);
    let sum = " + 1".repeat(cql::OPERATORS_MAX as usize - 1);
    let text = format!("SELECT a{sum} FROM t");
    let parsed = cql::parse(&text).expect("this is within the limit");
    assert_eq!(parsed.statement.to_string(), text);
}

#[test]
fn the_deepest_tree_needs_little_stack() {
    let depth = cql::NESTING_MAX as usize - 2;
    let sum = " + 1".repeat(cql::OPERATORS_MAX as usize - 1);
    for (open, close) in [("(", ")"), ("[", "]"), ("{1: ", "}"), ("f(", ")"), ("CAST(", " AS int)")] {
        let value = format!("{}1{sum}{}", open.repeat(depth), close.repeat(depth));
        let work = move || {
            for text in [format!("SELECT {value} FROM t"), format!("INSERT INTO t (a) VALUES ({value})")] {
                let parsed = cql::parse(&text).expect("this is within the limits");
                assert_eq!(parsed.clone(), parsed);
                assert_eq!(parsed.statement.to_string(), text);
            }
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(work).expect("a thread");
        thread.join().expect("the stack was large enough");
    }
}

#[test]
fn operators_are_counted_over_the_whole_expression() {
    // Chains inside brackets add up: the tree is as deep as their sum.
    let chain = " + 1".repeat(100);
    let mut text = "1".to_owned();
    for _ in 0..20 {
        text = format!("[{text}{chain}]");
    }
    too_deep(&format!("INSERT INTO t (a) VALUES ({text})"));
    // But not over the expressions of one statement.
    let mut columns = String::from("a");
    for _ in 0..50 {
        let _ = write!(columns, ", a{chain}");
    }
    assert!(cql::parse(&format!("SELECT {columns} FROM t")).is_ok());
}

#[test]
fn long_statements_take_linear_time() {
    let many = "1, ".repeat(120_000);
    assert!(cql::parse(&format!("INSERT INTO t (a) VALUES ([{many}1])")).is_ok());
    let many = "(1, 'x'), ".repeat(40_000);
    assert!(cql::parse(&format!("SELECT a FROM t WHERE (a, b) IN ({many}(1, 2))")).is_ok());
    let mut map = String::new();
    for i in 0..50_000 {
        let _ = write!(map, "'k{i}': {i}, ");
    }
    assert!(cql::parse(&format!("CREATE KEYSPACE ks WITH replication = {{{map}'x': 1}}")).is_ok());
    let mut batch = String::new();
    for i in 0..20_000 {
        let _ = write!(batch, "INSERT INTO t (a, b) VALUES ({i}, 'x'); ");
    }
    assert!(cql::parse(&format!("BEGIN BATCH {batch} APPLY BATCH")).is_ok());
    fails(&"SELECT ".repeat(HOSTILE));
    fails(&"(a<".repeat(HOSTILE));
    fails(&format!("SELECT {}", "(a.a.".repeat(HOSTILE)));
    fails(&format!("SELECT a FROM t WHERE {}", "(a, ".repeat(HOSTILE)));
    fails(&format!("BEGIN TRANSACTION {}", "SELECT a; ".repeat(HOSTILE)));
    fails(&"/*".repeat(HOSTILE));
    fails(&"'".repeat(HOSTILE + 1));
}

#[test]
fn lists_without_end_are_refused_at_once() {
    const MANY: usize = 8_000_000;
    let refused = |text: &str, what: &str| {
        let error = cql::parse(text).expect_err("this is too long").to_string();
        assert!(error.contains(what) && error.len() < 500, "{error}");
    };
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line for memory");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") / 1024
    };
    for (open, item, close) in [
        ("SELECT ", "a,", "a FROM t"),
        ("SELECT a FROM t WHERE k IN (", "1,", "1)"),
        ("INSERT INTO t (a) VALUES ([", "1,", "1])"),
        ("INSERT INTO t (a) VALUES ({", "1,", "1})"),
        ("INSERT INTO t (", "a,", "a) VALUES (1)"),
        ("CREATE TABLE t (a int PRIMARY KEY", ",b int", ")"),
        ("UPDATE t SET ", "a=1,", "a=1 WHERE k=1"),
        ("SELECT a FROM t WHERE ", "k=1 AND ", "k=1"),
        ("BEGIN BATCH ", "DELETE FROM t WHERE k=1;", " APPLY BATCH"),
        ("USE ks", ";", ""),
    ] {
        let times = MANY / item.len().max(2) * 2;
        refused(
            &format!("{open}{}{close}", item.repeat(times.min(60_000_000 / item.len()))),
            "at most 262144 words",
        );
    }
    refused(&format!("SELECT a FROM t WHERE k IN ({}?)", "?,".repeat(MANY)), "at most 65535 bind markers");
    refused(&format!("INSERT INTO t (a) VALUES ([{}?])", "?,".repeat(65_535)), "at most 65535 bind markers");
    assert!(cql::parse(&format!("INSERT INTO t (a) VALUES ([{}?])", "?,".repeat(65_534))).is_ok());
    refused(&format!("SELECT '{}' FROM t", "x".repeat(cql::STATEMENT_BYTES_MAX)), "longer than");
    let peak = memory();
    assert!(peak < 1_024, "{peak} MiB");
}
