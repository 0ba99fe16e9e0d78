//! Calls in expressions: the resolution of names and overloads, and their arguments.

use std::rc::Rc;

use cql::ast::{FunctionCall, Selector, SelectorKind};
use types::CqlType;
use types::native::{self, Argument};

use super::literal::{self, Fit, text};
use super::resolve::{ArgumentOf, Receiver, Resolver, fit_of_type};
use super::{Expr, Kind};
use crate::error::{ExecError, Result, invalid};
use crate::functions::{Aggregate, Function};
use crate::text_functions::{TextFunction, TextResult};
use crate::where_clause::index::of_texts;
use ::text::FullText;

impl Resolver<'_> {
    pub(super) fn function(
        &mut self,
        call: &FunctionCall<Selector>,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let written = match &call.name.keyspace {
            Some(keyspace) => format!("{keyspace}.{}", call.name.name),
            None => call.name.name.clone(),
        };
        let selecting = self.columns;
        let unknown = || {
            ExecError::Invalid(match selecting {
                true => format!("Unknown function '{written}'"),
                false => format!("Unknown function {written} called"),
            })
        };
        if let Some(keyspace) = call.name.keyspace.as_deref()
            && keyspace != "system"
        {
            return self.user_defined(keyspace, call, whole, receiver)?.ok_or_else(unknown);
        }
        if self.columns {
            self.check_selected(&call.args)?;
        }
        let name = call.name.name.to_lowercase();
        if name == "count"
            && matches!(call.args.as_slice(), [one] if matches!(one.kind, SelectorKind::Constant(_)))
        {
            return self.aggregate(Aggregate::CountRows, Vec::new(), CqlType::Bigint);
        }
        if name == "token" {
            let key = self.table.partition_key().iter().map(|c| c.ty.clone()).collect();
            return self.checked_call(Function::Token(key), call, whole, receiver);
        }
        if let Some(expr) = self.text_function(&name, call, whole, receiver)? {
            return Ok(expr);
        }
        let arguments: Vec<ArgumentOf<'_>> =
            call.args.iter().map(|arg| self.argument(arg, self.probing)).collect();
        let arguments: Vec<&dyn Argument> = arguments.iter().map(|arg| arg as &dyn Argument).collect();
        let wanted = receiver.map(|receiver| &*receiver.ty);
        if matches!(name.as_str(), "fromjson" | "from_json") && wanted.is_none() {
            return invalid!("{name}() cannot be used in the selection clause of a SELECT statement");
        }
        let own = call.name.keyspace.is_none();
        let function = match native::resolve(&name, &arguments, wanted) {
            Ok(Some(function)) => function,
            Ok(None) if own => {
                let keyspace = self.keyspace;
                return self.user_defined(keyspace, call, whole, receiver)?.ok_or_else(unknown);
            }
            // A user's function of the name of a native one has other arguments.
            Err(_) if own && self.has_user_defined(self.keyspace, &call.name.name) => {
                let keyspace = self.keyspace;
                return self.user_defined(keyspace, call, whole, receiver)?.ok_or_else(unknown);
            }
            Ok(None) => return Err(unknown()),
            Err(error) => return Err(error.into()),
        };
        if !function.is_aggregate() {
            let args: Vec<&Selector> = call.args.iter().collect();
            return self.call(Function::Native(function), &args, whole, receiver);
        }
        self.native_aggregate(function, call)
    }

    /// Refuses arguments in a selection that are no columns, or operations whose operands leave open which they are, before a function is
    /// chosen for them.
    fn check_selected(&mut self, args: &[Selector]) -> Result<()> {
        for arg in args {
            match &arg.kind {
                SelectorKind::Column(name) => {
                    self.column(&name.name)?;
                }
                SelectorKind::Arithmetic(..) | SelectorKind::Negate(_) if self.infer(arg).is_none() => {
                    self.resolve(arg, None)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A call of a function of full text; none when the name means another function.
    fn text_function(
        &mut self,
        name: &str,
        call: &FunctionCall<Selector>,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Option<Expr>> {
        let result = match name {
            "bm25" => TextResult::Relevance,
            "highlight" => TextResult::Highlighted,
            _ => return Ok(None),
        };
        let is_user_defined =
            call.name.keyspace.is_none() && self.has_user_defined(self.keyspace, &call.name.name);
        if !self.columns || is_user_defined {
            return Ok(None);
        }
        let (written, shown, counts): (_, _, &[usize]) = match result {
            TextResult::Relevance => ("BM25", "BM25(column, query)", &[2]),
            TextResult::Highlighted => {
                ("highlight", "highlight(column, query) or highlight(column, query, open, close)", &[2, 4])
            }
        };
        let column = match call.args.first().map(|arg| &arg.kind) {
            Some(SelectorKind::Column(name)) if counts.contains(&call.args.len()) => {
                self.column(&name.name)?
            }
            _ => return invalid!("A call of {written} is {shown}"),
        };
        let Some(index) = of_texts(self.table, column) else {
            return invalid!("{written}() requires a fulltext_index on column {}", column.name);
        };
        let fulltext = FullText::of(&index.options).expect("the options were checked");
        let column = (column.name.clone(), column.ty.clone());
        let function = TextFunction::new(result, column, fulltext, call.args.len());
        self.checked_call(Function::Text(function), call, whole, receiver).map(Some)
    }

    /// A call of a native aggregate.
    fn native_aggregate(
        &mut self,
        function: native::Function,
        call: &FunctionCall<Selector>,
    ) -> Result<Expr> {
        let ty = function.returns.clone();
        let [arg] = call.args.as_slice() else {
            return self.aggregate(Aggregate::CountRows, Vec::new(), ty);
        };
        if self.refuses_aggregates() {
            return self.aggregate(Aggregate::Native(function), Vec::new(), ty);
        }
        self.in_aggregate = true;
        let input = match function.arguments.first() {
            Some(wanted) if self.infer(arg).is_none() => {
                self.resolve(arg, Some(&Receiver::new(format!("arg0({})", function.full_name()), wanted)))
            }
            _ => match &arg.kind {
                SelectorKind::Constant(constant) => {
                    let own = literal::preferred_type(constant);
                    self.resolve(arg, Some(&Receiver::owned(text(arg), own)))
                }
                _ => self.resolve(arg, None),
            },
        };
        self.in_aggregate = false;
        self.aggregate(Aggregate::Native(function), vec![input?], ty)
    }

    /// Whether an aggregate may not stand here.
    pub(super) fn refuses_aggregates(&self) -> bool {
        self.in_aggregate || !self.columns
    }

    /// An argument of an aggregate, in which there is no other.
    pub(super) fn aggregate_input(&mut self, arg: &Selector, receiver: &Receiver<'_>) -> Result<Expr> {
        self.in_aggregate = true;
        let input = self.resolve(arg, Some(receiver));
        self.in_aggregate = false;
        input
    }

    /// A call of the only function that a name can mean, whose arguments are still to be checked.
    fn checked_call(
        &mut self,
        function: Function,
        call: &FunctionCall<Selector>,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let wanted = function.arguments();
        if call.args.len() != wanted.len() {
            return invalid!(
                "Invalid number of arguments in call to function {}: {} required but {} provided",
                function.full_name(),
                wanted.len(),
                call.args.len()
            );
        }
        for (at, (arg, ty)) in call.args.iter().zip(wanted).enumerate() {
            if self.fit(arg, ty) == Fit::None {
                return invalid!(
                    "Type error: {} cannot be passed as argument {at} of function {} of type {}",
                    text(arg),
                    function.full_name(),
                    ty.cql_name()
                );
            }
        }
        let args: Vec<&Selector> = call.args.iter().collect();
        self.call(function, &args, whole, receiver)
    }

    /// A call whose function is chosen: resolves its arguments.
    pub(super) fn call(
        &mut self,
        function: Function,
        args: &[&Selector],
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let name = function.full_name();
        let mut exprs = Vec::with_capacity(args.len());
        for (at, (arg, ty)) in args.iter().zip(function.arguments()).enumerate() {
            exprs.push(self.resolve(arg, Some(&Receiver::new(format!("arg{at}({name})"), ty)))?);
        }
        let ty = function.returns().clone();
        if let Some(receiver) = receiver
            && fit_of_type(&receiver.ty, &ty) == Fit::None
        {
            let what = match (&whole.kind, self.columns) {
                (SelectorKind::Function(_), false) => format!("function {name}"),
                _ => text(whole),
            };
            return invalid!(
                "Type error: cannot assign result of {what} (type {}) to {} (type {})",
                ty.cql_name(),
                receiver.name,
                receiver.ty.cql_name()
            );
        }
        self.markers.varies |= matches!(&function, Function::Native(native) if !native.is_repeatable());
        Ok(Expr { ty, kind: Kind::Call(Rc::new(function), exprs) })
    }
}
