//! Decimals as Java's `BigDecimal` has them: an unscaled integer and a scale, so that 1.0 and 1.00 are two values that
//! compare equal. Sizes that a scale of a billion would ask for are never materialised: comparison and encoding work
//! on the digits. Arithmetic is in [`crate::native`].

use num_bigint::{BigInt, Sign};
use num_traits::{Signed, Zero};
use std::cmp::Ordering;

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

    /// Compares by value: 1.0 equals 1.00.
    pub fn cmp_value(&self, other: &Decimal) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let signs = self.unscaled.sign().cmp(&other.unscaled.sign());
        if signs.is_ne() || self.unscaled.is_zero() {
            return signs;
        }
        let (Some(a), Some(b)) = (self.digits(), other.digits()) else { return signs };
        let magnitudes = a.exponent.cmp(&b.exponent).then_with(|| a.digits.cmp(&b.digits));
        if self.unscaled.sign() == Sign::Minus { magnitudes.reverse() } else { magnitudes }
    }

    /// The digits of a decimal that is not zero.
    pub(crate) fn digits(&self) -> Option<Digits> {
        if self.unscaled.is_zero() {
            return None;
        }
        let mut digits = self.unscaled.abs().to_str_radix(10).into_bytes();
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

    /// Reads what Java's `BigDecimal(String)` reads: sign, digits with a point anywhere among them, exponent.
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
