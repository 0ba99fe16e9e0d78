//! Numbers of any size in Lua, which has none: a `varint` or `decimal` with the arithmetic of CQL.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MetaMethod, UserData, UserDataMethods, Value};
use types::CqlType;
use types::native::{self, Environment, FunctionError, Operator, TypedArgument};

/// Bytes of numbers that arithmetic takes: the cost of a division grows with the square of the digits.
const OPERAND_BYTES_MAX: usize = 1024;

/// Bytes of the numbers that a state holds, which its allocator does not see.
#[derive(Clone)]
pub(super) struct Held {
    bytes: Rc<Cell<usize>>,
    bytes_max: usize,
}

impl Held {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Rc::default(), bytes_max }
    }
}

/// A `varint` or `decimal`.
pub(super) struct Number {
    pub(super) ty: CqlType,
    pub(super) bytes: Vec<u8>,
    held: Rc<Cell<usize>>,
}

impl Drop for Number {
    fn drop(&mut self) {
        self.held.set(self.held.get().saturating_sub(self.bytes.len()));
    }
}

/// Arithmetic is pure: it calls none of this.
struct Nowhere;

impl Environment for Nowhere {
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

fn refused(error: impl std::fmt::Display) -> mlua::Error {
    mlua::Error::runtime(error)
}

impl Number {
    /// A number as a value of Lua.
    pub(super) fn create(lua: &Lua, ty: CqlType, bytes: Vec<u8>) -> mlua::Result<Value> {
        let Some(held) = lua.app_data_ref::<Held>().map(|held| held.clone()) else {
            return Err(refused("numbers of any size are not available"));
        };
        let total = held.bytes.get() + bytes.len();
        if total > held.bytes_max {
            // Numbers that are garbage are still held until they are collected.
            lua.gc_collect()?;
            if held.bytes.get() + bytes.len() > held.bytes_max {
                return Err(refused("not enough memory"));
            }
        }
        held.bytes.set(held.bytes.get() + bytes.len());
        let number = Number { ty, bytes, held: held.bytes };
        Ok(Value::UserData(lua.create_userdata(number)?))
    }

    pub(super) fn text(&self) -> mlua::Result<String> {
        check_size(&self.bytes)?;
        Ok(self.ty.to_text(&self.bytes))
    }
}

fn check_size(bytes: &[u8]) -> mlua::Result<()> {
    match bytes.len() <= OPERAND_BYTES_MAX {
        true => Ok(()),
        false => Err(refused(format!(
            "a number of {} bytes: functions compute with {OPERAND_BYTES_MAX} at most",
            bytes.len()
        ))),
    }
}

/// A Lua number as a decimal's text.
pub(super) fn float_text(number: f64) -> Result<String, String> {
    match number.is_finite() {
        true => Ok(format!("{number:?}")),
        false => Err(format!("{number} is no number of this type")),
    }
}

/// The type and bytes of a value that stands for a number.
fn operand(value: &Value) -> mlua::Result<(CqlType, Vec<u8>)> {
    let parsed = |ty: CqlType, text: &str| match ty.from_string(text) {
        Ok(bytes) => Ok((ty, bytes)),
        Err(error) => Err(refused(error)),
    };
    match value {
        Value::Integer(number) => parsed(CqlType::Varint, &number.to_string()),
        Value::Number(number) => parsed(CqlType::Decimal, &float_text(*number).map_err(refused)?),
        Value::String(text) => {
            let bytes = text.as_bytes();
            check_size(&bytes)?;
            let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
            match text.is_empty() {
                true => Err(refused("attempt to perform arithmetic on a string that is no number")),
                false => parsed(CqlType::Varint, text).or_else(|_| parsed(CqlType::Decimal, text)),
            }
        }
        Value::UserData(data) => {
            let number = data.borrow::<Number>()?;
            check_size(&number.bytes)?;
            Ok((number.ty.clone(), number.bytes.clone()))
        }
        other => Err(refused(format!("attempt to perform arithmetic on a {} value", other.type_name()))),
    }
}

fn compute(lua: &Lua, operator: Operator, left: &Value, right: &Value) -> mlua::Result<Value> {
    let ((left_type, left), (right_type, right)) = (operand(left)?, operand(right)?);
    let argument = |ty: CqlType| TypedArgument { ty, text: String::new() };
    let text = |error: FunctionError| refused(error);
    let function = native::resolve_operator(operator, &argument(left_type), &argument(right_type), None)
        .map_err(text)?;
    let result = function.execute(&[Some(&left), Some(&right)], &mut Nowhere).map_err(text)?;
    match result {
        Some(bytes) => Number::create(lua, function.returns.clone(), bytes),
        None => Ok(Value::Nil),
    }
}

/// A number cast to another type of numbers.
pub(super) fn cast(ty: &CqlType, bytes: &[u8], to: &CqlType) -> Result<Vec<u8>, String> {
    let argument = TypedArgument { ty: ty.clone(), text: String::new() };
    let function = match native::resolve_cast(&argument, to).map_err(|error| error.to_string())? {
        Some(function) => function,
        None => return Ok(bytes.to_vec()),
    };
    let result = function.execute(&[Some(bytes)], &mut Nowhere).map_err(|error| error.to_string())?;
    result.ok_or_else(|| "no number".to_owned())
}

/// A varint as a decimal without a fraction.
fn as_decimal((ty, bytes): (CqlType, Vec<u8>)) -> Vec<u8> {
    match ty {
        CqlType::Varint => [&[0; 4][..], &bytes].concat(),
        _ => bytes,
    }
}

fn order(left: &Value, right: &Value) -> mlua::Result<std::cmp::Ordering> {
    let (left, right) = (as_decimal(operand(left)?), as_decimal(operand(right)?));
    Ok(CqlType::Decimal.compare(&left, &right))
}

impl UserData for Number {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        for (name, operator) in [
            (MetaMethod::Add, Operator::Add),
            (MetaMethod::Sub, Operator::Subtract),
            (MetaMethod::Mul, Operator::Multiply),
            (MetaMethod::Div, Operator::Divide),
            (MetaMethod::Mod, Operator::Modulo),
        ] {
            methods.add_meta_function(name, move |lua, (left, right): (Value, Value)| {
                compute(lua, operator, &left, &right)
            });
        }
        methods.add_meta_function(MetaMethod::Unm, |lua, (value, _): (Value, Value)| {
            compute(lua, Operator::Subtract, &Value::Integer(0), &value)
        });
        methods.add_meta_function(MetaMethod::Eq, |_, (left, right): (Value, Value)| {
            Ok(order(&left, &right)?.is_eq())
        });
        methods.add_meta_function(MetaMethod::Lt, |_, (left, right): (Value, Value)| {
            Ok(order(&left, &right)?.is_lt())
        });
        methods.add_meta_function(MetaMethod::Le, |_, (left, right): (Value, Value)| {
            Ok(order(&left, &right)?.is_le())
        });
        methods.add_meta_function(MetaMethod::ToString, |_, value: mlua::AnyUserData| {
            value.borrow::<Number>()?.text()
        });
        methods.add_meta_function(MetaMethod::Concat, |lua, (left, right): (Value, Value)| {
            let text = |value: &Value| match value {
                Value::UserData(data) => Ok(data.borrow::<Number>()?.text()?.into_bytes()),
                other => match lua.coerce_string(other.clone())? {
                    Some(text) => Ok(text.as_bytes().to_vec()),
                    None => Err(refused(format!("attempt to concatenate a {} value", other.type_name()))),
                },
            };
            lua.create_string([text(&left)?, text(&right)?].concat())
        });
    }
}
