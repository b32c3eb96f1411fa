//! Prefixes of keys as ranges of texts, the same for every database: texts are compared by their bytes.

use domain::LeaseKey;

/// The least text that is greater than all that begin with `prefix`: its last character that has a successor, replaced
/// by it. Without one, what is greater than every key.
pub(super) fn after_prefix(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Surrogates are no characters: the one after U+D7FF is U+E000.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    "\u{10ffff}".repeat(LeaseKey::MAX_BYTES)
}

/// The prefixes that are not below another of them.
pub(super) fn outermost(prefixes: &[String]) -> impl Iterator<Item = &str> {
    let inner = |prefix: &String| prefixes.iter().any(|other| other != prefix && prefix.starts_with(other.as_str()));
    let mut seen = std::collections::BTreeSet::new();
    prefixes.iter().filter(move |prefix| !inner(prefix) && seen.insert(prefix.as_str())).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_begin_with_it_and_nothing_else() {
        for (prefix, after) in [("a", "b"), ("a/", "a0"), ("a\u{d7ff}", "a\u{e000}"), ("a\u{10ffff}", "b")] {
            assert_eq!(after_prefix(prefix), after);
            assert!(format!("{prefix}\u{10ffff}\u{10ffff}").as_str() < after);
        }
        assert!(after_prefix("").as_str() > "\u{10ffff}z");
    }

    #[test]
    fn prefixes_below_another_are_left_out() {
        let prefixes = ["b/", "a/x/", "a/", "b/", "a/y"].map(str::to_owned);
        assert_eq!(outermost(&prefixes).collect::<Vec<_>>(), ["b/", "a/"]);
    }
}
