//! Large and extreme numbers: every operator, function, cast and comparison ends soon, with a value of its type or a refusal,
//! with any digits and scale.

use std::time::{Duration, Instant};

use types::decimal::{DIGITS_MAX, Decimal, NUMBER_BYTES_MAX};
use types::native::{
    Argument, Environment, Operator, TypedArgument, resolve, resolve_cast, resolve_operator,
};
use types::{ConstantKind, CqlType};

struct Still;

impl Environment for Still {
    fn now_ms(&mut self) -> i64 {
        0
    }

    fn time_uuid(&mut self) -> [u8; 16] {
        [0; 16]
    }

    fn random_uuid(&mut self) -> [u8; 16] {
        [0; 16]
    }
}

/// The time limit of one step: a thousand times the expected one on a machine that does nothing else.
const SOON: Duration = Duration::from_secs(5);

fn soon<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let out = step();
    assert!(begin.elapsed() < SOON, "{what} took {:?}", begin.elapsed());
    out
}

/// Serialised integers: small, of many zeros, of as many digits as there may be, and beyond.
fn integers() -> Vec<Vec<u8>> {
    let mut all =
        vec![vec![0], vec![1], vec![0xff], vec![10], vec![0x7f; 8], vec![0x80, 0, 0, 0, 0, 0, 0, 0]];
    for len in [100, 10_000, NUMBER_BYTES_MAX - 4, NUMBER_BYTES_MAX] {
        all.push(vec![0x7f; len]);
        all.push(vec![0x80; len]);
        let mut power = vec![0; len];
        power[0] = 0x40;
        all.push(power);
    }
    let tens = format!("1{}", "0".repeat(DIGITS_MAX - 1));
    all.push(CqlType::Varint.from_string(&tens).unwrap());
    all.push(CqlType::Varint.from_string(&"9".repeat(DIGITS_MAX)).unwrap());
    all.retain(|bytes| CqlType::Varint.validate(bytes).is_ok());
    all
}

fn decimals() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for unscaled in integers() {
        for scale in [0, 1, -1, 50, 10_000, -10_000, 200_000, -200_000, i32::MAX, i32::MIN] {
            let mut bytes = scale.to_be_bytes().to_vec();
            bytes.extend_from_slice(&unscaled);
            all.push(bytes);
        }
    }
    all.retain(|bytes| CqlType::Decimal.validate(bytes).is_ok());
    all
}

fn argument(ty: &CqlType) -> TypedArgument {
    TypedArgument { ty: ty.clone(), text: "x".to_owned() }
}

#[test]
fn functions_and_casts_of_large_numbers_end() {
    let decimals: Vec<Vec<u8>> = decimals().into_iter().step_by(3).collect();
    for (ty, values) in [(CqlType::Varint, integers()), (CqlType::Decimal, decimals)] {
        let argument = argument(&ty);
        let mut functions = Vec::new();
        for name in [
            "abs",
            "exp",
            "log",
            "log10",
            "round",
            "_negate",
            "to_json",
            "mask_hash",
            "mask_inner",
            "varint_as_blob",
        ] {
            if let Ok(Some(function)) = resolve(name, &[&argument as &dyn Argument], None) {
                functions.push((name.to_owned(), function));
            }
        }
        for target in ["tinyint", "int", "bigint", "float", "double", "decimal", "varint", "text", "ascii"] {
            let target = CqlType::from_native_name(target).unwrap();
            if let Ok(Some(function)) = resolve_cast(&argument, &target) {
                functions.push((format!("cast to {target}"), function));
            }
        }
        assert!(functions.len() > 8, "{ty}: {functions:?}");
        for value in &values {
            for (name, function) in &functions {
                let start: Vec<u8> = value.iter().take(8).copied().collect();
                let what = format!("{name} of a {ty} of {} bytes from {start:x?}", value.len());
                let out = soon(&what, || function.execute(&[Some(value)], &mut Still));
                if let Ok(Some(out)) = out {
                    function.returns.validate(&out).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
            soon("the text", || ty.to_text(value));
        }
    }
}

#[test]
fn operators_on_large_numbers_end() {
    let decimals: Vec<Vec<u8>> = decimals().into_iter().step_by(13).collect();
    let integers: Vec<Vec<u8>> = integers().into_iter().step_by(2).collect();
    for (ty, values) in [(CqlType::Varint, integers), (CqlType::Decimal, decimals)] {
        let argument = argument(&ty);
        for operator in Operator::ALL {
            let function = resolve_operator(operator, &argument, &argument, None).unwrap();
            for left in &values {
                for right in &values {
                    let what = format!("{ty} of {} {} {} bytes", left.len(), operator.symbol(), right.len());
                    if let Ok(Some(out)) =
                        soon(&what, || function.execute(&[Some(left), Some(right)], &mut Still))
                    {
                        ty.validate(&out).unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                }
            }
        }
    }
}

#[test]
fn comparing_numbers_needs_no_digits() {
    let values: Vec<Vec<u8>> = decimals().into_iter().step_by(3).collect();
    let begin = Instant::now();
    let mut compared = 0_u32;
    for a in &values {
        for b in &values {
            let order = CqlType::Decimal.compare(a, b);
            assert_eq!(order, CqlType::Decimal.compare(b, a).reverse());
            compared += 2;
        }
    }
    let each = begin.elapsed() / compared;
    println!("{compared} comparisons, {each:?} each");
    assert!(each < Duration::from_millis(20), "{each:?} for a comparison");
}

#[test]
fn literals_have_a_limit_of_digits_and_cost_little() {
    for (kind, text) in [
        (ConstantKind::Integer, "9".repeat(16 << 20)),
        (ConstantKind::Integer, format!("-{}", "1".repeat(DIGITS_MAX + 1))),
        (ConstantKind::Float, format!("0.{}", "7".repeat(16 << 20))),
        (ConstantKind::Float, format!("{}.5e-3", "7".repeat(1 << 20))),
    ] {
        let preferred = soon("the type", || kind.preferred_type(&text));
        for ty in [CqlType::Varint, CqlType::Decimal, preferred] {
            let error = soon("the value", || ty.from_string(&text)).unwrap_err().to_string();
            assert!(
                error.contains("at most 100000 digits") && error.len() < 500,
                "{}",
                &error[..error.len().min(300)]
            );
        }
        for ty in [CqlType::Int, CqlType::Bigint, CqlType::Double, CqlType::Float] {
            let _ = soon("the value", || ty.from_string(&text));
        }
    }
    let most = "9".repeat(DIGITS_MAX);
    let value = soon("the largest literal", || CqlType::Varint.from_string(&most)).unwrap();
    assert_eq!(soon("its text", || CqlType::Varint.to_text(&value)), most);
    let error = CqlType::Varint.validate(&vec![1; NUMBER_BYTES_MAX + 1]).unwrap_err().to_string();
    assert!(error.contains("at most 65535"), "{error}");
    assert!(CqlType::Decimal.validate(&vec![1; NUMBER_BYTES_MAX + 1]).is_err());
}

#[test]
fn the_type_of_a_fraction_is_double_where_it_is_exact() {
    let double =
        ["0.0", "-0.0", "1.5", "1e3", "100000.0", "0.1", "1e-300", "1.7976931348623157e308", "00012.500"];
    for text in double {
        assert_eq!(ConstantKind::Float.preferred_type(text), CqlType::Double, "{text}");
        let written: Decimal = text.parse().unwrap();
        let read: Decimal = format!("{:?}", text.parse::<f64>().unwrap()).parse().unwrap();
        assert!(written.cmp_value(&read).is_eq(), "{text}");
    }
    // Java writes the least double with two digits.
    assert_eq!(ConstantKind::Float.preferred_type("4.9e-324"), CqlType::Double);
    assert_eq!(ConstantKind::Float.preferred_type("5e-324"), CqlType::Decimal);
    for text in ["0.10000000000000000001", "1e309", "1e-400", "123456789.123456789123", "3e-324"] {
        assert_eq!(ConstantKind::Float.preferred_type(text), CqlType::Decimal, "{text}");
    }
}
