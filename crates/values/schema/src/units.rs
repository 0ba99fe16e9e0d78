//! Sizes, shares and scaling parameters as compaction's options write them: the check and the use of an option read it alike.

/// Why a text is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// The unit is missing.
    Unit,
    /// Something before the unit is no number.
    Number,
    /// It is more than 64 bits hold.
    Range,
}

/// Units with their bytes. `kB` and `KB` are thousands, `KiB` are 1,024.
const MULTIPLES: &[(&str, u64)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Bytes of a size such as `1.5 GiB`; it may be negative.
///
/// # Errors
/// The fault of the text.
pub fn size(text: &str) -> Result<i64, SizeError> {
    let text = text.trim();
    let number = text.strip_suffix('B').ok_or(SizeError::Unit)?;
    let multiple = MULTIPLES.iter().find_map(|(unit, bytes)| Some((number.strip_suffix(unit)?, *bytes)));
    let (digits, multiple) = multiple.unwrap_or((number, 1));
    let value =
        digits.trim().parse::<f64>().ok().filter(|value| value.is_finite()).ok_or(SizeError::Number)?;
    let bytes = value * multiple as f64;
    if bytes.abs() < i64::MAX as f64 { Ok(bytes as i64) } else { Err(SizeError::Range) }
}

/// A size as messages show it: three decimals of the largest unit that is not larger.
pub fn shown_size(bytes: i64) -> String {
    let unit = MULTIPLES[..6].iter().rev().find(|(_, multiple)| bytes.unsigned_abs() >= *multiple);
    let (name, multiple) = unit.copied().unwrap_or(("", 1));
    format!("{:.3}{name}B", bytes as f64 / multiple as f64)
}

/// A share: a number, or one with a percent sign.
pub fn share(text: &str) -> Option<f64> {
    let text = text.trim();
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    value.is_finite().then_some(value)
}

/// Why a text is no scaling parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingError {
    /// It has not the form of one.
    Form,
    /// Its fanout is below 2.
    Fanout,
    /// It is more than 32 bits hold.
    Range,
}

/// A scaling parameter of unified compaction as a number: `N` is 0, `Tn` n - 2, `Ln` 2 - n.
///
/// # Errors
/// The fault of the text.
pub fn scaling_parameter(text: &str) -> Result<i32, ScalingError> {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let fanout = |digits: &str| match digits.parse::<i32>() {
        _ if !is_number(digits) => Err(ScalingError::Form),
        Err(_) => Err(ScalingError::Range),
        Ok(fanout) if fanout < 2 => Err(ScalingError::Fanout),
        Ok(fanout) => Ok(fanout - 2),
    };
    match text.split_at_checked(1) {
        Some(("N", "")) => Ok(0),
        Some(("T", digits)) => fanout(digits),
        Some(("L", digits)) => fanout(digits).map(|number| -number),
        // The fanout that it gives has 32 bits, too.
        _ if is_number(text.strip_prefix(['+', '-']).unwrap_or(text)) => match text.parse::<i32>() {
            Ok(number) if number.unsigned_abs() <= i32::MAX as u32 - 2 => Ok(number),
            _ => Err(ScalingError::Range),
        },
        _ => Err(ScalingError::Form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            ("1GiB", Ok(1 << 30)),
            ("1.5 GiB", Ok(3 << 29)),
            ("1MB", Ok(1_000_000)),
            ("-1MiB", Ok(-1 << 20)),
            ("1E10B", Ok(10_000_000_000)),
            ("5", Err(SizeError::Unit)),
            ("", Err(SizeError::Unit)),
            ("B", Err(SizeError::Number)),
            ("NaNB", Err(SizeError::Number)),
            ("9999999999999PiB", Err(SizeError::Range)),
        ];
        for (text, expected) in cases {
            assert_eq!(size(text), expected, "{text}");
        }
        assert_eq!(shown_size(1 << 30), "1.000GiB");
        assert_eq!(shown_size(800 << 20), "800.000MiB");
        assert_eq!(shown_size(5), "5.000B");
    }

    #[test]
    fn scaling_parameters() {
        let cases = [
            ("N", Ok(0)),
            ("T4", Ok(2)),
            ("L10", Ok(-8)),
            ("+5", Ok(5)),
            ("-3", Ok(-3)),
            ("T1", Err(ScalingError::Fanout)),
            ("T", Err(ScalingError::Form)),
            ("T+4", Err(ScalingError::Form)),
            ("t4", Err(ScalingError::Form)),
            ("", Err(ScalingError::Form)),
            ("é", Err(ScalingError::Form)),
            ("T99999999999", Err(ScalingError::Range)),
            ("-2147483648", Err(ScalingError::Range)),
        ];
        for (text, expected) in cases {
            assert_eq!(scaling_parameter(text), expected, "{text}");
        }
    }
}
