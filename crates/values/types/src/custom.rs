//! Types that CQL names by their class alone, which tables of Thrift's time have: composites, and UUIDs in another order.
//!
//! Values are kept as bytes; the definition of a class decides which bytes are a value, and its text form.

use std::sync::Arc;

use crate::{CqlType, TypeError, uuid};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// The most components of a composite: a class name is read for each value.
const COMPONENTS_MAX: usize = 256;

/// How deeply composites may be nested.
const DEPTH_MAX: usize = 4;

/// The values of a class.
enum Class {
    /// Nothing.
    Empty,
    /// A UUID.
    LexicalUuid,
    /// Components with lengths, of these types.
    Composite(Vec<CqlType>),
    /// Components that say their types, by these aliases.
    Dynamic(Vec<(u8, CqlType)>),
}

/// The class and the parameters in its parentheses.
fn split(class: &str) -> (&str, &str) {
    let simple = class.strip_prefix(PACKAGE).unwrap_or(class);
    match simple.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')').unwrap_or(rest)),
        None => (simple, ""),
    }
}

/// The parts between the commas of the outermost level.
fn parameters(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

impl Class {
    fn of(class: &str) -> Option<Self> {
        Self::at_depth(class, 0)
    }

    fn at_depth(class: &str, depth: usize) -> Option<Self> {
        let (name, inner) = split(class);
        let ty = |text: &str| {
            let (ty, _) = CqlType::parse_class_name(text).ok()?;
            // A class inside of a class must be known too.
            match &ty {
                CqlType::Custom(class) if depth < DEPTH_MAX => {
                    let name = Self::at_depth(class, depth + 1)?.name(class);
                    Some(CqlType::Custom(Arc::from(name)))
                }
                CqlType::Custom(_) => None,
                _ => Some(ty),
            }
        };
        Some(match name {
            "EmptyType" => Self::Empty,
            "LexicalUUIDType" => Self::LexicalUuid,
            "CompositeType" if !inner.is_empty() => {
                let types = parameters(inner).take(COMPONENTS_MAX + 1).map(ty).collect::<Option<Vec<_>>>()?;
                (types.len() <= COMPONENTS_MAX).then_some(Self::Composite(types))?
            }
            "DynamicCompositeType" => {
                let alias = |text: &str| {
                    let (alias, class) = text.split_once("=>")?;
                    let [alias] = alias.trim().as_bytes() else { return None };
                    Some((*alias, ty(class.trim())?))
                };
                let inner = parameters(inner).filter(|text| !text.is_empty());
                Self::Dynamic(inner.take(COMPONENTS_MAX).map(alias).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// The whole name of the class that was written as `class`.
    fn name(&self, class: &str) -> String {
        let parts: Vec<String> = match self {
            Self::Empty => return format!("{PACKAGE}EmptyType"),
            Self::LexicalUuid => return format!("{PACKAGE}LexicalUUIDType"),
            Self::Composite(types) => types.iter().map(|ty| ty.class_name(false)).collect(),
            Self::Dynamic(aliases) => {
                let one =
                    |(alias, ty): &(u8, CqlType)| format!("{}=>{}", char::from(*alias), ty.class_name(false));
                aliases.iter().map(one).collect()
            }
        };
        format!("{PACKAGE}{}({})", split(class).0, parts.join(","))
    }
}

/// The whole name of a class that is known, with the package of each class in it.
pub fn known(class: &str) -> Option<String> {
    Some(Class::of(class)?.name(class))
}

/// Whether bytes are a value of a class. Any bytes are a value of an unknown class.
pub(crate) fn validate(class: &str, bytes: &[u8]) -> Result<(), TypeError> {
    match Class::of(class) {
        None => Ok(()),
        Some(Class::Empty) if bytes.is_empty() => Ok(()),
        Some(Class::Empty) => Err(TypeError::refused("EmptyType only accept empty values")),
        Some(Class::LexicalUuid) if matches!(bytes.len(), 0 | 16) => Ok(()),
        Some(Class::LexicalUuid) => {
            Err(TypeError::Refused(format!("LexicalUUID should be 16 or 0 bytes ({})", bytes.len())))
        }
        Some(Class::Composite(types)) => validate_components(bytes, |at, _| match types.get(at) {
            Some(ty) => Ok(Some(ty.clone())),
            None => Err(TypeError::refused("Too many bytes for comparator")),
        }),
        Some(Class::Dynamic(aliases)) => validate_components(bytes, |at, rest| dynamic(&aliases, at, rest)),
    }
}

/// The type that the header of a component of a dynamic composite names; none for a class that is not known.
fn dynamic(aliases: &[(u8, CqlType)], at: usize, rest: &mut &[u8]) -> Result<Option<CqlType>, TypeError> {
    let short =
        || TypeError::Refused(format!("Not enough bytes to header of the comparator part of component {at}"));
    let (header, behind) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    *rest = behind;
    let [flag, alias] = *header;
    if flag & 0x80 != 0 {
        let found = aliases.iter().find(|(name, _)| *name == alias).map(|(_, ty)| ty.clone());
        let unknown = || TypeError::Refused(format!("Cannot find comparator for component {at}"));
        return found.map(Some).ok_or_else(unknown);
    }
    let length = usize::from(u16::from_be_bytes(*header));
    let short = || TypeError::Refused(format!("Not enough bytes to read comparator name of component {at}"));
    let (name, behind) = rest.split_at_checked(length).ok_or_else(short)?;
    *rest = behind;
    let parsed = std::str::from_utf8(name).ok().and_then(|name| CqlType::parse_class_name(name).ok());
    Ok(parsed.map(|(ty, _)| ty).filter(|ty| !matches!(ty, CqlType::Custom(_))))
}

fn validate_components(
    bytes: &[u8],
    mut type_of: impl FnMut(usize, &mut &[u8]) -> Result<Option<CqlType>, TypeError>,
) -> Result<(), TypeError> {
    let mut rest = bytes;
    // A composite for the static columns of old begins with this mark.
    if let Some(behind) = rest.strip_prefix(&[0xff, 0xff]) {
        rest = behind;
    }
    let mut at = 0;
    while !rest.is_empty() {
        let ty = type_of(at, &mut rest)?;
        let refused = |what: &str| TypeError::Refused(format!("{what} component {at}"));
        let short = || refused("Not enough bytes to read value size of");
        let (length, behind) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let short = || refused("Not enough bytes to read value of");
        let (value, behind) = behind.split_at_checked(length).ok_or_else(short)?;
        if let Some(ty) = ty {
            ty.validate(value)?;
        }
        let (end, behind) = behind.split_first().ok_or_else(|| {
            TypeError::Refused(format!("Not enough bytes to read the end-of-component byte of component{at}"))
        })?;
        if *end != 0 && !behind.is_empty() {
            return Err(TypeError::Refused(format!(
                "Invalid bytes remaining after an end-of-component at component{at}"
            )));
        }
        rest = behind;
        at += 1;
    }
    Ok(())
}

/// The value that a text means; none for a class whose values are written as hexadecimal digits.
pub(crate) fn from_string(class: &str, text: &str) -> Option<Result<Vec<u8>, TypeError>> {
    match Class::of(class)? {
        Class::Empty if text.is_empty() => Some(Ok(Vec::new())),
        Class::Empty => Some(Err(TypeError::Refused(format!("'{text}' is not empty")))),
        Class::LexicalUuid if text.is_empty() => Some(Ok(Vec::new())),
        Class::LexicalUuid => {
            let unable = || TypeError::Refused(format!("unable to make UUID from '{text}'"));
            Some(uuid::parse(text).map(Vec::from).ok_or_else(unable))
        }
        Class::Composite(types) => Some(composite(text, |at, text| match types.get(at) {
            Some(ty) => Ok((Vec::new(), ty.from_string(text)?)),
            None => Err(TypeError::refused("Too many bytes for comparator")),
        })),
        Class::Dynamic(aliases) => Some(composite(text, |_, text| {
            let refused = || TypeError::Refused(format!("'{text}' does not say its comparator: alias@value"));
            let (alias, value) = text.split_once('@').ok_or_else(refused)?;
            let [alias] = alias.as_bytes() else { return Err(refused()) };
            let (_, ty) = aliases.iter().find(|(name, _)| name == alias).ok_or_else(refused)?;
            Ok((vec![0x80, *alias], ty.from_string(value)?))
        })),
    }
}

/// A composite of its components as text, with `:` between them, which `\` keeps apart.
fn composite(
    text: &str,
    component: impl Fn(usize, &str) -> Result<(Vec<u8>, Vec<u8>), TypeError>,
) -> Result<Vec<u8>, TypeError> {
    let mut out = Vec::new();
    if text.is_empty() {
        return Ok(out);
    }
    let mut texts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, texts.last_mut()) {
            ('\\', Some(last)) if chars.peek() == Some(&':') => last.extend(chars.next()),
            (':', _) => texts.push(String::new()),
            (c, Some(last)) => last.push(c),
            (_, None) => {}
        }
    }
    for (at, text) in texts.iter().enumerate() {
        let (header, value) = component(at, text)?;
        let too_long = || TypeError::Refused(format!("Component {at} is too long: {} bytes", value.len()));
        let length = u16::try_from(value.len()).map_err(|_| too_long())?;
        out.extend(header);
        out.extend(length.to_be_bytes());
        out.extend(value);
        out.push(0);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(class: &str) -> CqlType {
        CqlType::Custom(Arc::from(known(class).expect("a class that is known")))
    }

    #[test]
    fn names_are_written_out() {
        let composite = known("CompositeType(Int32Type, FrozenType(ListType(UTF8Type)))").expect("known");
        let package = PACKAGE;
        let expected = format!(
            "{package}CompositeType({package}Int32Type,{package}FrozenType({package}ListType({package}UTF8Type)))"
        );
        assert_eq!(composite, expected);
        assert_eq!(known(&composite), Some(composite));
        assert_eq!(known("LexicalUUIDType"), Some(format!("{package}LexicalUUIDType")));
        for unknown in
            ["NopeType", "CompositeType", "CompositeType(NopeType)", "DynamicCompositeType(ab=>Int32Type)"]
        {
            assert_eq!(known(unknown), None, "{unknown}");
        }
        // Classes that are nested beyond reason are refused before the stack is used up.
        let deep = format!("{}Int32Type{}", "CompositeType(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(known(&deep), None);
    }

    #[test]
    fn values_are_checked_component_by_component() {
        let pair = ty("CompositeType(Int32Type,UTF8Type)");
        let value = pair.from_string(r"7:a\:b").expect("two components");
        assert_eq!(value, [&[0, 4, 0, 0, 0, 7, 0][..], &[0, 3], b"a:b", &[0]].concat());
        assert_eq!(pair.validate(&value), Ok(()));
        assert_eq!(pair.validate(&value[..7]), Ok(()), "fewer components are a prefix");
        for cut in (1..value.len()).filter(|cut| *cut != 7) {
            assert!(pair.validate(&value[..cut]).is_err(), "{cut}");
        }
        assert!(pair.from_string("7:a:b").is_err());
        assert!(pair.validate(&[0, 1, 7, 0]).is_err(), "a component is held against its type");
        let dynamic = ty("DynamicCompositeType(a=>Int32Type,b=>UTF8Type)");
        let value = dynamic.from_string("b@x:a@1").expect("two components");
        assert_eq!(value, [&[0x80, b'b', 0, 1, b'x', 0][..], &[0x80, b'a', 0, 4, 0, 0, 0, 1, 0]].concat());
        assert_eq!(dynamic.validate(&value), Ok(()));
        assert!(dynamic.validate(&[0x80, b'c', 0, 0, 0]).is_err());
        assert!(dynamic.from_string("x").is_err());
        let lexical = ty("LexicalUUIDType");
        assert!(lexical.validate(&[1]).is_err());
        assert_eq!(lexical.from_string("123e4567-e89b-12d3-a456-426655440000").map(|v| v.len()), Ok(16));
    }
}
