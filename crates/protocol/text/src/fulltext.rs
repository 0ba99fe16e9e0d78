//! Options of indexes of full text, in ScyllaDB's form.

use std::collections::BTreeMap;

use crate::AnalyzerError;
use crate::analyzer::Analyzer;

/// The class of indexes of full text.
pub const FULLTEXT_CLASS: &str = "fulltext_index";
/// The analyzers of such an index, ScyllaDB's.
pub const FULLTEXT_ANALYZERS: [&str; 10] = [
    "standard",
    "english",
    "german",
    "french",
    "spanish",
    "italian",
    "portuguese",
    "russian",
    "simple",
    "whitespace",
];

/// An index of full text, as its options describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullText {
    /// How texts become terms.
    pub analyzer: Analyzer,
    /// Whether it has the positions of terms, by which phrases are found.
    pub has_positions: bool,
}

impl FullText {
    /// Of the options of an index.
    ///
    /// # Errors
    /// When an option is unknown, or its value is none of its values.
    pub fn of(options: &BTreeMap<String, String>) -> Result<Self, AnalyzerError> {
        let (mut name, mut has_positions) = ("standard".to_owned(), true);
        for (option, value) in options {
            let lower = value.to_ascii_lowercase();
            let is_known = match option.as_str() {
                "analyzer" => {
                    name.clone_from(&lower);
                    FULLTEXT_ANALYZERS.contains(&lower.as_str())
                }
                "positions" => {
                    has_positions = lower != "false";
                    matches!(lower.as_str(), "true" | "false")
                }
                _ => {
                    let text = format!("Unsupported option {option} for fulltext index");
                    return Err(AnalyzerError::Invalid(text));
                }
            };
            if !is_known {
                let known = if option == "analyzer" {
                    FULLTEXT_ANALYZERS.join(", ")
                } else {
                    "true, false".to_owned()
                };
                return Err(AnalyzerError::Invalid(format!(
                    "Invalid value '{value}' of option '{option}' for fulltext index. Supported are: {known}"
                )));
            }
        }
        match Analyzer::built_in(&name) {
            Some(analyzer) => Ok(Self { analyzer, has_positions }),
            None => Err(AnalyzerError::Unsupported(format!("The analyzer '{name}'"))),
        }
    }
}
