//! Arithmetic on decimals with the scales and roundings that Cassandra gives them, and exponentials and logarithms to
//! a given number of digits.

use super::number::DIGITS_MAX;
use super::operator::Operator;
use crate::decimal::{Decimal, digit_count};
use num_bigint::{BigInt, Sign};
use num_traits::{Signed, ToPrimitive, Zero};

/// The refusal of a result of too many digits.
pub(super) const TOO_LARGE: &str = "the result has too many digits";

/// The most significant digits of a sum, difference or product.
const PRECISION_MAX: i64 = 10_000;

/// Digits and places of a quotient: at least, and places at most.
const QUOTIENT_DIGITS: i64 = 32;
const QUOTIENT_SCALE_MAX: i64 = 1_000;

type Computed = Result<Decimal, &'static str>;

pub(super) fn compute(operator: Operator, left: &Decimal, right: &Decimal) -> Computed {
    match operator {
        Operator::Add => add(left, right),
        Operator::Subtract => add(left, &negated(right)),
        Operator::Multiply => {
            let scale = i64::from(left.scale) + i64::from(right.scale);
            rounded(&left.unscaled * &right.unscaled, scale)
        }
        Operator::Divide => divide_as_cassandra(left, right),
        Operator::Modulo => remainder(left, right),
    }
}

fn negated(number: &Decimal) -> Decimal {
    Decimal { unscaled: -&number.unscaled, scale: number.scale }
}

fn ten_to(exponent: i64) -> Result<BigInt, &'static str> {
    match u32::try_from(exponent) {
        Ok(exponent) if i64::from(exponent) <= DIGITS_MAX => Ok(BigInt::from(10).pow(exponent)),
        _ => Err(TOO_LARGE),
    }
}

/// The number of decimal digits; 1 for zero.
pub(super) fn precision(number: &BigInt) -> i64 {
    digit_count(number)
}

fn with_scale(unscaled: BigInt, scale: i64) -> Computed {
    i32::try_from(scale).map(|scale| Decimal { unscaled, scale }).map_err(|_| TOO_LARGE)
}

/// A number cut to [`PRECISION_MAX`] digits, halves rounded up.
fn rounded(unscaled: BigInt, scale: i64) -> Computed {
    let excess = precision(&unscaled) - PRECISION_MAX;
    if excess <= 0 {
        return with_scale(unscaled, scale);
    }
    with_scale(divide_half_up(&unscaled, &ten_to(excess)?), scale - excess)
}

/// The sum without rounding; the caller knows that the scales are close.
pub(super) fn add_exactly(left: &Decimal, right: &Decimal) -> Computed {
    let scale = i64::from(left.scale.max(right.scale));
    let a = &left.unscaled * ten_to(scale - i64::from(left.scale))?;
    let b = &right.unscaled * ten_to(scale - i64::from(right.scale))?;
    with_scale(a + b, scale)
}

fn add(left: &Decimal, right: &Decimal) -> Computed {
    let apart = (i64::from(left.scale) - i64::from(right.scale)).abs();
    if apart <= 2 * PRECISION_MAX || left.unscaled.is_zero() && right.unscaled.is_zero() {
        let sum = add_exactly(left, right)?;
        return rounded(sum.unscaled, sum.scale.into());
    }
    // One is so much finer that it only matters on which side of the other it lies.
    let (coarse, fine) = if left.scale < right.scale { (left, right) } else { (right, left) };
    let last_place = i64::from(coarse.scale) - precision(&coarse.unscaled) + PRECISION_MAX;
    let fine_top = i64::from(fine.scale) - precision(&fine.unscaled) + 1;
    let below = i64::from(coarse.scale).max(last_place) + 3;
    if fine_top < below || coarse.unscaled.is_zero() || fine.unscaled.is_zero() {
        let sum = add_exactly(left, right)?;
        return rounded(sum.unscaled, sum.scale.into());
    }
    let trace = with_scale(fine.unscaled.signum(), below)?;
    let sum = add_exactly(coarse, &trace)?;
    rounded(sum.unscaled, sum.scale.into())
}

/// The quotient rounded to the nearest integer, halves away from zero.
fn divide_half_up(number: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, rest) = (number / divisor, number % divisor);
    if (rest.abs() * 2u8) < divisor.abs() {
        return quotient;
    }
    let away = if (number.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) { 1 } else { -1 };
    quotient + away
}

/// The quotient rounded to the nearest integer, halves to the even one.
fn divide_half_even(number: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, rest) = (number / divisor, number % divisor);
    let twice = rest.abs() * 2u8;
    let up = match twice.cmp(&divisor.abs()) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => quotient.bit(0),
    };
    if !up {
        return quotient;
    }
    let away = if (number.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) { 1 } else { -1 };
    quotient + away
}

fn stripped(mut unscaled: BigInt, mut scale: i64, scale_min: i64) -> Computed {
    if unscaled.is_zero() {
        return with_scale(unscaled, if scale_min == i64::MIN { 0 } else { scale_min.min(scale) });
    }
    // A power of ten at the end is one of two as well. Halving steps: as many zeros as there are cost a few divisions.
    let zeros = unscaled.trailing_zeros().unwrap_or(0);
    let zeros = i64::try_from(zeros).unwrap_or(i64::MAX).min(precision(&unscaled));
    let zeros = zeros.min(scale.saturating_sub(scale_min)).max(0);
    let mut step = if zeros > 0 { 1 << (63 - zeros.leading_zeros()) } else { 0 };
    while step > 0 {
        if step <= scale.saturating_sub(scale_min) {
            let power = BigInt::from(10).pow(u32::try_from(step).map_err(|_| TOO_LARGE)?);
            let (quotient, rest) = (&unscaled / &power, &unscaled % &power);
            if rest.is_zero() {
                unscaled = quotient;
                scale -= step;
            }
        }
        step >>= 1;
    }
    with_scale(unscaled, scale)
}

fn divide_as_cassandra(left: &Decimal, right: &Decimal) -> Computed {
    if right.unscaled.is_zero() {
        return Err("BigInteger divide by zero");
    }
    let (left_scale, right_scale) = (i64::from(left.scale), i64::from(right.scale));
    let first_digit = precision(&left.unscaled) - left_scale - (precision(&right.unscaled) - right_scale);
    let scale = (QUOTIENT_DIGITS - first_digit).max(left_scale).max(right_scale).max(QUOTIENT_DIGITS);
    let scale = scale.min(QUOTIENT_SCALE_MAX);
    let shift = scale - left_scale + right_scale;
    let quotient = if shift >= 0 {
        divide_half_up(&(&left.unscaled * ten_to(shift)?), &right.unscaled)
    } else if -shift > DIGITS_MAX {
        BigInt::zero()
    } else {
        divide_half_up(&left.unscaled, &(&right.unscaled * ten_to(-shift)?))
    };
    stripped(quotient, scale, i64::MIN)
}

/// A decimal divided by a count, in its own scale, halves to the even.
pub(super) fn divide_by_count(number: &Decimal, count: i64) -> Decimal {
    Decimal { unscaled: divide_half_even(&number.unscaled, &BigInt::from(count)), scale: number.scale }
}

/// The rest of a division that is cut to an integer.
fn remainder(left: &Decimal, right: &Decimal) -> Computed {
    if right.unscaled.is_zero() {
        return Err(if left.unscaled.is_zero() { "Division undefined" } else { "Division by zero" });
    }
    let (left_scale, right_scale) = (i64::from(left.scale), i64::from(right.scale));
    let preferred = left_scale - right_scale;
    let quotient = if preferred <= 0 {
        &left.unscaled * ten_to(-preferred)? / &right.unscaled
    } else {
        &left.unscaled / (&right.unscaled * ten_to(preferred)?)
    };
    let quotient = stripped(quotient, 0, preferred.min(0))?;
    let product_scale = i64::from(quotient.scale) + right_scale;
    let product = with_scale(quotient.unscaled * &right.unscaled, product_scale)?;
    add_exactly(left, &negated(&product))
}

/// The nearest integer, halves away from zero.
pub(super) fn round(number: &Decimal) -> Computed {
    let scale = i64::from(number.scale);
    if scale <= 0 {
        return with_scale(&number.unscaled * ten_to(-scale)?, 0);
    }
    if scale > precision(&number.unscaled) + 1 {
        return with_scale(BigInt::zero(), 0);
    }
    with_scale(divide_half_up(&number.unscaled, &ten_to(scale)?), 0)
}

/// A fixed-point number: an integer in units of 10^-`places`.
struct Fixed {
    one: BigInt,
    places: i64,
}

impl Fixed {
    fn new(places: i64) -> Result<Fixed, &'static str> {
        Ok(Fixed { one: ten_to(places)?, places })
    }

    fn of(&self, number: &Decimal) -> Result<BigInt, &'static str> {
        let shift = self.places - i64::from(number.scale);
        if shift >= 0 {
            Ok(&number.unscaled * ten_to(shift)?)
        } else {
            Ok(&number.unscaled / ten_to(-shift)?)
        }
    }

    fn multiply(&self, a: &BigInt, b: &BigInt) -> BigInt {
        a * b / &self.one
    }

    /// e to a power below 1, by its series after halving the argument.
    fn exp_small(&self, x: &BigInt) -> BigInt {
        const HALVINGS: u32 = 8;
        let reduced: BigInt = x >> HALVINGS;
        let (mut sum, mut term, mut n) = (&self.one + &reduced, reduced.clone(), 2u32);
        loop {
            term = self.multiply(&term, &reduced) / n;
            if term.is_zero() {
                break;
            }
            sum += &term;
            n += 1;
        }
        for _ in 0..HALVINGS {
            sum = self.multiply(&sum, &sum);
        }
        sum
    }

    /// The natural logarithm of a number in 1..10, by the series of the inverse hyperbolic tangent after square roots.
    fn ln_mantissa(&self, x: &BigInt) -> BigInt {
        const ROOTS: u32 = 4;
        let mut reduced = x.clone();
        for _ in 0..ROOTS {
            reduced = (&reduced * &self.one).sqrt();
        }
        let ratio = (&reduced - &self.one) * &self.one / (&reduced + &self.one);
        let square = self.multiply(&ratio, &ratio);
        let (mut sum, mut power, mut n) = (ratio.clone(), ratio, 3u32);
        loop {
            power = self.multiply(&power, &square);
            let term = &power / n;
            if term.is_zero() {
                break;
            }
            sum += term;
            n += 2;
        }
        sum << (ROOTS + 1)
    }
}

/// A number in fixed point rounded to `digits` significant digits, halves to the even.
fn to_precision(unscaled: BigInt, scale: i64, digits: i64) -> Computed {
    let excess = precision(&unscaled) - digits;
    if excess <= 0 {
        return with_scale(unscaled, scale);
    }
    let cut = divide_half_even(&unscaled, &ten_to(excess)?);
    // Rounding 99… up gives one digit more.
    if precision(&cut) > digits {
        return with_scale(cut / 10, scale - excess - 1);
    }
    with_scale(cut, scale - excess)
}

/// The digits that a result has: those of the argument, within bounds.
fn result_digits(number: &Decimal) -> i64 {
    precision(&number.unscaled).clamp(32, 200)
}

const GUARD: i64 = 25;

/// e to the power of the number.
pub(super) fn exp(number: &Decimal) -> Computed {
    if number.unscaled.is_zero() {
        return Ok(Decimal::new(1, 0));
    }
    let digits = result_digits(number);
    let top = precision(&number.unscaled) - i64::from(number.scale);
    if top > 11 {
        return Err("Overflow");
    }
    if top < -digits - 5 {
        return with_scale(ten_to(digits - 1)?, digits - 1);
    }
    // x = k·ln 10 + r, so that e^x = e^r · 10^k.
    let fixed = Fixed::new(digits + GUARD + top.max(0))?;
    let ten = &fixed.one * 10;
    let ln_ten = fixed.ln_mantissa(&ten);
    let x = fixed.of(number)?;
    let mut power: BigInt = &x / &ln_ten;
    let mut rest: BigInt = &x % &ln_ten;
    if rest.is_negative() {
        rest += &ln_ten;
        power -= 1;
    }
    let power = power.to_i64().ok_or(TOO_LARGE)?;
    to_precision(fixed.exp_small(&rest), fixed.places - power, digits).map_err(|_| "Overflow")
}

/// The natural logarithm in fixed point, of a number that is positive.
fn ln_fixed(fixed: &Fixed, number: &Decimal) -> Result<BigInt, &'static str> {
    let digits = precision(&number.unscaled);
    let mantissa = fixed.of(&with_scale(number.unscaled.clone(), digits - 1)?)?;
    let exponent = digits - 1 - i64::from(number.scale);
    let ln_ten = fixed.ln_mantissa(&(&fixed.one * 10));
    Ok(fixed.ln_mantissa(&mantissa) + ln_ten * exponent)
}

/// The natural logarithm of a positive number.
pub(super) fn ln(number: &Decimal) -> Computed {
    if !number.unscaled.is_positive() {
        return Err("Natural log of number zero or less");
    }
    ln_to(number, result_digits(number))
}

/// The natural logarithm of a positive number to so many digits.
fn ln_to(number: &Decimal, digits: i64) -> Computed {
    if number.cmp_value(&Decimal::new(1, 0)).is_eq() {
        return Ok(Decimal::new(0, 0));
    }
    let fixed = Fixed::new(2 * digits + GUARD)?;
    to_precision(ln_fixed(&fixed, number)?, fixed.places, digits)
}

/// A quotient of so many digits, halves to the even one. One that is exact has no more zeros at its end than the scales of the two
/// numbers require.
fn divide_to(left: &Decimal, right: &Decimal, digits: i64) -> Computed {
    let preferred = i64::from(left.scale) - i64::from(right.scale);
    let shift = (digits + 1 + precision(&right.unscaled) - precision(&left.unscaled)).max(0);
    let number = &left.unscaled * ten_to(shift)?;
    let (quotient, rest) = (&number / &right.unscaled, &number % &right.unscaled);
    if rest.is_zero() {
        let exact = stripped(quotient, preferred + shift, preferred)?;
        return to_precision(exact.unscaled, exact.scale.into(), digits);
    }
    // A digit for the rest, so that no half is seen where there is more.
    let away = if (number.sign() == Sign::Minus) == (right.unscaled.sign() == Sign::Minus) { 1 } else { -1 };
    to_precision(quotient * 10 + away, preferred + shift + 1, digits)
}

/// The logarithm to base 10 of a positive number: the quotient of two natural ones of two digits more, which decides the scale of the
/// logarithm of a power of ten, as in Cassandra.
pub(super) fn log10(number: &Decimal) -> Computed {
    if !number.unscaled.is_positive() {
        return Err("Log10 of number zero or less");
    }
    let digits = result_digits(number);
    let quotient =
        divide_to(&ln_to(number, digits + 2)?, &ln_to(&Decimal::new(10, 0), digits + 2)?, digits + 2)?;
    to_precision(quotient.unscaled, quotient.scale.into(), digits)
}

/// The digits before the point, cut towards zero.
pub(super) fn truncated(number: &Decimal) -> Result<BigInt, &'static str> {
    super::number::whole_part(number).ok_or(TOO_LARGE)
}

/// Whether a number is one, of any scale.
#[cfg(test)]
fn is_one(number: &Decimal) -> bool {
    number.cmp_value(&Decimal::new(1, 0)).is_eq()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn exponentials_and_logarithms() {
        assert_eq!(exp(&d("1")).unwrap().to_string(), "2.7182818284590452353602874713527");
        assert_eq!(ln(&d("10")).unwrap().to_string(), "2.3025850929940456840179914546844");
        // The scales that Cassandra 5.0.6 gives.
        for (number, unscaled, scale) in [
            ("1", "0", -33),
            ("1.00", "0", -33),
            ("100", "2", 0),
            ("1000", "30000000000000000000000000000000", 31),
            ("1E10", "1", -1),
            ("1E17", "17000000000000000000000000000000", 30),
            ("1E20", "2", -1),
            ("1E100", "1", -2),
            ("1E-10", "-1", -1),
            ("0.001", "-30000000000000000000000000000000", 31),
            ("10000000000000000000000000000000000000000", "40000000000000000000000000000000000000000", 39),
            ("9.9", "99563519459754991534025577775326", 32),
        ] {
            let log = log10(&d(number)).unwrap();
            assert_eq!((log.unscaled.to_string().as_str(), log.scale), (unscaled, scale), "log10({number})");
        }
        for tiny in ["1E-100", "-1E-100", "-1E-2000000"] {
            let exp = exp(&d(tiny)).unwrap();
            assert_eq!(
                (exp.unscaled.to_string().as_str(), exp.scale),
                ("10000000000000000000000000000000", 31)
            );
        }
        assert_eq!(log10(&d("2")).unwrap().to_string(), "0.30102999566398119521373889472449");
        assert!(is_one(&exp(&d("0.00")).unwrap()));
        let there_and_back = exp(&ln(&d("123.456")).unwrap()).unwrap();
        assert!(
            there_and_back.to_string().starts_with("123.4559999999999999")
                || there_and_back.to_string().starts_with("123.456")
        );
        assert_eq!(exp(&d("-100")).unwrap().to_string(), "3.7200759760208359629596958038631E-44");
    }

    #[test]
    fn zeros_at_the_end_are_cut_at_once() {
        for zeros in [0_i64, 1, 2, 3, 7, 8, 9, 100, 255, 256, 257, 90_000] {
            let number = BigInt::from(12) * BigInt::from(10).pow(zeros as u32);
            for scale_min in [i64::MIN, -5, 0, 3] {
                let cut = stripped(number.clone(), 10, scale_min).unwrap();
                let expected = (10 - zeros).max(scale_min);
                assert_eq!(i64::from(cut.scale), expected, "{zeros} zeros down to {scale_min}");
                assert!(cut.cmp_value(&Decimal::new(number.clone(), 10)).is_eq());
            }
        }
    }

    #[test]
    fn far_apart() {
        let sum = compute(Operator::Add, &d("1E+2000000"), &d("1"));
        assert_eq!(sum.map(|sum| precision(&sum.unscaled)), Ok(10_000));
        assert_eq!(compute(Operator::Multiply, &d("1E+2000000000"), &d("1E+2000000000")), Err(TOO_LARGE));
        assert_eq!(compute(Operator::Modulo, &d("1E+2000000000"), &d("3")), Err(TOO_LARGE));
    }
}
