//! Golden table of expressions: `testdata/expressions.txt` (`UPDATE=1` rewrites it). A line `item`, `names` or `values` sets the values that
//! the following expressions see; the result stands behind `=>`.

use std::fmt::Write as _;
use std::path::Path as File;

use items::key_condition::KeyCondition;
use items::partiql::Statement;
use items::{Condition, Item, Projection, Result, Substitutions, Update, json};
use serde_json::Value as Json;

#[derive(Default)]
struct State {
    item: Item,
    names: Option<Json>,
    values: Option<Json>,
}

fn run(state: &State, kind: &str, text: &str) -> Result<String> {
    let parameter = match kind {
        "condition" => "ConditionExpression",
        "update" => "UpdateExpression",
        "project" => "ProjectionExpression",
        _ => "KeyConditionExpression",
    };
    let given = [(parameter, true)];
    let substitutions =
        Substitutions::read(state.names.as_ref(), state.values.as_ref(), &given, &[parameter])?;
    let text = text.trim_matches('`');
    match kind {
        "condition" => {
            let condition = Condition::parse(text, parameter, &substitutions)?;
            substitutions.check_used()?;
            Ok(condition.holds(&state.item).to_string())
        }
        "update" => {
            let update = Update::parse(text, &substitutions)?;
            substitutions.check_used()?;
            update.check_keys(&["p"])?;
            Ok(json::item(&update.apply(&state.item)?).to_string())
        }
        "project" => {
            let projection = Projection::parse(text, &substitutions)?;
            substitutions.check_used()?;
            Ok(json::item(&projection.apply(&state.item)).to_string())
        }
        _ => {
            let condition = KeyCondition::parse(text, &substitutions, ("p", "S"), Some(("c", "N")))?;
            substitutions.check_used()?;
            Ok(format!("{condition:?}"))
        }
    }
}

#[test]
fn the_table_holds() {
    let file = File::new(env!("CARGO_MANIFEST_DIR")).join("testdata/expressions.txt");
    let table = std::fs::read_to_string(&file).expect("testdata/expressions.txt");
    let mut state = State::default();
    let mut out = String::new();
    for line in table.lines() {
        let statement = line.split(" => ").next().unwrap_or_default();
        let (kind, rest) = statement.split_once(' ').unwrap_or((statement, ""));
        let parsed = || (!rest.is_empty()).then(|| serde_json::from_str::<Json>(rest).expect(rest));
        match kind {
            "" | "#" => {
                writeln!(out, "{line}").unwrap();
                continue;
            }
            "item" => {
                state.item = parsed().map(|json| json::read_item(&json).expect(rest)).unwrap_or_default()
            }
            "names" => state.names = parsed(),
            "values" => state.values = parsed(),
            _ => {
                let result = run(&state, kind, rest).unwrap_or_else(|error| format!("! {error}"));
                writeln!(out, "{statement} => {result}").unwrap();
                continue;
            }
        }
        writeln!(out, "{statement}").unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &out).expect("the table can be written");
        return;
    }
    for (was, is) in table.lines().zip(out.lines()) {
        assert_eq!(was, is);
    }
    assert_eq!(table, out);
}

#[test]
fn statements_that_are_bombs_are_refused_in_little_time() {
    for text in [
        "(".repeat(4000),
        format!("{}a = 1{}", "(".repeat(2000), ")".repeat(2000)),
        "NOT ".repeat(1000) + "a=1",
        "a".to_owned() + &"[0]".repeat(2000),
        "a = ".to_owned() + &"[".repeat(5000),
        "a = ".to_owned() + &"{'a':".repeat(1500),
        "a = ".to_owned() + &"<<".repeat(3000),
        "size(".repeat(1000),
        vec!["a=1"; 900].join(" OR "),
        "x".repeat(8193),
        "\u{20ac}".repeat(8000),
        "'".repeat(7001),
        "a = 1".to_owned() + &"+1".repeat(2000),
        format!("a IN ({})", vec!["1"; 1000].join(",")),
        "-- ".to_owned() + &"-".repeat(5000),
    ] {
        for statement in [
            text.clone(),
            format!("SELECT {text} FROM t"),
            format!("SELECT * FROM t WHERE {text}"),
            format!("UPDATE t SET a = {text} WHERE p = 1"),
            format!("INSERT INTO t VALUE {text}"),
        ] {
            let found = Statement::parse(&statement, &[]);
            assert!(found.is_err(), "{}", statement.chars().take(40).collect::<String>());
        }
    }
}

#[test]
fn bombs_are_refused_in_little_time() {
    let substitutions = Substitutions::default();
    for text in [
        "(".repeat(4096),
        format!("{}a = a{}", "(".repeat(2000), ")".repeat(2000)),
        "NOT ".repeat(1000) + "a=b",
        "a".to_owned() + &"[0]".repeat(1365),
        "size(".repeat(800),
        vec!["a=b"; 585].join(" OR "),
        "x".repeat(4097),
        "a.".repeat(2048),
        format!("a IN ({})", vec!["b"; 1000].join(",")),
    ] {
        assert!(Condition::parse(&text, "ConditionExpression", &substitutions).is_err(), "{}", &text[..20]);
        assert!(Update::parse(&format!("SET a = {text}"), &substitutions).is_err());
    }
    let many: Vec<String> = (0..1000).map(|at| format!("a{at}")).collect();
    assert!(Projection::parse(&many[..600].join(","), &substitutions).is_ok());
    let names: serde_json::Map<String, Json> =
        (0..100_000).map(|at| (format!("#n{at}"), Json::String(format!("n{at}")))).collect();
    let names = Json::Object(names);
    let many = Substitutions::read(Some(&names), None, &[("ConditionExpression", true)], &[]).unwrap();
    let error = many.check_used().unwrap_err().to_string();
    assert!(error.len() < 2000, "messages do not grow with the request");
}
