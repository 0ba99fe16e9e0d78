//! Aggregates as state machines: rows go in one by one, the result comes out at the end. Integers wrap in sums and are
//! cut in averages, fractions are summed with compensation, as Cassandra does it.

use super::decimal_math;
use super::number::Number;
use super::{Answer, FunctionError};
use crate::CqlType;
use crate::decimal::Decimal;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use stdx::Reader;
use stdx::vint::write_unsigned;

/// The native aggregates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateKind {
    /// `count(*)`
    CountRows,
    /// `count(x)`: those that are not null.
    Count,
    /// `min(x)`
    Min,
    /// `max(x)`
    Max,
    /// `sum(x)`
    Sum,
    /// `avg(x)`
    Avg,
}

/// The running state of one aggregate.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    kind: AggregateKind,
    ty: Option<CqlType>,
    count: i64,
    extreme: Option<Vec<u8>>,
    integers: BigInt,
    fractions: CompensatedSum,
    decimal: Decimal,
}

impl Aggregate {
    /// The state before the first row, of an aggregate over values of a type (`None` for `count(*)`).
    pub fn new(kind: AggregateKind, ty: Option<CqlType>) -> Aggregate {
        Aggregate {
            kind,
            ty,
            count: 0,
            extreme: None,
            integers: BigInt::default(),
            fractions: CompensatedSum::default(),
            decimal: Decimal::new(0, 0),
        }
    }

    /// Takes one row's value; `None` is null.
    ///
    /// # Errors
    /// [`FunctionError::Invalid`] when a value to be summed is no number of the type; [`FunctionError::Failed`] when a
    /// sum of decimals takes too many digits.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<(), FunctionError> {
        if self.kind == AggregateKind::CountRows {
            self.count += 1;
            return Ok(());
        }
        let Some(ty) = &self.ty else { return Ok(()) };
        let Some(value) =
            value.filter(|value| !value.is_empty() || ty.empty_is_a_value() || self.ignores_type())
        else {
            return Ok(());
        };
        match self.kind {
            AggregateKind::CountRows | AggregateKind::Count => self.count += 1,
            AggregateKind::Min | AggregateKind::Max => {
                let wanted = if self.kind == AggregateKind::Min {
                    std::cmp::Ordering::Less
                } else {
                    std::cmp::Ordering::Greater
                };
                if self.extreme.as_deref().is_none_or(|extreme| ty.compare(value, extreme) == wanted) {
                    self.extreme = Some(value.to_vec());
                }
            }
            AggregateKind::Sum | AggregateKind::Avg => {
                let number = Number::read(ty, value).ok_or_else(|| {
                    FunctionError::Invalid(format!("an aggregated value is no {}", ty.cql_name()))
                })?;
                self.add_number(number)?;
            }
        }
        Ok(())
    }

    /// Whether the result is the same, bit for bit, when the rows are added in parts whose states are merged in order. It is not for
    /// sums and averages of `float` and `double`, which are rounded, and of `decimal`, which may have too many digits in between.
    pub fn merges(&self) -> bool {
        match self.kind {
            AggregateKind::CountRows | AggregateKind::Count | AggregateKind::Min | AggregateKind::Max => true,
            AggregateKind::Sum | AggregateKind::Avg => {
                !matches!(self.ty, Some(CqlType::Float | CqlType::Double | CqlType::Decimal))
            }
        }
    }

    /// Adds the rows of the state of another part, which come behind those that were added here.
    ///
    /// # Panics
    /// When the states are of two aggregates, or of one that does not [merge](Aggregate::merges).
    pub fn merge(&mut self, behind: &Aggregate) {
        assert!(self.kind == behind.kind && self.ty == behind.ty, "states of one aggregate are merged");
        assert!(self.merges(), "a sum of fractions is not merged");
        self.count = self.count.wrapping_add(behind.count);
        self.integers += &behind.integers;
        let Some((ty, extreme)) = self.ty.as_ref().zip(behind.extreme.as_deref()) else { return };
        let wanted = match self.kind {
            AggregateKind::Min => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        if self.extreme.as_deref().is_none_or(|held| ty.compare(extreme, held) == wanted) {
            self.extreme = Some(extreme.to_vec());
        }
    }

    /// Appends a state that [merges](Aggregate::merges), for [`Aggregate::restore`] of another node: rows (8), 0 or 1 and the least or greatest
    /// value, the sum as a `varint`; both with a vint length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.merges(), "a sum of fractions is not sent");
        let put = |bytes: &[u8], out: &mut Vec<u8>| {
            write_unsigned(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        };
        out.extend_from_slice(&self.count.to_be_bytes());
        out.push(u8::from(self.extreme.is_some()));
        if let Some(extreme) = &self.extreme {
            put(extreme, out);
        }
        put(&self.integers.to_signed_bytes_be(), out);
    }

    /// Takes over a state that [`Aggregate::encode`] appended, of the same aggregate; none when the bytes are no such state, which leaves this
    /// one as it was.
    pub fn restore(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let count = reader.i64().ok().filter(|count| *count >= 0)?;
        let extreme = match reader.u8().ok()? {
            0 => None,
            1 => Some(reader.bytes_vint().ok()?),
            _ => return None,
        };
        if let Some(extreme) = extreme {
            self.ty.as_ref()?.validate(extreme).ok()?;
        }
        let integers = BigInt::from_signed_bytes_be(reader.bytes_vint().ok()?);
        (self.count, self.extreme, self.integers) = (count, extreme.map(<[u8]>::to_vec), integers);
        Some(())
    }

    /// Bytes of the value that `min` and `max` hold.
    pub fn held_bytes(&self) -> usize {
        self.extreme.as_ref().map_or(0, Vec::len)
    }

    /// Counting looks at bytes only.
    fn ignores_type(&self) -> bool {
        matches!(self.kind, AggregateKind::Count | AggregateKind::Min | AggregateKind::Max)
    }

    fn add_number(&mut self, number: Number) -> Result<(), FunctionError> {
        self.count += 1;
        match number {
            Number::Integer(number) => self.integers += number,
            Number::Big(number) => self.integers += number,
            Number::Float(number) => self.fractions.add(f64::from(number)),
            Number::Double(number) => self.fractions.add(number),
            Number::Decimal(number) => {
                let failed = |why: &str| FunctionError::Failed {
                    function: if self.kind == AggregateKind::Sum { "sum" } else { "avg" }.to_owned(),
                    argument_types: vec!["decimal".to_owned()],
                    message: why.to_owned(),
                };
                let added = if self.kind == AggregateKind::Sum {
                    number
                } else {
                    // A running mean: each value moves it by its share.
                    let mean = Decimal { unscaled: -&self.decimal.unscaled, scale: self.decimal.scale };
                    let difference = decimal_math::add_exactly(&number, &mean).map_err(failed)?;
                    decimal_math::divide_by_count(&difference, self.count)
                };
                self.decimal = decimal_math::add_exactly(&self.decimal, &added).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The result over the rows so far; `None` is null.
    ///
    /// # Errors
    /// None today: [`Aggregate::add`] refuses values that cannot be summed.
    pub fn result(&self) -> Answer {
        let ty = match self.kind {
            AggregateKind::CountRows | AggregateKind::Count => {
                return Ok(Some(self.count.to_be_bytes().to_vec()));
            }
            AggregateKind::Min | AggregateKind::Max => return Ok(self.extreme.clone()),
            AggregateKind::Sum | AggregateKind::Avg => self.ty.as_ref(),
        };
        let average = self.kind == AggregateKind::Avg;
        let number = match ty {
            Some(CqlType::Decimal) => Number::Decimal(self.decimal.clone()),
            Some(CqlType::Float | CqlType::Double) if average => {
                Number::Double(self.fractions.average(self.count))
            }
            Some(CqlType::Float | CqlType::Double) => Number::Double(self.fractions.sum()),
            _ if average && self.count > 0 => Number::Big(&self.integers / self.count),
            _ => Number::Big(self.integers.clone()),
        };
        Ok(ty.and_then(|ty| match (ty, &number) {
            // Java narrows a double to a float, not to an integer first.
            (CqlType::Float, Number::Double(number)) => Some((*number as f32).to_be_bytes().to_vec()),
            (ty, number) => number.write(ty),
        }))
    }

    /// Back to the state before the first row: the next group begins.
    pub fn reset(&mut self) {
        *self = Aggregate::new(self.kind, self.ty.take());
    }
}

/// A sum of doubles that carries rounding errors along, and the exact decimals once it overflows.
#[derive(Clone, PartialEq, Debug, Default)]
struct CompensatedSum {
    sum: f64,
    compensation: f64,
    simple: f64,
    overflow: Option<Decimal>,
}

impl CompensatedSum {
    fn add(&mut self, value: f64) {
        let exact = |value: f64| crate::number_text::format_double(value).parse::<Decimal>().ok();
        self.simple += value;
        if let Some(overflow) = &self.overflow {
            if let Some(sum) = exact(value).and_then(|value| decimal_math::add_exactly(overflow, &value).ok())
            {
                self.overflow = Some(sum);
            }
            return;
        }
        let before = self.sum;
        let corrected = value - self.compensation;
        let rounded = self.sum + corrected;
        self.compensation = rounded - self.sum - corrected;
        self.sum = rounded;
        if self.sum.is_infinite() && value.is_finite() && before.is_finite() {
            let both = exact(before).zip(exact(value));
            self.overflow = both.and_then(|(a, b)| decimal_math::add_exactly(&a, &b).ok());
        }
    }

    fn sum(&self) -> f64 {
        let corrected = self.sum + self.compensation;
        if corrected.is_nan() && self.simple.is_infinite() { self.simple } else { corrected }
    }

    fn average(&self, count: i64) -> f64 {
        if count == 0 {
            return 0.0;
        }
        match &self.overflow {
            Some(sum) => {
                let average = decimal_math::divide_by_count(sum, count);
                average.to_string().parse().unwrap_or(f64::NAN)
            }
            None => self.sum() / count.to_f64().unwrap_or(1.0),
        }
    }
}
