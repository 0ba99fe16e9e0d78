//! Calls of user-defined functions, which may wait: they are taken out of expressions, innermost first, and made before the
//! expressions are evaluated, which find their results by number (docs/design/udf.md).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rt::preempt::Pace;
use schema::UserFunction;
use types::CqlType;

use super::bind::Binds;
use super::{CallScope, CellPart, Env, Expr, Kind, Value};
use crate::error::{ExecError, Result, invalid};
use crate::functions::Function;

/// A call that was taken out of an expression.
#[derive(Clone, Debug)]
pub struct UserCall {
    /// The function.
    pub function: Arc<UserFunction>,
    /// Its arguments, in which calls are results of earlier ones.
    pub arguments: Vec<Expr>,
}

/// Replaces the calls of user-defined functions in an expression by their results, whose calls are appended to `calls`.
pub fn take_calls(expr: Expr, scope: CallScope, calls: &mut Vec<UserCall>) -> Expr {
    if !expr.any(&mut |part| matches!(&part.kind, Kind::Call(function, _) if function.is_user_defined())) {
        return expr;
    }
    let Expr { ty, kind } = expr;
    let kind = map_parts(kind, &mut |part| take_calls(part, scope, calls));
    let kind = match kind {
        Kind::Call(function, arguments) => match &*function {
            Function::User(user) => {
                calls.push(UserCall { function: user.definition.clone(), arguments });
                Kind::Called(scope, calls.len() - 1)
            }
            Function::Native(_) | Function::Token(_) | Function::Text(_) => Kind::Call(function, arguments),
        },
        other => other,
    };
    Expr { ty, kind }
}

/// An expression's form with its parts replaced.
pub fn map_parts(kind: Kind, map: &mut dyn FnMut(Expr) -> Expr) -> Kind {
    let mut boxed = |part: Box<Expr>| Box::new(map(*part));
    match kind {
        Kind::Field(inner, at) => Kind::Field(boxed(inner), at),
        Kind::Element(inner, key, name) => Kind::Element(boxed(inner), boxed(key), name),
        Kind::Slice(inner, from, to, name) => {
            Kind::Slice(boxed(inner), from.map(&mut boxed), to.map(&mut boxed), name)
        }
        Kind::Meta(mut meta) => {
            meta.part = match meta.part {
                CellPart::Element(key) => CellPart::Element(boxed(key)),
                CellPart::Slice(from, to) => CellPart::Slice(from.map(&mut boxed), to.map(&mut boxed)),
                other => other,
            };
            Kind::Meta(meta)
        }
        Kind::Extreme { greatest, of } => Kind::Extreme { greatest, of: Box::new((*of).map(map)) },
        Kind::Call(function, parts) => Kind::Call(function, parts.into_iter().map(map).collect()),
        Kind::Build(parts) => Kind::Build(parts.into_iter().map(map).collect()),
        Kind::Constant(_) | Kind::Bind(_) | Kind::Column(_) | Kind::Aggregate(_) | Kind::Called(..) => kind,
    }
}

impl From<udf::CallError> for ExecError {
    fn from(error: udf::CallError) -> Self {
        let udf::CallError { keyspace, function, arguments, message } = error;
        ExecError::FunctionFailure { keyspace, function, arguments, message }
    }
}

/// The values of a call's arguments.
///
/// # Errors
/// When one cannot be computed, or is a marker that is not set.
pub fn arguments(function: &UserFunction, exprs: &[Expr], env: &Env<'_>) -> Result<Vec<Option<Bytes>>> {
    let value = |expr: &Expr| match expr.eval(env)? {
        Value::Unset => {
            invalid!(
                "Invalid unset value for argument in call to function {}.{}",
                function.keyspace,
                function.name
            )
        }
        value => Ok(value.into_bytes()),
    };
    exprs.iter().map(value).collect()
}

/// Makes user-defined calls for one statement, and collects the warnings for the client.
pub struct Caller<'a> {
    /// Where functions run.
    pub runtime: &'a udf::Runtime,
    /// Warnings, none twice.
    pub warnings: Vec<String>,
    /// How long the functions of the request may still run.
    left: Duration,
    pace: Pace,
    /// Bytes of the results that are held: those of the request's statements.
    held: usize,
}

/// Bytes of the results that are held at once: those of all statements of a request, and beside them those of one row. A statement cannot
/// write more.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// Steps of [`Pace`] that a call stands for: some microseconds.
const STEPS_A_CALL: usize = 16;

/// Counts a result among those that are held.
fn hold(held: &mut usize, result: Option<&Bytes>) -> Result<()> {
    *held = held.saturating_add(result.map_or(0, Bytes::len));
    match *held <= RESULT_BYTES_MAX {
        true => Ok(()),
        false => invalid!(
            "The results of the user-defined functions of the request have more than {RESULT_BYTES_MAX} bytes; call fewer functions by \
             one request"
        ),
    }
}

/// The most warnings of one statement.
const WARNINGS_MAX: usize = 8;

impl<'a> Caller<'a> {
    /// No calls yet, and this time for all of them.
    pub fn new(runtime: &'a udf::Runtime, time: Duration) -> Self {
        Self { runtime, warnings: Vec::new(), left: time, pace: Pace::new(), held: 0 }
    }

    /// One call.
    ///
    /// # Errors
    /// When functions are disabled, or the function fails.
    pub async fn call(
        &mut self,
        function: &Arc<UserFunction>,
        arguments: &[Option<Bytes>],
    ) -> Result<Option<Bytes>> {
        check_enabled(&self.runtime.limits())?;
        let began = self.runtime.now();
        // A call that is short does not yield. Waiting counts: other requests have a turn in between.
        self.pace.steps(STEPS_A_CALL).await;
        let called = self.runtime.call(function, arguments).await?;
        self.left = match self.left.checked_sub(self.runtime.now().duration_since(began)) {
            Some(left) => left,
            None => {
                return Err(ExecError::FunctionFailure {
                    keyspace: function.keyspace.clone(),
                    function: function.name.clone(),
                    arguments: function.argument_types().map(CqlType::cql_name_unfrozen).collect(),
                    message: "The functions of the statement ran longer than its timeout; ask for smaller pages, or give more \
                              time with USING TIMEOUT"
                        .to_owned(),
                });
            }
        };
        if let Some(warning) = called.warning
            && self.warnings.len() < WARNINGS_MAX
            && !self.warnings.contains(&warning)
        {
            self.warnings.push(warning);
        }
        Ok(called.value)
    }

    /// The results of the calls of a row or group.
    ///
    /// # Errors
    /// When an argument cannot be computed, a function fails, or the results have more bytes than may be held.
    pub async fn row(&mut self, calls: &[UserCall], env: &Env<'_>) -> Result<Vec<Option<Bytes>>> {
        let mut called: Vec<Option<Bytes>> = Vec::with_capacity(calls.len());
        let mut bytes = self.held;
        for call in calls {
            let values = arguments(&call.function, &call.arguments, &Env { called: &called, ..*env })?;
            let value = self.call(&call.function, &values).await?;
            hold(&mut bytes, value.as_ref())?;
            called.push(value);
        }
        Ok(called)
    }

    /// The bound values of a statement with the results of its calls, which count until the caller is dropped.
    ///
    /// # Errors
    /// As those of [`Caller::row`].
    pub async fn statement(
        &mut self,
        calls: &[UserCall],
        binds: &Binds,
        context: &crate::functions::CallContext,
    ) -> Result<Binds> {
        let mut binds = binds.clone();
        for call in calls {
            let values = arguments(&call.function, &call.arguments, &Env::new(&binds, context))?;
            let value = self.call(&call.function, &values).await?;
            hold(&mut self.held, value.as_ref())?;
            binds.push_called(value);
        }
        Ok(binds)
    }
}

/// Refuses user-defined functions where the configuration does not enable them.
///
/// # Errors
/// When it does not.
pub fn check_enabled(limits: &udf::Limits) -> Result<()> {
    match limits.enabled {
        true => Ok(()),
        false => invalid!(
            "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable"
        ),
    }
}
