//! How values cross the border of a module: numbers as themselves, everything else serialised in the module's memory.

use bytes::Bytes;
use schema::UserFunction;
use types::CqlType;
use wasmi::{Val, ValType};

/// The size that stands for null.
const NULL_SIZE: i32 = -1;

/// How a value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As a value of WebAssembly.
    Native(ValType),
    /// As the place of its serialised form: the size in the upper 32 bits, the address in the lower.
    Serialised,
}

impl Form {
    /// The form of values of a type; a function that may be called with null takes and returns no native values.
    pub(super) fn of(function: &UserFunction, ty: &CqlType) -> Self {
        let native = match ty {
            CqlType::Boolean | CqlType::Int | CqlType::Smallint | CqlType::Tinyint => ValType::I32,
            CqlType::Bigint => ValType::I64,
            CqlType::Float => ValType::F32,
            CqlType::Double => ValType::F64,
            _ => return Self::Serialised,
        };
        if function.called_on_null_input { Self::Serialised } else { Self::Native(native) }
    }

    /// The type of WebAssembly in which it is passed.
    pub(super) fn value_type(self) -> ValType {
        match self {
            Self::Native(native) => native,
            Self::Serialised => ValType::I64,
        }
    }
}

/// A number as a value of WebAssembly; none where the bytes are no value of the type.
pub(super) fn native(ty: &CqlType, bytes: &[u8]) -> Option<Val> {
    Some(match ty {
        CqlType::Boolean => Val::I32(i32::from(*bytes.first()? != 0)),
        CqlType::Tinyint => Val::I32(i8::from_be_bytes(bytes.try_into().ok()?).into()),
        CqlType::Smallint => Val::I32(i16::from_be_bytes(bytes.try_into().ok()?).into()),
        CqlType::Int => Val::I32(i32::from_be_bytes(bytes.try_into().ok()?)),
        CqlType::Bigint => Val::I64(i64::from_be_bytes(bytes.try_into().ok()?)),
        CqlType::Float => Val::F32(f32::from_be_bytes(bytes.try_into().ok()?).into()),
        CqlType::Double => Val::F64(f64::from_be_bytes(bytes.try_into().ok()?).into()),
        _ => return None,
    })
}

/// The serialised form of a number that a function returned.
pub(super) fn serialise(ty: &CqlType, value: &Val) -> Result<Vec<u8>, String> {
    let out_of_range =
        |value: i32| format!("returned {value}, which is out of the range of {}", ty.cql_name());
    Ok(match (ty, value) {
        (CqlType::Boolean, Val::I32(value)) => vec![u8::from(*value != 0)],
        (CqlType::Tinyint, Val::I32(value)) => {
            i8::try_from(*value).map_err(|_| out_of_range(*value))?.to_be_bytes().into()
        }
        (CqlType::Smallint, Val::I32(value)) => {
            i16::try_from(*value).map_err(|_| out_of_range(*value))?.to_be_bytes().into()
        }
        (CqlType::Int, Val::I32(value)) => value.to_be_bytes().into(),
        (CqlType::Bigint, Val::I64(value)) => value.to_be_bytes().into(),
        (CqlType::Float, Val::F32(value)) => value.to_float().to_be_bytes().into(),
        (CqlType::Double, Val::F64(value)) => value.to_float().to_be_bytes().into(),
        _ => return Err("returned a value of another type".to_owned()),
    })
}

/// The place of a serialised value; without one, null.
pub(super) fn place(value: Option<(u32, usize)>) -> Val {
    let (address, size) = match value {
        Some((address, size)) => (address, i32::try_from(size).unwrap_or(NULL_SIZE)),
        None => (0, NULL_SIZE),
    };
    Val::I64(i64::from(size) << 32 | i64::from(address))
}

/// The value at a place in a module's memory.
pub(super) fn value_at(ty: &CqlType, place: &Val, memory: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Val::I64(place) = *place else { return Err("returned a value of another type".to_owned()) };
    let (size, address) = ((place >> 32) as i32, place as u32);
    if size == NULL_SIZE {
        return Ok(None);
    }
    let range = usize::try_from(size).ok().zip(usize::try_from(address).ok());
    let bytes = range.and_then(|(size, address)| memory.get(address..address.checked_add(size)?));
    let Some(bytes) = bytes else {
        return Err(format!(
            "returned {size} bytes at address {address}, which are not in its memory of {} bytes",
            memory.len()
        ));
    };
    if bytes.is_empty() && !ty.empty_is_a_value() {
        return Ok(None);
    }
    match ty.validate(bytes) {
        Ok(()) => Ok(Some(bytes.to_vec())),
        Err(error) => Err(format!("returned bytes that are no {}: {error}", ty.cql_name())),
    }
}

/// Whether an argument is passed as null.
pub(super) fn as_passed<'a>(ty: &CqlType, value: &'a Option<Bytes>) -> Option<&'a Bytes> {
    value.as_ref().filter(|value| !value.is_empty() || ty.empty_is_a_value())
}
