//! Why a function cannot be created, and why a call of it failed.

use std::time::Duration;

use schema::UserFunction;
use types::CqlType;

/// A function whose source is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(pub String);

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}

/// A call that gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function's keyspace.
    pub keyspace: String,
    /// The function.
    pub function: String,
    /// CQL types of its arguments.
    pub arguments: Vec<String>,
    /// The cause, with Cassandra's words around it.
    pub message: String,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CallError {}

impl CallError {
    fn new(function: &UserFunction, message: String) -> Self {
        Self {
            keyspace: function.keyspace.clone(),
            function: function.name.clone(),
            arguments: function.argument_types().map(CqlType::cql_name_unfrozen).collect(),
            message,
        }
    }

    /// The function's code failed with an error of its own or ran out of memory.
    pub(crate) fn failed(function: &UserFunction, detail: &str) -> Self {
        let types: Vec<String> = function.argument_types().map(CqlType::cql_name_unfrozen).collect();
        let UserFunction { keyspace, name, .. } = function;
        Self::new(
            function,
            format!("execution of '{keyspace}.{name}[{}]' failed: {detail}", types.join(", ")),
        )
    }

    /// The function ran for too long.
    pub(crate) fn too_long(function: &UserFunction, limit: Duration) -> Self {
        Self::new(function, ran_longer(function, limit))
    }
}

/// `User defined function ks.f : (int) -> int ran longer than 500ms`
pub(crate) fn ran_longer(function: &UserFunction, limit: Duration) -> String {
    let types: Vec<String> = function.argument_types().map(CqlType::cql_name_unfrozen).collect();
    format!(
        "User defined function {}.{} : ({}) -> {} ran longer than {}ms",
        function.keyspace,
        function.name,
        types.join(", "),
        function.returns.cql_name_unfrozen(),
        limit.as_millis()
    )
}
