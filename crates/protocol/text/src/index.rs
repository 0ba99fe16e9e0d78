//! The analyzers of an index, from its class and options.

use std::collections::BTreeMap;

use crate::AnalyzerError;
use crate::analyzer::Analyzer;
use crate::folding::Folding;
use crate::json::ANALYZER_OPTIONS;
use crate::sasi::{Sasi, SasiMode};

/// The class of SASI.
pub const SASI_CLASS: &str = "org.apache.cassandra.index.sasi.SASIIndex";

/// How an index compares texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexText {
    /// Of values that are written.
    pub index: Analyzer,
    /// Of values of queries.
    pub query: Analyzer,
}

impl IndexText {
    /// Of the options of an index of SAI; none when texts stay as they are.
    ///
    /// # Errors
    /// When an analyzer is none, or does not go with another option.
    pub fn of_sai(options: &BTreeMap<String, String>) -> Result<Option<Self>, AnalyzerError> {
        let [index, query] = ANALYZER_OPTIONS.map(|name| options.get(name));
        let folding = Folding::of(options);
        let Some(text) = index else {
            if query.is_some() {
                return Err(AnalyzerError::Invalid("query_analyzer needs index_analyzer".to_owned()));
            }
            return Ok(folding.map(|folding| {
                let analyzer = Analyzer::folded(folding);
                Self { index: analyzer.clone(), query: analyzer }
            }));
        };
        if folding.is_some() {
            return Err(AnalyzerError::Invalid(
                "index_analyzer does not go with case_sensitive, normalize and ascii".to_owned(),
            ));
        }
        let index = Analyzer::parse(text)?;
        let query = query.map(|text| Analyzer::parse(text)).transpose()?;
        Ok(Some(Self { query: query.unwrap_or_else(|| index.clone()), index }))
    }

    /// Of an index that exists, whose options were checked; `is_text` says whether its terms are texts. None when they stay as they are.
    pub fn of_index(class: Option<&str>, options: &BTreeMap<String, String>, is_text: bool) -> Option<Self> {
        if options.is_empty() || !is_text {
            return None;
        }
        if class == Some(SASI_CLASS) {
            let analyzer = Sasi::of(options, is_text, "").ok()?.analyzer?;
            return Some(Self { index: analyzer.clone(), query: analyzer });
        }
        Self::of_sai(options).ok().flatten()
    }

    /// The mode of an index of SASI that exists.
    pub fn sasi_mode(options: &BTreeMap<String, String>, is_text: bool) -> SasiMode {
        Sasi::of(options, is_text, "").map_or(SasiMode::Prefix, |sasi| sasi.mode)
    }
}
