//! `index_analyzer` and `query_analyzer` of SAI: an analyzer by its name, or a tokenizer with filters as JSON (Lucene's names).

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::AnalyzerError;
use crate::analyzer::Analyzer;
use crate::filter::Filter;
use crate::folding::{Case, Folding};
use crate::language::Language;
use crate::stop::StopWords;
use crate::tokenizer::Tokenizer;

/// The options of SAI that take an analyzer: of values that are written, and of queries where that differs.
pub const ANALYZER_OPTIONS: [&str; 2] = ["index_analyzer", "query_analyzer"];

/// Filters of one analyzer at most.
const FILTERS_MAX: usize = 16;
/// Filters that make n-grams, in one analyzer: the n-grams of n-grams are too many.
const GRAM_FILTERS_MAX: usize = 1;
/// The most characters of a gram.
const GRAM_MAX: usize = 32;

const LOWER: Filter =
    Filter::Fold(Folding { case: Case::LowerEach, normalizes: false, folds_to_ascii: false });

fn invalid<T>(text: impl Into<String>) -> Result<T, AnalyzerError> {
    Err(AnalyzerError::Invalid(text.into()))
}

fn unsupported<T>(text: impl Into<String>) -> Result<T, AnalyzerError> {
    Err(AnalyzerError::Unsupported(text.into()))
}

impl Analyzer {
    /// A built-in analyzer by its name in any case; none when there is no such analyzer.
    pub(crate) fn built_in(name: &str) -> Option<Self> {
        let stop = || Filter::Stop(Arc::new(StopWords::english()));
        Some(match name.to_ascii_lowercase().as_str() {
            "standard" => Self::words(Tokenizer::Standard, vec![LOWER]),
            "simple" => Self::words(Tokenizer::Letter, vec![LOWER]),
            "whitespace" => Self::words(Tokenizer::Whitespace, Vec::new()),
            "stop" => Self::words(Tokenizer::Letter, vec![LOWER, stop()]),
            "lowercase" => Self::words(Tokenizer::Keyword, vec![LOWER]),
            "keyword" => Self::words(Tokenizer::Keyword, Vec::new()),
            name => {
                let language = Language::of_name(name)?;
                let mut filters = vec![LOWER];
                filters.extend(StopWords::of_language(language).map(|words| Filter::Stop(Arc::new(words))));
                filters.push(Filter::Stem(language.name));
                Self::words(Tokenizer::Standard, filters)
            }
        })
    }

    /// Of the value of `index_analyzer` or `query_analyzer`.
    ///
    /// # Errors
    /// When there is no such analyzer, tokenizer or filter, or its arguments are none.
    pub fn parse(text: &str) -> Result<Self, AnalyzerError> {
        if !text.trim_start().starts_with(['{', '[', '"']) {
            return Self::built_in(text.trim())
                .map_or_else(|| unsupported(format!("The analyzer '{}'", text.trim())), Ok);
        }
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return invalid(format!("The analyzer is not valid JSON: {error}")),
        };
        let Value::Object(fields) = value else { return invalid("The analyzer is not a JSON object") };
        let mut tokenizer = None;
        let mut filters = Vec::new();
        for (name, value) in &fields {
            match (name.as_str(), value) {
                ("tokenizer", value) => tokenizer = Some(self::tokenizer(Part::of("tokenizer", value)?)?),
                ("filters", Value::Array(parts)) if parts.len() <= FILTERS_MAX => {
                    for part in parts {
                        filters.push(filter(Part::of("filter", part)?)?);
                    }
                    let is_gram = |filter: &&Filter| matches!(filter, Filter::Grams { .. });
                    if filters.iter().filter(is_gram).count() > GRAM_FILTERS_MAX {
                        return invalid("An analyzer has more than one filter of n-grams");
                    }
                }
                ("filters", Value::Array(parts)) => {
                    return invalid(format!(
                        "An analyzer has {} filters: at most {FILTERS_MAX} are allowed",
                        parts.len()
                    ));
                }
                ("charFilters", Value::Array(parts)) if parts.is_empty() => {}
                ("charFilters", Value::Array(_)) => {
                    return unsupported("A filter of characters of an analyzer");
                }
                _ => return invalid(format!("Unexpected field '{name}' of an analyzer")),
            }
        }
        match tokenizer {
            Some(tokenizer) => Ok(Self::words(tokenizer, filters)),
            None => invalid("An analyzer needs a tokenizer"),
        }
    }
}

/// `{"name": …, "args": {…}}`
struct Part<'a> {
    kind: &'static str,
    name: &'a str,
    arguments: Option<&'a Map<String, Value>>,
}

impl<'a> Part<'a> {
    fn of(kind: &'static str, value: &'a Value) -> Result<Self, AnalyzerError> {
        let Value::Object(fields) = value else { return invalid(format!("A {kind} is not a JSON object")) };
        let (mut name, mut arguments) = (None, None);
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("name", Value::String(text)) => name = Some(text.as_str()),
                ("args", Value::Object(fields)) => arguments = Some(fields),
                _ => return invalid(format!("Unexpected field '{field}' of a {kind}")),
            }
        }
        match name {
            Some(name) => Ok(Self { kind, name, arguments }),
            None => invalid(format!("A {kind} needs a name")),
        }
    }

    fn argument(&self, name: &str) -> Option<&'a Value> {
        self.arguments?.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Refuses arguments of other names.
    fn knows(&self, names: &[&str]) -> Result<(), AnalyzerError> {
        let is_known = |given: &String| names.iter().any(|name| name.eq_ignore_ascii_case(given));
        match self.arguments.into_iter().flat_map(Map::keys).find(|given| !is_known(given)) {
            None => Ok(()),
            Some(given) => {
                unsupported(format!("The argument '{given}' of the {} '{}'", self.kind, self.name))
            }
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, AnalyzerError> {
        match self.argument(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => {
                invalid(format!("The argument '{name}' of the {} '{}' is no text", self.kind, self.name))
            }
        }
    }

    fn number(&self, name: &str, otherwise: usize, max: usize) -> Result<usize, AnalyzerError> {
        let number = match self.argument(name) {
            None => return Ok(otherwise),
            Some(Value::String(text)) => text.parse().ok(),
            Some(Value::Number(number)) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
            Some(_) => None,
        };
        match number.filter(|number| (1..=max).contains(number)) {
            Some(number) => Ok(number),
            None => invalid(format!(
                "The argument '{name}' of the {} '{}' must be a number from 1 to {max}",
                self.kind, self.name
            )),
        }
    }

    /// `minGramSize` and `maxGramSize`.
    fn gram_sizes(&self) -> Result<(usize, usize), AnalyzerError> {
        self.knows(&["minGramSize", "maxGramSize"])?;
        let (min, max) = (self.number("minGramSize", 1, GRAM_MAX)?, self.number("maxGramSize", 2, GRAM_MAX)?);
        if min > max {
            return invalid(format!(
                "minGramSize of the {} '{}' is greater than maxGramSize",
                self.kind, self.name
            ));
        }
        Ok((min, max))
    }
}

fn tokenizer(part: Part<'_>) -> Result<Tokenizer, AnalyzerError> {
    let plain = |tokenizer| part.knows(&[]).map(|()| tokenizer);
    match part.name.to_ascii_lowercase().as_str() {
        "standard" => plain(Tokenizer::Standard),
        "letter" => plain(Tokenizer::Letter),
        "whitespace" => plain(Tokenizer::Whitespace),
        "keyword" => plain(Tokenizer::Keyword),
        name @ ("ngram" | "edgengram") => {
            let (min, max) = part.gram_sizes()?;
            Ok(Tokenizer::Grams { min, max, from_start: name == "edgengram" })
        }
        _ => unsupported(format!("The tokenizer '{}'", part.name)),
    }
}

fn filter(part: Part<'_>) -> Result<Filter, AnalyzerError> {
    let fold = |case, folds_to_ascii| {
        part.knows(&[]).map(|()| Filter::Fold(Folding { case, normalizes: false, folds_to_ascii }))
    };
    match part.name.to_ascii_lowercase().as_str() {
        "lowercase" => fold(Case::LowerEach, false),
        "uppercase" => fold(Case::Upper, false),
        "asciifolding" => fold(Case::Kept, true),
        "trim" => part.knows(&[]).map(|()| Filter::Trim),
        "porterstem" => part.knows(&[]).map(|()| Filter::Stem("english")),
        "snowballporter" => {
            part.knows(&["language"])?;
            let name = part.text("language")?.unwrap_or("English");
            match Language::of_name(name) {
                Some(language) => Ok(Filter::Stem(language.name)),
                None => unsupported(format!("A stemmer of the language '{name}'")),
            }
        }
        "stop" => {
            part.knows(&["words"])?;
            let words = part.text("words")?.map_or_else(StopWords::english, StopWords::of_list);
            Ok(Filter::Stop(Arc::new(words)))
        }
        "length" => {
            part.knows(&["min", "max"])?;
            let (min, max) =
                (part.number("min", 1, usize::MAX)?, part.number("max", usize::MAX, usize::MAX)?);
            if min > max {
                invalid("min of the filter 'length' is greater than max")
            } else {
                Ok(Filter::Length { min, max })
            }
        }
        name @ ("ngram" | "edgengram") => {
            let (min, max) = part.gram_sizes()?;
            Ok(Filter::Grams { min, max, from_start: name == "edgengram" })
        }
        _ => unsupported(format!("The filter '{}' of an analyzer", part.name)),
    }
}
