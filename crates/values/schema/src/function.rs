//! User-defined functions and aggregates.

use types::CqlType;

/// The key that distinguishes a function from others of its keyspace: its name and the types of its arguments, in CQL, as the schema tables
/// hold them (`frozen<tuple<int, text>>`). Orders functions by name, then by types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// The function's name, case kept.
    pub name: String,
    /// Types of the arguments.
    pub arguments: Vec<String>,
}

impl Signature {
    /// The signature of a function of this name with arguments of these types.
    pub fn new<'t>(name: impl Into<String>, arguments: impl IntoIterator<Item = &'t CqlType>) -> Self {
        Self { name: name.into(), arguments: arguments.into_iter().map(CqlType::cql_name).collect() }
    }
}

/// A function that a user has defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// Name of its keyspace.
    pub keyspace: String,
    /// Its name, case kept.
    pub name: String,
    /// Names and types of its arguments.
    pub arguments: Vec<(String, CqlType)>,
    /// Type of its result.
    pub returns: CqlType,
    /// Whether it is called with null arguments; without, its result is null then.
    pub called_on_null_input: bool,
    /// The language of its body.
    pub language: String,
    /// Its source text.
    pub body: String,
}

impl UserFunction {
    /// The key that distinguishes it from others of its keyspace.
    pub fn signature(&self) -> Signature {
        Signature::new(self.name.clone(), self.argument_types())
    }

    /// Types of its arguments.
    pub fn argument_types(&self) -> impl Iterator<Item = &CqlType> {
        self.arguments.iter().map(|(_, ty)| ty)
    }

    /// Whether an argument or the result has the user type as a part.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        self.argument_types().chain([&self.returns]).any(|ty| ty.references_udt(keyspace, name))
    }
}

/// An aggregate that a user has defined: its functions are user-defined functions of its keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAggregate {
    /// Name of its keyspace.
    pub keyspace: String,
    /// Its name, case kept.
    pub name: String,
    /// Types of its arguments.
    pub arguments: Vec<CqlType>,
    /// Name of the function that adds a row: of the state and the arguments to the next state.
    pub state_function: String,
    /// Type of the state.
    pub state_type: CqlType,
    /// Name of the function that merges the states of two disjoint sets of rows (ScyllaDB's `REDUCEFUNC`); without one the rows are
    /// added to one state, one after another.
    pub reduce_function: Option<String>,
    /// Name of the function of the last state to the result; without one the last state is the result.
    pub final_function: Option<String>,
    /// The first state as a CQL term; null without one.
    pub initial_condition: Option<String>,
    /// Type of its result.
    pub returns: CqlType,
}

impl UserAggregate {
    /// The key that distinguishes it from others of its keyspace.
    pub fn signature(&self) -> Signature {
        Signature::new(self.name.clone(), &self.arguments)
    }

    /// Whether it calls the function of this signature.
    pub fn calls(&self, function: &Signature) -> bool {
        let state = std::iter::once(&self.state_type);
        let adds = Signature::new(self.state_function.clone(), state.clone().chain(&self.arguments));
        let merges = self.reduce_function.as_ref();
        let merges = merges.map(|name| Signature::new(name.clone(), state.clone().chain([&self.state_type])));
        let ends = self.final_function.as_ref().map(|name| Signature::new(name.clone(), state));
        *function == adds || [merges, ends].iter().flatten().any(|part| function == part)
    }

    /// Whether an argument, the state or the result has the user type as a part.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        let types = self.arguments.iter().chain([&self.state_type, &self.returns]);
        types.into_iter().any(|ty| ty.references_udt(keyspace, name))
    }
}
