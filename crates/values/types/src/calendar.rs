//! The proleptic Gregorian calendar as plain arithmetic: days since 1970-01-01 to year, month, day and back.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// A calendar date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date {
    /// Astronomical: 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

pub(crate) fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

pub(crate) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date; negative before it. Years are counted from March, so that the leap day comes last.
pub fn days_of(date: Date) -> i64 {
    let year = if date.month <= 2 { date.year - 1 } else { date.year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from((date.month + 9) % 12);
    let day_of_year = (153 * month + 2) / 5 + i64::from(date.day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day, counted from 1970-01-01.
pub fn date_of(days: i64) -> Date {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Date { year, month, day }
}

/// A date moved by months; the day is cut to the month's last when the month is shorter.
pub(crate) fn add_months(date: Date, months: i64) -> Date {
    let index = date.year * 12 + i64::from(date.month) - 1 + months;
    let (year, month) = (index.div_euclid(12), index.rem_euclid(12) as u32 + 1);
    Date { year, month, day: date.day.min(days_in_month(year, month)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates() {
        for (days, year, month, day) in [
            (0, 1970, 1, 1),
            (59, 1970, 3, 1),
            (11016, 2000, 2, 29),
            (-719_528, 0, 1, 1),
            (19_782, 2024, 2, 29),
        ] {
            assert_eq!(date_of(days), Date { year, month, day });
            assert_eq!(days_of(Date { year, month, day }), days);
        }
        for days in (-3_000_000..3_000_000).step_by(997) {
            assert_eq!(days_of(date_of(days)), days);
        }
        let january = Date { year: 2024, month: 1, day: 31 };
        assert_eq!(add_months(january, 1), Date { year: 2024, month: 2, day: 29 });
        assert_eq!(add_months(january, -11), Date { year: 2023, month: 2, day: 28 });
    }
}
