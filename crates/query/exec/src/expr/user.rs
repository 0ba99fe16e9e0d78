//! Choosing among the user-defined functions and aggregates that a call may mean.

use std::borrow::Cow;
use std::sync::Arc;

use cql::ast::{DataType, FunctionCall, Selector, SelectorKind};
use schema::{UserAggregate, UserFunction};
use types::CqlType;
use types::native::{self, Argument};

use super::constant::constant;
use super::literal::{Fit, text};
use super::resolve::{ArgumentOf, Receiver, Resolver, fit_of_type};
use super::{Expr, Kind};
use crate::error::{Result, invalid};
use crate::functions::{Aggregate, Function, User, UserAggregation};

/// A function or aggregate that a name may mean.
#[derive(Clone)]
enum Candidate {
    Function(Arc<UserFunction>),
    Aggregate(Arc<UserAggregate>),
}

impl Candidate {
    fn arguments(&self) -> Vec<CqlType> {
        match self {
            Self::Function(function) => function.argument_types().cloned().collect(),
            Self::Aggregate(aggregate) => aggregate.arguments.clone(),
        }
    }

    fn returns(&self) -> &CqlType {
        match self {
            Self::Function(function) => &function.returns,
            Self::Aggregate(aggregate) => &aggregate.returns,
        }
    }

    /// `ks.f : (int) -> int`
    fn shown(&self) -> String {
        let (keyspace, name) = match self {
            Self::Function(function) => (&function.keyspace, &function.name),
            Self::Aggregate(aggregate) => (&aggregate.keyspace, &aggregate.name),
        };
        let types: Vec<String> = self.arguments().iter().map(CqlType::cql_name_unfrozen).collect();
        format!("{keyspace}.{name} : ({}) -> {}", types.join(", "), self.returns().cql_name_unfrozen())
    }
}

impl Resolver<'_> {
    fn candidates(&self, keyspace: &str, name: &str) -> Vec<Candidate> {
        let Some(home) = self.schema.keyspace(keyspace) else { return Vec::new() };
        let functions = home.functions.values().filter(|one| one.name == name).cloned();
        let aggregates = home.aggregates.values().filter(|one| one.name == name).cloned();
        functions.map(Candidate::Function).chain(aggregates.map(Candidate::Aggregate)).collect()
    }

    /// A selector whose user-defined functions and types carry their keyspace, as the names of result columns do.
    pub fn qualified<'s>(&self, selector: &'s Selector) -> Cow<'s, Selector> {
        let home = self.schema.keyspace(self.keyspace);
        let defines_none = |home: &schema::Keyspace| {
            home.functions.is_empty() && home.aggregates.is_empty() && home.types.is_empty()
        };
        if home.is_none_or(|home| defines_none(home)) {
            return Cow::Borrowed(selector);
        }
        let mut selector = selector.clone();
        self.qualify(&mut selector);
        Cow::Owned(selector)
    }

    fn qualify(&self, selector: &mut Selector) {
        match &mut selector.kind {
            SelectorKind::Function(call) => {
                let is_native =
                    !matches!(native::resolve(&call.name.name.to_lowercase(), &[], None), Ok(None));
                if call.name.keyspace.is_none()
                    && !is_native
                    && call.name.name != "token"
                    && self.has_user_defined(self.keyspace, &call.name.name)
                {
                    call.name.keyspace = Some(self.keyspace.to_owned());
                }
                call.args.iter_mut().for_each(|arg| self.qualify(arg));
            }
            SelectorKind::Cast(inner, _)
            | SelectorKind::Field(inner, _)
            | SelectorKind::Element(inner, _)
            | SelectorKind::Slice(inner, ..)
            | SelectorKind::Negate(inner) => self.qualify(inner),
            SelectorKind::TypeHint(ty, inner) => {
                self.qualify_type(ty);
                self.qualify(inner);
            }
            SelectorKind::Tuple(parts) | SelectorKind::List(parts) | SelectorKind::Set(parts) => {
                parts.iter_mut().for_each(|part| self.qualify(part));
            }
            SelectorKind::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                self.qualify(key);
                self.qualify(value);
            }),
            SelectorKind::Arithmetic(left, _, right) => {
                self.qualify(left);
                self.qualify(right);
            }
            SelectorKind::Column(_)
            | SelectorKind::Constant(_)
            | SelectorKind::Null
            | SelectorKind::Marker(_)
            | SelectorKind::CountRows
            | SelectorKind::Metadata(..) => {}
        }
    }

    fn qualify_type(&self, ty: &mut DataType) {
        match ty {
            DataType::UserDefined(name) if name.keyspace.is_none() => {
                name.keyspace = Some(self.keyspace.to_owned());
            }
            DataType::List(inner) | DataType::Set(inner) | DataType::Frozen(inner) => {
                self.qualify_type(inner)
            }
            DataType::Vector(inner, _) => self.qualify_type(inner),
            DataType::Map(key, value) => {
                self.qualify_type(key);
                self.qualify_type(value);
            }
            DataType::Tuple(fields) => fields.iter_mut().for_each(|field| self.qualify_type(field)),
            DataType::Native(_) | DataType::UserDefined(_) | DataType::Custom(_) => {}
        }
    }

    /// Whether a name means a function or an aggregate.
    pub(super) fn is_function(&self, name: &cql::ast::QualifiedName) -> bool {
        let native = || {
            let lower = name.name.to_lowercase();
            lower == "token" || !matches!(native::resolve(&lower, &[], None), Ok(None))
        };
        match name.keyspace.as_deref() {
            Some("system") => native(),
            Some(keyspace) => self.has_user_defined(keyspace, &name.name),
            None => native() || self.has_user_defined(self.keyspace, &name.name),
        }
    }

    /// Whether a user-defined function or aggregate has the name.
    pub(super) fn has_user_defined(&self, keyspace: &str, name: &str) -> bool {
        !self.candidates(keyspace, name).is_empty()
    }

    /// A call of a user-defined function or aggregate; none where nothing has the name.
    pub(super) fn user_defined(
        &mut self,
        keyspace: &str,
        call: &FunctionCall<Selector>,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Option<Expr>> {
        let candidates = self.candidates(keyspace, &call.name.name);
        if candidates.is_empty() {
            return Ok(None);
        }
        let chosen = self.choose(keyspace, &candidates, call, receiver)?;
        let args: Vec<&Selector> = call.args.iter().collect();
        match chosen {
            Candidate::Function(definition) => {
                let types = definition.argument_types().cloned().collect();
                self.call(Function::User(User { definition, types }), &args, whole, receiver).map(Some)
            }
            Candidate::Aggregate(definition) => {
                self.user_aggregate(definition, &args, whole, receiver).map(Some)
            }
        }
    }

    fn choose(
        &self,
        keyspace: &str,
        candidates: &[Candidate],
        call: &FunctionCall<Selector>,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Candidate> {
        let name = format!("{keyspace}.{}", call.name.name);
        let arguments: Vec<ArgumentOf<'_>> = call.args.iter().map(|arg| self.argument(arg, true)).collect();
        if let [only] = candidates {
            let wanted = only.arguments();
            if arguments.len() != wanted.len() {
                return invalid!(
                    "Invalid number of arguments in call to function {name}: {} required but {} provided",
                    wanted.len(),
                    arguments.len()
                );
            }
            for (at, (argument, ty)) in arguments.iter().zip(&wanted).enumerate() {
                if argument.assignment(ty) == Fit::None {
                    return invalid!(
                        "Type error: {} cannot be passed as argument {at} of function {name} of type {}",
                        text(&call.args[at]),
                        ty.cql_name_unfrozen()
                    );
                }
            }
            return Ok(only.clone());
        }
        let mut compatible: Vec<&Candidate> = Vec::new();
        for candidate in candidates {
            let wanted = candidate.arguments();
            if wanted.len() != arguments.len() {
                continue;
            }
            let fit = arguments.iter().zip(&wanted).map(|(argument, ty)| argument.assignment(ty)).min();
            match fit.unwrap_or(Fit::Exact) {
                Fit::Exact => return Ok(candidate.clone()),
                Fit::Weak => compatible.push(candidate),
                Fit::None => {}
            }
        }
        let shown = |all: &[&Candidate]| all.iter().map(|one| one.shown()).collect::<Vec<_>>().join(", ");
        // The expected type of the call decides between the candidates that the arguments leave.
        if let (2.., Some(receiver)) = (compatible.len(), receiver) {
            let fits = |one: &&&Candidate| fit_of_type(&receiver.ty, one.returns()) == Fit::Exact;
            if let [only] = compatible.iter().filter(fits).collect::<Vec<_>>().as_slice() {
                return Ok(Candidate::clone(only));
            }
        }
        match compatible.as_slice() {
            [only] => Ok(Candidate::clone(only)),
            [] => invalid!(
                "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
                shown(&candidates.iter().collect::<Vec<_>>())
            ),
            several => invalid!(
                "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
                 disambiguate",
                shown(several)
            ),
        }
    }

    fn user_aggregate(
        &mut self,
        definition: Arc<UserAggregate>,
        args: &[&Selector],
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let returns = definition.returns.clone();
        if self.refuses_aggregates() {
            return self.aggregate(Aggregate::CountRows, Vec::new(), returns);
        }
        let initial = match &definition.initial_condition {
            Some(text) => constant(text, &definition.state_type, self.schema, &definition.keyspace)?,
            None => None,
        };
        let aggregation = UserAggregation::new(definition, initial, self.schema)?;
        let name = format!("{}.{}", aggregation.definition.keyspace, aggregation.definition.name);
        let mut inputs = Vec::with_capacity(args.len());
        for (at, (arg, ty)) in args.iter().zip(&aggregation.definition.arguments).enumerate() {
            inputs.push(self.aggregate_input(arg, &Receiver::new(format!("arg{at}({name})"), ty))?);
        }
        let expr = self.aggregate(Aggregate::User(aggregation.into()), inputs, returns)?;
        if let Some(receiver) = receiver
            && fit_of_type(&receiver.ty, &expr.ty) == Fit::None
        {
            return invalid!(
                "Type error: cannot assign result of {} (type {}) to {} (type {})",
                text(whole),
                expr.ty.cql_name_unfrozen(),
                receiver.name,
                receiver.ty.cql_name_unfrozen()
            );
        }
        Ok(expr)
    }
}

impl Expr {
    /// The user-defined functions that it calls.
    pub fn user_functions(&self, visit: &mut dyn FnMut(&Arc<UserFunction>)) {
        self.any(&mut |part| {
            if let Kind::Call(function, _) = &part.kind
                && let Function::User(user) = &**function
            {
                visit(&user.definition);
            }
            false
        });
    }
}
