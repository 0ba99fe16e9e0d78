//! Functions in Lua: types in and out, libraries, missing parts, and limits.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rt::Instant;
use schema::UserFunction;
use types::CqlType;
use udf::{Limits, Runtime, Slices};

/// Polls until the end; how often the future had yielded.
pub fn run<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0;
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return (value, polls),
            Poll::Pending => polls += 1,
        }
    }
}

/// The result of a call, and how long its longest poll took.
pub fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut longest = Duration::ZERO;
    loop {
        let slice = std::time::Instant::now();
        let polled = future.as_mut().poll(&mut context);
        longest = longest.max(slice.elapsed());
        if let Poll::Ready(result) = polled {
            return (result, longest);
        }
    }
}

pub fn runtime() -> Runtime {
    limited(Limits { enabled: true, fail_after: Duration::from_millis(50), ..Limits::default() })
}

/// A clock that moves by a microsecond whenever it is read.
pub fn limited(limits: Limits) -> Runtime {
    let now = Rc::new(Cell::new(0));
    Runtime::new(
        limits,
        Rc::new(move || {
            now.set(now.get() + 1000);
            Instant::from_nanos(now.get())
        }),
    )
}

fn function(arguments: &[(&str, CqlType)], returns: CqlType, body: &str) -> Arc<UserFunction> {
    Arc::new(UserFunction {
        keyspace: "ks".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect(),
        returns,
        called_on_null_input: true,
        language: "lua".to_owned(),
        body: body.to_owned(),
    })
}

/// The text that a body without arguments returns, or its error.
fn text(body: &str) -> String {
    let function = function(&[], CqlType::Text, body);
    match run(runtime().call(&function, &[])).0 {
        Ok(called) => match called.value {
            Some(value) => String::from_utf8(value.to_vec()).unwrap(),
            None => "null".to_owned(),
        },
        Err(error) => error.message.replace("execution of 'ks.f[]' failed: ", "! "),
    }
}

/// A value that goes through Lua unchanged.
fn through(ty: &CqlType, value: &[u8]) -> Option<Vec<u8>> {
    let function = function(&[("v", ty.clone())], ty.clone(), "return v");
    let called = run(runtime().call(&function, &[Some(Bytes::copy_from_slice(value))])).0.unwrap();
    called.value.map(|value| value.to_vec())
}

/// Every type, with some of its values.
pub fn values() -> Vec<(CqlType, Vec<Vec<u8>>)> {
    use CqlType::*;
    let udt = Udt {
        ty: Arc::new(types::UserType {
            keyspace: "ks".to_owned(),
            name: "pair".to_owned(),
            fields: vec![
                ("a".to_owned(), Int),
                ("b".to_owned(), Text),
                ("c".to_owned(), CqlType::list(Int, true)),
            ],
        }),
        frozen: true,
    };
    let ints = types::elements::build_list([[0_u8, 0, 0, 5], [0, 0, 0, 3]]);
    vec![
        (Ascii, vec![b"abc".to_vec(), vec![]]),
        (Text, vec!["grün".into(), vec![], vec![0]]),
        (Blob, vec![vec![], (0..=255).collect()]),
        (Boolean, vec![vec![0], vec![1]]),
        (Tinyint, vec![vec![0x80], vec![0x7f]]),
        (Smallint, vec![vec![0x80, 0], vec![0x7f, 0xff]]),
        (Int, vec![i32::MIN.to_be_bytes().into(), i32::MAX.to_be_bytes().into()]),
        (Bigint, vec![i64::MIN.to_be_bytes().into(), i64::MAX.to_be_bytes().into()]),
        (Counter, vec![5_i64.to_be_bytes().into()]),
        (Float, vec![1.5_f32.to_be_bytes().into(), f32::INFINITY.to_be_bytes().into()]),
        (Double, vec![(-0.1_f64).to_be_bytes().into(), f64::NAN.to_be_bytes().into()]),
        (Varint, vec![vec![0], vec![0xff; 1], vec![1; 900], vec![1; 9000]]),
        (Decimal, vec![Decimal.from_string("-12.5000").unwrap(), Decimal.from_string("1e-1000000").unwrap()]),
        (Date, vec![vec![0; 4], vec![0xff; 4]]),
        (Time, vec![86_399_999_999_999_i64.to_be_bytes().into()]),
        (Timestamp, vec![(-1_i64).to_be_bytes().into()]),
        (Duration, vec![Duration.from_string("1mo2d3ns").unwrap(), Duration.from_string("-1y").unwrap()]),
        (Uuid, vec![Uuid.from_string("123e4567-e89b-42d3-a456-426614174000").unwrap()]),
        (Timeuuid, vec![types::uuid::min_time_uuid(77).into()]),
        (Inet, vec![vec![127, 0, 0, 1], vec![1; 16]]),
        (CqlType::list(Int, false), vec![ints.clone(), vec![0; 4]]),
        (
            CqlType::set(Text, false),
            vec![types::elements::build_set(&Text, vec![b"b".to_vec(), b"a".to_vec()])],
        ),
        (
            CqlType::map(Varint, CqlType::list(Int, true), false),
            vec![types::elements::build_map(&Varint, vec![(vec![7], ints.clone()), (vec![3], vec![0; 4])])],
        ),
        (
            CqlType::set(CqlType::tuple([Int, Int]), true),
            vec![types::elements::build_set(
                &CqlType::tuple([Int, Int]),
                vec![types::elements::build_tuple([Some([0_u8, 0, 0, 1]), None])],
            )],
        ),
        (CqlType::tuple([Int, Text]), vec![types::elements::build_tuple([None, Some(b"x")])]),
        (udt, vec![types::elements::build_tuple([Some(vec![0, 0, 0, 1]), None, Some(ints)])]),
        (CqlType::vector(Float, 2), vec![vec![0x3f, 0x80, 0, 0, 0, 0, 0, 0]]),
        (CqlType::vector(Text, 1), vec![types::elements::build_vector(&Text, [b"xyz"])]),
    ]
}

#[test]
fn values_of_every_type_come_back() {
    for (ty, values) in values() {
        for value in values {
            ty.validate(&value).unwrap();
            assert_eq!(through(&ty, &value), Some(value), "{ty}");
        }
    }
    assert_eq!(through(&CqlType::Int, &[]), None, "the empty int is null");
}

#[test]
fn results_are_converted_and_checked() {
    let check = |returns: CqlType, body: &str| {
        let function = function(&[("n", CqlType::Varint), ("d", CqlType::Decimal)], returns.clone(), body);
        let arguments = [
            CqlType::Varint.from_string("123456789012345678901234567890").unwrap(),
            CqlType::Decimal.from_string("2.50").unwrap(),
        ];
        match run(runtime().call(&function, &arguments.map(|value| Some(Bytes::from(value))))).0 {
            Ok(called) => called.value.map_or("null".to_owned(), |value| returns.format(&value)),
            Err(error) => error.message.split_once("failed: ").unwrap().1.to_owned(),
        }
    };
    use CqlType::*;
    assert_eq!(check(Int, "return '42'"), "42");
    assert_eq!(check(Int, "return 42.0"), "42");
    assert_eq!(check(Int, "return d * 2"), "5");
    assert_eq!(check(Int, "return d"), "the number has a fraction");
    assert_eq!(check(Int, "return n"), "the number is out of the range of int");
    assert_eq!(check(Tinyint, "return 128"), "the number is out of the range of tinyint");
    assert_eq!(check(Int, "return 1.5"), "the number has a fraction or is out of the range of int");
    assert_eq!(check(Int, "return {}"), "a table cannot be returned as int");
    assert_eq!(check(Int, "return nil"), "null");
    assert_eq!(check(Int, "local x = 1"), "0 values returned, expected 1");
    assert_eq!(check(Int, "return 1, 2"), "2 values returned, expected 1");
    assert_eq!(check(Varint, "return n + 1"), "123456789012345678901234567891");
    assert_eq!(check(Varint, "return 2 * n % 1000"), "780");
    assert_eq!(check(Varint, "return -n"), "-123456789012345678901234567890");
    assert_eq!(check(Varint, "return 1e20"), "100000000000000000000");
    assert_eq!(check(Decimal, "return d / 2"), "1.25");
    assert_eq!(check(Decimal, "return 0.1"), "0.1");
    assert_eq!(check(Decimal, "return 1/0"), "inf is no number of this type");
    assert_eq!(check(Double, "return d"), "2.5");
    assert_eq!(check(Boolean, "return n > 5 and d <= 2.5 and d == d + 0"), "true");
    for (value, truth) in [("0", "true"), ("''", "true"), ("{}", "true"), ("false", "false"), ("nil", "null")]
    {
        assert_eq!(check(Boolean, &format!("return {value}")), truth, "{value}");
    }
    assert_eq!(check(Text, "return d .. '|' .. tostring(n)"), "'2.50|123456789012345678901234567890'");
    assert!(check(Varint, "local x = n for i = 1, 20 do x = x * x end return x").contains("at most"));
    assert_eq!(check(Ascii, "return '\\xff'"), "Invalid byte for ascii: -1");
    assert_eq!(check(Text, "return '\\xff'"), "String didn't validate.");
    assert_eq!(check(Date, "return {year = 2024, month = 2, day = 29}"), "'2024-02-29'");
    assert_eq!(check(Date, "return '2024-02-29'"), "'2024-02-29'");
    assert!(check(Date, "return {year = 2023, month = 2, day = 29}").starts_with("Unable to"));
    let day = "date table must have year, month and day";
    assert_eq!(check(Date, "return {year = 2024, month = 2}"), day);
    let hour = "date type has no hour, minute or second";
    assert_eq!(check(Date, "return {year = 2024, month = 2, day = 29, hour = 1}"), hour);
    assert_eq!(
        check(Date, "return {year = 2024, month = 2, day = 29, x = 1}"),
        "a date table has an invalid field"
    );
    let time = "return {year = 2020, month = 1, day = 2";
    assert_eq!(check(Timestamp, &format!("{time}}}")), "'2020-01-02T12:00:00.000Z'");
    assert_eq!(
        check(Timestamp, &format!("{time}, hour = 3, min = '4', sec = 5.0}}")),
        "'2020-01-02T03:04:05.000Z'"
    );
    assert_eq!(
        check(Timestamp, "return {year = 1969, month = 12, day = 31, hour = 24}"),
        "'1970-01-01T00:00:00.000Z'"
    );
    assert_eq!(check(Timestamp, "return {hour = 3}"), day);
    assert_eq!(check(Time, &format!("{time}}}")), "a table cannot be returned as time");
    assert_eq!(check(Duration, "return {days = 3}"), "3d");
    assert_eq!(check(Uuid, "return 'abc'"), "Unable to make UUID from 'abc'");
    let list = || CqlType::list(Int, false);
    assert_eq!(
        check(list(), "return {1, 2, nil, 4}"),
        "the table is no sequence and cannot be returned as list<int>"
    );
    assert_eq!(check(CqlType::set(Int, false), "return {[3]=true, [1]=true}"), "{1, 3}");
    assert_eq!(check(CqlType::set(Int, false), "return {5, 5}"), "{1, 2}");
    assert!(check(CqlType::set(Int, false), "return {[1]=false}").starts_with("a set is a table whose keys"));
    assert_eq!(check(CqlType::map(Text, Int, false), "return {b=1, a=2}"), "{'a': 2, 'b': 1}");
    assert_eq!(check(CqlType::vector(Int, 3), "return {1, 2}"), "a vector<int, 3> has 3 elements, not 2");
    assert_eq!(
        check(
            CqlType::list(CqlType::list(Text, true), false),
            "local s = ('x'):rep(100000) local l = {} for i = 1, 100 do l[i] = {s} end return l"
        ),
        "the result is larger than the memory of a function"
    );
}

/// Bodies and the texts that they return.
const LIBRARIES: &[(&str, &str)] = &[
    ("return (('a,b,,c'):gsub(',', ';'))", "a;b;;c"),
    ("return (('abc'):gsub('%w', '%0%0', 2))", "aabbc"),
    ("return (('hello world'):gsub('o', {o = '0'}))", "hell0 w0rld"),
    ("return (('abc'):gsub('', '-'))", "-a-b-c-"),
    ("return (('hello world from Lua'):gsub('(%w+) (%w+)', '%2 %1'))", "world hello Lua from"),
    ("return (('x^2'):gsub('^x', 'y'))", "y^2"),
    ("return (('abc'):gsub('b', function(c) return c:upper() end))", "aBc"),
    ("return (('abc def'):gsub('%f[%w]%w+', string.upper))", "ABC DEF"),
    ("return (('key = value'):match('^(%w+)%s*=%s*(%w+)$'))", "key"),
    ("return tostring(('abc'):find('b', 1, true))", "2"),
    ("return tostring(('a.c'):find('.', 2, true))", "2"),
    ("return ('THE (quick) fox'):match('%((%a+)%)')", "quick"),
    ("return ('f(a(b)c)d'):match('%b()')", "(a(b)c)"),
    ("return ('abab'):match('^(ab)%1$')", "ab"),
    (
        "local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end return table.concat(t)",
        "a1b2",
    ),
    ("local n = 0 for w in ('one two'):gmatch('%a+') do n = n + 1 end return tostring(n)", "2"),
    ("return tostring(('abc'):match('()b'))", "2"),
    ("return ('[x]'):match('[]x]+')", "x]"),
    ("return ('a-b'):match('[a%-]+')", "a-"),
    ("return tostring(('abc'):find('[^a-b]'))", "3"),
    ("local t = {3, 1, 2} table.sort(t) return table.concat(t, ',')", "1,2,3"),
    (
        "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t, ',')",
        "3,2,1",
    ),
    ("local t = {1, 3} table.insert(t, 2, 2) table.insert(t, 4) return table.concat(t, ',')", "1,2,3,4"),
    ("local t = {1, 2, 3} local r = table.remove(t, 1) return r .. ':' .. table.concat(t, ',')", "1:2,3"),
    ("local t = {1, 2, 3} table.remove(t) return table.concat(t, ',')", "1,2"),
    ("return table.concat(table.move({1, 2, 3}, 1, 3, 2), ',')", "1,1,2,3"),
    ("return tostring(select('#', table.unpack({1, 2, 3})))", "3"),
    ("return string.format('%5.2f|%s|%d|%%|%q', 3.14159, {}, 42, 'x')", " 3.14|table|42|%|\"x\""),
    ("return tostring({}) .. tostring(print)", "tablenil"),
    ("return ('x'):rep(3, '-') .. (''):rep(1 << 62)", "x-x-x"),
    ("local ok, e = pcall(error, 'e') return tostring(ok) .. e", "falsee"),
    ("return utf8.char(228) .. utf8.len('grün')", "ä4"),
    ("return tostring(math.floor(3.7) + math.maxinteger // math.maxinteger)", "4"),
    (
        "local t = {z = 1, a = 2, [3] = 3, [1] = 4, [true] = 5} local o = {} for k in pairs(t) do o[#o + 1] = tostring(k) end return table.concat(o, ' ')",
        "1 3 a z true",
    ),
    (
        "local t, k, o = {c = 1, b = 2, a = 3}, nil, '' repeat k = next(t, k) o = o .. tostring(k) until not k return o",
        "abcnil",
    ),
    ("return tostring(next({}))", "nil"),
    ("_G.x = 1 return tostring(x)", "1"),
    ("return select(2, pcall(string.rep))", "bad argument #1 to 'rep' (string expected, got nil)"),
];

#[test]
fn libraries_conform_to_the_manual() {
    for (body, expected) in LIBRARIES {
        let got = text(body);
        assert_eq!(got, *expected, "{body}");
    }
}

#[test]
fn a_function_cannot_leave_its_sandbox() {
    for name in [
        "io",
        "os",
        "package",
        "debug",
        "load",
        "loadstring",
        "dofile",
        "require",
        "coroutine",
        "collectgarbage",
        "print",
        "setmetatable",
        "getmetatable",
        "rawset",
        "rawget",
        "xpcall",
        "warn",
        "math.random",
        "math.randomseed",
        "string.dump",
    ] {
        assert_eq!(text(&format!("return tostring({name})")), "nil", "{name}");
    }
    assert_eq!(text("string.len = nil"), "! f:1: libraries cannot be changed");
    assert_eq!(
        text("local s = string.format('%5p', {}) return s"),
        "! f:1: invalid conversion '%p' to 'format'"
    );
    assert_eq!(text("return nil .. 1"), "! f:1: attempt to concatenate a nil value");
    for body in ["error({})", "error(function() end)"] {
        assert_eq!(text(body), text(body));
        assert!(!text(body).contains("0x"), "{}", text(body));
    }
    // Variables set by one call are not seen by the next.
    let counter = function(&[], CqlType::Int, "x = (x or 0) + 1 return x");
    let runtime = runtime();
    for _ in 0..3 {
        let called = run(runtime.call(&counter, &[])).0.unwrap();
        assert_eq!(called.value.as_deref(), Some(&[0, 0, 0, 1][..]));
    }
}

#[test]
fn sources_are_checked_when_functions_are_created() {
    let limits = Limits::default();
    let failed = |function: &UserFunction| udf::check(function, &limits).unwrap_err().0;
    let bad = function(&[("a", CqlType::Int)], CqlType::Int, "return a +");
    assert!(
        failed(&bad)
            .starts_with("Failed to compile function 'ks.f' for language lua: f:1: unexpected symbol")
    );
    let escaping = function(&[], CqlType::Int, "end function g()");
    assert!(
        failed(&escaping).contains("'end'") || failed(&escaping).contains("expected"),
        "{}",
        failed(&escaping)
    );
    let reserved = function(&[("end", CqlType::Int)], CqlType::Int, "return 1");
    assert!(failed(&reserved).contains("argument end has a name that Lua cannot use"));
    let bytecode = function(&[], CqlType::Int, "\u{1b}Lua");
    assert!(failed(&bytecode).starts_with("Failed to compile"));
    let long = function(&[], CqlType::Int, &" ".repeat(udf::BODY_BYTES_MAX + 1));
    assert!(failed(&long).contains("at most 262144 are allowed"));
    let deep = function(&[], CqlType::Int, &format!("return {}1{}", "(".repeat(5000), ")".repeat(5000)));
    assert!(failed(&deep).starts_with("Failed to compile"));
    let mut java = UserFunction::clone(&bad);
    java.language = "java".to_owned();
    assert!(failed(&java).contains("LANGUAGE lua"));
    assert!(udf::check(&function(&[], CqlType::Int, "return 1"), &limits).is_ok());
}

#[test]
fn nulls_are_handled_before_the_function() {
    let mut strict = UserFunction::clone(&function(&[("a", CqlType::Int)], CqlType::Int, "return 5"));
    let lax = Arc::new(strict.clone());
    strict.called_on_null_input = false;
    let strict = Arc::new(strict);
    let runtime = runtime();
    let call = |function: &Arc<UserFunction>, value: Option<&'static [u8]>| {
        run(runtime.call(function, &[value.map(Bytes::from_static)])).0.unwrap().value.is_some()
    };
    assert!(call(&lax, None));
    assert!(!call(&strict, None));
    assert!(!call(&strict, Some(&[])));
    assert!(call(&strict, Some(&[0; 4])));
}

/// Bodies that would run or allocate for ever.
const HOSTILE: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local function f() return f() end return f()",
    "local function f() return 1 + f() end return f()",
    "local s = 'x' while true do s = s .. s end",
    "local s = ('x'):rep(1 << 40)",
    "local t = {} while true do t[#t + 1] = 1 end",
    "local t = {} while true do t[#t + 1] = {} end",
    "while true do pcall(string.rep, 'x', 1 << 30) end",
    "local t = {} for i = 0, 62 do t[1 << i] = 1 end table.insert(t, 1, 1) table.remove(t, 1) while true do end",
    "table.move({}, 1, 1 << 62, 2)",
    "return ('a'):rep(30):match(('a?'):rep(30) .. ('a'):rep(30)) .. ('x'):rep(1 << 40)",
    "return ('a'):rep(1000):match('.-.-.-.-.-.-b')",
    "local s = ('a'):rep(100000) while true do s:find(('a'):rep(50000) .. 'b', 1, true) end",
    "local s = ('a'):rep(100000) while true do s:match('(.-)%1b') end",
    "local s = ('a'):rep(100000) while true do s:gsub('a', 'bb') end",
    "local t = {} for i = 1, 10000 do t[i] = -i end while true do table.sort(t, function(a, b) return true end) end",
    "return table.concat({}, ('x'):rep(100000), 1, 1 << 62)",
    "return table.unpack({}, 1, 1 << 30)",
    "local t = {} while true do for k in pairs(t) do end t[#t + 1] = #t end",
    "while true do tostring(1.5) string.format('%99.99f', 1e308) end",
    "goto a ::a:: goto a",
    "local f f = function(...) return f(1, ...) end f()",
    "while true do local x <const> = ('y'):rep(400000):upper():lower():reverse() end",
    "return select(-1, table.unpack({}, 1, 7999)), string.char(table.unpack({}, 1, 7999))",
    "error(('x'):rep(500000))",
    "local s, p = ('b'):rep(100000), '[' .. ('a'):rep(200000) .. ']' while true do s:find(p) end",
    "local s = ('7'):rep(300000) while true do utf8.len(s) end",
    "local s = ('7'):rep(300000) while true do local x = tonumber(s) + s end",
];

#[test]
fn hostile_functions_end_in_bounded_time_and_memory() {
    let limits = Limits { enabled: true, fail_after: Duration::from_millis(30), ..Limits::default() };
    for body in HOSTILE {
        let began = std::time::Instant::now();
        let clock_began = std::time::Instant::now();
        let runtime = Runtime::new(
            limits.clone(),
            Rc::new(move || Instant::from_nanos(clock_began.elapsed().as_nanos() as u64)),
        );
        let hostile = function(&[], CqlType::Text, body);
        let (result, longest) = timed(runtime.call(&hostile, &[]));
        let error = result.expect_err(body);
        assert!(error.message.len() < 1500, "{body}");
        // Generous, as the machine may be busy: an unbounded one would take for ever.
        assert!(began.elapsed() < Duration::from_secs(2), "{body} took {:?}", began.elapsed());
        println!("{longest:>10.1?} {:>10.1?} {:.70} | {:.90}", began.elapsed(), body, error.message);
        assert!(longest < Duration::from_millis(200), "{body} held the thread for {longest:?}");
    }
}

/// A library call is one instruction, however long its arguments are: the call pauses before it.
#[test]
fn library_calls_over_long_strings_pause() {
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    for (body, result) in [
        ("return #s .. ''", "100000"),
        ("return utf8.len(s) .. ''", "100000"),
        ("return utf8.offset(s, 99999) .. ''", "99999"),
        ("return tonumber(s) .. ''", "inf"),
        ("return tonumber(s, 10) .. ''", "2049638230412172401"),
        ("return s + 0 .. ''", "inf"),
        ("return -s .. ''", "-inf"),
        ("return #string.pack('z', s) .. ''", "100001"),
        ("return #string.pack('c90000', '') .. ''", "90000"),
        ("return #string.unpack('z', s .. '\\0') .. ''", "100000"),
        ("return string.packsize(('b'):rep(17000)) .. ''", "17000"),
        ("return string.format('%.1s', '') .. select('#', string.format('%.3d', 1), s)", "2"),
        ("local t = {} for i = 1, 600 do t[i] = '' end return table.concat(t) .. 'x'", "x"),
    ] {
        let runtime = Runtime::with_slices(limits.clone(), Rc::new(|| Instant::START), Slices::default());
        let function = function(&[("s", CqlType::Text)], CqlType::Text, body);
        let pauses = |bytes: usize| {
            let (called, pauses) = run(runtime.call(&function, &[Some(Bytes::from(vec![b'7'; bytes]))]));
            (called.map(|called| called.value), pauses)
        };
        let (found, many) = pauses(100_000);
        let found = found.unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(found.as_deref(), Some(result.as_bytes()), "{body}");
        let is_cheap = body.starts_with("return #s ") || body.contains("select");
        assert_eq!(many > 0, !is_cheap, "{body} pauses {many} times");
    }
    // An error is one of the function, and not of the library.
    assert_eq!(
        text("local n = tonumber('1', 99) return n"),
        "! f:1: bad argument #2 to 'tonumber' (base out of range)"
    );
    assert_eq!(text("return 'x' + 1"), "! f:1: attempt to add a 'string' with a 'number'");
}

/// Calls that pause have their memory meanwhile: so many of a shard run at a time, and the others are queued.
#[test]
fn calls_under_way_are_bounded() {
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    let slices = Slices { instructions_per_look: 10, instructions: 10, ..Slices::default() };
    let runtime = Runtime::with_slices(limits, Rc::new(|| Instant::START), slices);
    let body = "local s = 0 for i = 1, 1000 do s = s + i end return s";
    let long = function(&[], CqlType::Int, body);
    let short = function(&[], CqlType::Int, "return 1");
    let mut context = Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = (0..32).map(|_| Box::pin(runtime.call(&long, &[]))).collect();
    assert!(calls.iter_mut().all(|call| call.as_mut().poll(&mut context).is_pending()));
    let mut waits = Box::pin(runtime.call(&short, &[]));
    assert!(waits.as_mut().poll(&mut context).is_pending(), "a call is queued");
    calls.pop();
    let Poll::Ready(Ok(called)) = waits.as_mut().poll(&mut context) else { panic!("it has its turn") };
    assert_eq!(called.value.as_deref(), Some(&1_i32.to_be_bytes()[..]));
}

/// Bodies whose instructions leave values between the registers of a function and the top of its stack, and that make the
/// collector run.
const REGISTERS: &[&str] = &[
    "local t = {} for i = 1, 300 do t[#t + 1] = 'v' .. i .. ':' .. i * 2 .. ({#t})[1] end return table.concat(t, ',')",
    "local function g(...) return ..., select('#', ...), ... end local function f(...) return (select('#', g(...))), g(g(...)) end \
     local t = {f(1, 2, 'x' .. 3), f('y' .. 4)} local o = {} for i = 1, #t do o[i] = tostring(t[i]) end return table.concat(o, ' ')",
    "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end return tostring(fib(12))",
    "local o = {} for i = 1, 40 do local ok, e = pcall(function(n) local s = ('a'):rep(n) if n % 3 == 0 then error({s}) end return s .. n end, i) \
     o[i] = tostring(ok) .. (type(e) == 'table' and e[1] or e) end return table.concat(o, ';')",
    "local function count(n, acc) if n == 0 then return acc end return count(n - 1, acc .. 'x') end return count(60, '')",
    "local fs = {} for i = 1, 20 do local x = {i} fs[i] = function(d) x[1] = x[1] + d return x[1] end end \
     local s = 0 for _, f in ipairs(fs) do s = s + f(1) + f(2) end return tostring(s)",
    "local t = {} for i = 1, 50 do t['k' .. i % 7] = (t['k' .. i % 7] or '') .. i end local o = {} \
     for k, v in pairs(t) do o[#o + 1] = k .. '=' .. v end return table.concat(o, '&')",
    "local a, b, c = (function(...) return ... end)('p' .. 1, 'q' .. 2, 'r' .. 3) return a .. b .. c .. #{a, b, (c)}",
    "local s = '' for w, n in ('one 1 two 2 three 3'):gmatch('(%a+) (%d+)') do s = w .. ':' .. n .. ' ' .. s end return s",
    "local t = {} for i = 1, 30 do t[i] = {n = (i * 7) % 31, s = 'e' .. i} end table.sort(t, function(a, b) return a.n < b.n end) \
     local o = {} for i, e in ipairs(t) do o[i] = e.s end return table.concat(o)",
    "local o = {} for i = 3, 1, -1 do for j = 0.5, 2 do o[#o + 1] = i // 1 .. '/' .. j ^ 2 end end goto done do o = {} end ::done:: return table.concat(o, ' ')",
    "return (('k=v, a = b'):gsub('(%w+)%s*=%s*(%w+)', function(k, v) return v .. '<' .. k:rep(3) end))",
];

/// Results of these bodies where calls yield as `slices` says, and how often each did.
fn sliced(slices: Slices) -> Vec<(String, usize)> {
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    let runtime = Runtime::with_slices(limits, Rc::new(|| Instant::START), slices);
    let bodies = LIBRARIES.iter().map(|(body, _)| *body).chain(REGISTERS.iter().copied());
    let one = |body| {
        let (result, polls) = run(runtime.call(&function(&[], CqlType::Text, body), &[]));
        let called = result.unwrap_or_else(|error| panic!("{body}: {error}"));
        (CqlType::Text.to_text(&called.value.unwrap_or_default()), polls)
    };
    bodies.map(one).collect()
}

#[test]
fn a_call_that_yields_after_each_instruction_returns_the_same() {
    let whole = sliced(Slices { instructions: u64::MAX, ..Slices::default() });
    let mut yields = 0;
    for instructions in [1, 2, 3, 7] {
        let slices = Slices { instructions_per_look: instructions, instructions: 1, ..Slices::default() };
        for (at, (one, (result, polls))) in whole.iter().zip(sliced(slices)).enumerate() {
            assert_eq!(result, one.0, "body {at}, a yield every {instructions} instructions");
            yields += polls;
        }
    }
    assert!(whole.iter().all(|(_, polls)| *polls < 20), "only searches yield by themselves");
    assert!(yields > 30_000, "{yields}");
}

#[test]
fn a_loop_ends_where_the_clock_stands_still() {
    let limits = Limits { enabled: true, fail_after: Duration::from_millis(5), ..Limits::default() };
    let runtime = Runtime::new(limits, Rc::new(|| Instant::START));
    let endless = function(&[("a", CqlType::Int)], CqlType::Text, "while true do end");
    let (result, polls) = run(runtime.call(&endless, &[None]));
    assert_eq!(result.unwrap_err().message, "User defined function ks.f : (int) -> text ran longer than 5ms");
    assert_eq!(polls, 40, "2,000,000 instructions in slices of 50,000");
}

#[test]
fn long_calls_yield_and_warn() {
    let limits = Limits {
        enabled: true,
        fail_after: Duration::from_secs(100),
        warn_after: Duration::from_millis(1),
        ..Limits::default()
    };
    let runtime = limited(limits);
    let busy = function(&[], CqlType::Int, "local n = 0 for i = 1, 1000000 do n = n + 1 end return n");
    let (called, polls) = run(runtime.call(&busy, &[]));
    let called = called.unwrap();
    assert_eq!(called.value.as_deref(), Some(&1_000_000_i32.to_be_bytes()[..]));
    assert_eq!(called.warning.as_deref(), Some("User defined function ks.f : () -> int ran longer than 1ms"));
    assert!(polls > 10, "{polls}");
}

#[test]
fn two_calls_of_a_function_do_not_meet() {
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    let runtime = Runtime::new(limits, Rc::new(|| Instant::START));
    let counts =
        function(&[("n", CqlType::Int)], CqlType::Int, "x = n for i = 1, 200000 do x = x + 1 end return x");
    let argument = |n: i32| [Some(Bytes::copy_from_slice(&n.to_be_bytes()))];
    let (one, two) = (argument(1), argument(1000));
    let (mut first, mut second) = (pin!(runtime.call(&counts, &one)), pin!(runtime.call(&counts, &two)));
    let mut context = Context::from_waker(Waker::noop());
    let (mut results, mut turns) = ([None, None], 0);
    while results.iter().any(Option::is_none) {
        turns += 1;
        if results[0].is_none()
            && let Poll::Ready(result) = first.as_mut().poll(&mut context)
        {
            results[0] = result.unwrap().value;
        }
        if results[1].is_none()
            && let Poll::Ready(result) = second.as_mut().poll(&mut context)
        {
            results[1] = result.unwrap().value;
        }
    }
    assert!(turns > 3);
    assert_eq!(results[0].as_deref(), Some(&200_001_i32.to_be_bytes()[..]));
    assert_eq!(results[1].as_deref(), Some(&201_000_i32.to_be_bytes()[..]));
}
