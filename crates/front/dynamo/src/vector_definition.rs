//! The definition of a vector index: its attribute, how distances are measured, the attributes that searches may be restricted by and those
//! that it shows, as an extension of the table stores it.

use serde_json::{Value as Json, json};

use crate::index_definition::{IndexKey, Projected};

/// How far two vectors are from each other, by the API's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    /// 0 (one direction) to 2 (opposite directions).
    Cosine,
    /// The length of their difference.
    Euclidean,
    /// Their product, which is greater the nearer they are.
    DotProduct,
}

impl Distance {
    /// Every function with its name.
    pub(crate) const NAMES: [(&str, Self); 3] =
        [("COSINE", Self::Cosine), ("DOT_PRODUCT", Self::DotProduct), ("EUCLIDEAN", Self::Euclidean)];

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, distance)| *distance)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cosine => "COSINE",
            Self::Euclidean => "EUCLIDEAN",
            Self::DotProduct => "DOT_PRODUCT",
        }
    }

    /// The score of two vectors of one length, computed in double precision. The cosine of a vector of zeros is taken for 0.
    pub(crate) fn score(self, a: &[f32], b: &[f32]) -> f64 {
        let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let dot = || pairs().map(|(a, b)| a * b).sum::<f64>();
        match self {
            Self::DotProduct => dot(),
            Self::Euclidean => pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt(),
            Self::Cosine => {
                let squares = pairs().fold((0.0, 0.0), |(of_a, of_b), (a, b)| (of_a + a * a, of_b + b * b));
                let lengths = squares.0.sqrt() * squares.1.sqrt();
                let cosine = if lengths > 0.0 { dot() / lengths } else { 0.0 };
                (1.0 - cosine).clamp(0.0, 2.0)
            }
        }
    }

    /// A score as a number that is less the nearer the vectors are.
    pub(crate) fn rank(self, score: f64) -> f64 {
        if self == Self::DotProduct { -score } else { score }
    }
}

/// A vector index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VectorIndex {
    pub(crate) name: String,
    /// The attribute with the vectors.
    pub(crate) attribute: String,
    pub(crate) dimensions: usize,
    pub(crate) distance: Distance,
    /// The attribute whose value a search has to name; items without it are not in the index.
    pub(crate) hash: Option<IndexKey>,
    /// Attributes whose values a search may name.
    pub(crate) filters: Vec<IndexKey>,
    pub(crate) projected: Projected,
}

/// The indexes in the bytes of a table's extension.
pub(crate) fn read(bytes: &[u8]) -> Vec<VectorIndex> {
    let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
    json.as_array().into_iter().flatten().filter_map(VectorIndex::read).collect()
}

/// The bytes of a table's extension.
pub(crate) fn write(indexes: &[VectorIndex]) -> Vec<u8> {
    Json::Array(indexes.iter().map(VectorIndex::json).collect()).to_string().into_bytes()
}

impl VectorIndex {
    fn read(json: &Json) -> Option<Self> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        let filters = json.get("filters")?.as_array()?.iter().map(IndexKey::read);
        Some(Self {
            name: text("name")?,
            attribute: text("attribute")?,
            dimensions: usize::try_from(json.get("dimensions")?.as_u64()?).ok()?,
            distance: Distance::of_name(json.get("distance")?.as_str()?)?,
            hash: json.get("hash").and_then(IndexKey::read),
            filters: filters.collect::<Option<_>>()?,
            projected: Projected::read(json.get("projected")?),
        })
    }

    fn json(&self) -> Json {
        json!({
            "name": self.name,
            "attribute": self.attribute,
            "dimensions": self.dimensions,
            "distance": self.distance.name(),
            "hash": self.hash.as_ref().map(IndexKey::json),
            "filters": self.filters.iter().map(IndexKey::json).collect::<Vec<_>>(),
            "projected": self.projected.json(),
        })
    }

    /// The name of the index of storage by which its items are found. Indexes with one attribute and one function share it.
    pub(crate) fn storage_index(&self) -> String {
        let of = format!("{}|{}|{}", self.attribute, self.dimensions, self.distance.name());
        format!("dynamodb_v_{:016x}", xxhash_rust::xxh3::xxh3_64(of.as_bytes()))
    }

    /// The attributes of its search schema.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &IndexKey> {
        self.hash.iter().chain(&self.filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_comes_back() {
        let key = |name: &str| IndexKey { name: name.to_owned(), kind: "N" };
        let one = VectorIndex {
            name: "near".to_owned(),
            attribute: "embedding".to_owned(),
            dimensions: 3,
            distance: Distance::DotProduct,
            hash: Some(key("tenant")),
            filters: vec![key("kind"), key("year")],
            projected: Projected::Include(vec!["title".to_owned()]),
        };
        let other = VectorIndex { hash: None, filters: Vec::new(), projected: Projected::All, ..one.clone() };
        let all = vec![one, other];
        assert_eq!(read(&write(&all)), all);
        assert_eq!(all[0].storage_index(), all[1].storage_index(), "one index of storage serves both");
        let far = VectorIndex { distance: Distance::Euclidean, ..all[0].clone() };
        assert_ne!(far.storage_index(), all[0].storage_index());
        assert!(read(b"no JSON").is_empty());
    }

    #[test]
    fn storage_knows_the_functions_by_the_same_names() {
        use replica::Similarity;
        let of = |distance: Distance| Similarity::of_name(distance.name());
        assert_eq!(of(Distance::Cosine), Some(Similarity::Cosine));
        assert_eq!(of(Distance::Euclidean), Some(Similarity::Euclidean));
        assert_eq!(of(Distance::DotProduct), Some(Similarity::DotProduct));
    }

    #[test]
    fn scores_are_those_of_the_api() {
        let (a, b, zero) = ([1.0, 0.0], [10.0, 0.0], [0.0, 0.0]);
        let cases = [
            (Distance::Cosine, &b, 0.0),
            (Distance::Cosine, &[-1.0, 0.0], 2.0),
            (Distance::Cosine, &[0.0, 3.0], 1.0),
            (Distance::Cosine, &zero, 1.0),
            (Distance::Euclidean, &b, 9.0),
            (Distance::Euclidean, &zero, 1.0),
            (Distance::DotProduct, &b, 10.0),
            (Distance::DotProduct, &[-2.0, 5.0], -2.0),
        ];
        for (distance, other, score) in cases {
            assert_eq!(distance.score(&a, other), score, "{distance:?} {other:?}");
        }
        assert!(Distance::DotProduct.rank(3.0) < Distance::DotProduct.rank(-3.0));
        assert!(Distance::Euclidean.rank(1.0) < Distance::Euclidean.rank(2.0));
    }
}
