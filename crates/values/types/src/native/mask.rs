//! Masking functions: values that reveal nothing of the masked one.

use super::digest::Digest;
use super::{Answer, Function, FunctionError};
use crate::elements::{build_list, build_tuple, build_vector};
use crate::{CqlType, uuid};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mask {
    Null,
    Default,
    Replace,
    Inner,
    Outer,
    Hash,
}

impl Function {
    pub(super) fn mask(&self, mask: Mask, arguments: &[Option<&[u8]>]) -> Answer {
        let value = arguments.first().copied().flatten();
        match mask {
            Mask::Null => Ok(None),
            Mask::Default => Ok(Some(default_value(&self.returns))),
            Mask::Replace => Ok(arguments.get(1).copied().flatten().map(<[u8]>::to_vec)),
            Mask::Inner | Mask::Outer => {
                value.map_or(Ok(None), |value| self.mask_part(mask, value, arguments))
            }
            Mask::Hash => {
                let digest = match arguments.get(1).copied().flatten() {
                    None => Digest::Sha256,
                    Some(name) => {
                        let name = String::from_utf8_lossy(name);
                        Digest::named(&name).ok_or_else(|| {
                            FunctionError::Invalid(format!("Hash algorithm not found: {name}"))
                        })?
                    }
                };
                Ok(value.map(|value| digest.of(value)))
            }
        }
    }

    /// Replaces the characters inside or outside of two margins.
    fn mask_part(&self, mask: Mask, value: &[u8], arguments: &[Option<&[u8]>]) -> Answer {
        let margin = |i: usize| {
            let bytes = arguments.get(i).copied().flatten().and_then(|bytes| bytes.try_into().ok());
            i64::from(bytes.map_or(0, i32::from_be_bytes))
        };
        let text = std::str::from_utf8(value).map_err(|_| self.malformed(0))?;
        let padding = match arguments.get(3).copied().flatten() {
            Some(bytes) => {
                let padding = std::str::from_utf8(bytes).map_err(|_| self.malformed(3))?;
                let mut chars = padding.chars();
                match (chars.next(), chars.next()) {
                    (Some(only), None) => only,
                    _ => {
                        return Err(FunctionError::Invalid(format!(
                            "The padding argument for function {} should be single-character, but '{padding}' has {} \
                             characters.",
                            self.full_name(),
                            padding.encode_utf16().count()
                        )));
                    }
                }
            }
            None => '*',
        };
        let (begin, end) = (margin(1), text.chars().count() as i64 - 1 - margin(2));
        let masked = text.chars().zip(0i64..).map(|(c, i)| {
            let inside = i >= begin && i <= end;
            if inside == (mask == Mask::Inner) { padding } else { c }
        });
        Ok(Some(masked.collect::<String>().into_bytes()))
    }
}

/// The value that stands for any other of the type.
fn default_value(ty: &CqlType) -> Vec<u8> {
    match ty {
        CqlType::Text | CqlType::Ascii => b"****".to_vec(),
        CqlType::Blob | CqlType::Custom(_) => Vec::new(),
        CqlType::Boolean | CqlType::Tinyint | CqlType::Varint => vec![0],
        CqlType::Smallint => vec![0; 2],
        CqlType::Int | CqlType::Float | CqlType::Inet => vec![0; 4],
        CqlType::Bigint | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => {
            vec![0; 8]
        }
        CqlType::Date => 0x8000_0000u32.to_be_bytes().to_vec(),
        CqlType::Decimal => vec![0; 5],
        CqlType::Duration => vec![0; 3],
        CqlType::Uuid => vec![0; 16],
        CqlType::Timeuuid => uuid::min_time_uuid(0).to_vec(),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => build_list::<&[u8]>([]),
        CqlType::Tuple(types) => build_tuple(types.iter().map(|ty| Some(default_value(ty)))),
        CqlType::Udt { ty, .. } => build_tuple(ty.fields.iter().map(|(_, ty)| Some(default_value(ty)))),
        CqlType::Vector { element, dimension } => {
            build_vector(element, (0..*dimension).map(|_| default_value(element)))
        }
    }
}
