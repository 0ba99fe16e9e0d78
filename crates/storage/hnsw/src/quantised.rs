//! Vectors of one byte a dimension.

use std::hash::{Hash, Hasher};

use crate::Similarity;

/// A vector whose components are multiples of a scale of its own: a quarter of the memory, and products in integers.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The components, in units of `scale`.
    components: Box<[i8]>,
    scale: f32,
    /// Square of its length.
    square: f32,
}

impl Eq for Quantised {}

/// Vectors are equal when their components and scales are: scales are finite, and zero only as 0.0.
impl Hash for Quantised {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.components.hash(state);
        self.scale.to_bits().hash(state);
    }
}

/// A vector by reference, as a graph holds them.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) components: &'a [i8],
    pub(crate) scale: f32,
    pub(crate) square: f32,
}

impl Quantised {
    /// A vector whose components are finite; none when one is not, or its length is not.
    pub fn new(vector: &[f32]) -> Option<Self> {
        let greatest = vector.iter().fold(0.0_f32, |greatest, component| greatest.max(component.abs()));
        let square: f64 = vector.iter().map(|component| f64::from(*component).powi(2)).sum();
        if !Similarity::is_comparable(vector) {
            return None;
        }
        let scale = greatest / 127.0;
        let quantise = |component: &f32| match scale > 0.0 {
            true => (component / scale).round() as i8,
            false => 0,
        };
        Some(Self { components: vector.iter().map(quantise).collect(), scale, square: square as f32 })
    }

    /// How close two vectors are.
    ///
    /// # Panics
    /// When their lengths differ.
    pub fn closeness(&self, other: &Self, similarity: Similarity) -> f32 {
        self.view().closeness(other.view(), similarity)
    }

    /// Count of its dimensions.
    pub fn dimensions(&self) -> usize {
        self.components.len()
    }

    /// Bytes that it holds beside itself.
    pub fn memory_size(&self) -> usize {
        self.components.len()
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { components: &self.components, scale: self.scale, square: self.square }
    }
}

impl View<'_> {
    pub(crate) fn closeness(self, other: View<'_>, similarity: Similarity) -> f32 {
        let dot = f64::from(product(self.components, other.components))
            * f64::from(self.scale)
            * f64::from(other.scale);
        similarity.of_products(dot, f64::from(self.square), f64::from(other.square)) as f32
    }
}

/// The product of two vectors. It cannot overflow: 2¹⁶ dimensions of at most 127² are below 2³¹.
fn product(a: &[i8], b: &[i8]) -> i32 {
    assert_eq!(a.len(), b.len(), "vectors of one index have one length");
    const LANES: usize = 16;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    // Lanes of their own, so that the loop becomes vector instructions.
    let mut sums = [0_i32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += i32::from(i16::from(a[lane]) * i16::from(b[lane]));
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| i32::from(*a) * i32::from(*b));
    sums.iter().sum::<i32>() + rest.sum::<i32>()
}
