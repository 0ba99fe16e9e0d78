//! Decimals as Java's `BigDecimal` has them: an unscaled integer and a scale, so that 1.0 and 1.00 are two values that
//! compare equal. Sizes that a scale of a billion would ask for are never materialised: comparison and encoding work
//! on the digits. Arithmetic is in [`crate::native`].

use num_bigint::{BigInt, Sign};
use num_traits::{Signed, Zero};
use std::cmp::Ordering;

use std::f64::consts::LOG10_2;

/// The most digits of a literal, and of an operand or result of arithmetic. Conversions between digits and bits cost the square
/// of the number of digits.
pub const DIGITS_MAX: usize = 100_000;

/// The most bytes of a `varint` or `decimal`: the limit of a key.
pub const NUMBER_BYTES_MAX: usize = 65_535;

/// The number of decimal digits of an integer; 1 for zero.
pub(crate) fn digit_count(number: &BigInt) -> i64 {
    if number.is_zero() {
        return 1;
    }
    let bits = number.bits() as f64;
    let (low, high) = ((bits - 1.0) * LOG10_2 - 1e-6, bits * LOG10_2 + 1e-6);
    let (low, high) = (low.max(0.0) as u32, high as u32);
    // Between them lies one power of ten at most.
    if low < high && number.magnitude() >= BigInt::from(10).pow(high).magnitude() {
        return i64::from(high) + 1;
    }
    i64::from(if low < high { high } else { low + 1 })
}

/// `unscaled` × 10^-`scale`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decimal {
    /// The digits with their sign.
    pub unscaled: BigInt,
    /// How many of the digits are behind the point; negative for trailing zeros that are not written.
    pub scale: i32,
}

/// The magnitude of a decimal as 0.DIGITS × 10^`exponent`.
pub(crate) struct Digits {
    /// ASCII digits, the first and the last not zero.
    pub digits: Vec<u8>,
    pub exponent: i64,
}

impl Decimal {
    /// A decimal of its parts.
    pub fn new(unscaled: impl Into<BigInt>, scale: i32) -> Decimal {
        Decimal { unscaled: unscaled.into(), scale }
    }

    /// Reads a serialised value: scale and unscaled two's complement integer. `None` for the empty value and for
    /// bytes too short to be one.
    pub fn read(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        if unscaled.is_empty() {
            return None;
        }
        Some(Decimal { unscaled: BigInt::from_signed_bytes_be(unscaled), scale: i32::from_be_bytes(*scale) })
    }

    /// The serialised value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.scale.to_be_bytes().to_vec();
        out.extend_from_slice(&self.unscaled.to_signed_bytes_be());
        out
    }

    /// Compares by value: 1.0 equals 1.00. The sizes decide where they can; else the coarser number is written out to the
    /// places of the finer one, which is a multiplication and never a conversion to digits.
    pub fn cmp_value(&self, other: &Decimal) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let signs = self.unscaled.sign().cmp(&other.unscaled.sign());
        if signs.is_ne() || self.unscaled.is_zero() {
            return signs;
        }
        let magnitudes = self.cmp_magnitude(other);
        if self.unscaled.sign() == Sign::Minus { magnitudes.reverse() } else { magnitudes }
    }

    fn cmp_magnitude(&self, other: &Decimal) -> Ordering {
        let ((self_low, self_high), (other_low, other_high)) = (self.log10_bounds(), other.log10_bounds());
        if self_low > other_high {
            return Ordering::Greater;
        }
        if other_low > self_high {
            return Ordering::Less;
        }
        // Of about the same size: the scales differ by no more than the numbers of digits do.
        let apart = i64::from(self.scale).abs_diff(i64::from(other.scale));
        let factor = BigInt::from(10).pow(u32::try_from(apart).unwrap_or(u32::MAX)).into_parts().1;
        let (a, b) = (self.unscaled.magnitude(), other.unscaled.magnitude());
        if self.scale < other.scale { (a * factor).cmp(b) } else { a.cmp(&(b * factor)) }
    }

    /// Bounds of the decimal logarithm of the magnitude of a number that is not zero.
    fn log10_bounds(&self) -> (f64, f64) {
        let (bits, scale) = (self.unscaled.bits() as f64, f64::from(self.scale));
        let (low, high) = ((bits - 1.0) * LOG10_2, bits * LOG10_2);
        // The greatest rounding error of a logarithm of a few billion.
        (low - scale - 1e-4, high - scale + 1e-4)
    }

    /// The digits of a decimal that is not zero.
    pub(crate) fn digits(&self) -> Option<Digits> {
        if self.unscaled.is_zero() {
            return None;
        }
        let magnitude = self.unscaled.magnitude();
        // Nearly all are short, and need no division of long numbers.
        let mut digits = match u64::try_from(magnitude) {
            Ok(short) => short.to_string().into_bytes(),
            Err(_) => magnitude.to_str_radix(10).into_bytes(),
        };
        let exponent = digits.len() as i64 - i64::from(self.scale);
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        Some(Digits { digits, exponent })
    }
}

impl std::fmt::Display for Decimal {
    /// As Java's `BigDecimal.toString`: plain while the exponent is between -6 and 0, else with one digit before the
    /// point and an exponent.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.unscaled.abs().to_str_radix(10);
        if self.unscaled.sign() == Sign::Minus {
            f.write_str("-")?;
        }
        if self.scale == 0 {
            return f.write_str(&digits);
        }
        let exponent = digits.len() as i64 - 1 - i64::from(self.scale);
        if self.scale > 0 && exponent >= -6 {
            let scale = self.scale as usize;
            let padded = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = padded.split_at(padded.len() - scale);
            return write!(f, "{whole}.{fraction}");
        }
        let (first, rest) = digits.split_at(1);
        f.write_str(first)?;
        if !rest.is_empty() {
            write!(f, ".{rest}")?;
        }
        if exponent == 0 { Ok(()) } else { write!(f, "E{exponent:+}") }
    }
}

impl std::str::FromStr for Decimal {
    type Err = ();

    /// Accepts the texts of Java's `BigDecimal(String)`: sign, digits with a point anywhere among them, exponent.
    fn from_str(text: &str) -> Result<Decimal, ()> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(());
                }
                (mantissa, exponent.parse::<i64>().map_err(|_| ())?)
            }
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        if whole.len() + fraction.len() > DIGITS_MAX {
            return Err(());
        }
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        let magnitude = BigInt::parse_bytes(digits.as_bytes(), 10).ok_or(())?;
        let scale = (fraction.len() as i64).checked_sub(exponent).and_then(|scale| i32::try_from(scale).ok());
        let unscaled = if mantissa.starts_with('-') { -magnitude } else { magnitude };
        Ok(Decimal { unscaled, scale: scale.ok_or(())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn digits_are_counted_without_writing_them() {
        let mut number = BigInt::from(1);
        for digits in 1..400_i64 {
            assert_eq!(digit_count(&number), digits, "10^{}", digits - 1);
            assert_eq!(digit_count(&-&number), digits);
            assert_eq!(digit_count(&(&number * 9)), digits);
            number *= 10;
            assert_eq!(digit_count(&(&number - 1)), digits);
        }
        let large = BigInt::from(10).pow(150_000);
        assert_eq!(digit_count(&large), 150_001);
        assert_eq!(digit_count(&(large - 1)), 150_000);
        assert_eq!(digit_count(&BigInt::default()), 1);
    }

    #[test]
    fn numbers_of_any_scale_are_compared_by_value() {
        let ascending = [
            "-1E+2147483647",
            "-1E+2000000000",
            "-100.00001",
            "-1E+2",
            "-99.9999",
            "-1",
            "-1E-2147483647",
            "0",
            "1E-2147483647",
            "2E-2147483647",
            "0.1",
            "0.99999999999999999999",
            "1",
            "1.00000000000000000001",
            "9.99",
            "10",
            "99.9999",
            "100",
            "100.00001",
            "1E+2000000000",
            "1.1E+2000000000",
            "1E+2147483646",
        ];
        for (at, a) in ascending.iter().enumerate() {
            for (other, b) in ascending.iter().enumerate() {
                assert_eq!(d(a).cmp_value(&d(b)), at.cmp(&other), "{a} {b}");
            }
        }
        assert!(d("1E+2").cmp_value(&d("100.000")).is_eq());
        assert!(d("-1.0").cmp_value(&d("-1.00")).is_eq());
        assert!(d("0").cmp_value(&d("0E+5")).is_eq());
        assert!(d("1024").cmp_value(&d("1.024E+3")).is_eq());
    }

    #[test]
    fn a_literal_has_a_limit_of_digits() {
        assert!("9".repeat(DIGITS_MAX).parse::<Decimal>().is_ok());
        assert!("9".repeat(DIGITS_MAX + 1).parse::<Decimal>().is_err());
        assert!(format!("0.{}", "9".repeat(DIGITS_MAX)).parse::<Decimal>().is_err());
    }
}
