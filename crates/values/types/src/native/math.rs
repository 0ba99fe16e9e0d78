//! Mathematical functions on numbers; the result has the argument's type.

use super::decimal_math;
use super::number::Number;
use super::{Answer, Function};
use crate::decimal::Decimal;
use num_traits::Signed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MathFunction {
    Abs,
    Exp,
    Log,
    Log10,
    Round,
}

impl MathFunction {
    fn of_double(self, x: f64) -> f64 {
        match self {
            MathFunction::Abs => x.abs(),
            MathFunction::Exp => x.exp(),
            MathFunction::Log => x.ln(),
            MathFunction::Log10 => x.log10(),
            // Java's Math.round: halves up, as a 64-bit integer.
            MathFunction::Round => (x.floor() + f64::from(x - x.floor() >= 0.5)) as i64 as f64,
        }
    }

    fn of_decimal(self, number: &Decimal) -> Result<Decimal, &'static str> {
        match self {
            MathFunction::Abs => Ok(Decimal { unscaled: number.unscaled.abs(), scale: number.scale }),
            MathFunction::Exp => decimal_math::exp(number),
            MathFunction::Log => decimal_math::ln(number),
            MathFunction::Log10 => decimal_math::log10(number),
            MathFunction::Round => decimal_math::round(number),
        }
    }

    fn of(self, number: Number) -> Result<Number, &'static str> {
        Ok(match (self, number) {
            (MathFunction::Abs, Number::Integer(number)) => Number::Integer(number.wrapping_abs()),
            (MathFunction::Round, Number::Integer(number)) => Number::Integer(number),
            // Through a double and back, cut towards zero.
            (_, Number::Integer(number)) => Number::Double(self.of_double(number as f64)),
            (MathFunction::Round, Number::Float(number)) => {
                let is_up = number - number.floor() >= 0.5;
                Number::Float((number.floor() + f32::from(is_up)) as i32 as f32)
            }
            (_, Number::Float(number)) => Number::Float(self.of_double(f64::from(number)) as f32),
            (_, Number::Double(number)) => Number::Double(self.of_double(number)),
            (MathFunction::Abs, Number::Big(number)) => Number::Big(number.abs()),
            (MathFunction::Round, Number::Big(number)) => Number::Big(number),
            (_, Number::Big(number)) => {
                Number::Big(decimal_math::truncated(&self.of_decimal(&Decimal::new(number, 0))?)?)
            }
            (_, Number::Decimal(number)) => Number::Decimal(self.of_decimal(&number)?),
        })
    }
}

impl Function {
    pub(super) fn math(&self, function: MathFunction, values: &[&[u8]]) -> Answer {
        let number = values.first().and_then(|value| Number::read(&self.returns, value));
        let result = function.of(number.ok_or_else(|| self.malformed(0))?).map_err(|why| self.failed(why))?;
        match result.write(&self.returns) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(self.failed(decimal_math::TOO_LARGE)),
        }
    }
}
