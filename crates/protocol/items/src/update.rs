//! Updates of items: SET, REMOVE, ADD and DELETE. All operands are taken from the item as it was.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::{Element, Error, Item, Path, Result, Value, invalid};

/// The value that SET gives to a path.
#[derive(Clone, Debug, PartialEq)]
pub enum SetValue {
    /// A value of the request.
    Value(Rc<Value>),
    /// A part of the item.
    Path(Path),
    /// A sum, or a difference when the flag is false.
    Sum(Box<SetValue>, bool, Box<SetValue>),
    /// `if_not_exists(path, value)`
    IfNotExists(Path, Box<SetValue>),
    /// `list_append(a, b)`
    ListAppend(Box<SetValue>, Box<SetValue>),
}

/// The operand of ADD or DELETE for a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    /// The path.
    pub path: Path,
    /// A number, or a set.
    pub value: Rc<Value>,
}

/// An update of an item; its paths are apart from each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// SET
    pub set: Vec<(Path, SetValue)>,
    /// REMOVE
    pub remove: Vec<Path>,
    /// ADD
    pub add: Vec<Add>,
    /// DELETE
    pub delete: Vec<Add>,
    /// Whether it was given by `AttributeUpdates`, which refuse a value of another type in their own words.
    pub is_legacy: bool,
}

const NO_ATTRIBUTE: &str = "The provided expression refers to an attribute that does not exist in the item";
const WRONG_TYPE: &str = "An operand in the update expression has an incorrect data type";
const WRONG_LEGACY_TYPE: &str = "Type mismatch for attribute to update";
const WRONG_PATH: &str = "The document path provided in the update expression is invalid for update";

/// An item has at most this many bytes, with the names of its attributes (400 KB).
pub const ITEM_BYTES_MAX: usize = 400 * 1024;
/// The refusal of an attribute whose name is empty: no item has one.
pub const EMPTY_NAME: &str = "Empty attribute name";
const TOO_LARGE: &str = "Item size to update has exceeded the maximum allowed size";

fn fail(text: &str) -> Error {
    Error::Validation(text.to_owned())
}

impl Update {
    /// The paths that it changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let set = self.set.iter().map(|(path, _)| path);
        let others = self.add.iter().chain(&self.delete).map(|one| &one.path);
        set.chain(&self.remove).chain(others)
    }

    /// Whether its outcome depends on the item.
    pub fn reads(&self) -> bool {
        let plain = |value: &SetValue| matches!(value, SetValue::Value(_));
        !self.add.is_empty()
            || !self.delete.is_empty()
            || self.set.iter().any(|(path, value)| !path.is_top() || !plain(value))
            || self.remove.iter().any(|path| !path.is_top())
            // An update that only removes makes no item where there is none.
            || (self.set.is_empty() && !self.remove.is_empty())
    }

    /// Refuses changes of attributes of the key, and of one without a name.
    ///
    /// # Errors
    /// With the attribute.
    pub fn check_keys(&self, keys: &[&str]) -> Result<()> {
        if self.paths().any(|path| path.root.is_empty()) {
            return invalid!("{EMPTY_NAME}");
        }
        match self.paths().find(|path| keys.contains(&path.root.as_str())) {
            Some(path) => invalid!(
                "One or more parameter values were invalid: Cannot update attribute {}. This attribute is part of the key",
                path.root
            ),
            None => Ok(()),
        }
    }

    /// The item after the update.
    ///
    /// # Errors
    /// When the item does not have the attribute on which the update builds, or another type there.
    pub fn apply(&self, old: &Item) -> Result<Item> {
        let wrong_type = if self.is_legacy { WRONG_LEGACY_TYPE } else { WRONG_TYPE };
        let mut item = old.clone();
        let mut values = Vec::with_capacity(self.set.len());
        // A value of the request may be set many times over: not more is made than an item may hold.
        let mut size = 0;
        let mut count = |value: Value| {
            size += value.size();
            if size > ITEM_BYTES_MAX { Err(fail(TOO_LARGE)) } else { Ok(value) }
        };
        for (path, value) in &self.set {
            values.push((path, count(value.evaluate(old, wrong_type)?)?));
        }
        for one in &self.add {
            values.push((&one.path, count(add(one.path.find(old), &one.value, wrong_type)?)?));
        }
        // REMOVE refers to the item as it was: an index behind the end of a list means nothing, also where SET appends to this list.
        let mut removed: Vec<&Path> = Vec::with_capacity(self.remove.len());
        for path in &self.remove {
            if has_place(old, path)? {
                removed.push(path);
            }
        }
        for one in &self.delete {
            has_place(old, &one.path)?;
            match one.path.find(old).map(|old| subtract(old, &one.value, wrong_type)).transpose()? {
                Some(Some(left)) => values.push((&one.path, left)),
                Some(None) => removed.push(&one.path),
                None => {}
            }
        }
        // Elements set behind the end of a list are appended in the order of the indexes.
        values.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, value) in values {
            set(&mut item, path, value)?;
        }
        // From the end of lists to their beginning, so that indexes stay valid.
        removed.sort();
        for path in removed.into_iter().rev() {
            remove(&mut item, path)?;
        }
        Ok(item)
    }

    /// Of the item, the paths that it touches.
    pub fn touched(&self, item: &Item) -> Item {
        let paths: Vec<Path> = self.paths().cloned().collect();
        crate::Projection::new(&paths).apply(item)
    }
}

impl SetValue {
    /// `wrong_type` is the refusal of an operand of another type.
    fn evaluate(&self, item: &Item, wrong_type: &str) -> Result<Value> {
        match self {
            Self::Value(value) if value.size() > ITEM_BYTES_MAX => Err(fail(TOO_LARGE)),
            Self::Value(value) => Ok((**value).clone()),
            Self::Path(path) => path.find(item).cloned().ok_or_else(|| fail(NO_ATTRIBUTE)),
            Self::Sum(left, is_plus, right) => {
                match (left.evaluate(item, wrong_type)?, right.evaluate(item, wrong_type)?) {
                    (Value::N(left), Value::N(right)) => {
                        Ok(Value::N(if *is_plus { left.add(&right)? } else { left.subtract(&right)? }))
                    }
                    _ => Err(fail(wrong_type)),
                }
            }
            Self::IfNotExists(path, other) => match path.find(item) {
                Some(value) => Ok(value.clone()),
                None => other.evaluate(item, wrong_type),
            },
            Self::ListAppend(left, right) => {
                match (left.evaluate(item, wrong_type)?, right.evaluate(item, wrong_type)?) {
                    (Value::L(mut left), Value::L(right)) => {
                        left.extend(right);
                        let list = Value::L(left);
                        // Appended to itself over and over, a list would double each time.
                        if list.size() > ITEM_BYTES_MAX { Err(fail(TOO_LARGE)) } else { Ok(list) }
                    }
                    _ => Err(fail(wrong_type)),
                }
            }
        }
    }
}

fn union<T: Ord + Clone>(left: &BTreeSet<T>, right: &BTreeSet<T>) -> BTreeSet<T> {
    left.union(right).cloned().collect()
}

fn add(old: Option<&Value>, value: &Value, wrong_type: &str) -> Result<Value> {
    match (old, value) {
        (None, _) => Ok(value.clone()),
        (Some(Value::N(old)), Value::N(more)) => Ok(Value::N(old.add(more)?)),
        (Some(Value::Ss(old)), Value::Ss(more)) => Ok(Value::Ss(union(old, more))),
        (Some(Value::Ns(old)), Value::Ns(more)) => Ok(Value::Ns(union(old, more))),
        (Some(Value::Bs(old)), Value::Bs(more)) => Ok(Value::Bs(union(old, more))),
        _ => Err(fail(wrong_type)),
    }
}

/// The elements that DELETE leaves of a set; none when there are none.
fn subtract(old: &Value, value: &Value, wrong_type: &str) -> Result<Option<Value>> {
    fn left<T: Ord + Clone>(old: &BTreeSet<T>, less: &BTreeSet<T>) -> Option<BTreeSet<T>> {
        let left: BTreeSet<T> = old.difference(less).cloned().collect();
        (!left.is_empty()).then_some(left)
    }
    match (old, value) {
        (Value::Ss(old), Value::Ss(less)) => Ok(left(old, less).map(Value::Ss)),
        (Value::Ns(old), Value::Ns(less)) => Ok(left(old, less).map(Value::Ns)),
        (Value::Bs(old), Value::Bs(less)) => Ok(left(old, less).map(Value::Bs)),
        _ => Err(fail(wrong_type)),
    }
}

/// The value in which the last step of a path is taken.
fn parent<'a>(item: &'a mut Item, path: &Path) -> Result<Option<(&'a mut Value, Element)>> {
    let Some((last, before)) = path.rest.split_last() else { return Ok(None) };
    let mut value = item.get_mut(&path.root).ok_or_else(|| fail(WRONG_PATH))?;
    for element in before {
        let next = match (value, element) {
            (Value::M(members), Element::Name(name)) => members.get_mut(name),
            (Value::L(values), Element::Index(index)) => values.get_mut(*index as usize),
            _ => None,
        };
        value = next.ok_or_else(|| fail(WRONG_PATH))?;
    }
    Ok(Some((value, last.clone())))
}

/// Whether an item has the place from which REMOVE or DELETE takes the last step of a path; a member of a map may be missing.
fn has_place(item: &Item, path: &Path) -> Result<bool> {
    let Some((last, before)) = path.rest.split_last() else { return Ok(true) };
    let parent = Path { root: path.root.clone(), rest: before.to_vec() };
    match (parent.find(item), last) {
        (Some(Value::M(_)), Element::Name(_)) => Ok(true),
        (Some(Value::L(values)), Element::Index(index)) => Ok((*index as usize) < values.len()),
        _ => Err(fail(WRONG_PATH)),
    }
}

fn set(item: &mut Item, path: &Path, value: Value) -> Result<()> {
    match parent(item, path)? {
        None => {
            item.insert(path.root.clone(), value);
        }
        Some((Value::M(members), Element::Name(name))) => {
            members.insert(name, value);
        }
        Some((Value::L(values), Element::Index(index))) => match values.get_mut(index as usize) {
            Some(place) => *place = value,
            None => values.push(value),
        },
        Some(_) => return Err(fail(WRONG_PATH)),
    }
    Ok(())
}

fn remove(item: &mut Item, path: &Path) -> Result<()> {
    match parent(item, path)? {
        None => {
            item.remove(&path.root);
        }
        Some((Value::M(members), Element::Name(name))) => {
            members.remove(&name);
        }
        Some((Value::L(values), Element::Index(index))) => {
            if (index as usize) < values.len() {
                values.remove(index as usize);
            }
        }
        Some(_) => return Err(fail(WRONG_PATH)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> Path {
        Path::top(name)
    }

    #[test]
    fn a_value_is_not_copied_beyond_the_size_of_an_item() {
        let value = |bytes: usize| SetValue::Value(Rc::new(Value::S("x".repeat(bytes))));
        let update = |set: Vec<SetValue>| {
            let set =
                set.into_iter().enumerate().map(|(at, value)| (path(&format!("a{at}")), value)).collect();
            Update { set, ..Update::default() }.apply(&Item::new())
        };
        assert!(update(vec![value(100_000), value(100_000), value(100_000)]).is_ok());
        for set in [vec![value(100_000); 300], vec![value(ITEM_BYTES_MAX + 1)]] {
            assert_eq!(update(set), Err(fail(TOO_LARGE)));
        }
        // A list that is appended to itself doubles at each level.
        let one = SetValue::Value(Rc::new(Value::L(vec![Value::S("x".repeat(1_000))])));
        let doubled = |one: SetValue| SetValue::ListAppend(Box::new(one.clone()), Box::new(one));
        assert!(update(vec![doubled(doubled(one.clone()))]).is_ok());
        assert_eq!(update(vec![(0..12).fold(one, |one, _| doubled(one))]), Err(fail(TOO_LARGE)));
    }
}
