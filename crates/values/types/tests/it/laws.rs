//! Laws that hold for every type: order is total, the byte-comparable form has the same order and comes back, no
//! decoder trips over random bytes.

use crate::values::{any_type, type_and_values, value};
use proptest::prelude::*;
use std::cmp::Ordering;
use types::{CqlType, Terminator, decode_clustering, encode_clustering};

fn encoded(ty: &CqlType, bytes: &[u8], reversed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    ty.encode_ordered_component(Some(bytes), reversed, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn memcmp_is_compare((ty, values) in type_and_values(4)) {
        for a in &values {
            ty.validate(a).unwrap();
            for b in &values {
                let order = ty.compare(a, b);
                prop_assert_eq!(order, ty.compare(b, a).reverse());
                let ascending = [encoded(&ty, a, false), encoded(&ty, b, false)].map(|mut out| { out.push(0x38); out });
                prop_assert_eq!(ascending[0].cmp(&ascending[1]), order, "{} {:x?} {:x?}", ty, a, b);
                let descending = [encoded(&ty, a, true), encoded(&ty, b, true)].map(|mut out| { out.push(0x38); out });
                prop_assert_eq!(descending[0].cmp(&descending[1]), order.reverse(), "{} {:x?} {:x?}", ty, a, b);
                if order.is_ne() {
                    prop_assert!(!ascending[0].starts_with(&ascending[1]));
                    prop_assert!(!descending[0].starts_with(&descending[1]));
                }
            }
        }
    }

    #[test]
    fn order_is_transitive((ty, mut values) in type_and_values(6)) {
        values.sort_by(|a, b| ty.compare(a, b));
        for (i, a) in values.iter().enumerate() {
            for b in &values[i..] {
                prop_assert_ne!(ty.compare(a, b), Ordering::Greater);
            }
        }
    }

    #[test]
    fn byte_comparable_comes_back((ty, values) in type_and_values(1), reversed: bool) {
        let out = encoded(&ty, &values[0], reversed);
        let mut with_more = out.clone();
        with_more.push(0x40);
        let (back, taken) = ty.decode_ordered_component(&with_more, reversed).unwrap();
        prop_assert_eq!(taken, out.len());
        let back = back.unwrap();
        ty.validate(&back).unwrap();
        prop_assert_eq!(ty.compare(&back, &values[0]), Ordering::Equal);
        prop_assert_eq!(encoded(&ty, &back, reversed), out);
    }

    #[test]
    fn class_names_come_back(ty in any_type(), reversed: bool) {
        prop_assert_eq!(CqlType::parse_class_name(&ty.class_name(reversed)), Ok((ty, reversed)));
    }

    #[test]
    fn decoders_survive_random_bytes(ty in any_type(), bytes in proptest::collection::vec(any::<u8>(), 0..40), reversed: bool) {
        let _ = ty.validate(&bytes);
        let _ = ty.decode_ordered_component(&bytes, reversed);
        let _ = ty.decode_ordered(&bytes, reversed);
        let _ = ty.compare(&bytes, &bytes[..bytes.len() / 2]);
        let _ = ty.encode_ordered(&bytes, reversed, &mut Vec::new());
        let _ = decode_clustering(&[(ty, reversed)], &bytes);
    }

    #[test]
    fn decoders_survive_damaged_values((ty, values) in type_and_values(1), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = values[0].clone();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = ty.validate(&bytes);
        let _ = ty.compare(&bytes, &values[0]);
        let _ = ty.encode_ordered(&bytes, false, &mut Vec::new());
        let mut out = encoded(&ty, &values[0], false);
        let at = at.index(out.len());
        out[at] = byte;
        let _ = ty.decode_ordered_component(&out, false);
    }

    #[test]
    fn readers_of_text_survive_anything(ty in any_type(), text in "[ -~é\\x00]{0,20}|[0-9:.+TZ -]{1,30}|[Pp0-9ymowdhnsu-]{1,12}") {
        if let Ok(bytes) = ty.from_string(&text) {
            // Hexadecimal digits are taken as they are, and the empty text is empty bytes even for a tinyint field.
            let raw = ty.any(&mut |ty| {
                ty.is_collection() || ty.is_tuple() || ty.is_udt() || matches!(ty, CqlType::Vector { .. })
            });
            prop_assert!(raw || ty.validate(&bytes).is_ok() || bytes.is_empty(), "{} {:?} {:x?}", ty, text, bytes);
        }
        let _ = CqlType::parse_class_name(&text);
        if let Ok(value) = types::json::parse(&text) {
            let _ = ty.from_json(&value);
        }
    }

    #[test]
    fn json_and_literals_of_any_value((ty, values) in type_and_values(1)) {
        let json = ty.to_json(&values[0]);
        let parsed = types::json::parse(&json);
        prop_assert!(parsed.is_ok(), "{}", json);
        let lossy = ty.any(&mut |ty| matches!(ty, CqlType::Float | CqlType::Double | CqlType::Tuple(_) | CqlType::Udt { .. } | CqlType::Timestamp));
        if !lossy {
            let back = ty.from_json(&parsed.unwrap()).unwrap().unwrap();
            prop_assert_eq!(ty.compare(&back, &values[0]), Ordering::Equal, "{} {}", ty, json);
        }
        let _ = ty.format(&values[0]);
        let _ = ty.to_text(&values[0]);
    }

    #[test]
    fn writers_of_text_survive_anything(ty in any_type(), bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = ty.format(&bytes);
        let _ = ty.to_text(&bytes);
        prop_assert!(types::json::parse(&ty.to_json(&bytes)).is_ok());
    }

    #[test]
    fn functions_survive_anything(
        name in proptest::sample::select(vec![
            "to_date", "to_timestamp", "to_unix_timestamp", "min_timeuuid", "floor", "_add", "_substract", "_multiply",
            "_divide", "_modulo", "_negate", "abs", "exp", "log", "log10", "round", "sum", "avg", "min", "max", "count",
            "map_keys", "map_values", "collection_count", "collection_sum", "collection_avg", "similarity_cosine",
            "to_json", "mask_inner", "mask_default", "cast_as_int", "cast_as_text", "cast_as_decimal", "blob_as_int",
        ]),
        types in proptest::collection::vec(any_type(), 0..4),
        bytes in proptest::collection::vec(proptest::option::weighted(0.9, proptest::collection::vec(any::<u8>(), 0..20)), 4),
    ) {
        struct Fixed;
        impl types::native::Environment for Fixed {
            fn now_ms(&mut self) -> i64 { i64::MAX }
            fn time_uuid(&mut self) -> [u8; 16] { [0; 16] }
            fn random_uuid(&mut self) -> [u8; 16] { [0; 16] }
        }
        let arguments: Vec<_> = types.iter().map(|ty| types::native::TypedArgument { ty: ty.clone(), text: "x".into() }).collect();
        let arguments: Vec<_> = arguments.iter().map(|argument| argument as &dyn types::native::Argument).collect();
        if let Ok(Some(function)) = types::native::resolve(name, &arguments, None) {
            let values: Vec<_> = bytes.iter().take(types.len()).map(Option::as_deref).collect();
            match function.aggregate() {
                Some(mut state) => {
                    for value in &values {
                        let _ = state.add(*value);
                    }
                    let _ = state.result();
                }
                None => { let _ = function.execute(&values, &mut Fixed); }
            }
        }
    }

    #[test]
    fn clusterings_and_bounds_sort(
        (types, a, b, prefix) in proptest::collection::vec((any_type(), any::<bool>()), 1..4).prop_flat_map(|types| {
            let row = || types.iter().map(|(ty, _)| value(ty)).collect::<Vec<_>>();
            let len = types.len();
            (Just(types.clone()), row(), row(), 0..=len)
        })
    ) {
        let order = types.iter().zip(a.iter().zip(&b)).map(|((ty, reversed), (a, b))| {
            let order = ty.compare(a, b);
            if *reversed { order.reverse() } else { order }
        });
        let order = order.collect::<Vec<_>>();
        let whole = order.iter().copied().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        let on_prefix = order[..prefix].iter().copied().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        let row = |values: &[Vec<u8>], end| {
            let components: Vec<_> = values.iter().map(|value| Some(value.as_slice())).collect();
            encode_clustering(&types, &components, end)
        };
        let key = row(&a, Terminator::Clustering);
        prop_assert_eq!(key.cmp(&row(&b, Terminator::Clustering)), whole);
        let before = row(&b[..prefix], Terminator::Before);
        let after = row(&b[..prefix], Terminator::After);
        prop_assert_eq!(key.cmp(&before), on_prefix.then(Ordering::Greater));
        prop_assert_eq!(key.cmp(&after), on_prefix.then(Ordering::Less));
        let static_row = encode_clustering(&types, &[], Terminator::Static);
        prop_assert!(static_row < before && static_row < key);
        let (back, end) = decode_clustering(&types, &before).unwrap();
        prop_assert_eq!(back.len(), prefix);
        prop_assert_eq!(end, Terminator::Before);
    }
}
