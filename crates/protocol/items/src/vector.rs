//! Vectors: lists of numbers that 32-bit floating-point numbers can hold, as vector indexes compare them.

use crate::{Value, stored};

/// The most dimensions of a vector (AWS: Quotas in Amazon DynamoDB, Vector indexes).
pub const DIMENSIONS_MAX: usize = 4096;

/// The component that a value is; none when it is no number, or too large for 32 bits.
pub fn component(value: &Value) -> Option<f32> {
    match value {
        Value::N(number) => read(&number.to_string()),
        _ => None,
    }
}

fn read(number: &str) -> Option<f32> {
    number.parse().ok().filter(|component: &f32| component.is_finite())
}

/// The vector that a value is; none when it is no list of so many components.
pub fn of_value(value: &Value, dimensions: usize) -> Option<Vec<f32>> {
    match value {
        Value::L(all) if all.len() == dimensions => all.iter().map(component).collect(),
        _ => None,
    }
}

/// The vector that the stored form of an attribute is ([`stored`]); none as of [`of_value`].
pub fn of_stored(bytes: &[u8], dimensions: usize) -> Option<Vec<f32>> {
    match plain(bytes, dimensions) {
        Some(vector) => Some(vector),
        // Written by another, with another layout of the same JSON.
        None => of_value(&stored::decode(bytes)?, dimensions),
    }
}

/// The vector in the layout that [`stored::encode`] writes: a document of thousands of members need not be built for it.
fn plain(bytes: &[u8], dimensions: usize) -> Option<Vec<f32>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let numbers = text.strip_prefix("\u{4}{\"L\":[{\"N\":\"")?.strip_suffix("\"}]}")?;
    let mut vector = Vec::with_capacity(dimensions.min(DIMENSIONS_MAX));
    for number in numbers.split("\"},{\"N\":\"") {
        if vector.len() == dimensions
            || !number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'E'))
        {
            return None;
        }
        vector.push(read(number)?);
    }
    (vector.len() == dimensions).then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Number;

    fn list(numbers: &[&str]) -> Value {
        Value::L(numbers.iter().map(|number| Value::N(Number::parse(number).expect("a number"))).collect())
    }

    #[test]
    fn a_stored_list_of_numbers_is_a_vector() {
        let numbers = ["1", "-2.5", "0", "1e-3", "3.4e38", "0.1234567890123456789"];
        let value = list(&numbers);
        let wanted: Vec<f32> = numbers.iter().map(|number| number.parse().expect("a number")).collect();
        let bytes = stored::encode(&value);
        assert_eq!(plain(&bytes, 6).as_ref(), Some(&wanted), "the layout is the one that is written");
        assert_eq!(of_stored(&bytes, 6).as_ref(), Some(&wanted));
        assert_eq!(of_value(&value, 6), Some(wanted));
        for dimensions in [0, 5, 7] {
            assert_eq!(of_stored(&bytes, dimensions), None);
        }
    }

    #[test]
    fn another_layout_of_the_same_list_is_the_same_vector() {
        let bytes = b"\x04 { \"L\" : [ {\"N\":\"1\"}, {\"N\":\"2e0\"} ] }";
        assert_eq!(of_stored(bytes, 2), Some(vec![1.0, 2.0]));
    }

    #[test]
    fn other_values_are_no_vectors() {
        let text = Value::L(vec![Value::S("1".to_owned()), Value::S("2".to_owned())]);
        let sets = Value::Ns([Number::ZERO].into());
        for value in
            [list(&["1", "1e39"]), list(&[]), text, sets, Value::Null, Value::S("\"},{\"N\":\"".to_owned())]
        {
            assert_eq!(of_stored(&stored::encode(&value), 2), None, "{}", value.shown());
            assert_eq!(of_value(&value, 2), None);
        }
        assert_eq!(of_stored(b"", 0), None);
        assert_eq!(of_stored(b"\x04{\"L\":[{\"N\":\"1\"},{\"N\":\"inf\"}]}", 2), None);
    }
}
