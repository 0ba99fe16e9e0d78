//! Numbers of all of CQL's numeric types and Java's conversions between them: integers wrap, fractions are cut towards
//! zero and saturate.

use crate::CqlType;
use crate::decimal::{Decimal, NUMBER_BYTES_MAX};
use crate::number_text::{format_double, format_float};
use num_bigint::BigInt;
use num_traits::ToPrimitive;

/// How many digits a decimal may be blown up to on its way to an integer, so that `1E+2000000000` stays harmless.
pub(super) const DIGITS_MAX: i64 = crate::decimal::DIGITS_MAX as i64;

/// A number that was read from its serialised form.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Number {
    /// `tinyint`, `smallint`, `int`, `bigint`, `counter`
    Integer(i64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `varint`
    Big(BigInt),
    /// `decimal`
    Decimal(Decimal),
}

impl Number {
    /// Reads a value of a numeric type; `None` when the bytes are none.
    pub fn read(ty: &CqlType, bytes: &[u8]) -> Option<Number> {
        Some(match ty {
            CqlType::Tinyint => Number::Integer(i8::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Smallint => Number::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Int => Number::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Bigint | CqlType::Counter => Number::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            // Only a file from elsewhere can hold one so long.
            CqlType::Varint | CqlType::Decimal if bytes.len() > NUMBER_BYTES_MAX => return None,
            CqlType::Varint if !bytes.is_empty() => Number::Big(BigInt::from_signed_bytes_be(bytes)),
            CqlType::Decimal => Number::Decimal(Decimal::read(bytes)?),
            _ => return None,
        })
    }

    /// The value in a numeric type by Java's conversion; `None` where Java has none (NaN as a decimal) or where the
    /// result would be unreasonably large.
    pub fn write(&self, ty: &CqlType) -> Option<Vec<u8>> {
        Some(match ty {
            CqlType::Tinyint => (self.to_i32()? as i8).to_be_bytes().to_vec(),
            CqlType::Smallint => (self.to_i32()? as i16).to_be_bytes().to_vec(),
            CqlType::Int => self.to_i32()?.to_be_bytes().to_vec(),
            CqlType::Bigint | CqlType::Counter => self.to_i64()?.to_be_bytes().to_vec(),
            CqlType::Float => self.to_f32().to_be_bytes().to_vec(),
            CqlType::Double => self.to_f64().to_be_bytes().to_vec(),
            CqlType::Varint => within_limit(self.to_big()?.to_signed_bytes_be())?,
            CqlType::Decimal => within_limit(self.to_decimal()?.to_bytes())?,
            _ => return None,
        })
    }

    pub fn to_i64(&self) -> Option<i64> {
        Some(match self {
            Number::Integer(number) => *number,
            Number::Float(number) => *number as i64,
            Number::Double(number) => *number as i64,
            Number::Big(number) => low_bits(number),
            Number::Decimal(number) => low_bits(&whole_part(number)?),
        })
    }

    /// Fractions saturate at 32 bits here, wider integers wrap.
    pub fn to_i32(&self) -> Option<i32> {
        Some(match self {
            Number::Float(number) => *number as i32,
            Number::Double(number) => *number as i32,
            wide => wide.to_i64()? as i32,
        })
    }

    pub fn to_f64(&self) -> f64 {
        match self {
            Number::Integer(number) => *number as f64,
            Number::Float(number) => f64::from(*number),
            Number::Double(number) => *number,
            Number::Big(number) => number.to_f64().unwrap_or(f64::NAN),
            Number::Decimal(number) => number.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    pub fn to_f32(&self) -> f32 {
        match self {
            Number::Integer(number) => *number as f32,
            Number::Float(number) => *number,
            Number::Double(number) => *number as f32,
            Number::Big(number) => number.to_f32().unwrap_or(f32::NAN),
            Number::Decimal(number) => number.to_string().parse().unwrap_or(f32::NAN),
        }
    }

    /// As a `varint` operand: fractions are cut to 64 bits, as Cassandra's arithmetic never asks for more.
    pub fn to_big(&self) -> Option<BigInt> {
        Some(match self {
            Number::Big(number) => number.clone(),
            other => BigInt::from(other.to_i64()?),
        })
    }

    /// As a cast gives it: a `float` by its own digits.
    pub fn to_decimal(&self) -> Option<Decimal> {
        Some(match self {
            Number::Integer(number) => Decimal::new(*number, 0),
            Number::Float(number) => format_float(*number).parse().ok()?,
            Number::Double(number) => format_double(*number).parse().ok()?,
            Number::Big(number) => Decimal::new(number.clone(), 0),
            Number::Decimal(number) => number.clone(),
        })
    }

    /// As an operand of decimal arithmetic: Cassandra takes numbers of fixed size through a double, which shows in the
    /// scale (5 becomes 5.0). Integers that a double cannot hold stay exact here.
    ///
    /// # Errors
    /// The message for the client when the number is NaN or infinite.
    pub fn to_decimal_operand(&self) -> Result<Decimal, &'static str> {
        let double = match self {
            Number::Big(number) => return Ok(Decimal::new(number.clone(), 0)),
            Number::Decimal(number) => return Ok(number.clone()),
            fixed => fixed.to_f64(),
        };
        if double.is_nan() {
            return Err("A NaN cannot be converted into a decimal");
        }
        if double.is_infinite() {
            return Err("An infinite number cannot be converted into a decimal");
        }
        let decimal = format_double(double).parse().unwrap_or_else(|()| Decimal::new(0, 1));
        match self {
            Number::Integer(number) if decimal.cmp_value(&Decimal::new(*number, 0)).is_ne() => {
                Ok(Decimal::new(*number, 0))
            }
            _ => Ok(decimal),
        }
    }
}

fn within_limit(bytes: Vec<u8>) -> Option<Vec<u8>> {
    (bytes.len() <= NUMBER_BYTES_MAX).then_some(bytes)
}

/// The low 64 bits of two's complement.
fn low_bits(number: &BigInt) -> i64 {
    let mask = BigInt::from(u64::MAX);
    let low: BigInt = number & mask;
    low.to_u64().unwrap_or(0) as i64
}

/// The digits before the point; `None` when they would be too many.
pub(super) fn whole_part(number: &Decimal) -> Option<BigInt> {
    let scale = i64::from(number.scale);
    if scale <= 0 {
        return (-scale <= DIGITS_MAX).then(|| &number.unscaled * BigInt::from(10).pow((-scale) as u32));
    }
    let digits = number.unscaled.bits() as i64 * 302 / 1000 + 1;
    if scale > digits {
        return Some(BigInt::default());
    }
    // Not more places than there are digits.
    Some(&number.unscaled / BigInt::from(10).pow(scale as u32))
}
