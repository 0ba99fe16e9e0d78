//! Times as text, in UTC.

use types::calendar::{Date, date_of};

/// ISO 8601 with as many groups of three digits after the second as are needed.
pub(crate) fn iso(seconds: i64, nanos: u32) -> String {
    let Date { year, month, day } = date_of(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        10_000.. => format!("+{year}"),
        _ => format!("-{:04}", -year),
    };
    let fraction = match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1000 == 0 => format!(".{:06}", n / 1000),
        n => format!(".{n:09}"),
    };
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Month, day, year and time, as `sstablemetadata` shows them.
pub(crate) fn american(seconds: i64) -> String {
    let Date { year, month, day } = date_of(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    format!("{month:02}/{day:02}/{year:04} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(iso(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(1_700_000_000, 33_000), "2023-11-14T22:13:20.000033Z");
        assert_eq!(iso(951_782_400, 5_000_000), "2000-02-29T00:00:00.005Z");
        assert_eq!(iso(-1, 1), "1969-12-31T23:59:59.000000001Z");
        assert_eq!(iso(253_402_300_800, 0), "+10000-01-01T00:00:00Z");
        assert_eq!(american(1_795_230_643), "11/21/2026 03:10:43");
    }
}
