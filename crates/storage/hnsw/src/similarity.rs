//! How close two vectors are.

/// A measure of closeness, by the name that Cassandra gives it. All of them are greater the closer two vectors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// `(1 + cos) / 2`.
    #[default]
    Cosine,
    /// `(1 + a·b) / 2`, meant for vectors of length one.
    DotProduct,
    /// `1 / (1 + |a - b|²)`.
    Euclidean,
}

impl Similarity {
    /// Every measure with its name.
    pub const NAMES: [(&str, Self); 3] =
        [("EUCLIDEAN", Self::Euclidean), ("DOT_PRODUCT", Self::DotProduct), ("COSINE", Self::Cosine)];

    /// The measure of this name, in either case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, measure)| *measure)
    }

    /// Whether a vector can be near to others: its components and the square of its length are finite as `f32`.
    pub fn is_comparable(vector: &[f32]) -> bool {
        let square: f64 = vector.iter().map(|component| f64::from(*component).powi(2)).sum();
        // A sum with a component that is not finite is not, either.
        (square as f32).is_finite()
    }

    /// How close two vectors of one length are, computed in double precision. Of a vector without direction (all zeros) the cosine is
    /// taken for zero.
    ///
    /// # Panics
    /// When their lengths differ.
    pub fn closeness(self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "vectors of one index have one length");
        let (mut dot, mut of_a, mut of_b) = (0.0_f64, 0.0_f64, 0.0_f64);
        for (a, b) in a.iter().zip(b) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            dot += a * b;
            of_a += a * a;
            of_b += b * b;
        }
        self.of_products(dot, of_a, of_b) as f32
    }

    /// From the product of two vectors and the squares of their lengths.
    pub(crate) fn of_products(self, dot: f64, of_a: f64, of_b: f64) -> f64 {
        match self {
            Self::Cosine => {
                let lengths = (of_a * of_b).sqrt();
                if lengths > 0.0 { (1.0 + dot / lengths) / 2.0 } else { 0.5 }
            }
            Self::DotProduct => (1.0 + dot) / 2.0,
            Self::Euclidean => 1.0 / (1.0 + (of_a + of_b - 2.0 * dot).max(0.0)),
        }
    }
}
