//! Statements: their text, with values either as literals or bound, and the bytes of values.

use model::{ColumnType, Scalar, ScalarType, Value};

/// A statement that is ready to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    /// The text, with a `?` for each value.
    pub(crate) text: String,
    /// The values of its markers.
    pub(crate) values: Vec<Vec<u8>>,
    /// The text with literals, for reports.
    pub(crate) shown: String,
    /// Values become markers.
    bound: bool,
}

impl Query {
    /// An empty statement, whose values will be bound or written out.
    pub(crate) fn new(bound: bool) -> Self {
        Self { bound, ..Self::default() }
    }

    /// A statement without values.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { shown: text.clone(), text, ..Self::default() }
    }

    /// Appends text.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self.shown.push_str(text);
        self
    }

    fn value(&mut self, literal: &str, bytes: Vec<u8>) -> &mut Self {
        self.shown.push_str(literal);
        if self.bound {
            self.text.push('?');
            self.values.push(bytes);
        } else {
            self.text.push_str(literal);
        }
        self
    }

    /// Appends a value.
    pub(crate) fn scalar(&mut self, ty: ScalarType, scalar: &Scalar) -> &mut Self {
        self.value(&scalar.to_string(), encode(ty, scalar))
    }

    /// Appends the value of a column.
    pub(crate) fn column(&mut self, ty: ColumnType, value: &Value) -> &mut Self {
        self.value(&value.to_string(), encode_value(ty, value))
    }

    /// Appends a bigint.
    pub(crate) fn bigint(&mut self, number: i64) -> &mut Self {
        self.scalar(ScalarType::Bigint, &Scalar::Int(number))
    }

    /// Appends an int.
    pub(crate) fn int(&mut self, number: i32) -> &mut Self {
        self.scalar(ScalarType::Int, &Scalar::Int(i64::from(number)))
    }
}

/// The serialised form of a value.
pub(crate) fn encode(ty: ScalarType, scalar: &Scalar) -> Vec<u8> {
    match (ty, scalar) {
        (ScalarType::Int, Scalar::Int(number)) => {
            i32::try_from(*number).expect("the workload's ints are small").to_be_bytes().to_vec()
        }
        (ScalarType::Bigint, Scalar::Int(number)) => number.to_be_bytes().to_vec(),
        (ScalarType::Text, Scalar::Text(text)) => text.as_bytes().to_vec(),
        (ScalarType::Blob, Scalar::Blob(bytes)) => bytes.clone(),
        (ty, scalar) => panic!("{scalar} is no {}", ty.name()),
    }
}

fn encode_value(ty: ColumnType, value: &Value) -> Vec<u8> {
    let part = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    match (ty, value) {
        (ColumnType::Scalar(ty), Value::Scalar(scalar)) => encode(ty, scalar),
        (ColumnType::Set(of), Value::Set(set)) => {
            let mut out = (set.len() as i32).to_be_bytes().to_vec();
            set.iter().for_each(|element| part(&mut out, &encode(of, element)));
            out
        }
        (ColumnType::Map(key_type, value_type), Value::Map(map)) => {
            let mut out = (map.len() as i32).to_be_bytes().to_vec();
            for (key, value) in map {
                part(&mut out, &encode(key_type, key));
                part(&mut out, &encode(value_type, value));
            }
            out
        }
        (ty, value) => panic!("{value} is no {}", ty.name()),
    }
}

/// Reads a value that the server sent.
pub(crate) fn decode(ty: ScalarType, bytes: &[u8]) -> Result<Scalar, String> {
    let wrong = || format!("{} bytes are no {}", bytes.len(), ty.name());
    match ty {
        ScalarType::Int => {
            let bytes: [u8; 4] = bytes.try_into().map_err(|_| wrong())?;
            Ok(Scalar::Int(i64::from(i32::from_be_bytes(bytes))))
        }
        ScalarType::Bigint => Ok(Scalar::Int(i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?))),
        ScalarType::Text => String::from_utf8(bytes.to_vec()).map(Scalar::Text).map_err(|_| wrong()),
        ScalarType::Blob => Ok(Scalar::Blob(bytes.to_vec())),
    }
}

/// Reads the value of a column that the server sent.
pub(crate) fn decode_value(ty: ColumnType, bytes: &[u8]) -> Result<Value, String> {
    let (of, value_type) = match ty {
        ColumnType::Scalar(ty) => return decode(ty, bytes).map(Value::Scalar),
        ColumnType::Counter => return decode(ScalarType::Bigint, bytes).map(Value::Scalar),
        ColumnType::Set(of) => (of, None),
        ColumnType::Map(key, value) => (key, Some(value)),
    };
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> Result<usize, String> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or("a collection ends early")?;
        *rest = tail;
        usize::try_from(i32::from_be_bytes(*head)).map_err(|_| "a negative length".to_owned())
    };
    let count = number(&mut rest)?;
    let mut part = |ty: ScalarType| -> Result<Scalar, String> {
        let len = number(&mut rest)?;
        let (head, tail) = rest.split_at_checked(len).ok_or("an element ends early")?;
        rest = tail;
        decode(ty, head)
    };
    match value_type {
        None => (0..count).map(|_| part(of)).collect::<Result<_, _>>().map(Value::Set),
        Some(value_type) => {
            let pairs = (0..count).map(|_| Ok((part(of)?, part(value_type)?)));
            pairs.collect::<Result<_, String>>().map(Value::Map)
        }
    }
}
