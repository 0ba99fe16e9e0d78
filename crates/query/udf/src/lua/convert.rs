//! Values of CQL in Lua and back, as ScyllaDB maps them, except that a value that does not fit a type is refused instead of cut.

use mlua::{Function, Lua, Table, Value};
use types::duration::Duration;
use types::elements::{self, Elements, Fields, VectorElements};
use types::{CqlType, TypeError};

use super::number::{Number, cast, float_text};

fn refused(error: TypeError) -> mlua::Error {
    mlua::Error::runtime(error)
}

fn array<const N: usize>(bytes: &[u8]) -> mlua::Result<[u8; N]> {
    bytes.try_into().map_err(|_| mlua::Error::runtime(format!("a value of {} bytes", bytes.len())))
}

/// A serialised value as a value of Lua; null and the empty value of types that have none are nil.
pub(super) fn to_lua(
    lua: &Lua,
    ty: &CqlType,
    bytes: Option<&[u8]>,
    number_key: &Function,
) -> mlua::Result<Value> {
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty() || ty.empty_is_a_value()) else {
        return Ok(Value::Nil);
    };
    Ok(match ty {
        CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_) => {
            Value::String(lua.create_string(bytes)?)
        }
        CqlType::Bigint | CqlType::Counter | CqlType::Time | CqlType::Timestamp => {
            Value::Integer(i64::from_be_bytes(array(bytes)?))
        }
        CqlType::Int => Value::Integer(i32::from_be_bytes(array(bytes)?).into()),
        CqlType::Smallint => Value::Integer(i16::from_be_bytes(array(bytes)?).into()),
        CqlType::Tinyint => Value::Integer(i8::from_be_bytes(array(bytes)?).into()),
        CqlType::Date => Value::Integer(u32::from_be_bytes(array(bytes)?).into()),
        CqlType::Boolean => Value::Boolean(bytes.first() != Some(&0)),
        CqlType::Float => Value::Number(f32::from_be_bytes(array(bytes)?).into()),
        CqlType::Double => Value::Number(f64::from_be_bytes(array(bytes)?)),
        CqlType::Varint | CqlType::Decimal => Number::create(lua, ty.clone(), bytes.to_vec())?,
        CqlType::Uuid | CqlType::Timeuuid | CqlType::Inet => {
            Value::String(lua.create_string(ty.to_text(bytes))?)
        }
        CqlType::Duration => {
            let Some(duration) = Duration::read(bytes) else {
                return Err(mlua::Error::runtime("a malformed duration"));
            };
            let table = lua.create_table()?;
            table.raw_set("months", duration.months)?;
            table.raw_set("days", duration.days)?;
            table.raw_set("nanoseconds", duration.nanos)?;
            Value::Table(table)
        }
        CqlType::List { .. }
        | CqlType::Vector { .. }
        | CqlType::Set { .. }
        | CqlType::Map { .. }
        | CqlType::Tuple(_)
        | CqlType::Udt { .. } => Value::Table(table_to_lua(lua, ty, bytes, number_key)?),
    })
}

/// A value of a type with parts as a table.
fn table_to_lua(lua: &Lua, ty: &CqlType, bytes: &[u8], number_key: &Function) -> mlua::Result<Table> {
    let inner = |ty: &CqlType, bytes: Option<&[u8]>| to_lua(lua, ty, bytes, number_key);
    // Keys that are tables come in the order of the collection.
    let key = |ty: &CqlType, bytes: Option<&[u8]>| {
        let value = inner(ty, bytes)?;
        if matches!(value, Value::Table(_)) {
            number_key.call::<()>(&value)?;
        }
        Ok::<_, mlua::Error>(value)
    };
    let table = lua.create_table()?;
    match ty {
        CqlType::List { element, .. } => {
            for (at, item) in Elements::of_list(bytes).map_err(refused)?.enumerate() {
                table.raw_set(at + 1, inner(element, item.map_err(refused)?)?)?;
            }
        }
        CqlType::Vector { element, dimension } => {
            for (at, item) in VectorElements::new(element, *dimension, bytes).enumerate() {
                table.raw_set(at + 1, inner(element, Some(item.map_err(refused)?))?)?;
            }
        }
        CqlType::Set { element, .. } => {
            for item in Elements::of_set(bytes).map_err(refused)? {
                let item = key(element, item.map_err(refused)?)?;
                if !item.is_nil() {
                    table.raw_set(item, true)?;
                }
            }
        }
        CqlType::Map { key: key_type, value, .. } => {
            let mut items = Elements::of_map(bytes).map_err(refused)?;
            while let Some(name) = items.next() {
                let name = key(key_type, name.map_err(refused)?)?;
                let item = items.next().transpose().map_err(refused)?.flatten();
                if !name.is_nil() {
                    table.raw_set(name, inner(value, item)?)?;
                }
            }
        }
        CqlType::Tuple(types) => {
            for (at, (ty, field)) in types.iter().zip(Fields::new(bytes)).enumerate() {
                table.raw_set(at + 1, inner(ty, field.map_err(refused)?)?)?;
            }
        }
        CqlType::Udt { ty, .. } => {
            for ((name, ty), field) in ty.fields.iter().zip(Fields::new(bytes)) {
                table.raw_set(name.as_str(), inner(ty, field.map_err(refused)?)?)?;
            }
        }
        _ => {}
    }
    Ok(table)
}

/// The serialised form of a value of Lua; none for nil. At most `bytes_max` bytes.
pub(super) fn from_lua(
    lua: &Lua,
    ty: &CqlType,
    value: &Value,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, String> {
    let mut writer = Writer { lua, left: bytes_max };
    let bytes = writer.nullable(ty, value)?;
    if let Some(bytes) = &bytes {
        ty.validate(bytes).map_err(|error| error.to_string())?;
    }
    Ok(bytes)
}

/// The conversion of one result.
struct Writer<'a> {
    lua: &'a Lua,
    /// Bytes that the result may still take: one table may be part of it many times.
    left: usize,
}

type Written = Result<Vec<u8>, String>;

fn unexpected<T>(ty: &CqlType, value: &Value) -> Result<T, String> {
    Err(format!("a {} cannot be returned as {}", value.type_name(), ty.cql_name_unfrozen()))
}

fn out_of_range(ty: &CqlType) -> String {
    format!("the number is out of the range of {}", ty.cql_name_unfrozen())
}

fn table_of<'v>(ty: &CqlType, value: &'v Value) -> Result<&'v Table, String> {
    match value {
        Value::Table(table) => Ok(table),
        other => unexpected(ty, other),
    }
}

impl Writer<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err("the result is larger than the memory of a function".to_owned()),
        }
    }

    fn nullable(&mut self, ty: &CqlType, value: &Value) -> Result<Option<Vec<u8>>, String> {
        self.take(4)?;
        if value.is_nil() {
            return Ok(None);
        }
        let bytes = self.value(ty, value)?;
        if !ty.is_collection() {
            self.take(bytes.len())?;
        }
        Ok(Some(bytes))
    }

    /// An element of a collection, which is never null.
    fn element(&mut self, ty: &CqlType, value: &Value) -> Written {
        self.nullable(ty, value)?.ok_or_else(|| "null is not supported inside collections".to_owned())
    }

    fn value(&mut self, ty: &CqlType, value: &Value) -> Written {
        match ty {
            CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_) => self.string(ty, value),
            CqlType::Boolean => Ok(vec![u8::from(is_true(value))]),
            CqlType::Bigint | CqlType::Counter => Ok(self.integer(ty, value)?.to_be_bytes().into()),
            CqlType::Int => self.small(ty, value, i32::to_be_bytes),
            CqlType::Smallint => self.small(ty, value, i16::to_be_bytes),
            CqlType::Tinyint => self.small(ty, value, i8::to_be_bytes),
            CqlType::Double => Ok(self.float(ty, value)?.to_be_bytes().into()),
            CqlType::Float => Ok((self.float(ty, value)? as f32).to_be_bytes().into()),
            CqlType::Varint => self.varint(ty, value),
            CqlType::Decimal => match value {
                Value::UserData(data) => match &*number(data)? {
                    Number { ty: CqlType::Varint, bytes, .. } => Ok([&[0; 4][..], bytes].concat()),
                    decimal => Ok(decimal.bytes.clone()),
                },
                Value::Integer(number) => literal(ty, &number.to_string()),
                Value::Number(number) => literal(ty, &float_text(*number)?),
                Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?.trim()),
                other => unexpected(ty, other),
            },
            CqlType::Uuid | CqlType::Timeuuid | CqlType::Inet => match value {
                Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?),
                other => unexpected(ty, other),
            },
            CqlType::Date => match value {
                Value::Table(table) => self.date(table),
                Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?),
                other => {
                    let days = u32::try_from(self.integer(ty, other)?).map_err(|_| out_of_range(ty))?;
                    Ok(days.to_be_bytes().into())
                }
            },
            CqlType::Time | CqlType::Timestamp => match value {
                Value::Table(table) if *ty == CqlType::Timestamp => self.timestamp(table),
                Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?),
                other => Ok(self.integer(ty, other)?.to_be_bytes().into()),
            },
            CqlType::Duration => match value {
                Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?),
                other => self.duration(ty, table_of(ty, other)?),
            },
            CqlType::List { .. }
            | CqlType::Vector { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt { .. } => self.parts(ty, value),
        }
    }

    /// A value of a type with parts.
    fn parts(&mut self, ty: &CqlType, value: &Value) -> Written {
        match ty {
            CqlType::List { element, .. } => {
                let items = self.sequence(ty, element, value)?;
                Ok(elements::build_list(items))
            }
            CqlType::Vector { element, dimension } => {
                let items = self.sequence(ty, element, value)?;
                if items.len() != *dimension as usize {
                    return Err(format!(
                        "a {} has {dimension} elements, not {}",
                        ty.cql_name_unfrozen(),
                        items.len()
                    ));
                }
                Ok(elements::build_vector(element, items))
            }
            CqlType::Set { element, .. } => {
                let mut items = Vec::new();
                for pair in table_of(ty, value)?.pairs::<Value, Value>() {
                    let (item, member) = pair.map_err(|error| error.to_string())?;
                    if !is_true(&member) {
                        return Err(
                            "a set is a table whose keys are the elements and whose values are true".into()
                        );
                    }
                    items.push(self.element(element, &item)?);
                }
                Ok(elements::build_set(element, items))
            }
            CqlType::Map { key, value: of, .. } => {
                let mut entries = Vec::new();
                for pair in table_of(ty, value)?.pairs::<Value, Value>() {
                    let (name, item) = pair.map_err(|error| error.to_string())?;
                    entries.push((self.element(key, &name)?, self.element(of, &item)?));
                }
                Ok(elements::build_map(key, entries))
            }
            CqlType::Tuple(types) => self.tuple(ty, types, table_of(ty, value)?),
            CqlType::Udt { ty: udt, .. } => self.user_type(ty, udt, table_of(ty, value)?),
            _ => unexpected(ty, value),
        }
    }

    fn string(&mut self, ty: &CqlType, value: &Value) -> Written {
        let bytes = match value {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::UserData(data) => {
                number(data)?.text().map_err(|error| super::detail(&error))?.into_bytes()
            }
            Value::Integer(_) | Value::Number(_) => match self.lua.coerce_string(value.clone()) {
                Ok(Some(text)) => text.as_bytes().to_vec(),
                _ => return unexpected(ty, value),
            },
            other => return unexpected(ty, other),
        };
        match ty.validate(&bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Lua's integers, and numbers of any size without a fraction.
    fn integer(&mut self, ty: &CqlType, value: &Value) -> Result<i64, String> {
        if let Value::UserData(data) = value {
            let bytes = self.whole(&*number(data)?)?;
            return small_integer(&bytes).ok_or_else(|| out_of_range(ty));
        }
        match self.lua.coerce_integer(value.clone()) {
            Ok(Some(number)) => Ok(number),
            _ if matches!(value, Value::Number(_)) => {
                Err(format!("the number has a fraction or is out of the range of {}", ty.cql_name_unfrozen()))
            }
            _ => unexpected(ty, value),
        }
    }

    fn small<T: TryFrom<i64>, const N: usize>(
        &mut self,
        ty: &CqlType,
        value: &Value,
        bytes: fn(T) -> [u8; N],
    ) -> Written {
        let number = T::try_from(self.integer(ty, value)?).map_err(|_| out_of_range(ty))?;
        Ok(bytes(number).into())
    }

    /// The bytes of a number without a fraction as a varint.
    fn whole(&mut self, number: &Number) -> Written {
        let bytes = cast(&number.ty, &number.bytes, &CqlType::Varint)?;
        if number.ty == CqlType::Decimal {
            let back = [&[0; 4][..], &bytes].concat();
            if CqlType::Decimal.compare(&back, &number.bytes).is_ne() {
                return Err("the number has a fraction".to_owned());
            }
        }
        Ok(bytes)
    }

    fn float(&mut self, ty: &CqlType, value: &Value) -> Result<f64, String> {
        if let Value::UserData(data) = value {
            let text = number(data)?.text().map_err(|error| super::detail(&error))?;
            return text.parse().map_err(|_| out_of_range(ty));
        }
        match self.lua.coerce_number(value.clone()) {
            Ok(Some(number)) => Ok(number),
            _ => unexpected(ty, value),
        }
    }

    fn varint(&mut self, ty: &CqlType, value: &Value) -> Written {
        match value {
            Value::UserData(data) => {
                let number = number(data)?;
                self.whole(&number)
            }
            Value::Integer(number) => literal(ty, &number.to_string()),
            Value::Number(number) if number.is_finite() && number.fract() == 0.0 => {
                literal(ty, &format!("{number:.0}"))
            }
            Value::String(text) => literal(ty, utf8(ty, &text.as_bytes())?.trim()),
            other => unexpected(ty, other),
        }
    }

    fn duration(&mut self, ty: &CqlType, table: &Table) -> Written {
        let mut part = |name: &str| match table.raw_get::<Value>(name) {
            Ok(Value::Nil) => Ok(0),
            Ok(value) => self.integer(ty, &value),
            Err(error) => Err(super::detail(&error)),
        };
        let (months, days, nanos) = (part("months")?, part("days")?, part("nanoseconds")?);
        let small = |number: i64| i32::try_from(number).map_err(|_| out_of_range(ty));
        Ok(Duration { months: small(months)?, days: small(days)?, nanos }.to_bytes())
    }

    /// The parts of a table of Lua's `os.date`: year, month and day, and the time of the day as far as it is given.
    fn date_parts(&mut self, table: &Table) -> Result<([i64; 3], [Option<i64>; 3]), String> {
        const NAMES: [&[u8]; 6] = [b"year", b"month", b"day", b"hour", b"min", b"sec"];
        let mut parts = [None; 6];
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair.map_err(|error| error.to_string())?;
            let place = match &name {
                Value::String(name) => NAMES.iter().position(|known| **known == *name.as_bytes()),
                _ => None,
            };
            let Some(place) = place else { return Err("a date table has an invalid field".to_owned()) };
            parts[place] = Some(i64::from(
                i32::try_from(self.integer(&CqlType::Int, &value)?)
                    .map_err(|_| out_of_range(&CqlType::Int))?,
            ));
        }
        match parts {
            [Some(year), Some(month), Some(day), time @ ..] => Ok(([year, month, day], time)),
            _ => Err("date table must have year, month and day".to_owned()),
        }
    }

    fn date(&mut self, table: &Table) -> Written {
        match self.date_parts(table)? {
            (day, [None, None, None]) => day_of(day),
            _ => Err("date type has no hour, minute or second".to_owned()),
        }
    }

    /// A time of UTC, at noon unless it has an hour.
    fn timestamp(&mut self, table: &Table) -> Written {
        let (day, [hour, minute, second]) = self.date_parts(table)?;
        let bytes = day_of(day)?.try_into().map_err(|_| out_of_range(&CqlType::Timestamp))?;
        let days = i64::from(u32::from_be_bytes(bytes)) - (1 << 31);
        let hours = days * 24 + hour.unwrap_or(12);
        let seconds = (hours * 60 + minute.unwrap_or(0)) * 60 + second.unwrap_or(0);
        Ok((seconds * 1000).to_be_bytes().into())
    }

    /// The elements of a table that is a sequence.
    fn sequence(&mut self, ty: &CqlType, element: &CqlType, value: &Value) -> Result<Vec<Vec<u8>>, String> {
        let table = table_of(ty, value)?;
        let (count, last) = extent(table)?;
        if count != last {
            return Err(format!(
                "the table is no sequence and cannot be returned as {}",
                ty.cql_name_unfrozen()
            ));
        }
        let mut items = Vec::new();
        for at in 1..=last {
            let item: Value = table.raw_get(at).map_err(|error| super::detail(&error))?;
            items.push(self.element(element, &item)?);
        }
        Ok(items)
    }

    fn tuple(&mut self, ty: &CqlType, types: &[CqlType], table: &Table) -> Written {
        let (_, last) = extent(table)?;
        if last > types.len() {
            return Err(format!("a {} has {} fields, not {last}", ty.cql_name_unfrozen(), types.len()));
        }
        let mut fields = Vec::with_capacity(types.len());
        for (at, ty) in types.iter().enumerate() {
            let field: Value = table.raw_get(at + 1).map_err(|error| super::detail(&error))?;
            fields.push(self.nullable(ty, &field)?);
        }
        Ok(elements::build_tuple(fields))
    }

    fn user_type(&mut self, ty: &CqlType, udt: &types::UserType, table: &Table) -> Written {
        for pair in table.pairs::<Value, Value>() {
            let (name, _) = pair.map_err(|error| error.to_string())?;
            let known = match &name {
                Value::String(name) => {
                    udt.fields.iter().any(|(field, _)| *field.as_bytes() == *name.as_bytes())
                }
                _ => false,
            };
            if !known {
                return Err(format!("the table has a key that is no field of {}", ty.cql_name_unfrozen()));
            }
        }
        let mut fields = Vec::with_capacity(udt.fields.len());
        for (name, ty) in &udt.fields {
            let field: Value = table.raw_get(name.as_str()).map_err(|error| super::detail(&error))?;
            fields.push(self.nullable(ty, &field)?);
        }
        Ok(elements::build_tuple(fields))
    }
}

/// How many entries a table has, and its largest key; every key is a number from 1 on.
fn extent(table: &Table) -> Result<(usize, usize), String> {
    let (mut count, mut last) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|error| error.to_string())?;
        let at = match key {
            Value::Integer(at) => usize::try_from(at).unwrap_or(0),
            _ => 0,
        };
        if at == 0 {
            return Err("the table is no sequence: it has keys other than 1, 2, 3 …".to_owned());
        }
        (count, last) = (count + 1, last.max(at));
    }
    Ok((count, last))
}

fn number(data: &mlua::AnyUserData) -> Result<mlua::UserDataRef<Number>, String> {
    data.borrow::<Number>().map_err(|error| error.to_string())
}

fn utf8<'b>(ty: &CqlType, bytes: &'b [u8]) -> Result<&'b str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("the string is no {}", ty.cql_name_unfrozen()))
}

fn literal(ty: &CqlType, text: &str) -> Written {
    if text.is_empty() {
        return Err(format!("the empty string is no {}", ty.cql_name_unfrozen()));
    }
    ty.from_string(text).map_err(|error| error.to_string())
}

/// Lua's truth of a value.
fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Nil | Value::Boolean(false))
}

/// The `date` of a year, a month and a day.
fn day_of([year, month, day]: [i64; 3]) -> Written {
    if !(0..=9999).contains(&year) {
        return Err(out_of_range(&CqlType::Date));
    }
    literal(&CqlType::Date, &format!("{year:04}-{month:02}-{day:02}"))
}

/// A varint that fits 64 bits.
fn small_integer(bytes: &[u8]) -> Option<i64> {
    let sign = if bytes.first()? & 0x80 == 0 { 0_u8 } else { 0xff };
    let start = bytes.len().saturating_sub(8);
    let (lead, rest) = bytes.split_at(start);
    let mut number = [sign; 8];
    number[8 - rest.len()..].copy_from_slice(rest);
    let fits = lead.iter().all(|byte| *byte == sign) && (lead.is_empty() || (rest[0] ^ sign) & 0x80 == 0);
    fits.then_some(i64::from_be_bytes(number))
}
