//! `CAST(x AS type)`: the supported pairs and their results.

use super::number::Number;
use super::{Answer, Function};
use crate::CqlType;

/// The types that can be cast to `target`, in Cassandra's order.
pub(super) fn sources(target: &CqlType) -> Vec<CqlType> {
    use CqlType::*;
    let numbers = [Tinyint, Smallint, Int, Bigint, Float, Double, Decimal, Counter, Varint];
    match target {
        Text | Ascii => {
            let mut sources = numbers.to_vec();
            sources.extend([Inet, Boolean, Timeuuid, Timestamp, Date, Time, Uuid]);
            if *target == Text {
                sources.push(Ascii);
            }
            sources
        }
        Date => vec![Timeuuid, Timestamp],
        Timestamp => vec![Timeuuid, Date],
        Tinyint | Smallint | Int | Bigint | Float | Double | Decimal | Varint => {
            numbers.into_iter().filter(|source| source != target).collect()
        }
        _ => Vec::new(),
    }
}

impl Function {
    pub(super) fn cast(&self, values: &[&[u8]]) -> Answer {
        let (Some(source), Some(value)) = (self.arguments.first(), values.first()) else {
            return Err(self.wrong_number(values.len()));
        };
        match (source, &self.returns) {
            (CqlType::Ascii, CqlType::Text) => Ok(Some(value.to_vec())),
            (_, CqlType::Text | CqlType::Ascii) => match source.simple_text(value) {
                Some(text) => Ok(Some(text.into_bytes())),
                None => Err(self.malformed(0)),
            },
            (_, CqlType::Date | CqlType::Timestamp) => self.temporal(values),
            (_, target) => {
                let number = Number::read(source, value).ok_or_else(|| self.malformed(0))?;
                match number.write(target) {
                    Some(bytes) => Ok(Some(bytes)),
                    None => Err(self.failed(match number {
                        Number::Float(_) | Number::Double(_) => not_decimal(&source.to_text(value)),
                        _ => {
                            format!("{} has too many digits for {}", source.to_text(value), target.cql_name())
                        }
                    })),
                }
            }
        }
    }
}

/// Java's refusal of NaN and the infinities as decimals.
fn not_decimal(text: &str) -> String {
    let first = text.trim_start_matches('-').chars().next().unwrap_or('N');
    format!(
        "Character {first} is neither a decimal digit number, decimal point, nor \"e\" notation exponential mark."
    )
}
