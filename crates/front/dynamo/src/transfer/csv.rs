//! Lines of CSV as values.

use std::collections::BTreeSet;

/// Columns of a file, as AWS allows for `HeaderList`.
pub(crate) const COLUMNS_MAX: usize = 255;

/// The values of a line. Quotes surround a whole value, and are doubled inside.
///
/// # Errors
/// When quotes are not so; the reason.
pub(crate) fn values(line: &str, delimiter: char) -> Result<Vec<String>, &'static str> {
    let (mut values, mut rest) = (Vec::new(), line.chars().peekable());
    loop {
        let mut value = String::new();
        if rest.next_if_eq(&'"').is_some() {
            loop {
                match rest.next() {
                    None => return Err("a quoted value has no end"),
                    Some('"') if rest.next_if_eq(&'"').is_some() => value.push('"'),
                    Some('"') => break,
                    Some(other) => value.push(other),
                }
            }
        } else {
            while let Some(next) = rest.next_if(|next| *next != delimiter) {
                if next == '"' {
                    return Err("a value with a quote must be quoted, with the quote doubled");
                }
                value.push(next);
            }
        }
        values.push(value);
        match rest.next() {
            None => return Ok(values),
            Some(next) if next == delimiter => {}
            Some(_) => return Err("a quoted value must end with its closing quote"),
        }
        if values.len() > COLUMNS_MAX {
            return Err("it has more than 255 columns");
        }
    }
}

/// Refuses names of columns that are not different.
///
/// # Errors
/// The reason.
pub(crate) fn check_header(names: &[String]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    if names.len() > COLUMNS_MAX {
        return Err(format!("the header has more than {COLUMNS_MAX} columns"));
    }
    for name in names {
        if name.is_empty() {
            return Err("the header has a column without a name".to_owned());
        }
        if !known.insert(name) {
            return Err("the header names a column twice".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_and_without_quotes() {
        for (line, expected) in [
            ("", vec![""]),
            ("a,b", vec!["a", "b"]),
            ("a,,", vec!["a", "", ""]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("\"\"\"123\"\"\",x", vec!["\"123\"", "x"]),
            ("\"\",ü", vec!["", "ü"]),
        ] {
            assert_eq!(values(line, ',').as_deref(), Ok(expected.map_to_strings().as_slice()), "{line}");
        }
        assert_eq!(values("a;b,c", ';').as_deref(), Ok(vec!["a", "b,c"].map_to_strings().as_slice()));
        for line in ["a\"b", "\"a", "\"a\"b", "\"a\"\"", "x,\"123\" y"] {
            assert!(values(line, ',').is_err(), "{line}");
        }
        assert!(values(&",".repeat(1_000_000), ',').is_err(), "as many columns as a line may have");
    }

    trait Strings {
        fn map_to_strings(self) -> Vec<String>;
    }

    impl Strings for Vec<&str> {
        fn map_to_strings(self) -> Vec<String> {
            self.into_iter().map(str::to_owned).collect()
        }
    }

    #[test]
    fn a_header_names_each_column_once() {
        let of = |names: &[&str]| check_header(&names.to_vec().map_to_strings());
        assert_eq!(of(&["a", "b"]), Ok(()));
        assert!(of(&["a", "a"]).is_err() && of(&["a", ""]).is_err() && of(&["x"; 256]).is_err());
    }
}
