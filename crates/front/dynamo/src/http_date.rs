//! The `Date` header (RFC 9110, section 5.6.7): SDKs correct their clock by it when their signature's time is refused.

use std::cell::RefCell;

use hyper::header::HeaderValue;
use types::calendar::date_of;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time of the wall clock as `Sun, 06 Nov 1994 08:49:37 GMT`; `seconds` since 1970.
fn http_date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let date = date_of(days);
    // 1970-01-01 was a Thursday.
    let weekday = WEEKDAYS.get(days.rem_euclid(7) as usize).copied().unwrap_or_default();
    let month = MONTHS.get(date.month.saturating_sub(1) as usize).copied().unwrap_or_default();
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT", date.day, date.year)
}

/// The header of the present second: that of before as long as it is the same.
pub(crate) struct DateHeader(RefCell<(i64, HeaderValue)>);

impl Default for DateHeader {
    fn default() -> Self {
        Self(RefCell::new((i64::MIN, HeaderValue::from_static(""))))
    }
}

impl DateHeader {
    /// The header of a time of the wall clock; `seconds` since 1970.
    pub(crate) fn at(&self, seconds: i64) -> HeaderValue {
        let mut last = self.0.borrow_mut();
        if last.0 != seconds {
            *last = (seconds, http_date(seconds).try_into().unwrap_or(HeaderValue::from_static("")));
        }
        last.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_specification() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        let header = DateHeader::default();
        for seconds in [784_111_777, 784_111_777, 0, -1] {
            assert_eq!(header.at(seconds), http_date(seconds));
        }
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
        assert_eq!(http_date(-1), "Wed, 31 Dec 1969 23:59:59 GMT");
    }
}
