//! Constants of the schema: the terms of INITCOND and of masks, which have neither markers nor calls, and their stored texts.

use std::rc::Rc;

use bytes::Bytes;
use schema::{Schema, TableBuilder, TableId};
use types::CqlType;

use super::bind::Binds;
use super::resolve::{Markers, Receiver, Resolver};
use super::{Env, Kind};
use crate::backend::Clock;
use crate::error::{Result, invalid};
use crate::functions::{CallContext, TimeUuids};

/// Time and randomness of constants, which have none.
struct Never;

impl Clock for Never {
    fn wall_micros(&self) -> i64 {
        0
    }

    fn now(&self) -> rt::Instant {
        rt::Instant::START
    }

    fn random(&self) -> [u8; 16] {
        [0; 16]
    }
}

/// The value of a term without markers and calls; `what` is its name in messages.
///
/// # Errors
/// When it has a marker or a call in it, or is no value of the type.
pub fn constant_of(
    term: &cql::ast::Term,
    ty: &CqlType,
    what: &str,
    schema: &Schema,
    keyspace: &str,
) -> Result<Option<Bytes>> {
    let table =
        TableBuilder::new(keyspace, "", TableId([0; 16])).partition_key("", CqlType::Blob).build_known();
    let mut markers = Markers::default();
    let expr = Resolver::new(schema, &table, &mut markers).term(term, &Receiver::new("--dummy--", ty))?;
    let constant =
        !expr.has_marker() && !expr.any(&mut |part| matches!(part.kind, Kind::Call(..) | Kind::Called(..)));
    if !constant {
        return invalid!("{what} has to be a constant");
    }
    let clock = Rc::new(Never);
    let context = CallContext::new(clock, Rc::new(TimeUuids::new([0; 16])));
    let value = expr.eval_option(&Env::new(&Binds::none(), &context))?;
    if let Some(value) = &value
        && ty.validate(value).is_err()
    {
        return invalid!("Invalid value for {what} of type {}", ty.cql_name_unfrozen());
    }
    Ok(value.filter(|value| !value.is_empty() || ty.empty_is_a_value()))
}

/// The value of a constant as the schema stores its text.
///
/// # Errors
/// When the text is no constant of the type.
pub fn constant(text: &str, ty: &CqlType, schema: &Schema, keyspace: &str) -> Result<Option<Bytes>> {
    constant_of(&cql::parse_term(text)?, ty, "INITCOND", schema, keyspace)
}
