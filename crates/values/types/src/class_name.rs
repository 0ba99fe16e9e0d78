//! Names of types as Cassandra's classes, the form that SSTable headers and old schemas hold.

use crate::validate::{hex, unhex};
use crate::{CqlType, UserType};
use std::fmt;
use std::sync::Arc;

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// How deeply classes may be nested in a name: far beyond any schema, far below the stack.
const DEPTH_MAX: usize = 64;

/// A class name that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassNameError {
    /// The whole text.
    pub text: String,
    /// Where it went wrong, as a byte offset.
    pub offset: usize,
    /// The expected content there.
    pub expected: &'static str,
}

impl fmt::Display for ClassNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid type class '{}': expected {} at offset {}", self.text, self.expected, self.offset)
    }
}

impl std::error::Error for ClassNameError {}

impl CqlType {
    /// The class name as SSTable headers hold it, wrapped in `ReversedType(…)` when `reversed`.
    pub fn class_name(&self, reversed: bool) -> String {
        let mut out = String::new();
        if reversed {
            out.push_str(PACKAGE);
            out.push_str("ReversedType(");
        }
        self.write_class(&mut out, false);
        if reversed {
            out.push(')');
        }
        out
    }

    /// Reads a class name; the flag says whether the outermost class is `ReversedType`. A class that is not known
    /// becomes [`CqlType::Custom`] with its parameters.
    ///
    /// # Errors
    /// A [`ClassNameError`] with the offset when the text is no class name, has the wrong parameters for its class,
    /// nests too deeply, or something follows it.
    pub fn parse_class_name(text: &str) -> Result<(CqlType, bool), ClassNameError> {
        let mut parser = Parser { text, at: 0 };
        let parsed = parser.class(0)?;
        parser.skip_blanks();
        if parser.at != text.len() {
            return Err(parser.error("the end"));
        }
        Ok(parsed)
    }

    /// Inside a frozen type the inner ones are not marked, so `ignore_frozen` travels down.
    fn write_class(&self, out: &mut String, ignore_frozen: bool) {
        let class = match self {
            CqlType::Custom(class) => return out.push_str(class),
            CqlType::List { .. } => "ListType",
            CqlType::Set { .. } => "SetType",
            CqlType::Map { .. } => "MapType",
            CqlType::Tuple(_) => "TupleType",
            CqlType::Udt { .. } => "UserType",
            CqlType::Vector { .. } => "VectorType",
            native => native_class(native),
        };
        let freezable = self.is_collection() || self.is_udt();
        let frozen = freezable && !self.is_multi_cell();
        if frozen && !ignore_frozen {
            out.push_str(PACKAGE);
            out.push_str("FrozenType(");
        }
        out.push_str(PACKAGE);
        out.push_str(class);
        let inner = ignore_frozen || frozen || self.is_tuple();
        match self {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                write_classes(out, [&**element], inner)
            }
            CqlType::Map { key, value, .. } => write_classes(out, [&**key, &**value], inner),
            CqlType::Tuple(fields) => write_classes(out, fields.iter(), inner),
            CqlType::Vector { element, dimension } => {
                out.push('(');
                element.write_class(out, inner);
                out.push_str(&format!(" , {dimension})"));
            }
            CqlType::Udt { ty, .. } => {
                out.push_str(&format!("({},{}", ty.keyspace, hex(ty.name.as_bytes())));
                for (name, field) in &ty.fields {
                    out.push_str(&format!(",{}:", hex(name.as_bytes())));
                    field.write_class(out, inner);
                }
                out.push(')');
            }
            _ => {}
        }
        if frozen && !ignore_frozen {
            out.push(')');
        }
    }
}

/// The class name of a partition key of several columns, as SSTable headers hold it.
pub fn composite_class_name<'a>(types: impl IntoIterator<Item = &'a CqlType>) -> String {
    let mut out = format!("{PACKAGE}CompositeType");
    write_classes(&mut out, types, false);
    out
}

/// The types of a partition key from its class name: those of a `CompositeType`, else the one.
///
/// # Errors
/// As [`CqlType::parse_class_name`].
pub fn parse_key_class_name(text: &str) -> Result<Vec<CqlType>, ClassNameError> {
    let simple = text.strip_prefix(PACKAGE).unwrap_or(text);
    let Some(parameters) = simple.strip_prefix("CompositeType") else {
        return CqlType::parse_class_name(text).map(|(ty, _)| vec![ty]);
    };
    let mut parser = Parser { text, at: text.len() - parameters.len() };
    let types = parser.parameters(0)?;
    parser.skip_blanks();
    if parser.at != text.len() {
        return Err(parser.error("the end"));
    }
    Ok(types)
}

fn write_classes<'a>(out: &mut String, types: impl IntoIterator<Item = &'a CqlType>, ignore_frozen: bool) {
    out.push('(');
    for (i, ty) in types.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        ty.write_class(out, ignore_frozen);
    }
    out.push(')');
}

fn native_class(ty: &CqlType) -> &'static str {
    match ty {
        CqlType::Ascii => "AsciiType",
        CqlType::Bigint => "LongType",
        CqlType::Boolean => "BooleanType",
        CqlType::Counter => "CounterColumnType",
        CqlType::Date => "SimpleDateType",
        CqlType::Decimal => "DecimalType",
        CqlType::Double => "DoubleType",
        CqlType::Duration => "DurationType",
        CqlType::Float => "FloatType",
        CqlType::Inet => "InetAddressType",
        CqlType::Int => "Int32Type",
        CqlType::Smallint => "ShortType",
        CqlType::Text => "UTF8Type",
        CqlType::Time => "TimeType",
        CqlType::Timestamp => "TimestampType",
        CqlType::Timeuuid => "TimeUUIDType",
        CqlType::Tinyint => "ByteType",
        CqlType::Uuid => "UUIDType",
        CqlType::Varint => "IntegerType",
        _ => "BytesType",
    }
}

fn native_of_class(class: &str) -> Option<CqlType> {
    Some(match class {
        "AsciiType" => CqlType::Ascii,
        "LongType" => CqlType::Bigint,
        "BytesType" => CqlType::Blob,
        "BooleanType" => CqlType::Boolean,
        "CounterColumnType" => CqlType::Counter,
        "SimpleDateType" => CqlType::Date,
        "DecimalType" => CqlType::Decimal,
        "DoubleType" => CqlType::Double,
        "DurationType" => CqlType::Duration,
        "FloatType" => CqlType::Float,
        "InetAddressType" => CqlType::Inet,
        "Int32Type" => CqlType::Int,
        "ShortType" => CqlType::Smallint,
        "UTF8Type" => CqlType::Text,
        "TimeType" => CqlType::Time,
        // The second name is that of a version before 1.2, with the same values.
        "TimestampType" | "DateType" => CqlType::Timestamp,
        "TimeUUIDType" => CqlType::Timeuuid,
        "ByteType" => CqlType::Tinyint,
        "UUIDType" => CqlType::Uuid,
        "IntegerType" => CqlType::Varint,
        _ => return None,
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, expected: &'static str) -> ClassNameError {
        ClassNameError { text: self.text.to_owned(), offset: self.at, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8, expected: &'static str) -> Result<(), ClassNameError> {
        self.skip_blanks();
        if self.peek() != Some(byte) {
            return Err(self.error(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, ClassNameError> {
        self.skip_blanks();
        let start = self.at;
        let is_word =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'.' | b'&');
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
        match self.text.get(start..self.at) {
            Some(word) if !word.is_empty() => Ok(word),
            _ => Err(self.error(expected)),
        }
    }

    fn hex_name(&mut self, expected: &'static str) -> Result<String, ClassNameError> {
        let word = self.word(expected)?;
        let name = unhex(word).and_then(|bytes| String::from_utf8(bytes).ok());
        name.ok_or_else(|| self.error(expected))
    }

    /// Whether another parameter follows; eats the comma or the closing parenthesis.
    fn next_parameter(&mut self) -> Result<bool, ClassNameError> {
        self.skip_blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b')') => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.error("',' or ')'")),
        }
    }

    fn class(&mut self, depth: usize) -> Result<(CqlType, bool), ClassNameError> {
        if depth > DEPTH_MAX {
            return Err(self.error("a class nested less deeply"));
        }
        let start = self.at;
        let name = self.word("a class name")?;
        let class = name.strip_prefix(PACKAGE).unwrap_or(name);
        if let Some(native) = native_of_class(class) {
            self.skip_blanks();
            if self.peek() != Some(b'(') {
                return Ok((native, false));
            }
        }
        let ty = match class {
            "ReversedType" => return Ok((self.only_parameter(depth)?, true)),
            "FrozenType" => self.only_parameter(depth)?.freeze(),
            "ListType" => CqlType::list(self.only_parameter(depth)?, false),
            "SetType" => CqlType::set(self.only_parameter(depth)?, false),
            "MapType" => {
                let [key, value] = <[CqlType; 2]>::try_from(self.parameters(depth)?)
                    .map_err(|_| self.error("two parameters of MapType"))?;
                CqlType::map(key, value, false)
            }
            "TupleType" => CqlType::tuple(self.parameters(depth)?.iter().map(CqlType::freeze)),
            "UserType" => self.user_type(depth)?,
            "VectorType" => self.vector(depth)?,
            _ => self.custom(start)?,
        };
        Ok((ty, false))
    }

    fn only_parameter(&mut self, depth: usize) -> Result<CqlType, ClassNameError> {
        let [only] =
            <[CqlType; 1]>::try_from(self.parameters(depth)?).map_err(|_| self.error("one parameter"))?;
        Ok(only)
    }

    fn parameters(&mut self, depth: usize) -> Result<Vec<CqlType>, ClassNameError> {
        self.eat(b'(', "'('")?;
        let mut types = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b')') {
            self.at += 1;
            return Ok(types);
        }
        loop {
            types.push(self.class(depth + 1)?.0);
            if !self.next_parameter()? {
                return Ok(types);
            }
        }
    }

    fn user_type(&mut self, depth: usize) -> Result<CqlType, ClassNameError> {
        self.eat(b'(', "'('")?;
        let keyspace = self.word("a keyspace")?.to_owned();
        self.eat(b',', "','")?;
        let name = self.hex_name("the type's name in hexadecimal")?;
        let mut fields = Vec::new();
        while self.next_parameter()? {
            let field = self.hex_name("a field's name in hexadecimal")?;
            self.eat(b':', "':'")?;
            fields.push((field, self.class(depth + 1)?.0));
        }
        Ok(CqlType::Udt { ty: Arc::new(UserType { keyspace, name, fields }), frozen: false })
    }

    fn vector(&mut self, depth: usize) -> Result<CqlType, ClassNameError> {
        self.eat(b'(', "'('")?;
        let (element, _) = self.class(depth + 1)?;
        self.eat(b',', "','")?;
        let dimension = self.word("a dimension")?.parse().ok().filter(|dimension| *dimension > 0);
        let dimension = dimension.ok_or_else(|| self.error("a dimension"))?;
        self.eat(b')', "')'")?;
        Ok(CqlType::vector(element, dimension))
    }

    /// A class that is not ours: kept whole, with the content of its parentheses.
    fn custom(&mut self, start: usize) -> Result<CqlType, ClassNameError> {
        if self.peek() == Some(b'(') {
            let mut open = 0usize;
            loop {
                match self.peek() {
                    Some(b'(') => open += 1,
                    Some(b')') => open -= 1,
                    Some(_) => {}
                    None => return Err(self.error("')'")),
                }
                self.at += 1;
                if open == 0 {
                    break;
                }
            }
        }
        let class = self.text.get(start..self.at).unwrap_or_default().trim();
        if class.contains('.') {
            return Ok(CqlType::Custom(Arc::from(class)));
        }
        Ok(CqlType::Custom(Arc::from(format!("{PACKAGE}{class}"))))
    }
}
