//! Functions of the texts of a column that has an index of full text, by whose analyzer they see the words (docs/design/fulltext.md):
//! `BM25(column, query)`, the relevance that the statement orders by, and `highlight(column, query [, open, close])`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use replica::TextStatistics;
use text::{Document, FullText, TextQuery};
use types::CqlType;

use crate::error::{Result, invalid};

/// The most bytes of a mark of `highlight`: a text may have 65,536 of them.
const MARK_LEN_MAX: usize = 256;
/// The marks, those of Elasticsearch.
const MARKS: (&str, &str) = ("<em>", "</em>");

/// The search of a statement: its query, and the figures by which rows were ranked.
#[derive(Clone, Debug)]
pub struct Relevance {
    /// The column.
    pub column: String,
    /// The query.
    pub query: String,
    /// The figures of all texts.
    pub statistics: TextStatistics,
}

/// The result that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextResult {
    /// How relevant a text is.
    Relevance,
    /// The text with marks.
    Highlighted,
}

/// The last query of a call, ready for further rows.
type Parsed = Option<(Box<str>, Rc<TextQuery>)>;

/// A function of texts, for one column.
#[derive(Clone, Debug)]
pub struct TextFunction {
    result: TextResult,
    column: String,
    fulltext: Arc<FullText>,
    arguments: Vec<CqlType>,
    parsed: RefCell<Parsed>,
}

impl TextFunction {
    /// The function for a column of this type, with so many arguments.
    pub fn new(result: TextResult, column: (String, CqlType), fulltext: FullText, arguments: usize) -> Self {
        let texts = std::iter::repeat_n(CqlType::Text, arguments.saturating_sub(1));
        let (column, ty) = column;
        let arguments = std::iter::once(ty).chain(texts).collect();
        Self { result, column, fulltext: Arc::new(fulltext), arguments, parsed: RefCell::default() }
    }

    /// The column whose relevance it gives.
    pub fn relevance_of(&self) -> Option<&str> {
        (self.result == TextResult::Relevance).then_some(self.column.as_str())
    }

    pub(crate) fn full_name(&self) -> &'static str {
        match self.result {
            TextResult::Relevance => "system.bm25",
            TextResult::Highlighted => "system.highlight",
        }
    }

    pub(crate) fn arguments(&self) -> &[CqlType] {
        &self.arguments
    }

    pub(crate) fn returns(&self) -> &CqlType {
        match self.result {
            TextResult::Relevance => &CqlType::Float,
            TextResult::Highlighted => &CqlType::Text,
        }
    }

    /// The value for a text, a query and perhaps marks; null when one of them is.
    pub(crate) fn call(&self, search: Option<&Relevance>, args: &[Option<&[u8]>]) -> Result<Option<Bytes>> {
        let texts: Option<Vec<&str>> =
            args.iter().map(|arg| arg.and_then(|arg| std::str::from_utf8(arg).ok())).collect();
        let Some(texts) = texts else { return Ok(None) };
        let [value, query, marks @ ..] = texts.as_slice() else { return Ok(None) };
        let analyzer = &self.fulltext.analyzer;
        match self.result {
            TextResult::Relevance => {
                let Some(search) =
                    search.filter(|search| search.column == self.column && search.query == **query)
                else {
                    return misplaced();
                };
                let query = self.query(query)?;
                let document = Document::new(&query, analyzer, value.as_bytes());
                let score = document.and_then(|document| query.score(&document, &search.statistics));
                Ok(score.map(|score| Bytes::copy_from_slice(&score.to_be_bytes())))
            }
            TextResult::Highlighted => {
                if let Some(mark) = marks.iter().find(|mark| mark.len() > MARK_LEN_MAX) {
                    return invalid!(
                        "A mark of highlight() has {} bytes: at most {MARK_LEN_MAX} are allowed",
                        mark.len()
                    );
                }
                let (open, close) = match marks {
                    [open, close] => (*open, *close),
                    _ => MARKS,
                };
                Ok(Some(self.query(query)?.highlight(analyzer, value, open, close).into()))
            }
        }
    }

    /// A query, which is read once for many rows.
    fn query(&self, text: &str) -> Result<Rc<TextQuery>> {
        let mut parsed = self.parsed.borrow_mut();
        if let Some((known, query)) = &*parsed
            && **known == *text
        {
            return Ok(query.clone());
        }
        // Marks and scores need no phrases of an index: a query that it cannot search is refused by the search.
        match TextQuery::parse(text, &self.fulltext.analyzer, true) {
            Ok(query) => {
                let query = Rc::new(query);
                *parsed = Some((text.into(), query.clone()));
                Ok(query)
            }
            Err(error) => invalid!("{error}"),
        }
    }
}

/// The refusal of `BM25()` in a select clause without the same in ORDER BY.
pub fn misplaced<T>() -> Result<T> {
    invalid!("BM25() in the select clause requires ORDER BY BM25() on the same column with the same query")
}
