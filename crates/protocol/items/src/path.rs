//! Paths into documents, and projections, which are sets of them.

use std::collections::BTreeMap;

use crate::{Item, Value};

/// A step into a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// To a member of a map.
    Name(String),
    /// To an element of a list.
    Index(u32),
}

/// The position in a list that a text means; none where a list cannot have so many elements.
pub(crate) fn list_index(text: &str) -> Option<u32> {
    text.parse().ok().filter(|index| i32::try_from(*index).is_ok())
}

/// A path: the name of an attribute, and steps into its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The attribute.
    pub root: String,
    /// The steps.
    pub rest: Vec<Element>,
}

impl Path {
    /// An attribute as a whole.
    pub fn top(name: impl Into<String>) -> Self {
        Self { root: name.into(), rest: Vec::new() }
    }

    /// Whether it is an attribute as a whole.
    pub fn is_top(&self) -> bool {
        self.rest.is_empty()
    }

    /// The value at this path.
    pub fn find<'a>(&self, item: &'a Item) -> Option<&'a Value> {
        self.rest.iter().try_fold(item.get(&self.root)?, |value, element| match (value, element) {
            (Value::M(members), Element::Name(name)) => members.get(name),
            (Value::L(values), Element::Index(index)) => values.get(*index as usize),
            _ => None,
        })
    }

    /// How messages show it.
    pub fn shown(&self) -> String {
        let rest = self.rest.iter().map(|element| match element {
            Element::Name(name) => format!(", {name}"),
            Element::Index(index) => format!(", [{index}]"),
        });
        format!("[{}{}]", self.root, rest.collect::<String>())
    }

    fn step(&self, at: usize) -> Option<Element> {
        match at.checked_sub(1) {
            None => Some(Element::Name(self.root.clone())),
            Some(at) => self.rest.get(at).cloned(),
        }
    }
}

/// The error of paths of which one is a part of another, or that take one value for a map and for a list.
pub(crate) fn meeting(paths: &[&Path]) -> Option<String> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    let path = |at: usize| paths.get(at).copied();
    order.sort_by_key(|at| path(*at));
    // Paths in order: if two meet, two neighbours do.
    for pair in order.windows(2) {
        let [left, right] = *pair else { continue };
        let (first, second) = (left.min(right), left.max(right));
        let (Some(a), Some(b)) = (path(first), path(second)) else { continue };
        let mut at = 0;
        let problem = loop {
            match (a.step(at), b.step(at)) {
                (None, _) | (_, None) => break Some("overlap"),
                (Some(x), Some(y)) if x == y => at += 1,
                (Some(Element::Name(_)), Some(Element::Index(_)))
                | (Some(Element::Index(_)), Some(Element::Name(_))) => break Some("conflict"),
                _ => break None,
            }
        };
        if let Some(problem) = problem {
            return Some(format!(
                "Two document paths {problem} with each other; must remove or rewrite one of these paths; path one: {}, \
                 path two: {}",
                a.shown(),
                b.shown()
            ));
        }
    }
    None
}

/// The part of an item that is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// The document without its unwanted parts.
    Part(Tree),
    /// The values, each by a name.
    Named(Vec<(String, Path)>),
}

/// Paths, grouped by their first steps; without any, all that lies here is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tree(BTreeMap<Element, Tree>);

impl Projection {
    /// These paths, which are apart from each other.
    pub fn new(paths: &[Path]) -> Self {
        let mut tree = Tree::default();
        for path in paths {
            let root = tree.0.entry(Element::Name(path.root.clone())).or_default();
            path.rest.iter().fold(root, |tree, element| tree.0.entry(element.clone()).or_default());
        }
        Self(Form::Part(tree))
    }

    /// The values at these paths, each by a name.
    pub fn named(columns: Vec<(String, Path)>) -> Self {
        Self(Form::Named(columns))
    }

    /// The names of the attributes that it touches.
    pub fn roots(&self) -> Vec<&str> {
        match &self.0 {
            Form::Part(tree) => tree
                .0
                .keys()
                .filter_map(|element| match element {
                    Element::Name(name) => Some(name.as_str()),
                    Element::Index(_) => None,
                })
                .collect(),
            Form::Named(columns) => columns.iter().map(|(_, path)| path.root.as_str()).collect(),
        }
    }

    /// The part of an item that it selects.
    pub fn apply(&self, item: &Item) -> Item {
        match &self.0 {
            Form::Part(tree) => members(tree, item),
            Form::Named(columns) => {
                let found =
                    columns.iter().filter_map(|(name, path)| Some((name.clone(), path.find(item)?.clone())));
                found.collect()
            }
        }
    }
}

/// Costs as much as the smaller of both has members.
fn members(tree: &Tree, from: &Item) -> Item {
    if tree.0.len() > from.len() {
        let wanted = from.iter().filter_map(|(name, value)| {
            let below = tree.0.get(&Element::Name(name.clone()))?;
            Some((name.clone(), part(below, value)?))
        });
        return wanted.collect();
    }
    let kept = tree.0.iter().filter_map(|(element, below)| match element {
        Element::Name(name) => {
            let value = from.get(name)?;
            Some((name.clone(), part(below, value)?))
        }
        Element::Index(_) => None,
    });
    kept.collect()
}

fn part(tree: &Tree, value: &Value) -> Option<Value> {
    if tree.0.is_empty() {
        return Some(value.clone());
    }
    match value {
        Value::M(from) => Some(members(tree, from)).filter(|kept| !kept.is_empty()).map(Value::M),
        Value::L(from) => {
            let kept = tree.0.iter().filter_map(|(element, below)| match element {
                Element::Index(index) => part(below, from.get(*index as usize)?),
                Element::Name(_) => None,
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::L(kept))
        }
        _ => None,
    }
}
