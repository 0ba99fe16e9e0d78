//! Similarity of vectors of floats, scaled so that more similar is larger and cosine and dot product lie in 0..1 for
//! unit vectors.

use super::{Answer, Function, FunctionError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Similarity {
    Cosine,
    Euclidean,
    DotProduct,
}

fn floats(value: &[u8]) -> Vec<f32> {
    value.chunks_exact(4).filter_map(|chunk| Some(f32::from_be_bytes(chunk.try_into().ok()?))).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

impl Function {
    pub(super) fn similarity(&self, similarity: Similarity, values: &[&[u8]]) -> Answer {
        let [a, b] = values else { return Err(self.wrong_number(values.len())) };
        let (a, b) = (floats(a), floats(b));
        if a.len() != b.len() {
            return Err(FunctionError::invalid("All arguments must have the same vector dimensions"));
        }
        let result = match similarity {
            Similarity::Cosine => {
                let all_zero = |vector: &[f32]| vector.iter().all(|x| *x == 0.0);
                if all_zero(&a) || all_zero(&b) {
                    let text = format!("Function {} doesn't support all-zero vectors.", self.full_name());
                    return Err(FunctionError::Invalid(text));
                }
                let norms = f64::from(dot(&a, &a)) * f64::from(dot(&b, &b));
                (1.0 + (f64::from(dot(&a, &b)) / norms.sqrt()) as f32) / 2.0
            }
            Similarity::Euclidean => {
                let distance: f32 = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y)).sum();
                1.0 / (1.0 + distance)
            }
            Similarity::DotProduct => (1.0 + dot(&a, &b)) / 2.0,
        };
        Ok(Some(result.to_be_bytes().to_vec()))
    }
}
