//! The parser of expressions. Errors of syntax come before errors of meaning, as with AWS: the first of the latter is kept until the
//! text has been read.

use std::rc::Rc;

use crate::check::{self, Node};
use crate::condition::{Comparison, Condition, Operand};
use crate::expression::{EXPRESSION_BYTES_MAX, Substitutions};
use crate::lexer::{self, Kind, Token};
use crate::path::{list_index, meeting};
use crate::update::{Add, SetValue, Update};
use crate::{Element, Error, Path, Projection, Result, Value, invalid, reserved};

/// How deep an expression may be nested: far more than the 300 operators that AWS allows would need.
const DEPTH_MAX: usize = 100;
/// Operators and functions of an expression.
const OPERATORS_MAX: usize = 300;

pub(crate) struct Parser<'a> {
    text: &'a str,
    what: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    operators: usize,
    substitutions: &'a Substitutions,
    /// The first error that is not one of syntax.
    wrong: Option<Error>,
}

/// A parsed part, and whether it stood in brackets of its own.
struct Parsed {
    node: Node,
    in_brackets: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str, what: &'a str, substitutions: &'a Substitutions) -> Result<Self> {
        if text.is_empty() {
            return invalid!("Invalid {what}: The expression can not be empty;");
        }
        if text.len() > EXPRESSION_BYTES_MAX {
            return invalid!(
                "Invalid {what}: Expression size has exceeded the maximum allowed size; expression size: {}",
                text.len()
            );
        }
        let tokens = lexer::tokens(text);
        let (at, depth, operators, wrong) = (0, 0, 0, None);
        Ok(Self { text, what, tokens, at, depth, operators, substitutions, wrong })
    }

    #[expect(clippy::indexing_slicing, reason = "the end is the last token")]
    fn peek(&self) -> Token<'a> {
        // The end is the last token, and nothing goes past it.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        let token = self.peek();
        token.kind == Kind::Symbol && token.text == symbol
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        let token = self.peek();
        token.kind == Kind::Word && token.text.eq_ignore_ascii_case(keyword)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let is = self.is_symbol(symbol);
        self.at += usize::from(is);
        is
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let is = self.is_keyword(keyword);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.take_symbol(symbol) { Ok(()) } else { self.syntax() }
    }

    /// The present token should not be here.
    fn syntax<T>(&self) -> Result<T> {
        let near = lexer::near(self.text, &self.tokens, self.at);
        invalid!("Invalid {}: Syntax error; token: \"{}\", near: \"{near}\"", self.what, self.peek().text)
    }

    /// Keeps an error of meaning.
    fn wrong(&mut self, text: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(Error::Validation(format!("Invalid {}: {}", self.what, text())));
        }
    }

    fn check_apart(&self, paths: &[&Path]) -> Result<()> {
        match meeting(paths) {
            Some(text) => invalid!("Invalid {}: {text}", self.what),
            None => Ok(()),
        }
    }

    /// Keeps an error that a check has found.
    fn note(&mut self, wrong: Option<String>) {
        if let Some(text) = wrong {
            self.wrong(|| text);
        }
    }

    fn finish(&mut self) -> Result<()> {
        if self.peek().kind != Kind::End {
            return self.syntax();
        }
        self.wrong.take().map_or(Ok(()), Err)
    }

    fn count_operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return invalid!(
                "Invalid {}: The expression contains more than the maximum allowed number of operators; maximum: \
                 {OPERATORS_MAX}",
                self.what
            );
        }
        Ok(())
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return invalid!("Invalid {}: The expression is nested too deeply", self.what);
        }
        Ok(())
    }

    // ---- paths and values

    fn attribute(&mut self) -> Result<String> {
        let token = self.peek();
        match token.kind {
            Kind::Word => {
                if reserved::is_reserved(token.text) {
                    self.wrong(|| {
                        format!("Attribute name is a reserved keyword; reserved keyword: {}", token.text)
                    });
                }
                self.at += 1;
                Ok(token.text.to_owned())
            }
            Kind::Name => {
                self.at += 1;
                match self.substitutions.name(token.text) {
                    Some(name) => Ok(name.to_owned()),
                    None => {
                        self.wrong(|| {
                            format!(
                                "An expression attribute name used in the document path is not defined; attribute \
                                 name: {}",
                                token.text
                            )
                        });
                        Ok(token.text.to_owned())
                    }
                }
            }
            _ => self.syntax(),
        }
    }

    fn path(&mut self) -> Result<Path> {
        let mut path = Path::top(self.attribute()?);
        loop {
            if self.take_symbol(".") {
                path.rest.push(Element::Name(self.attribute()?));
            } else if self.take_symbol("[") {
                let token = self.peek();
                if token.kind != Kind::Number {
                    return self.syntax();
                }
                self.at += 1;
                match list_index(&token.text) {
                    Some(index) => path.rest.push(Element::Index(index)),
                    None => self.wrong(|| {
                        format!("List index is not within the allowable range; index: [{}]", token.text)
                    }),
                }
                self.expect("]")?;
            } else {
                break;
            }
        }
        if path.rest.len() >= crate::NESTING_MAX {
            self.wrong(|| {
                "The document path has too many nesting elements; nesting levels: ".to_owned()
                    + &path_len(&path)
            });
        }
        Ok(path)
    }

    fn value(&mut self) -> Rc<Value> {
        let token = self.next();
        match self.substitutions.value(token.text) {
            Some(value) => value,
            None => {
                self.wrong(|| {
                    format!(
                        "An expression attribute value used in expression is not defined; attribute value: {}",
                        token.text
                    )
                });
                Rc::new(Value::Null)
            }
        }
    }

    // ---- conditions

    pub(crate) fn whole_condition(mut self) -> Result<Condition> {
        let parsed = self.or()?;
        let condition = self.condition(parsed)?;
        self.finish()?;
        Ok(condition)
    }

    fn condition(&mut self, parsed: Parsed) -> Result<Condition> {
        match parsed.node {
            Node::Condition(condition) => Ok(condition),
            Node::Operand(Operand::Size(_)) => {
                self.wrong(|| {
                    "The function is not allowed to be used this way in an expression; function: size"
                        .to_owned()
                });
                Ok(Condition::And(Vec::new()))
            }
            // Text behind a semantic error may be taken for something else.
            Node::Operand(_) if self.wrong.is_some() => Ok(Condition::And(Vec::new())),
            Node::Operand(_) => self.syntax(),
        }
    }

    fn or(&mut self) -> Result<Parsed> {
        let first = self.and()?;
        if !self.is_keyword("OR") {
            return Ok(first);
        }
        let mut all = vec![self.condition(first)?];
        while self.take_keyword("OR") {
            self.count_operator()?;
            let next = self.and()?;
            all.push(self.condition(next)?);
        }
        Ok(Parsed { node: Node::Condition(Condition::Or(all)), in_brackets: false })
    }

    fn and(&mut self) -> Result<Parsed> {
        let first = self.not()?;
        if !self.is_keyword("AND") {
            return Ok(first);
        }
        let mut all = vec![self.condition(first)?];
        while self.take_keyword("AND") {
            self.count_operator()?;
            let next = self.not()?;
            all.push(self.condition(next)?);
        }
        Ok(Parsed { node: Node::Condition(Condition::And(all)), in_brackets: false })
    }

    fn not(&mut self) -> Result<Parsed> {
        if !self.take_keyword("NOT") {
            return self.comparison();
        }
        self.count_operator()?;
        self.deeper()?;
        let negated = self.not()?;
        let negated = self.condition(negated)?;
        self.depth -= 1;
        Ok(Parsed { node: Node::Condition(Condition::Not(Box::new(negated))), in_brackets: false })
    }

    fn comparison(&mut self) -> Result<Parsed> {
        let first = self.primary()?;
        let operand = match first.node {
            Node::Condition(_) => return Ok(first),
            Node::Operand(operand) => operand,
        };
        let token = self.peek();
        let comparison = match (token.kind, token.text) {
            (Kind::Symbol, "=") => Some(Comparison::Eq),
            (Kind::Symbol, "<>") => Some(Comparison::Ne),
            (Kind::Symbol, "<") => Some(Comparison::Lt),
            (Kind::Symbol, "<=") => Some(Comparison::Le),
            (Kind::Symbol, ">") => Some(Comparison::Gt),
            (Kind::Symbol, ">=") => Some(Comparison::Ge),
            _ => None,
        };
        let condition = if let Some(comparison) = comparison {
            self.at += 1;
            self.count_operator()?;
            let right = self.operand()?;
            self.note(check::comparison(comparison, &operand, &right));
            Condition::Compare(comparison, operand, right)
        } else if self.take_keyword("BETWEEN") {
            self.count_operator()?;
            let low = self.operand()?;
            if !self.take_keyword("AND") {
                return self.syntax();
            }
            let high = self.operand()?;
            self.note(check::distinct("BETWEEN", &operand, &low));
            self.note(check::distinct("BETWEEN", &operand, &high));
            self.note(check::between(&operand, &low, &high));
            Condition::Between(operand, low, high)
        } else if self.take_keyword("IN") {
            self.count_operator()?;
            self.expect("(")?;
            let mut all = vec![self.operand()?];
            while self.take_symbol(",") {
                all.push(self.operand()?);
            }
            self.expect(")")?;
            self.note(all.iter().find_map(|one| check::distinct("IN", &operand, one)));
            self.note(check::list(&all));
            Condition::In(operand, all)
        } else {
            return Ok(Parsed { node: Node::Operand(operand), in_brackets: first.in_brackets });
        };
        Ok(Parsed { node: Node::Condition(condition), in_brackets: false })
    }

    /// An operand that is no condition.
    fn operand(&mut self) -> Result<Operand> {
        match self.primary()?.node {
            Node::Operand(operand) => Ok(operand),
            Node::Condition(_) => {
                // Only a function is a condition without an operator outside of brackets.
                self.wrong(|| "The function is not allowed to be used this way in an expression".to_owned());
                Ok(Operand::Value(Rc::new(Value::Null)))
            }
        }
    }

    fn primary(&mut self) -> Result<Parsed> {
        if self.take_symbol("(") {
            self.deeper()?;
            let inner = self.or()?;
            self.expect(")")?;
            self.depth -= 1;
            if inner.in_brackets {
                self.wrong(|| "The expression has redundant parentheses;".to_owned());
            }
            return Ok(Parsed { in_brackets: true, ..inner });
        }
        let node = match self.peek().kind {
            Kind::Value => Node::Operand(Operand::Value(self.value())),
            Kind::Word if self.is_function() => self.function()?,
            Kind::Word | Kind::Name => Node::Operand(Operand::Path(self.path()?)),
            _ => return self.syntax(),
        };
        Ok(Parsed { node, in_brackets: false })
    }

    fn is_function(&self) -> bool {
        let behind = self.tokens.get(self.at + 1);
        let keyword = ["AND", "OR", "NOT", "IN", "BETWEEN"].iter().any(|keyword| self.is_keyword(keyword));
        !keyword && behind.is_some_and(|token| token.kind == Kind::Symbol && token.text == "(")
    }

    fn function(&mut self) -> Result<Node> {
        let name = self.next().text;
        self.count_operator()?;
        self.expect("(")?;
        self.deeper()?;
        let mut arguments = vec![self.operand()?];
        while self.take_symbol(",") {
            arguments.push(self.operand()?);
        }
        self.expect(")")?;
        self.depth -= 1;
        let (node, wrong) = check::call(name, arguments);
        self.note(wrong);
        Ok(node)
    }

    // ---- projections

    pub(crate) fn whole_projection(mut self) -> Result<Projection> {
        let mut paths = vec![self.path()?];
        while self.take_symbol(",") {
            paths.push(self.path()?);
        }
        self.finish()?;
        self.check_apart(&paths.iter().collect::<Vec<_>>())?;
        Ok(Projection::new(&paths))
    }

    // ---- updates

    pub(crate) fn whole_update(mut self) -> Result<Update> {
        let mut update = Update::default();
        let mut seen: Vec<&str> = Vec::new();
        loop {
            let sections = ["SET", "REMOVE", "ADD", "DELETE"];
            let Some(section) = sections.into_iter().find(|section| self.is_keyword(section)) else {
                return self.syntax();
            };
            self.at += 1;
            if seen.contains(&section) {
                self.wrong(|| {
                    format!("The \"{section}\" section can only be used once in an update expression;")
                });
            }
            seen.push(section);
            loop {
                match section {
                    "SET" => self.set(&mut update)?,
                    "REMOVE" => update.remove.push(self.path()?),
                    _ => self.add_or_delete(section, &mut update)?,
                }
                if !self.take_symbol(",") {
                    break;
                }
            }
            if self.peek().kind == Kind::End {
                break;
            }
        }
        self.finish()?;
        self.check_apart(&update.paths().collect::<Vec<_>>())?;
        Ok(update)
    }

    fn set(&mut self, update: &mut Update) -> Result<()> {
        let path = self.path()?;
        self.expect("=")?;
        let (value, _) = self.set_value()?;
        update.set.push((path, value));
        Ok(())
    }

    /// Keeps the error of a part of a value that may only be the whole of it.
    fn check_nested(&mut self, value: &SetValue) {
        if matches!(value, SetValue::ListAppend(..)) {
            let text =
                "The function is not allowed to be used this way in an expression; function: list_append";
            self.wrong(|| text.to_owned());
        }
    }

    /// An operand, or the sum or difference of two; and whether all of it is in brackets.
    fn set_value(&mut self) -> Result<(SetValue, bool)> {
        let (left, in_brackets) = self.set_operand(true)?;
        if matches!(left, SetValue::Sum(..)) {
            // In brackets, and no operand.
            return Ok((left, in_brackets));
        }
        for (symbol, is_plus) in [("+", true), ("-", false)] {
            if !self.take_symbol(symbol) {
                continue;
            }
            self.count_operator()?;
            let (right, _) = self.set_operand(false)?;
            for operand in [&left, &right] {
                self.check_nested(operand);
                if let SetValue::Value(operand) = operand
                    && !matches!(**operand, Value::N(_))
                {
                    self.note(Some(check::operand_type(symbol, operand.type_name())));
                }
            }
            return Ok((SetValue::Sum(Box::new(left), is_plus, Box::new(right)), false));
        }
        Ok((left, in_brackets))
    }

    /// An operand, and whether it is in brackets, in which there may be a sum in its place.
    fn set_operand(&mut self, may_be_sum: bool) -> Result<(SetValue, bool)> {
        if self.take_symbol("(") {
            self.deeper()?;
            let (inner, in_brackets) = if may_be_sum { self.set_value() } else { self.set_operand(false) }?;
            self.expect(")")?;
            self.depth -= 1;
            if in_brackets {
                self.wrong(|| "The expression has redundant parentheses;".to_owned());
            }
            return Ok((inner, true));
        }
        let operand = match self.peek().kind {
            Kind::Value => SetValue::Value(self.value()),
            Kind::Word if self.is_function() => self.set_function()?,
            Kind::Word | Kind::Name => SetValue::Path(self.path()?),
            _ => return self.syntax(),
        };
        Ok((operand, false))
    }

    fn set_function(&mut self) -> Result<SetValue> {
        let name = self.next().text;
        self.count_operator()?;
        self.expect("(")?;
        self.deeper()?;
        let mut arguments = vec![self.set_operand(false)?.0];
        while self.take_symbol(",") {
            arguments.push(self.set_operand(false)?.0);
        }
        arguments.iter().for_each(|argument| self.check_nested(argument));
        self.expect(")")?;
        self.depth -= 1;
        let null = || SetValue::Value(Rc::new(Value::Null));
        match name {
            "if_not_exists" | "list_append" => {}
            "size"
            | "attribute_exists"
            | "attribute_not_exists"
            | "attribute_type"
            | "begins_with"
            | "contains" => {
                self.wrong(|| {
                    format!("The function is not allowed in an update expression; function: {name}")
                });
                return Ok(null());
            }
            _ => {
                self.wrong(|| format!("Invalid function name; function: {name}"));
                return Ok(null());
            }
        }
        let count = arguments.len();
        let mut arguments = arguments.into_iter();
        let (Some(first), Some(second), None) = (arguments.next(), arguments.next(), arguments.next()) else {
            self.wrong(|| {
                format!(
                    "Incorrect number of operands for operator or function; operator or function: {name}, number of \
                     operands: {count}"
                )
            });
            return Ok(null());
        };
        if name == "list_append" {
            for operand in [&first, &second] {
                if let SetValue::Value(value) = operand
                    && !matches!(**value, Value::L(_))
                {
                    self.note(Some(check::operand_type(name, value.type_name())));
                }
            }
            return Ok(SetValue::ListAppend(Box::new(first), Box::new(second)));
        }
        match first {
            SetValue::Path(path) => {
                if matches!(&second, SetValue::Path(other) if *other == path) {
                    let (first, second) = (Operand::Path(path.clone()), Operand::Path(path.clone()));
                    self.note(check::distinct(name, &first, &second));
                }
                Ok(SetValue::IfNotExists(path, Box::new(second)))
            }
            _ => {
                self.wrong(|| {
                    format!("Operator or function requires a document path; operator or function: {name}")
                });
                Ok(null())
            }
        }
    }

    fn add_or_delete(&mut self, section: &'static str, update: &mut Update) -> Result<()> {
        let path = self.path()?;
        if self.peek().kind != Kind::Value {
            return self.syntax();
        }
        let value = self.value();
        let is_add = section == "ADD";
        let is_set = matches!(*value, Value::Ss(_) | Value::Ns(_) | Value::Bs(_));
        if !is_set && !(is_add && matches!(*value, Value::N(_))) {
            self.wrong(|| {
                format!(
                    "Incorrect operand type for operator or function; operator: {section}, operand type: {}, typeSet: \
                     ALLOWED_FOR_{section}_OPERAND",
                    value.long_type_name()
                )
            });
        }
        let into = if is_add { &mut update.add } else { &mut update.delete };
        into.push(Add { path, value });
        Ok(())
    }
}

fn path_len(path: &Path) -> String {
    (path.rest.len() + 1).to_string()
}

impl Condition {
    /// Parses a condition; `what` is the parameter's name.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn parse(text: &str, what: &str, substitutions: &Substitutions) -> Result<Self> {
        Parser::new(text, what, substitutions)?.whole_condition()
    }
}

impl Projection {
    /// Parses a projection.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn parse(text: &str, substitutions: &Substitutions) -> Result<Self> {
        Parser::new(text, "ProjectionExpression", substitutions)?.whole_projection()
    }
}

impl Update {
    /// Parses an update.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn parse(text: &str, substitutions: &Substitutions) -> Result<Self> {
        Parser::new(text, "UpdateExpression", substitutions)?.whole_update()
    }
}
