//! Numbers of 38 decimal digits between 1E-130 and 9.99E+125, exactly.

use std::cmp::Ordering;
use std::fmt;

use crate::{Error, Result, invalid};

/// Significant digits of a number.
const DIGITS_MAX: u32 = 38;
/// Exponents of the first digit.
const EXPONENT_MAX: i64 = 125;
const EXPONENT_MIN: i64 = -130;
/// Characters of a number that is stored as it is sent, in any case.
const SHORT_TEXT: usize = 12;

/// ±`mantissa` × 10^`exponent`; the mantissa has no trailing zero, and zero is +0 × 10^0, so that equal numbers are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    mantissa: u128,
    exponent: i16,
}

fn too_precise() -> Error {
    Error::Validation("Attempting to store more than 38 significant digits in a Number".to_owned())
}

impl Number {
    /// Zero.
    pub const ZERO: Self = Self { negative: false, mantissa: 0, exponent: 0 };

    /// Reads a number as clients write it. Takes time in proportion to the text, however many digits it has.
    ///
    /// # Errors
    /// When it is no number, or out of bounds.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return invalid!("The parameter cannot be converted to a numeric value");
        }
        let Some(read) = Digits::read(text) else {
            let shown: String = text.chars().take(200).collect();
            return invalid!("The parameter cannot be converted to a numeric value: {shown}");
        };
        let Some(first) = read.first else { return Ok(Self::ZERO) };
        if first > EXPONENT_MAX {
            return invalid!(
                "Number overflow. Attempting to store a number with magnitude larger than supported range"
            );
        }
        if first < EXPONENT_MIN {
            return invalid!(
                "Number underflow. Attempting to store a number with magnitude smaller than supported range"
            );
        }
        if read.is_long {
            return Err(too_precise());
        }
        let exponent = i16::try_from(first + 1 - i64::from(read.significant)).map_err(|_| too_precise())?;
        Ok(Self { negative: read.negative, mantissa: read.mantissa, exponent })
    }

    /// ±`mantissa` × 10^`exponent`, if it is in bounds.
    fn new(negative: bool, mantissa: u128, exponent: i64) -> Result<Self> {
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        let (mantissa, exponent) = without_zeros(mantissa, exponent);
        let digits = digits_of(mantissa);
        let first = exponent + i64::from(digits) - 1;
        if first > EXPONENT_MAX {
            return invalid!(
                "Number overflow. Attempting to store a number with magnitude larger than supported range"
            );
        }
        if first < EXPONENT_MIN {
            return invalid!(
                "Number underflow. Attempting to store a number with magnitude smaller than supported range"
            );
        }
        if digits > DIGITS_MAX {
            return Err(too_precise());
        }
        let exponent = i16::try_from(exponent).map_err(|_| too_precise())?;
        Ok(Self { negative, mantissa, exponent })
    }

    /// A whole number.
    pub fn from_usize(value: usize) -> Self {
        Self::new(false, value as u128, 0).unwrap_or(Self::ZERO)
    }

    /// The number as it is stored within documents: with an exponent where the plain form has many zeros, which AWS does not count.
    pub(crate) fn stored(&self) -> String {
        let plain = self.to_string();
        if plain.len() < SHORT_TEXT {
            return plain;
        }
        let sign = if self.negative { "-" } else { "" };
        let short = format!("{sign}{}E{}", self.mantissa, self.exponent);
        if short.len() < plain.len() { short } else { plain }
    }

    fn digits(&self) -> u32 {
        digits_of(self.mantissa)
    }

    /// The bytes that AWS counts: one for two significant digits of the whole part, and of the fraction, beside one for each number and one for a sign.
    /// Zeros at either end are not significant.
    pub fn size(&self) -> usize {
        if self.mantissa == 0 {
            return 1;
        }
        let digits = self.digits() as usize;
        let decimals = usize::from(self.exponent.min(0).unsigned_abs());
        // All of a number below one is fraction.
        let decimals = decimals.min(digits);
        (digits - decimals).div_ceil(2) + decimals.div_ceil(2) + 1 + usize::from(self.negative)
    }

    /// The sum.
    ///
    /// # Errors
    /// When it has more than 38 digits or is out of bounds.
    pub fn add(&self, other: &Self) -> Result<Self> {
        if self.mantissa == 0 {
            return Ok(*other);
        }
        if other.mantissa == 0 {
            return Ok(*self);
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let gap = high.exponent.abs_diff(low.exponent);
        // The lower one's last digit is not zero: with such a gap the sum has too many digits.
        let factor = 10u128.checked_pow(u32::from(gap)).ok_or_else(too_precise)?;
        let raised = high.mantissa.checked_mul(factor).ok_or_else(too_precise)?;
        let exponent = i64::from(low.exponent);
        if high.negative == low.negative {
            let sum = raised.checked_add(low.mantissa).ok_or_else(too_precise)?;
            return Self::new(high.negative, sum, exponent);
        }
        match raised.cmp(&low.mantissa) {
            Ordering::Less => Self::new(low.negative, low.mantissa - raised, exponent),
            _ => Self::new(high.negative, raised - low.mantissa, exponent),
        }
    }

    /// The difference.
    ///
    /// # Errors
    /// As [`Number::add`].
    pub fn subtract(&self, other: &Self) -> Result<Self> {
        let negative = other.mantissa != 0 && !other.negative;
        self.add(&Self { negative, ..*other })
    }

    /// A decimal as CQL stores it: scale, and the unscaled integer in two's complement. Equal numbers have equal bytes: whole
    /// numbers of up to 38 digits have the scale 0, others no trailing zero.
    pub fn to_decimal(&self) -> Vec<u8> {
        let exponent = i32::from(self.exponent);
        let whole = u32::try_from(exponent).ok().filter(|zeros| self.digits() + zeros <= DIGITS_MAX);
        let (magnitude, scale) = match whole {
            Some(zeros) => (self.mantissa * 10u128.pow(zeros), 0),
            None => (self.mantissa, -exponent),
        };
        let unscaled = if self.negative { -(magnitude as i128) } else { magnitude as i128 };
        let bytes = unscaled.to_be_bytes();
        let sign: u8 = if self.negative { 0xff } else { 0 };
        let mut start = bytes.iter().take_while(|byte| **byte == sign).count().min(15);
        if bytes.get(start).is_none_or(|byte| (byte ^ sign) & 0x80 != 0) && start > 0 {
            start -= 1;
        }
        let mut out = scale.to_be_bytes().to_vec();
        out.extend(bytes.iter().skip(start));
        out
    }

    /// The number that a stored decimal is; none when it is out of bounds, which a writer in CQL may have left.
    pub fn from_decimal(bytes: &[u8]) -> Option<Self> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        let negative = unscaled.first()? & 0x80 != 0;
        let sign: u8 = if negative { 0xff } else { 0 };
        let mut wide = [sign; 16];
        let spare = unscaled.len().saturating_sub(16);
        if unscaled.iter().take(spare).any(|byte| *byte != sign) {
            return None;
        }
        let kept = unscaled.get(spare..)?;
        wide.get_mut(16 - kept.len()..)?.copy_from_slice(kept);
        let value = i128::from_be_bytes(wide);
        let exponent = -i64::from(i32::from_be_bytes(*scale));
        Self::new(value < 0, value.unsigned_abs(), exponent).ok()
    }
}

/// The decimal digits of a mantissa. In 64 bits where it fits: a division of 128 bits is a call.
fn digits_of(mantissa: u128) -> u32 {
    let log = u64::try_from(mantissa).map_or_else(|_| mantissa.checked_ilog10(), u64::checked_ilog10);
    log.map_or(1, |log| log + 1)
}

/// The same number with a mantissa, which is not zero, that has no trailing zero.
fn without_zeros(mut mantissa: u128, mut exponent: i64) -> (u128, i64) {
    while u64::try_from(mantissa).is_err() && mantissa.is_multiple_of(10) {
        mantissa /= 10;
        exponent += 1;
    }
    let Ok(mut short) = u64::try_from(mantissa) else { return (mantissa, exponent) };
    while short != 0 && short.is_multiple_of(10) {
        short /= 10;
        exponent += 1;
    }
    (u128::from(short), exponent)
}

/// The content of a text of digits.
struct Digits {
    negative: bool,
    /// The significant digits, when they are not too many.
    mantissa: u128,
    significant: u32,
    is_long: bool,
    /// The exponent of the first significant digit; none for zero.
    first: Option<i64>,
}

impl Digits {
    fn read(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (negative, bytes) = match bytes.split_first()? {
            (b'-', rest) => (true, rest),
            (b'+', rest) => (false, rest),
            _ => (false, bytes),
        };
        let end = bytes.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(bytes.len());
        let (coefficient, exponent) = bytes.split_at(end);
        let exponent = match exponent.split_first() {
            None => 0,
            Some((_, digits)) => read_exponent(digits)?,
        };
        let mut out = Self { negative, mantissa: 0, significant: 0, is_long: false, first: None };
        // Digits so far, those of them behind the point, zeros that no other digit has followed yet.
        let (mut seen, mut point, mut zeros) = (0i64, None, 0u32);
        let mut first = None;
        for byte in coefficient {
            match byte {
                b'.' if point.is_none() => {
                    point = Some(seen);
                    continue;
                }
                b'0' if first.is_some() => zeros = zeros.saturating_add(1),
                b'0' => {}
                b'1'..=b'9' => {
                    first.get_or_insert(seen);
                    out.push(zeros, byte - b'0');
                    zeros = 0;
                }
                _ => return None,
            }
            seen += 1;
        }
        if seen == 0 {
            return None;
        }
        out.first = first.map(|first| (point.unwrap_or(seen) - first - 1).saturating_add(exponent));
        out.negative &= out.first.is_some();
        Some(out)
    }

    fn push(&mut self, zeros: u32, digit: u8) {
        let significant = self.significant.saturating_add(zeros).saturating_add(1);
        if significant > DIGITS_MAX {
            self.is_long = true;
            return;
        }
        self.significant = significant;
        self.mantissa = self.mantissa * 10u128.pow(zeros + 1) + u128::from(digit);
    }
}

/// The digits behind an `e`; so many that they do not fit count as very large.
fn read_exponent(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(i64::MAX / 4)
    });
    Some(if negative { -value } else { value })
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.mantissa, number.negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        let signs = sign(self).cmp(&sign(other));
        if signs.is_ne() || self.mantissa == 0 {
            return signs;
        }
        if self.exponent == other.exponent {
            let magnitude = self.mantissa.cmp(&other.mantissa);
            return if self.negative { magnitude.reverse() } else { magnitude };
        }
        let first = |number: &Self| i64::from(number.exponent) + i64::from(number.digits());
        let aligned = |number: &Self| number.mantissa * 10u128.pow(DIGITS_MAX - number.digits());
        let magnitude = first(self).cmp(&first(other)).then_with(|| aligned(self).cmp(&aligned(other)));
        if self.negative { magnitude.reverse() } else { magnitude }
    }
}

impl fmt::Display for Number {
    /// Without an exponent, as AWS writes numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        let digits = self.mantissa.to_string();
        if let Ok(zeros) = usize::try_from(self.exponent) {
            return write!(f, "{digits}{:0<zeros$}", "");
        }
        let behind = usize::from(self.exponent.unsigned_abs());
        match digits.len().checked_sub(behind).filter(|before| *before > 0) {
            Some(before) => {
                let (whole, fraction) = digits.split_at(before);
                write!(f, "{whole}.{fraction}")
            }
            None => write!(f, "0.{digits:0>behind$}"),
        }
    }
}
