//! The parser of PartiQL statements: one pass, without backtracking, with limits on operators and depth.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::lexer::{Kind, Token, malformed, tokens};
use super::{Returning, STATEMENT_MAX, Select, Statement, column_name};
use crate::check::{self, Node};
use crate::condition::{Comparison, Condition, Operand};
use crate::path::{list_index, meeting};
use crate::update::{Add, SetValue, Update};
use crate::{Element, Item, NESTING_MAX, Number, Path, Projection, Result, Value, invalid};

/// How deep conditions may be nested.
const DEPTH_MAX: usize = 100;
/// Operators and functions of a statement, as in the expressions of other operations.
const OPERATORS_MAX: usize = 300;
/// Words that are no names.
const KEYWORDS: [&str; 22] = [
    "SELECT",
    "FROM",
    "WHERE",
    "INSERT",
    "INTO",
    "UPDATE",
    "SET",
    "REMOVE",
    "DELETE",
    "RETURNING",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "IS",
    "MISSING",
    "NULL",
    "TRUE",
    "FALSE",
    "ORDER",
    "LIKE",
];

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    operators: usize,
    parameters: std::slice::Iter<'a, Rc<Value>>,
}

/// Parses a statement.
pub(super) fn parse(text: &str, parameters: &[Rc<Value>]) -> Result<Statement> {
    if text.chars().count() > STATEMENT_MAX {
        return invalid!(
            "1 validation error detected: Value at 'statement' failed to satisfy constraint: Member must have length less \
             than or equal to {STATEMENT_MAX}"
        );
    }
    let mut parser =
        Parser { tokens: tokens(text)?, at: 0, depth: 0, operators: 0, parameters: parameters.iter() };
    let statement = parser.statement()?;
    parser.take_symbol(";");
    if parser.peek().kind != Kind::End {
        return malformed("Unexpected term after expression");
    }
    if parser.parameters.next().is_some() {
        return mismatch();
    }
    Ok(statement)
}

fn mismatch<T>() -> Result<T> {
    invalid!("Number of parameters in request and statement don't match.")
}

fn refuse<T>(wrong: Option<String>, value: T) -> Result<T> {
    match wrong {
        Some(text) => invalid!("{text}"),
        None => Ok(value),
    }
}

impl Parser<'_> {
    #[expect(clippy::indexing_slicing, reason = "the end is the last token")]
    fn peek(&self) -> &Token {
        // The end is the last token, and nothing goes past it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
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
        if self.take_symbol(symbol) { Ok(()) } else { malformed(&format!("Expected {symbol}")) }
    }

    fn expect_keyword(&mut self, keyword: &str) -> Result<()> {
        if self.take_keyword(keyword) { Ok(()) } else { malformed(&format!("Expected {keyword}")) }
    }

    fn count_operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return invalid!(
                "The expression contains more than the maximum allowed number of operators; maximum: {OPERATORS_MAX}"
            );
        }
        Ok(())
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return invalid!("The statement is nested too deeply");
        }
        Ok(())
    }

    // ---- statements

    fn statement(&mut self) -> Result<Statement> {
        if self.peek().kind == Kind::End {
            return malformed("The statement is empty");
        }
        if self.take_keyword("SELECT") {
            return Ok(Statement::Select(self.select()?));
        }
        if self.take_keyword("INSERT") {
            return self.insert();
        }
        if self.take_keyword("UPDATE") {
            return self.update();
        }
        if self.take_keyword("FROM") {
            return self.update_of_from();
        }
        if self.take_keyword("DELETE") {
            return self.delete();
        }
        if self.take_keyword("EXISTS") {
            self.expect("(")?;
            self.expect_keyword("SELECT")?;
            let select = self.select()?;
            self.expect(")")?;
            return Ok(Statement::Exists(select));
        }
        let operation = ["CREATE", "DROP"].into_iter().find(|word| self.is_keyword(word));
        match operation {
            Some(word) => invalid!("Unsupported operation: {word}"),
            None => malformed("Unexpected term"),
        }
    }

    fn select(&mut self) -> Result<Select> {
        if self.is_keyword("DISTINCT") {
            return invalid!("Unsupported token in expression: DISTINCT");
        }
        let is_name_value = self.tokens.get(self.at + 1).is_some_and(|token| token.text == ",")
            || self.tokens.get(self.at + 1).is_some_and(|token| token.text.eq_ignore_ascii_case("FROM"));
        if ["VALUE", "PIVOT"].iter().any(|word| self.is_keyword(word)) && !is_name_value {
            return invalid!("Select projection doesn't support value or pivot keywords");
        }
        let projection = if self.take_symbol("*") { None } else { Some(self.columns()?) };
        self.expect_keyword("FROM")?;
        let (table, index) = self.table()?;
        if self.is_symbol(",") {
            return invalid!("Only select from a single table or index is supported.");
        }
        let condition = self.where_clause()?;
        if self.is_keyword("GROUP") {
            return invalid!("Unsupported clause: GROUP BY");
        }
        let order = self.order()?;
        if self.is_keyword("LIMIT") {
            let at = self.tokens.get(self.at + 1).map(Token::at).unwrap_or_default();
            return invalid!("Unsupported clause: LIMIT at {at}");
        }
        if matches!(self.peek().kind, Kind::Word | Kind::Quoted) && condition.is_none() && order.is_empty() {
            return invalid!("Aliasing is not supported");
        }
        Ok(Select { table, index, projection, condition, order })
    }

    fn columns(&mut self) -> Result<Projection> {
        let (mut columns, mut known) = (Vec::new(), BTreeSet::new());
        loop {
            let is_name = matches!(self.peek().kind, Kind::Word | Kind::Quoted);
            if !is_name || self.is_function() {
                return invalid!("Unexpected path component at {}", self.peek().at());
            }
            let path = self.path()?;
            if self.is_keyword("AS") || (self.peek().kind == Kind::Word && !self.is_keyword("FROM")) {
                return invalid!("Aliasing is not supported");
            }
            let name = column_name(&path);
            if !known.insert(name.clone()) {
                return invalid!("Duplicate identifiers in select clause: {name}");
            }
            columns.push((name, path));
            if !self.take_symbol(",") {
                // Parts of an item that are selected several times would make the answer many times its size.
                let paths: Vec<&Path> = columns.iter().map(|(_, path)| path).collect();
                return match meeting(&paths) {
                    Some(problem) => invalid!("{problem}"),
                    None => Ok(Projection::named(columns)),
                };
            }
        }
    }

    /// `table` or `table.index`.
    fn table(&mut self) -> Result<(String, Option<String>)> {
        let table = self.name()?;
        let index = if self.take_symbol(".") { Some(self.name()?) } else { None };
        Ok((table, index))
    }

    /// The table of a write.
    fn written_table(&mut self) -> Result<String> {
        match self.table()? {
            (table, None) => Ok(table),
            (_, Some(_)) => invalid!("This operation is not supported on an index"),
        }
    }

    fn where_clause(&mut self) -> Result<Option<Condition>> {
        if !self.take_keyword("WHERE") {
            return Ok(None);
        }
        let node = self.or()?;
        Ok(Some(condition(node)?))
    }

    fn order(&mut self) -> Result<Vec<(String, bool)>> {
        let mut order = Vec::new();
        if !self.take_keyword("ORDER") {
            return Ok(order);
        }
        self.expect_keyword("BY")?;
        loop {
            let path = self.path()?;
            if !path.is_top() {
                return invalid!(
                    "Variable reference {} in ORDER BY clause must be part of the primary key",
                    path.root
                );
            }
            let is_descending = self.take_keyword("DESC");
            if !is_descending {
                self.take_keyword("ASC");
            }
            order.push((path.root, is_descending));
            if !self.take_symbol(",") {
                return Ok(order);
            }
        }
    }

    fn insert(&mut self) -> Result<Statement> {
        self.expect_keyword("INTO")?;
        let table = self.written_table()?;
        if self.is_symbol("<<") {
            return invalid!("Unsupported operation: InsertOp");
        }
        self.expect_keyword("VALUE")?;
        if !self.is_symbol("{") {
            return invalid!(
                "Unsupported format in item expression. Please use struct format {{...}} to express item values for \
                 insert statement. at {}",
                self.peek().at()
            );
        }
        let Value::M(item) = self.literal(0)? else { return malformed("Unexpected term") };
        if self.is_keyword("RETURNING") {
            return invalid!("RETURNING is not supported in INSERT");
        }
        Ok(Statement::Insert { table, item })
    }

    fn update(&mut self) -> Result<Statement> {
        let table = self.written_table()?;
        let update = self.changes()?;
        let condition = self.where_clause()?;
        let returning = self.returning()?;
        Ok(Statement::Update { table, update, condition, returning })
    }

    /// `FROM table WHERE … SET …`: an update with its condition in front.
    fn update_of_from(&mut self) -> Result<Statement> {
        let table = self.written_table()?;
        if !self.is_keyword("WHERE") {
            return malformed("Expected WHERE");
        }
        let condition = self.where_clause()?;
        let update = self.changes()?;
        let returning = self.returning()?;
        Ok(Statement::Update { table, update, condition, returning })
    }

    /// The clauses SET and REMOVE of an update.
    fn changes(&mut self) -> Result<Update> {
        let mut update = Update::default();
        loop {
            if self.take_keyword("SET") {
                self.set(&mut update)?;
                while self.take_symbol(",") {
                    self.set(&mut update)?;
                }
            } else if self.take_keyword("REMOVE") {
                self.count_operator()?;
                update.remove.push(self.path()?);
            } else {
                break;
            }
        }
        if update.paths().next().is_none() {
            return malformed("Expected SET or REMOVE");
        }
        let meeting = meeting(&update.paths().collect::<Vec<_>>());
        refuse(meeting, update)
    }

    fn delete(&mut self) -> Result<Statement> {
        self.expect_keyword("FROM")?;
        let table = self.written_table()?;
        let condition = self.where_clause()?;
        let shown = match self.returning()? {
            None => return Ok(Statement::Delete { table, condition, returns: false }),
            Some(Returning::AllOld) => return Ok(Statement::Delete { table, condition, returns: true }),
            Some(Returning::AllNew) => "ALL NEW",
            Some(Returning::ModifiedOld) => "MODIFIED OLD",
            Some(Returning::ModifiedNew) => "MODIFIED NEW",
        };
        invalid!(
            "Invalid returning clause: RETURNING {shown} *. Only RETURNING ALL OLD * is allowed in DELETE statements."
        )
    }

    fn returning(&mut self) -> Result<Option<Returning>> {
        if !self.take_keyword("RETURNING") {
            return Ok(None);
        }
        let is_all = self.take_keyword("ALL");
        if !is_all {
            self.expect_keyword("MODIFIED")?;
        }
        let is_old = self.take_keyword("OLD");
        if !is_old {
            self.expect_keyword("NEW")?;
        }
        if !self.take_symbol("*") {
            return invalid!("Expected '*' after ( MODIFIED | ALL ) ( NEW | OLD ) in RETURNING clause");
        }
        if self.is_symbol(",") {
            return invalid!("Invalid syntax with multiple returning elements in RETURNING clause");
        }
        Ok(Some(match (is_all, is_old) {
            (true, true) => Returning::AllOld,
            (true, false) => Returning::AllNew,
            (false, true) => Returning::ModifiedOld,
            (false, false) => Returning::ModifiedNew,
        }))
    }

    // ---- updates

    fn set(&mut self, update: &mut Update) -> Result<()> {
        self.count_operator()?;
        let path = self.path()?;
        self.expect("=")?;
        for (function, is_add) in [("set_add", true), ("set_delete", false)] {
            if self.is_keyword(function) && self.is_function() {
                let value = self.set_change(function, &path)?;
                let into = if is_add { &mut update.add } else { &mut update.delete };
                into.push(Add { path, value });
                return Ok(());
            }
        }
        let mut value = self.set_operand()?;
        while let Some(symbol) = ["+", "-", "*", "/", "%"].into_iter().find(|symbol| self.is_symbol(symbol)) {
            if !["+", "-"].contains(&symbol) {
                return invalid!("Unsupported operator in Update Expression. Operator: {symbol}");
            }
            self.at += 1;
            self.count_operator()?;
            self.deeper()?;
            let right = self.set_operand()?;
            for operand in [&value, &right] {
                if let SetValue::Value(operand) = operand
                    && !matches!(**operand, Value::N(_))
                {
                    return invalid!("{}", check::operand_type(symbol, operand.type_name()));
                }
            }
            value = SetValue::Sum(Box::new(value), symbol == "+", Box::new(right));
        }
        update.set.push((path, value));
        Ok(())
    }

    /// The set of `set_add(path, set)` or `set_delete(path, set)`.
    fn set_change(&mut self, function: &str, target: &Path) -> Result<Rc<Value>> {
        self.at += 1;
        self.count_operator()?;
        self.expect("(")?;
        if self.path()? != *target {
            return invalid!("The first operand of {function} must be the attribute that is set");
        }
        self.expect(",")?;
        let value = Rc::new(self.literal(0)?);
        self.expect(")")?;
        match *value {
            Value::Ss(_) | Value::Ns(_) | Value::Bs(_) => Ok(value),
            _ => invalid!("{}", check::operand_type(function, value.type_name())),
        }
    }

    fn set_operand(&mut self) -> Result<SetValue> {
        if self.take_symbol("(") {
            self.deeper()?;
            let inner = self.set_operand()?;
            self.expect(")")?;
            self.depth -= 1;
            return Ok(inner);
        }
        if self.is_function() {
            return self.set_function();
        }
        match self.peek().kind {
            Kind::Quoted => Ok(SetValue::Path(self.path()?)),
            Kind::Word if !self.is_value_word() => Ok(SetValue::Path(self.path()?)),
            _ => Ok(SetValue::Value(Rc::new(self.literal(0)?))),
        }
    }

    fn set_function(&mut self) -> Result<SetValue> {
        let name = self.peek().text.to_ascii_lowercase();
        self.at += 1;
        self.count_operator()?;
        match name.as_str() {
            "list_append" | "if_not_exists" => {}
            "size"
            | "attribute_exists"
            | "attribute_not_exists"
            | "attribute_type"
            | "begins_with"
            | "contains"
            | "set_add"
            | "set_delete" => {
                return invalid!("The function is not allowed in an update expression; function: {name}");
            }
            _ => return invalid!("Unrecognized function: {name}"),
        }
        self.expect("(")?;
        self.deeper()?;
        let first = self.set_operand()?;
        self.expect(",")?;
        let second = self.set_operand()?;
        self.expect(")")?;
        self.depth -= 1;
        if name == "list_append" {
            for operand in [&first, &second] {
                if let SetValue::Value(value) = operand
                    && !matches!(**value, Value::L(_))
                {
                    return invalid!("{}", check::operand_type(&name, value.type_name()));
                }
            }
            return Ok(SetValue::ListAppend(Box::new(first), Box::new(second)));
        }
        match first {
            SetValue::Path(path) => Ok(SetValue::IfNotExists(path, Box::new(second))),
            _ => invalid!("Operator or function requires a document path; operator or function: {name}"),
        }
    }

    // ---- conditions

    fn or(&mut self) -> Result<Node> {
        let first = self.and()?;
        if !self.is_keyword("OR") {
            return Ok(first);
        }
        let mut all = vec![condition(first)?];
        while self.take_keyword("OR") {
            self.count_operator()?;
            all.push(condition(self.and()?)?);
        }
        Ok(Node::Condition(Condition::Or(all)))
    }

    fn and(&mut self) -> Result<Node> {
        let first = self.not()?;
        if !self.is_keyword("AND") {
            return Ok(first);
        }
        let mut all = vec![condition(first)?];
        while self.take_keyword("AND") {
            self.count_operator()?;
            all.push(condition(self.not()?)?);
        }
        Ok(Node::Condition(Condition::And(all)))
    }

    fn not(&mut self) -> Result<Node> {
        if !self.take_keyword("NOT") {
            return self.predicate();
        }
        self.count_operator()?;
        self.deeper()?;
        let inner = condition(self.not()?)?;
        self.depth -= 1;
        Ok(negated(inner))
    }

    fn predicate(&mut self) -> Result<Node> {
        let operand = match self.primary()? {
            Node::Operand(operand) => operand,
            condition => return Ok(condition),
        };
        let comparison = match (self.peek().kind, self.peek().text.as_str()) {
            (Kind::Symbol, "=") => Some(Comparison::Eq),
            (Kind::Symbol, "<>" | "!=") => Some(Comparison::Ne),
            (Kind::Symbol, "<") => Some(Comparison::Lt),
            (Kind::Symbol, "<=") => Some(Comparison::Le),
            (Kind::Symbol, ">") => Some(Comparison::Gt),
            (Kind::Symbol, ">=") => Some(Comparison::Ge),
            (Kind::Symbol, symbol @ ("+" | "-" | "*" | "/" | "%" | "||")) => {
                return invalid!("Unsupported operator in Condition Expression. Operator: {symbol}");
            }
            _ => None,
        };
        if let Some(comparison) = comparison {
            self.at += 1;
            self.count_operator()?;
            let right = self.operand()?;
            if let (Kind::Symbol, symbol @ ("+" | "-" | "*" | "/" | "%" | "||")) =
                (self.peek().kind, self.peek().text.as_str())
            {
                return invalid!("Unsupported operator in Condition Expression. Operator: {symbol}");
            }
            let wrong = check::comparison(comparison, &operand, &right);
            return refuse(wrong, Node::Condition(Condition::Compare(comparison, operand, right)));
        }
        if self.is_keyword("LIKE") {
            return invalid!("Unsupported operator in Condition Expression. Operator: like");
        }
        if self.take_keyword("IS") {
            return self.is_test(operand);
        }
        let is_negated = self.take_keyword("NOT");
        let found = if self.take_keyword("BETWEEN") {
            self.between(operand)?
        } else if self.take_keyword("IN") {
            self.list(operand)?
        } else if is_negated {
            return malformed("Unexpected term");
        } else {
            return Ok(Node::Operand(operand));
        };
        Ok(if is_negated { negated(found) } else { Node::Condition(found) })
    }

    fn is_test(&mut self, operand: Operand) -> Result<Node> {
        self.count_operator()?;
        let is_negated = self.take_keyword("NOT");
        let found = if self.take_keyword("MISSING") {
            match operand {
                Operand::Path(path) => Condition::Not(Box::new(Condition::Exists(path))),
                _ => {
                    return invalid!(
                        "Operator or function requires a document path; operator or function: IS MISSING"
                    );
                }
            }
        } else if self.take_keyword("NULL") {
            Condition::Type(operand, Rc::new(Value::S("NULL".to_owned())))
        } else {
            return malformed("Unexpected term");
        };
        Ok(if is_negated { negated(found) } else { Node::Condition(found) })
    }

    fn between(&mut self, operand: Operand) -> Result<Condition> {
        self.count_operator()?;
        let low = self.operand()?;
        self.expect_keyword("AND")?;
        let high = self.operand()?;
        refuse(check::between(&operand, &low, &high), Condition::Between(operand, low, high))
    }

    fn list(&mut self, operand: Operand) -> Result<Condition> {
        self.count_operator()?;
        let end = if self.take_symbol("[") {
            "]"
        } else {
            self.expect("(")?;
            ")"
        };
        let mut all = vec![self.operand()?];
        while self.take_symbol(",") {
            all.push(self.operand()?);
        }
        self.expect(end)?;
        refuse(check::list(&all), Condition::In(operand, all))
    }

    /// An operand that is no condition.
    fn operand(&mut self) -> Result<Operand> {
        match self.primary()? {
            Node::Operand(operand) => Ok(operand),
            Node::Condition(_) => {
                invalid!("The function is not allowed to be used this way in an expression")
            }
        }
    }

    fn primary(&mut self) -> Result<Node> {
        if self.take_symbol("(") {
            self.deeper()?;
            let inner = self.or()?;
            self.expect(")")?;
            self.depth -= 1;
            return Ok(inner);
        }
        if self.is_function() {
            return self.function();
        }
        match self.peek().kind {
            Kind::Quoted => Ok(Node::Operand(Operand::Path(self.path()?))),
            Kind::Word if !self.is_value_word() => Ok(Node::Operand(Operand::Path(self.path()?))),
            _ => Ok(Node::Operand(Operand::Value(Rc::new(self.literal(0)?)))),
        }
    }

    fn is_function(&self) -> bool {
        let behind = self.tokens.get(self.at + 1);
        self.peek().kind == Kind::Word
            && !KEYWORDS.iter().any(|keyword| self.is_keyword(keyword))
            && behind.is_some_and(|token| token.kind == Kind::Symbol && token.text == "(")
    }

    fn function(&mut self) -> Result<Node> {
        let name = self.peek().text.clone();
        self.at += 1;
        self.count_operator()?;
        self.expect("(")?;
        if name.eq_ignore_ascii_case("EXISTS") {
            let at = self.peek().at();
            return invalid!("Unsupported token in expression: SELECT at {at}");
        }
        let known =
            ["size", "attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"];
        let Some(known) = known.into_iter().find(|known| known.eq_ignore_ascii_case(&name)) else {
            return invalid!("Unrecognized function: {name}");
        };
        self.deeper()?;
        let mut arguments = vec![self.operand()?];
        while self.take_symbol(",") {
            arguments.push(self.operand()?);
        }
        self.expect(")")?;
        self.depth -= 1;
        let (node, wrong) = check::call(known, arguments);
        refuse(wrong, node)
    }

    // ---- names, paths and values

    fn name(&mut self) -> Result<String> {
        let token = self.peek();
        let is_name = token.kind == Kind::Quoted
            || token.kind == Kind::Word && !KEYWORDS.iter().any(|keyword| self.is_keyword(keyword));
        if !is_name || token.text.is_empty() {
            return malformed("Expected identifier for simple path");
        }
        let name = token.text.clone();
        self.at += 1;
        Ok(name)
    }

    fn path(&mut self) -> Result<Path> {
        let mut path = Path::top(self.name()?);
        loop {
            if self.take_symbol(".") {
                path.rest.push(Element::Name(self.name()?));
            } else if self.take_symbol("[") {
                let token = self.peek().clone();
                self.at += 1;
                match token.kind {
                    Kind::String => path.rest.push(Element::Name(token.text)),
                    Kind::Number => match list_index(&token.text) {
                        Some(index) => path.rest.push(Element::Index(index)),
                        None => {
                            return invalid!(
                                "List index is not within the allowable range; index: [{}]",
                                token.text
                            );
                        }
                    },
                    _ => return malformed("Expected identifier for simple path"),
                }
                self.expect("]")?;
            } else {
                break;
            }
        }
        if path.rest.len() >= NESTING_MAX {
            return invalid!(
                "The document path has too many nesting elements; nesting levels: {}",
                path.rest.len() + 1
            );
        }
        Ok(path)
    }

    fn is_value_word(&self) -> bool {
        ["TRUE", "FALSE", "NULL", "MISSING"].iter().any(|word| self.is_keyword(word))
    }

    /// A value that is written out, or the next parameter.
    fn literal(&mut self, depth: usize) -> Result<Value> {
        if depth > NESTING_MAX {
            return invalid!("Nesting Levels have exceeded supported limits");
        }
        let token = self.peek().clone();
        self.at += 1;
        match (token.kind, token.text.as_str()) {
            (Kind::String, _) => Ok(Value::S(token.text)),
            (Kind::Number, text) => Ok(Value::N(Number::parse(text)?)),
            (Kind::Parameter, _) => match self.parameters.next() {
                Some(value) => Ok((**value).clone()),
                None => mismatch(),
            },
            (Kind::Symbol, sign @ ("-" | "+")) if self.peek().kind == Kind::Number => {
                let sign = if sign == "-" { "-" } else { "" };
                let number = Number::parse(&format!("{sign}{}", self.peek().text))?;
                self.at += 1;
                Ok(Value::N(number))
            }
            (Kind::Symbol, "[") => {
                let mut values = Vec::new();
                if !self.take_symbol("]") {
                    values.push(self.literal(depth + 1)?);
                    while self.take_symbol(",") {
                        values.push(self.literal(depth + 1)?);
                    }
                    self.expect("]")?;
                }
                Ok(Value::L(values))
            }
            (Kind::Symbol, "{") => self.map(depth),
            (Kind::Symbol, "<<") => self.bag(depth, &token),
            (Kind::Word, word) if word.eq_ignore_ascii_case("true") => Ok(Value::Bool(true)),
            (Kind::Word, word) if word.eq_ignore_ascii_case("false") => Ok(Value::Bool(false)),
            (Kind::Word, word) if word.eq_ignore_ascii_case("null") => Ok(Value::Null),
            (Kind::Word, word) if word.eq_ignore_ascii_case("missing") => {
                invalid!("MISSING must be compared using IS operator")
            }
            _ => malformed("Unexpected term"),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value> {
        let mut item = Item::new();
        if self.take_symbol("}") {
            return Ok(Value::M(item));
        }
        loop {
            let key = self.peek().clone();
            if key.kind != Kind::String {
                return invalid!("Tuple keys must be of type String at {}", key.at());
            }
            self.at += 1;
            self.expect(":")?;
            let value = self.literal(depth + 1)?;
            if item.insert(key.text.clone(), value).is_some() {
                return invalid!("Duplicate keys in tuple. Key: {} at {}", key.text, key.at());
            }
            if !self.take_symbol(",") {
                self.expect("}")?;
                return Ok(Value::M(item));
            }
        }
    }

    fn bag(&mut self, depth: usize, start: &Token) -> Result<Value> {
        const WRONG: &str =
            "Unsupported data type in Bag. DynamoDB only supports either numbers or strings in bags";
        if self.is_symbol(">>") {
            return invalid!("Empty bags are not supported at {}", start.at());
        }
        let mut all = vec![self.literal(depth + 1)?];
        while self.take_symbol(",") {
            all.push(self.literal(depth + 1)?);
        }
        self.expect(">>")?;
        let count = all.len();
        let (mut strings, mut numbers, mut binaries) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for value in all {
            match value {
                Value::S(text) => strings.insert(text),
                Value::N(number) => numbers.insert(number),
                Value::B(bytes) => binaries.insert(bytes),
                _ => return invalid!("{WRONG}"),
            };
        }
        let kinds = [!strings.is_empty(), !numbers.is_empty(), !binaries.is_empty()];
        if kinds.iter().filter(|one| **one).count() > 1 {
            return invalid!("{WRONG}");
        }
        if strings.len() + numbers.len() + binaries.len() < count {
            return invalid!("Input collection contains duplicates");
        }
        Ok(match kinds {
            [true, ..] => Value::Ss(strings),
            [_, true, _] => Value::Ns(numbers),
            _ => Value::Bs(binaries),
        })
    }
}

fn negated(inner: Condition) -> Node {
    Node::Condition(Condition::Not(Box::new(inner)))
}

/// A node that must be a condition.
fn condition(node: Node) -> Result<Condition> {
    match node {
        Node::Condition(condition) => Ok(condition),
        Node::Operand(Operand::Size(_)) => {
            invalid!("The function is not allowed to be used this way in an expression; function: size")
        }
        Node::Operand(_) => invalid!("The arguments to AND/OR must be Expressions"),
    }
}
