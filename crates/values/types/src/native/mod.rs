//! CQL's native functions, operators, casts and aggregates as pure functions over serialised values, and the choice
//! among their overloads. Clocks and random numbers come from the caller through [`Environment`]; `token` is not
//! here, because it depends on the partitioner and the table's key.

mod aggregate;
mod argument;
mod arithmetic;
mod cast;
mod collection;
mod decimal_math;
mod digest;
mod format;
mod mask;
mod math;
mod number;
mod operator;
mod resolve;
mod signatures;
mod temporal;
mod vector;

pub use aggregate::{Aggregate, AggregateKind};
pub use argument::{Argument, ConstantArgument, TypedArgument};
pub use arithmetic::add;
pub use operator::Operator;
pub use resolve::{resolve, resolve_cast, resolve_negation, resolve_operator};

use crate::{CqlType, TypeError, json};
use std::fmt;

/// The inputs that functions that are not pure take from outside.
pub trait Environment {
    /// The wall clock, in milliseconds since the epoch; the same during one statement.
    fn now_ms(&mut self) -> i64;
    /// A fresh version 1 UUID of now.
    fn time_uuid(&mut self) -> [u8; 16];
    /// A fresh version 4 UUID.
    fn random_uuid(&mut self) -> [u8; 16];
}

/// Why a call cannot be made or failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FunctionError {
    /// The statement is wrong: no such overload, a refused argument. Cassandra answers `Invalid` with this text.
    Invalid(String),
    /// The function failed on its values. Cassandra answers `Function_failure` with these parts.
    Failed {
        /// The function's name without the keyspace, which is `system`.
        function: String,
        /// The CQL names of the arguments' types.
        argument_types: Vec<String>,
        /// The error.
        message: String,
    },
}

impl FunctionError {
    fn invalid(text: impl Into<String>) -> FunctionError {
        FunctionError::Invalid(text.into())
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionError::Invalid(text) => f.write_str(text),
            FunctionError::Failed { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for FunctionError {}

/// One overload of a native function, ready to be called.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Its name, without the keyspace `system`.
    pub name: String,
    /// The types of its arguments.
    pub arguments: Vec<CqlType>,
    /// The type of its result.
    pub returns: CqlType,
    body: Body,
}

/// The effect of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Now,
    Uuid,
    MinTimeuuid,
    MaxTimeuuid,
    /// Between timeuuid, timestamp, date and milliseconds.
    ToTime,
    Floor,
    ToBlob,
    FromBlob,
    Cast,
    Arithmetic(Operator),
    Temporal(Operator),
    Concatenate,
    Negate,
    Math(math::MathFunction),
    MapKeys,
    MapValues,
    CollectionCount,
    CollectionAggregate(AggregateKind),
    Similarity(vector::Similarity),
    Mask(mask::Mask),
    FormatBytes,
    FormatTime,
    Length,
    OctetLength,
    ToJson,
    FromJson,
    Aggregate(AggregateKind),
}

type Answer = Result<Option<Vec<u8>>, FunctionError>;

impl Function {
    /// Whether a call has the same result whenever and wherever it is made.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self.body, Body::Now | Body::Uuid)
    }

    /// Calls a scalar function on serialised values; `None` is null. Aggregates have [`Function::aggregate`].
    ///
    /// # Errors
    /// [`FunctionError::Invalid`] when the number of arguments is wrong or it is no scalar function;
    /// [`FunctionError::Failed`] when the values have no result (division by zero, overflow, text that is no JSON or no
    /// value of the target type).
    pub fn execute(&self, arguments: &[Option<&[u8]>], environment: &mut dyn Environment) -> Answer {
        match self.body {
            Body::Now => return Ok(Some(temporal::now(&self.returns, environment))),
            Body::Uuid => return Ok(Some(environment.random_uuid().to_vec())),
            Body::Mask(mask) => return self.mask(mask, arguments),
            Body::ToJson => return self.to_json(arguments),
            Body::FormatBytes | Body::FormatTime => return self.format(arguments),
            // The bytes of the empty value are none, and not null.
            Body::ToBlob => return Ok(arguments.first().copied().flatten().map(<[u8]>::to_vec)),
            Body::OctetLength => {
                return arguments.first().copied().flatten().map_or(Ok(None), |value| self.length(&[value]));
            }
            _ => {}
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (ty, argument) in self.arguments.iter().zip(arguments) {
            match argument {
                // The empty value of a type like `int` means nothing: it is as good as null.
                Some(value) if !value.is_empty() || ty.empty_is_a_value() || !ty.allows_empty() => {
                    values.push(*value)
                }
                _ => return Ok(None),
            }
        }
        if values.len() != self.arguments.len() {
            return Err(self.wrong_number(arguments.len()));
        }
        self.execute_on_values(&values)
    }

    fn execute_on_values(&self, values: &[&[u8]]) -> Answer {
        match self.body {
            Body::MinTimeuuid | Body::MaxTimeuuid | Body::ToTime | Body::Floor => self.temporal(values),
            Body::Temporal(operator) => self.temporal_arithmetic(operator, values),
            Body::FromBlob => self.read_blob(values),
            Body::Cast => self.cast(values),
            Body::Arithmetic(operator) => self.arithmetic(operator, values),
            Body::Concatenate => Ok(Some(values.concat())),
            Body::Negate => self.negate(values),
            Body::Math(function) => self.math(function, values),
            Body::MapKeys | Body::MapValues | Body::CollectionCount | Body::CollectionAggregate(_) => {
                self.collection(values)
            }
            Body::Similarity(similarity) => self.similarity(similarity, values),
            Body::FromJson => self.read_json(values),
            Body::Length => self.length(values),
            _ => Err(FunctionError::invalid(format!("{} is no scalar function", self.full_name()))),
        }
    }

    /// Whether it hides its first argument, so that it can mask a column.
    pub fn is_masking(&self) -> bool {
        matches!(self.body, Body::Mask(_))
    }

    /// The state machine of an aggregate; `None` for scalar functions.
    pub fn aggregate(&self) -> Option<Aggregate> {
        match self.body {
            Body::Aggregate(kind) => Some(Aggregate::new(kind, self.arguments.first().cloned())),
            _ => None,
        }
    }

    /// Whether it is an aggregate.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.body, Body::Aggregate(_))
    }

    /// Whether the same arguments always give the same result.
    pub fn is_deterministic(&self) -> bool {
        !matches!(self.body, Body::Now | Body::Uuid)
    }

    /// The name with the keyspace, as messages and result columns show it.
    pub fn full_name(&self) -> String {
        format!("system.{}", self.name)
    }

    /// The name of a result column that shows the call, given those of its arguments.
    pub fn column_name(&self, arguments: &[String]) -> String {
        let argument = |i: usize| arguments.get(i).map_or("", String::as_str);
        match self.body {
            Body::Arithmetic(operator) | Body::Temporal(operator) => {
                format!("{} {} {}", argument(0), operator.symbol(), argument(1))
            }
            Body::Concatenate => format!("{} + {}", argument(0), argument(1)),
            Body::Negate => format!("-{}", argument(0)),
            Body::Cast => format!("cast({} as {})", argument(0), self.returns.cql_name().to_lowercase()),
            Body::Aggregate(AggregateKind::CountRows) => "count".to_owned(),
            _ => format!("{}({})", self.full_name(), arguments.join(", ")),
        }
    }

    /// The signature as messages show it: `system.to_date : (timeuuid) -> date`.
    pub fn signature(&self) -> String {
        let arguments: Vec<_> = self
            .arguments
            .iter()
            .map(|ty| if ty.is_tuple() { ty.cql_name_unfrozen() } else { ty.cql_name() })
            .collect();
        // Names of operators have quotes, which CQL would need around them.
        let quote = if self.name.starts_with('_') { "\"" } else { "" };
        let name = format!("system.{quote}{}{quote}", self.name);
        format!("{name} : ({}) -> {}", arguments.join(", "), self.returns.cql_name())
    }

    fn wrong_number(&self, given: usize) -> FunctionError {
        FunctionError::Invalid(format!(
            "Invalid number of arguments in call to function {}: {} required but {given} provided",
            self.full_name(),
            self.arguments.len()
        ))
    }

    fn failed(&self, message: impl Into<String>) -> FunctionError {
        FunctionError::Failed {
            function: self.name.clone(),
            argument_types: self.arguments.iter().map(CqlType::cql_name).collect(),
            message: message.into(),
        }
    }

    /// The refusal of bytes that are no value of an argument's type: they should have been validated long before.
    fn malformed(&self, index: usize) -> FunctionError {
        let ty = self.arguments.get(index).map(CqlType::cql_name).unwrap_or_default();
        self.failed(format!("argument {index} of function {} is no value of type {ty}", self.full_name()))
    }

    fn read_blob(&self, values: &[&[u8]]) -> Answer {
        let value = values.first().copied().unwrap_or_default();
        match self.returns.validate(value) {
            Ok(()) => Ok(Some(value.to_vec())),
            Err(_) => Err(FunctionError::Invalid(format!(
                "In call to function {}, value 0x{} is not a valid binary representation for type {}",
                self.full_name(),
                crate::validate::hex(value),
                // The function's own spelling: `varchar` is not `text` here.
                self.name.trim_start_matches("blob_as_").trim_start_matches("blobas")
            ))),
        }
    }

    fn to_json(&self, arguments: &[Option<&[u8]>]) -> Answer {
        let Some(ty) = self.arguments.first() else { return Err(self.wrong_number(arguments.len())) };
        let json = match arguments.first().copied().flatten() {
            Some(value) if !value.is_empty() || ty.empty_is_a_value() => ty.to_json(value),
            _ => "null".to_owned(),
        };
        Ok(Some(json.into_bytes()))
    }

    fn read_json(&self, values: &[&[u8]]) -> Answer {
        let text = values.first().and_then(|value| std::str::from_utf8(value).ok());
        let text = text.ok_or_else(|| self.malformed(0))?;
        let value = json::parse_first(text).map_err(|error| {
            self.failed(format!(
                "execution of '{}[text]' failed: Could not decode JSON string '{text}': {error}",
                self.full_name()
            ))
        })?;
        self.returns.from_json(&value).map_err(|error| match error {
            TypeError::Duration(text) => FunctionError::Invalid(text),
            error => self.failed(format!("org.apache.cassandra.serializers.MarshalException: {error}")),
        })
    }
}
