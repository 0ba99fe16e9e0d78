//! Options of SASI: its modes and analyzers (Cassandra's `IndexMode`, `NonTokenizingOptions`, `StandardTokenizerOptions`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::AnalyzerError;
use crate::analyzer::Analyzer;
use crate::filter::Filter;
use crate::folding::{Case, Folding};
use crate::language::Language;
use crate::stop::StopWords;
use crate::tokenizer::{Tokenizer, WORD_MAX};

/// Which patterns of LIKE an index of SASI finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasiMode {
    /// Whole terms and their beginnings.
    Prefix,
    /// Whole terms and any parts of them.
    Contains,
    /// Of values that are no texts, of which each is that of a few rows.
    Sparse,
}

/// An index of SASI, as its options describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasi {
    /// The patterns that it finds.
    pub mode: SasiMode,
    /// How texts become terms; none for one term as it is.
    pub analyzer: Option<Analyzer>,
    /// Options that have no effect beside the others, in the order of their names.
    pub idle: Vec<String>,
}

const NORMALIZED: Folding = Folding { case: Case::Kept, normalizes: true, folds_to_ascii: false };

type Options = BTreeMap<String, String>;

/// As Java reads a boolean: everything but `true` is false.
fn is_true(options: &Options, name: &str) -> bool {
    options.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn invalid<T>(text: impl Into<String>) -> Result<T, AnalyzerError> {
    Err(AnalyzerError::Invalid(text.into()))
}

impl Sasi {
    /// Of the options of an index on a column whose values are texts, or not; `ty` is the name of its type.
    ///
    /// # Errors
    /// When an option is unknown, or not with another one or the type.
    pub fn of(options: &Options, is_text: bool, ty: &str) -> Result<Self, AnalyzerError> {
        let mode = match options.get("mode").map(|mode| mode.to_ascii_uppercase()).as_deref() {
            None | Some("PREFIX") => SasiMode::Prefix,
            Some("CONTAINS") => SasiMode::Contains,
            Some("SPARSE") => SasiMode::Sparse,
            Some(_) => return invalid(format!("Incorrect index mode: {}", options["mode"])),
        };
        let class = options.get("analyzer_class").map(String::as_str);
        let is_analyzed = match options.get("analyzed") {
            None => class.is_some(),
            Some(_) => is_true(options, "analyzed"),
        };
        let mut used = vec!["mode", "analyzed", "analyzer_class"];
        let analyzer = match class.map(|class| (class, class.rsplit('.').next().unwrap_or_default())) {
            Some((_, "NoOpAnalyzer")) => None,
            Some((_, name @ ("NonTokenizingAnalyzer" | "DelimiterAnalyzer" | "StandardAnalyzer")))
                if !is_text =>
            {
                return invalid(format!("{name} does not support type {ty}"));
            }
            Some((_, "NonTokenizingAnalyzer")) => Some(whole(options, &mut used)?),
            Some((_, "DelimiterAnalyzer")) => Some(delimited(options, &mut used)?),
            Some((_, "StandardAnalyzer")) => Some(standard(options, &mut used)?),
            Some((class, _)) => return invalid(format!("Invalid analyzer class option specified [{class}]")),
            None if is_text && is_analyzed => Some(standard(options, &mut used)?),
            None => None,
        };
        if mode == SasiMode::Sparse {
            if is_text {
                return invalid("SPARSE mode is only supported on non-literal columns.");
            }
            if is_analyzed {
                return invalid("SPARSE mode doesn't support analyzers.");
            }
        }
        let analyzer = analyzer.filter(|_| is_analyzed);
        if !is_analyzed {
            used.truncate(3);
        }
        let analyzer = match mode {
            SasiMode::Contains if is_text => Some(Analyzer::with_grams(analyzer)),
            _ => analyzer,
        };
        if let Some(name) = ["is_literal", "max_compaction_flush_memory_in_mb"]
            .into_iter()
            .find(|name| options.contains_key(*name))
        {
            return Err(AnalyzerError::Unsupported(format!("The option '{name}' of a SASI index")));
        }
        let known = |name: &&String| ALL.contains(&name.as_str());
        if let Some(name) = options.keys().find(|name| !known(name)) {
            return Err(AnalyzerError::Unsupported(format!("The option '{name}' of a SASI index")));
        }
        let idle = options.keys().filter(|name| !used.contains(&name.as_str())).cloned().collect();
        Ok(Self { mode, analyzer, idle })
    }
}

/// All options of SASI.
const ALL: [&str; 12] = [
    "mode",
    "analyzed",
    "analyzer_class",
    "delimiter",
    "case_sensitive",
    "normalize_lowercase",
    "normalize_uppercase",
    "tokenization_enable_stemming",
    "tokenization_skip_stop_words",
    "tokenization_locale",
    "tokenization_normalize_lowercase",
    "tokenization_normalize_uppercase",
];

fn case_of(lower: bool, upper: bool) -> Result<Case, AnalyzerError> {
    match (lower, upper) {
        (true, true) => {
            invalid("Options to normalize terms cannot be both uppercase and lowercase at the same time")
        }
        (true, false) => Ok(Case::Lower),
        (false, true) => Ok(Case::Upper),
        (false, false) => Ok(Case::Kept),
    }
}

/// `NonTokenizingAnalyzer`.
fn whole(options: &Options, used: &mut Vec<&'static str>) -> Result<Analyzer, AnalyzerError> {
    let names = ["normalize_lowercase", "normalize_uppercase"];
    if options.contains_key("case_sensitive") && names.iter().any(|name| options.contains_key(*name)) {
        return invalid(
            "case_sensitive option cannot be specified together with either normalize_lowercase or normalize_uppercase",
        );
    }
    used.extend(["case_sensitive", "normalize_lowercase", "normalize_uppercase"]);
    let mut case = case_of(is_true(options, names[0]), is_true(options, names[1]))?;
    if options.contains_key("case_sensitive") && !is_true(options, "case_sensitive") {
        case = Case::Lower;
    }
    Ok(Analyzer::folded(Folding { case, ..NORMALIZED }))
}

/// `DelimiterAnalyzer`.
fn delimited(options: &Options, used: &mut Vec<&'static str>) -> Result<Analyzer, AnalyzerError> {
    used.push("delimiter");
    let text = options.get("delimiter").map_or(",", String::as_str);
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(delimiter), None) => Ok(Analyzer::words(Tokenizer::Delimiter(delimiter), Vec::new())),
        _ => invalid(format!("Only single character delimiters supported, was {text}")),
    }
}

/// `StandardAnalyzer`.
fn standard(options: &Options, used: &mut Vec<&'static str>) -> Result<Analyzer, AnalyzerError> {
    let (lower, upper) = ("tokenization_normalize_lowercase", "tokenization_normalize_uppercase");
    let (stop, stem, locale) =
        ("tokenization_skip_stop_words", "tokenization_enable_stemming", "tokenization_locale");
    used.extend([lower, upper]);
    let case = case_of(is_true(options, lower), is_true(options, upper))?;
    let mut filters =
        vec![Filter::Length { min: 1, max: WORD_MAX }, Filter::Fold(Folding { case, ..NORMALIZED })];
    let (skips, stems) = (is_true(options, stop), is_true(options, stem));
    if let Some(name) = options.get(locale).filter(|_| skips || stems) {
        used.extend([stop, stem, locale]);
        let unsupported = |what: &str| AnalyzerError::Unsupported(format!("{what} of the locale '{name}'"));
        let language = Language::of_locale(name);
        if skips {
            let words = language.and_then(StopWords::of_language);
            filters.push(Filter::Stop(Arc::new(words.ok_or_else(|| unsupported("A list of stop words"))?)));
        }
        if stems {
            filters.push(Filter::Stem(language.ok_or_else(|| unsupported("A stemmer"))?.name));
        }
    }
    // Without a language neither has an effect, as in Cassandra; `false` has none anywhere.
    used.extend([stop, stem].into_iter().filter(|name| !is_true(options, name)));
    Ok(Analyzer::words(Tokenizer::Standard, filters))
}
