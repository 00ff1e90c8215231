//! The hash of a configuration, as the Go library `hashstructure` computes it (format 2, zero values omitted, 64-bit
//! FNV-1). It is part of the names of Secrets, so both programs must agree on it.

/// A value in the library's view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HashedValue {
    Bool(bool),
    Int(i64),
    /// One byte of a byte slice.
    Byte(u8),
    Text(String),
    List(Vec<HashedValue>),
    Map(Vec<(HashedValue, HashedValue)>),
    /// A pointer that is not nil: its target counts even if it is zero.
    Pointer(Box<HashedValue>),
    /// The name of the type without its package, and the exported fields in declaration order.
    Struct(&'static str, Vec<(&'static str, HashedValue)>),
}

impl HashedValue {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::List(bytes.iter().copied().map(Self::Byte).collect())
    }

    /// An empty list or map counts as Go's nil.
    fn is_zero(&self) -> bool {
        match self {
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Byte(value) => *value == 0,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Pointer(_) => false,
            Self::Struct(_, fields) => fields.iter().all(|(_, value)| value.is_zero()),
        }
    }
}

/// The hash of a value.
pub(super) fn hash(node: &HashedValue) -> u64 {
    match node {
        HashedValue::Bool(value) => fnv(&[u8::from(*value)]),
        HashedValue::Int(value) => fnv(&value.to_le_bytes()),
        HashedValue::Byte(value) => fnv(&[*value]),
        HashedValue::Text(text) => fnv(text.as_bytes()),
        HashedValue::List(items) => items.iter().fold(0, |sum, item| ordered(sum, hash(item))),
        HashedValue::Map(entries) => {
            let sum = entries.iter().fold(0, |sum, (key, value)| sum ^ ordered(hash(key), hash(value)));
            finished(sum)
        }
        HashedValue::Pointer(value) => hash(value),
        HashedValue::Struct(name, fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_zero());
            set.fold(fnv(name.as_bytes()), |sum, (field, value)| {
                finished(sum ^ ordered(fnv(field.as_bytes()), hash(value)))
            })
        }
    }
}

fn ordered(first: u64, second: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.to_le_bytes());
    both[8..].copy_from_slice(&second.to_le_bytes());
    fnv(&both)
}

fn finished(sum: u64) -> u64 {
    fnv(&sum.to_le_bytes())
}

/// FNV-1: multiply, then xor.
fn fnv(bytes: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(START, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_values_hash_like_the_library() {
        assert_eq!(hash(&HashedValue::text("a")), 12_638_153_115_695_167_422);
        assert_eq!(hash(&HashedValue::Int(5)), 14_856_124_470_027_295_614);
        assert_eq!(hash(&HashedValue::Bool(true)), 12_638_153_115_695_167_454);
        assert_eq!(hash(&HashedValue::bytes(b"AB")), 10_798_869_195_583_531_372);
    }

    #[test]
    fn fields_without_a_value_do_not_count() {
        let only = |fields| hash(&HashedValue::Struct("T", fields));
        let name = || ("Name", HashedValue::text("x"));
        let empty = [
            HashedValue::Int(0),
            HashedValue::Bool(false),
            HashedValue::text(""),
            HashedValue::List(vec![]),
            HashedValue::Map(vec![]),
        ];
        for zero in empty {
            assert_eq!(only(vec![name(), ("Other", zero.clone())]), only(vec![name()]), "{zero:?}");
        }
        let inner = HashedValue::Struct("U", vec![("A", HashedValue::Int(0))]);
        assert_eq!(only(vec![("Inner", inner), name()]), only(vec![name()]));
        assert_ne!(
            only(vec![name(), ("Other", HashedValue::Int(1))]),
            only(vec![("Other", HashedValue::Int(1)), name()])
        );
    }
}
