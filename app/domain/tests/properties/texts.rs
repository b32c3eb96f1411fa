//! Names are taken as they are or refused; what was taken once is taken again as the same.

use domain::{JobKey, LeaseKey, Metadata, Owner, Reason, Subject, TextError};
use proptest::prelude::*;
use serde_json::Value;

proptest! {
    #[test]
    fn a_name_that_was_taken_is_taken_again_as_the_same(text in any::<String>()) {
        if let Ok(key) = LeaseKey::parse(&text) {
            prop_assert_eq!(LeaseKey::parse(key.as_str()), Ok(key.clone()));
            prop_assert!((1..=512).contains(&key.as_str().len()));
            prop_assert!(!key.as_str().chars().any(char::is_control));
            prop_assert_eq!(key.as_str().trim(), key.as_str());
            let json = serde_json::to_string(&key).unwrap();
            prop_assert_eq!(serde_json::from_str::<LeaseKey>(&json).unwrap(), key);
        }
    }

    /// Nothing but the form of the letters changes, and in plain ASCII nothing at all.
    #[test]
    fn ascii_is_never_changed(text in "[ -~]{1,40}") {
        match Owner::parse(&text) {
            Ok(owner) => prop_assert_eq!(owner.as_str(), text),
            Err(error) => {
                prop_assert_eq!(error, TextError::OuterWhiteSpace);
                prop_assert!(text.trim() != text);
            }
        }
    }

    #[test]
    fn lengths_are_counted_in_bytes(count in 1..600_usize) {
        prop_assert_eq!(LeaseKey::parse(&"k".repeat(count)).is_ok(), count <= 512);
        prop_assert_eq!(JobKey::parse(&"é".repeat(count)).is_ok(), 2 * count <= 512);
        prop_assert_eq!(Owner::parse(&"o".repeat(count)).is_ok(), count <= 256);
        prop_assert_eq!(Reason::parse(&"r".repeat(4 * count)).is_ok(), 4 * count <= 1024);
    }

    #[test]
    fn composed_and_decomposed_letters_are_the_same_key(text in "[a-zé\u{e0}-\u{f6}가-힣]{1,20}") {
        use unicode_normalization::UnicodeNormalization;
        let apart: String = text.nfd().collect();
        prop_assert_eq!(LeaseKey::parse(&apart), LeaseKey::parse(&text));
    }

    #[test]
    fn a_subject_is_a_kind_and_an_id(kind in "[a-z0-9_-]{1,64}", id in "[!-~]{1,100}") {
        let text = format!("{kind}:{id}");
        let subject = Subject::parse(&text).unwrap();
        prop_assert_eq!(subject.as_str(), text);
    }

    #[test]
    fn no_control_character_is_taken(before in "[a-z]{1,5}", control in "\\p{Cc}", after in "[a-z]{1,5}") {
        prop_assert_eq!(LeaseKey::parse(&format!("{before}{control}{after}")), Err(TextError::ControlCharacter));
    }

    /// What was stored is written and read without end and stays the same: integers of 64 bits, and decimals of up to 15
    /// digits. (Longer ones may change in the last digit each time, since `serde_json` reads them so.)
    #[test]
    fn metadata_stays_as_it_was_taken(value in object()) {
        let Ok(metadata) = Metadata::parse(&value.to_string()) else { return Ok(()) };
        prop_assert_eq!(&Metadata::parse(metadata.as_str()).unwrap(), &metadata);
        let json = serde_json::to_string(&metadata).unwrap();
        prop_assert_eq!(json.as_str(), metadata.as_str());
        prop_assert_eq!(serde_json::from_str::<Metadata>(&json).unwrap(), metadata);
    }
}

fn decimal() -> impl Strategy<Value = Value> {
    (-999_999_999_999_999..=999_999_999_999_999_i64, -20..=5_i8)
        .prop_map(|(digits, exponent)| serde_json::from_str(&format!("{digits}e{exponent}")).unwrap())
}

fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        decimal(),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::hash_map(".{1,8}", value, 0..6).prop_map(|map| Value::Object(map.into_iter().collect()))
}
