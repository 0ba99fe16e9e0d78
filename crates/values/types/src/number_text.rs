//! Text of floating-point numbers as Java writes and reads it.

/// A double as Java's `Double.toString`.
pub(crate) fn format_double(value: f64) -> String {
    java_form(value.is_nan(), value.is_infinite(), value.is_sign_negative(), value == 0.0, || {
        shortest(format!("{:e}", value.abs()), || format!("{:.1e}", value.abs()))
    })
}

/// A float as Java's `Float.toString`.
pub(crate) fn format_float(value: f32) -> String {
    java_form(value.is_nan(), value.is_infinite(), value.is_sign_negative(), value == 0.0, || {
        shortest(format!("{:e}", value.abs()), || format!("{:.1e}", value.abs()))
    })
}

/// Where one digit is enough to tell a number from others, Java takes two, the nearest: of the smallest numbers there are.
fn shortest(shortest: String, of_two: impl Fn() -> String) -> String {
    match shortest.as_bytes().get(1) {
        Some(b'e') => of_two().replacen(".0e", "e", 1),
        _ => shortest,
    }
}

/// Java shows numbers from 10^-3 to 10^7 plainly, others with an exponent, and always one digit behind the point.
fn java_form(nan: bool, infinite: bool, negative: bool, zero: bool, shortest: impl Fn() -> String) -> String {
    if nan {
        return "NaN".to_owned();
    }
    let sign = if negative { "-" } else { "" };
    if infinite {
        return format!("{sign}Infinity");
    }
    if zero {
        return format!("{sign}0.0");
    }
    let shortest = shortest();
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let plain = match exponent {
        -3..=-1 => format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize)),
        0..=6 => {
            let padded = format!("{digits:0<width$}", width = exponent as usize + 2);
            let (whole, fraction) = padded.split_at(exponent as usize + 1);
            format!("{whole}.{fraction}")
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            format!("{first}.{}E{exponent}", if rest.is_empty() { "0" } else { rest })
        }
    };
    format!("{sign}{plain}")
}

/// The text of a decimal floating-point number that both Java and Rust read the same; `None` for texts that Java refuses.
fn plain_number(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let number = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let starts = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (starts && digits.bytes().all(allowed)).then_some(number)
}

/// `NaN` and the infinities in Java's spelling.
fn special(text: &str) -> Option<f64> {
    match text.trim_matches(|c: char| c <= ' ') {
        "NaN" | "+NaN" | "-NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Accepts the texts of Java's `Double.valueOf`, hexadecimal floats excepted.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    special(text).or_else(|| plain_number(text)?.parse().ok())
}

/// Accepts the texts of Java's `Float.parseFloat`, hexadecimal floats excepted.
pub(crate) fn parse_float(text: &str) -> Option<f32> {
    special(text).map(|value| value as f32).or_else(|| plain_number(text)?.parse().ok())
}
