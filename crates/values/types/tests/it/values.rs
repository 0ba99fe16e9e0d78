//! Random types and values for the property tests.

use proptest::prelude::*;
use std::sync::Arc;
use types::elements::{build_list, build_map, build_set, build_tuple, build_vector};
use types::{CqlType, UserType};

/// A native type that can be a clustering column, or a counter's stand-in.
fn native() -> impl Strategy<Value = CqlType> {
    proptest::sample::select(vec![
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Date,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Duration,
        CqlType::Float,
        CqlType::Inet,
        CqlType::Int,
        CqlType::Smallint,
        CqlType::Text,
        CqlType::Time,
        CqlType::Timestamp,
        CqlType::Timeuuid,
        CqlType::Tinyint,
        CqlType::Uuid,
        CqlType::Varint,
    ])
}

/// Any type, nested up to three deep, all frozen.
pub fn any_type() -> impl Strategy<Value = CqlType> {
    native().prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| CqlType::list(element, true)),
            inner.clone().prop_map(|element| CqlType::set(element, true)),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::map(key, value, true)),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(CqlType::tuple),
            (inner.clone(), 1u32..4).prop_map(|(element, dimension)| CqlType::vector(element, dimension)),
            proptest::collection::vec(inner, 1..4).prop_map(|fields| {
                let fields = fields.into_iter().enumerate().map(|(i, ty)| (format!("f{i}"), ty)).collect();
                let ty = UserType { keyspace: "ks".into(), name: "T".into(), fields };
                CqlType::Udt { ty: Arc::new(ty), frozen: true }
            }),
        ]
    })
}

fn skewed() -> impl Strategy<Value = i64> {
    (any::<i64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
}

fn raw(len: impl Into<proptest::collection::SizeRange>) -> BoxedStrategy<Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(0xff), Just(0xfe), Just(1), any::<u8>()];
    proptest::collection::vec(byte, len).boxed()
}

fn uuid(version: Option<u8>) -> BoxedStrategy<Vec<u8>> {
    (raw(16), 0u8..16)
        .prop_map(move |(mut bytes, random)| {
            bytes[6] = bytes[6] & 0x0f | version.unwrap_or(random) << 4;
            bytes
        })
        .boxed()
}

fn varint_bytes() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        skewed().prop_map(|number| number.to_be_bytes().to_vec()),
        raw(1..20),
        (raw(1..3), raw(126..140)).prop_map(|(head, tail)| [head, tail].concat()),
    ]
    .prop_map(|bytes| num_bigint::BigInt::from_signed_bytes_be(&bytes).to_signed_bytes_be())
    .boxed()
}

/// A valid value of the type that is not the empty one of types like `int`.
pub fn value(ty: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let list = |strategies: Vec<BoxedStrategy<Vec<u8>>>| strategies;
    match ty.clone() {
        CqlType::Ascii => "[ -~\\x00a]{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Text => "[a-c\\x00é€𝄞']{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Blob | CqlType::Custom(_) => raw(0..8),
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => {
            skewed().prop_map(|number| number.to_be_bytes().to_vec()).boxed()
        }
        CqlType::Time => (0i64..86_400_000_000_000).prop_map(|number| number.to_be_bytes().to_vec()).boxed(),
        CqlType::Int | CqlType::Date => {
            skewed().prop_map(|number| (number as i32).to_be_bytes().to_vec()).boxed()
        }
        CqlType::Smallint => any::<i16>().prop_map(|number| number.to_be_bytes().to_vec()).boxed(),
        CqlType::Tinyint => any::<i8>().prop_map(|number| number.to_be_bytes().to_vec()).boxed(),
        CqlType::Boolean => any::<bool>().prop_map(|flag| vec![u8::from(flag)]).boxed(),
        CqlType::Float => prop_oneof![any::<f32>(), Just(0.0), Just(-0.0), Just(f32::NAN)]
            .prop_map(|number| number.to_be_bytes().to_vec())
            .boxed(),
        CqlType::Double => prop_oneof![any::<f64>(), Just(0.0), Just(-0.0), Just(f64::NAN)]
            .prop_map(|number| number.to_be_bytes().to_vec())
            .boxed(),
        CqlType::Decimal => (varint_bytes(), prop_oneof![-3i32..4, -5000i32..5000])
            .prop_map(|(unscaled, scale)| [&scale.to_be_bytes()[..], &unscaled].concat())
            .boxed(),
        CqlType::Varint => varint_bytes(),
        CqlType::Duration => (any::<bool>(), 0i64..1000, 0i64..1000, 0i64..i64::MAX)
            .prop_map(|(negative, months, days, nanos)| {
                let sign = if negative { -1 } else { 1 };
                let mut out = Vec::new();
                for part in [months, days, nanos] {
                    stdx::vint::write_signed(sign * part, &mut out);
                }
                out
            })
            .boxed(),
        CqlType::Inet => prop_oneof![raw(4), raw(16)].boxed(),
        CqlType::Uuid => prop_oneof![uuid(None), uuid(Some(1)), uuid(Some(4))].boxed(),
        CqlType::Timeuuid => uuid(Some(1)),
        CqlType::List { element, .. } => {
            proptest::collection::vec(value(&element), 0..4).prop_map(build_list).boxed()
        }
        CqlType::Set { element, .. } => {
            let elements = proptest::collection::vec(value(&element), 0..4);
            elements.prop_map(move |elements| build_set(&element, elements)).boxed()
        }
        CqlType::Map { key, value: ty, .. } => {
            let entries = proptest::collection::vec((value(&key), value(&ty)), 0..4);
            entries.prop_map(move |entries| build_map(&key, entries)).boxed()
        }
        CqlType::Vector { element, dimension } => {
            let elements = proptest::collection::vec(value(&element), dimension as usize);
            elements.prop_map(move |elements| build_vector(&element, elements)).boxed()
        }
        CqlType::Tuple(types) => fields(list(types.iter().map(value).collect())),
        CqlType::Udt { ty, .. } => fields(list(ty.fields.iter().map(|(_, ty)| value(ty)).collect())),
    }
}

fn fields(values: Vec<BoxedStrategy<Vec<u8>>>) -> BoxedStrategy<Vec<u8>> {
    let len = values.len();
    let fields: Vec<_> = values.into_iter().map(|value| proptest::option::weighted(0.8, value)).collect();
    (fields, 1..=len).prop_map(|(fields, given)| build_tuple(fields.into_iter().take(given))).boxed()
}

/// A type with some values of it; neighbours in the list are often equal or close.
pub fn type_and_values(count: usize) -> impl Strategy<Value = (CqlType, Vec<Vec<u8>>)> {
    any_type().prop_flat_map(move |ty| {
        let values = proptest::collection::vec(value(&ty), count);
        values.prop_map(move |values| (ty.clone(), values))
    })
}
