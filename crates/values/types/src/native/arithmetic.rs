//! Arithmetic on numbers: the type of the result from those of the operands, wrapping integers, and decimals.

use super::decimal_math;
use super::number::Number;
use super::operator::Operator;
use super::{Answer, Function, FunctionError};
use crate::CqlType;
use num_bigint::BigInt;
use num_traits::Zero;

/// The type of the result: a fraction when one operand is one, as wide as the wider.
pub(super) fn result_type(left: &CqlType, right: &CqlType) -> CqlType {
    let fraction = |ty: &CqlType| matches!(ty, CqlType::Float | CqlType::Double | CqlType::Decimal);
    let size = |ty: &CqlType| match ty {
        CqlType::Tinyint => 1,
        CqlType::Smallint => 2,
        CqlType::Int | CqlType::Float => 4,
        CqlType::Bigint | CqlType::Counter | CqlType::Double => 8,
        _ => u32::MAX,
    };
    match (fraction(left) || fraction(right), size(left).max(size(right))) {
        (true, 4) => CqlType::Float,
        (true, 8) => CqlType::Double,
        (true, _) => CqlType::Decimal,
        (false, 1) => CqlType::Tinyint,
        (false, 2) => CqlType::Smallint,
        (false, 4) => CqlType::Int,
        (false, 8) => CqlType::Bigint,
        (false, _) => CqlType::Varint,
    }
}

impl Function {
    pub(super) fn arithmetic(&self, operator: Operator, values: &[&[u8]]) -> Answer {
        let mut numbers = Vec::with_capacity(2);
        for (i, (ty, value)) in self.arguments.iter().zip(values).enumerate() {
            numbers.push(Number::read(ty, value).ok_or_else(|| self.malformed(i))?);
        }
        let [left, right] = numbers.as_slice() else { return Err(self.wrong_number(values.len())) };
        match compute(&self.returns, operator, left, right) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) => Err(self.operation_failed(operator, why)),
        }
    }

    pub(super) fn operation_failed(&self, operator: Operator, why: &str) -> FunctionError {
        let name = |i: usize| self.arguments.get(i).map(CqlType::cql_name).unwrap_or_default();
        let (left, right) = (name(0), name(1));
        self.failed(format!("the operation '{left} {} {right}' failed: {why}", operator.symbol()))
    }

    pub(super) fn negate(&self, values: &[&[u8]]) -> Answer {
        let number = values.first().and_then(|value| Number::read(&self.returns, value));
        let negated = match number.ok_or_else(|| self.malformed(0))? {
            Number::Integer(number) => Number::Integer(number.wrapping_neg()),
            Number::Float(number) => Number::Float(-number),
            Number::Double(number) => Number::Double(-number),
            Number::Big(number) => Number::Big(-number),
            Number::Decimal(mut number) => {
                number.unscaled = -number.unscaled;
                Number::Decimal(number)
            }
        };
        Ok(negated.write(&self.returns))
    }
}

/// The sum of two numbers of one type, in that type: integers wrap.
///
/// # Errors
/// When a value is none of the type, or the sum is too large for it.
pub fn add(ty: &CqlType, left: &[u8], right: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let number = |value| {
        let malformed = || FunctionError::Invalid(format!("Invalid value for type {}", ty.cql_name()));
        Number::read(ty, value).ok_or_else(malformed)
    };
    let sum = compute(ty, Operator::Add, &number(left)?, &number(right)?);
    sum.map_err(|why| FunctionError::Invalid(format!("The sum cannot be computed: {why}")))
}

/// The result in the type; the error is Java's text of the failure.
fn compute(ty: &CqlType, operator: Operator, left: &Number, right: &Number) -> Result<Vec<u8>, &'static str> {
    let result = match ty {
        CqlType::Float => Number::Float(float(operator, left.to_f32(), right.to_f32())),
        CqlType::Double => Number::Double(double(operator, left.to_f64(), right.to_f64())),
        CqlType::Varint => match (left.to_big(), right.to_big()) {
            (Some(left), Some(right)) => Number::Big(big(operator, left, right)?),
            _ => return Err(decimal_math::TOO_LARGE),
        },
        CqlType::Decimal => {
            let (left, right) = (left.to_decimal_operand()?, right.to_decimal_operand()?);
            Number::Decimal(decimal_math::compute(operator, &left, &right)?)
        }
        _ => match (left.to_i64(), right.to_i64()) {
            (Some(left), Some(right)) => Number::Integer(integer(operator, left, right)?),
            _ => return Err(decimal_math::TOO_LARGE),
        },
    };
    result.write(ty).ok_or(decimal_math::TOO_LARGE)
}

/// Integers wrap at 64 bits and again when they are written in a narrower type.
fn integer(operator: Operator, left: i64, right: i64) -> Result<i64, &'static str> {
    Ok(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide | Operator::Modulo if right == 0 => return Err("/ by zero"),
        Operator::Divide => left.wrapping_div(right),
        Operator::Modulo => left.wrapping_rem(right),
    })
}

fn float(operator: Operator, left: f32, right: f32) -> f32 {
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    }
}

fn double(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    }
}

fn big(operator: Operator, left: BigInt, right: BigInt) -> Result<BigInt, &'static str> {
    Ok(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide | Operator::Modulo if right.is_zero() => return Err("BigInteger divide by zero"),
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    })
}
