//! Names of types in statements, resolved to types of the schema.

use cql::ast::{DataType, NativeType};
use schema::Schema;
use types::CqlType;

use crate::error::{ExecError, Result, invalid, shown};

/// A built-in scalar type.
pub fn native(ty: NativeType) -> CqlType {
    CqlType::from_native_name(ty.name()).expect("every native type of the grammar is a type")
}

/// A type's name as it was written.
pub fn text(ty: &DataType) -> String {
    shown_in(ty, None)
}

/// A type's name as it was written, user types with the keyspace that they are in.
pub fn text_within(ty: &DataType, keyspace: &str) -> String {
    shown_in(ty, Some(keyspace))
}

fn shown_in(ty: &DataType, home: Option<&str>) -> String {
    let text = |ty: &DataType| shown_in(ty, home);
    match ty {
        DataType::Native(ty) => ty.name().to_owned(),
        DataType::List(element) => format!("list<{}>", text(element)),
        DataType::Set(element) => format!("set<{}>", text(element)),
        DataType::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        DataType::Tuple(fields) => {
            format!("tuple<{}>", fields.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        DataType::Vector(element, dimension) => format!("vector<{}, {dimension}>", text(element)),
        DataType::Frozen(inner) => format!("frozen<{}>", text(inner)),
        DataType::UserDefined(name) => match name.keyspace.as_deref().or(home) {
            Some(keyspace) => format!("{keyspace}.{}", name.name),
            None => name.name.clone(),
        },
        DataType::Custom(class) => format!("'{class}'"),
    }
}

/// A budget of types inside of types: a user type is copied wherever it is used, so a type of types multiplies.
pub struct TypeBudget {
    left: usize,
    most: usize,
}

impl TypeBudget {
    /// That of the fields of one user type.
    pub const fn of_type() -> Self {
        Self { left: 65_536, most: 65_536 }
    }

    /// That of the columns of one table.
    pub const fn of_table() -> Self {
        Self { left: 1_000_000, most: 1_000_000 }
    }

    /// Takes a type with all types inside of it.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when the budget is spent: `name` is that of the whole.
    pub fn take(&mut self, ty: &CqlType, name: &str) -> Result<()> {
        let spent = ty.any(&mut |_| match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        });
        if spent {
            return invalid!(
                "'{name}' would have more than {} types inside of each other, with the fields of user types wherever they are used",
                self.most
            );
        }
        Ok(())
    }
}

/// The largest number of elements of a vector.
const DIMENSION_MAX: i32 = i32::MAX;

/// The type with this name in a statement about `keyspace`.
///
/// # Errors
/// [`ExecError::Invalid`] when a user type is unknown, a collection inside another is not frozen, or an element type is
/// not allowed there; [`ExecError::Syntax`] as [`of_class`].
pub fn resolve(ty: &DataType, schema: &Schema, keyspace: &str) -> Result<CqlType> {
    let resolve_inner = |inner: &DataType| resolve(inner, schema, keyspace);
    let resolve_element =
        |element: &DataType| check_frozen(element, ty).and_then(|()| resolve_inner(element));
    Ok(match ty {
        DataType::Native(ty) => native(*ty),
        DataType::List(element) => {
            let element = resolve_element(element)?;
            check_element(&element, ty)?;
            CqlType::list(element, false)
        }
        DataType::Set(element) => {
            let element = resolve_element(element)?;
            check_element(&element, ty)?;
            check_durations(ty, ty)?;
            CqlType::set(element, false)
        }
        DataType::Map(key, value) => {
            let (key, value) = (resolve_element(key)?, resolve_element(value)?);
            check_element(&key, ty)?;
            check_element(&value, ty)?;
            check_durations(ty, ty)?;
            CqlType::map(key, value, false)
        }
        DataType::Tuple(fields) => {
            let fields = fields.iter().map(resolve_inner).collect::<Result<Vec<_>>>()?;
            if fields.iter().any(CqlType::is_or_contains_counter) {
                return invalid!("Counters are not allowed inside tuples");
            }
            CqlType::tuple(fields.iter().map(CqlType::freeze))
        }
        DataType::Vector(element, dimension) => {
            let element = resolve_inner(element)?;
            if !(1..=DIMENSION_MAX).contains(dimension) {
                return invalid!("vectors may only have positive dimensions; given {dimension}");
            }
            CqlType::vector(element, dimension.unsigned_abs())
        }
        DataType::Frozen(inner) => {
            let mut plain = &**inner;
            while let DataType::Frozen(next) = plain {
                plain = next;
            }
            check_durations(plain, ty)?;
            if matches!(plain, DataType::Native(_)) {
                return Err(ExecError::Syntax(format!(
                    "frozen<> is only allowed on collections, tuples, and user-defined types (got {})",
                    text(plain)
                )));
            }
            resolve(&freeze_names(plain), schema, keyspace)?.freeze()
        }
        DataType::UserDefined(name) => {
            let of = name.keyspace.as_deref().unwrap_or(keyspace);
            if of != keyspace {
                return invalid!(
                    "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {of}; user types can only \
                     be used in the keyspace they are defined in"
                );
            }
            match schema.keyspace(of).and_then(|keyspace| keyspace.types.get(&name.name)) {
                Some(ty) => CqlType::Udt { ty: ty.clone(), frozen: false },
                None => return invalid!("Unknown type {of}.{}", name.name),
            }
        }
        DataType::Custom(class) => of_class(class)?.0,
    })
}

/// The type of a class's name, and whether it is in `ReversedType`.
///
/// # Errors
/// [`ExecError::Syntax`] when no type has the class.
pub fn of_class(class: &str) -> Result<(CqlType, bool)> {
    let found = match CqlType::parse_class_name(class) {
        Ok((CqlType::Custom(name), reversed)) => {
            types::custom::known(&name).map(|name| (CqlType::Custom(name.into()), reversed))
        }
        Ok(found) => Some(found),
        Err(_) => None,
    };
    let package = if class.contains('.') { "" } else { "org.apache.cassandra.db.marshal." };
    found.ok_or_else(|| {
        let class = shown(class);
        ExecError::Syntax(format!(
            "Error setting type {class}: Unable to find abstract-type class '{package}{class}'"
        ))
    })
}

/// Everything inside `frozen<…>` is frozen throughout, so that rules about unfrozen elements do not apply.
fn freeze_names(ty: &DataType) -> DataType {
    let inner = |ty: &DataType| match ty {
        DataType::Native(_) | DataType::Custom(_) | DataType::Frozen(_) => ty.clone(),
        other => DataType::Frozen(Box::new(other.clone())),
    };
    match ty {
        DataType::List(element) => DataType::List(Box::new(inner(element))),
        DataType::Set(element) => DataType::Set(Box::new(inner(element))),
        DataType::Map(key, value) => DataType::Map(Box::new(inner(key)), Box::new(inner(value))),
        other => other.clone(),
    }
}

/// Refuses durations in a set or as keys of a map. Those inside of their elements are taken, as in Cassandra, and ordered by their bytes.
fn check_durations(ty: &DataType, whole: &DataType) -> Result<()> {
    let is_duration = |ty: &DataType| matches!(ty, DataType::Native(ty) if native(*ty) == CqlType::Duration);
    match ty {
        DataType::Set(element) if is_duration(element) => {
            invalid!("Durations are not allowed inside sets: {}", text(whole))
        }
        DataType::Map(key, _) if is_duration(key) => {
            invalid!("Durations are not allowed as map keys: {}", text(whole))
        }
        _ => Ok(()),
    }
}

/// Refuses an element by its type as it is written: a user type that is not frozen need not exist, as in Cassandra.
fn check_frozen(element: &DataType, whole: &DataType) -> Result<()> {
    match element {
        DataType::UserDefined(_) => {
            invalid!("Non-frozen UDTs are not allowed inside collections: {}", text(whole))
        }
        _ => Ok(()),
    }
}

fn check_element(element: &CqlType, whole: &DataType) -> Result<()> {
    if element.is_counter() {
        return invalid!("Counters are not allowed inside collections: {}", text(whole));
    }
    if element.is_multi_cell() {
        return if element.is_udt() {
            invalid!("Non-frozen UDTs are not allowed inside collections: {}", text(whole))
        } else {
            invalid!("Non-frozen collections are not allowed inside collections: {}", text(whole))
        };
    }
    Ok(())
}
