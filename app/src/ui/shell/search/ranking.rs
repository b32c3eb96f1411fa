//! Which entries answer to what is typed, the best first.
//!
//! Every word must be in an entry: at the beginning of one of its words, inside one, or at least letter by letter in order. What begins
//! so comes before what only holds it. Ten thousand entries are ranked between one key press and the next picture: what cannot answer is
//! told by the letters that it has at all, before it is read.

/// A text, made ready to be looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    /// In lower case.
    text: String,
    letters: u64,
}

impl Searched {
    /// Makes a text ready.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.to_lowercase();
        Self { letters: letters(&text), text }
    }

    /// How well a query answers to it, the more the better; `None` if it does not.
    fn score(&self, query: &Query) -> Option<i32> {
        if query.letters & !self.letters != 0 {
            return None;
        }
        let mut score = 0;
        for word in &query.words {
            score += word_score(&self.text, word)?;
        }
        // Of two that answer alike, the shorter one is more of what was typed.
        Some(score * 8 - i32::try_from(self.text.len().min(72)).unwrap_or(0))
    }
}

/// What is typed, made ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    words: Vec<String>,
    letters: u64,
}

impl Query {
    /// Makes it ready.
    #[must_use]
    pub fn new(typed: &str) -> Self {
        let words: Vec<String> = typed.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let letters = words.iter().fold(0, |all, word| all | letters(word));
        Self { words, letters }
    }

    /// Whether nothing is looked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// The places of the entries that answer, the best first and at most `most`; of those that answer alike, the first first.
#[must_use]
pub fn rank<'t>(query: &Query, texts: impl Iterator<Item = (&'t Searched, i32)>, most: usize) -> Vec<usize> {
    let found = texts.enumerate().filter_map(|(place, (text, bonus))| Some((text.score(query)? + bonus, place)));
    let mut found: Vec<(i32, usize)> = found.collect();
    let better = |a: &(i32, usize), b: &(i32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
    if found.len() > most && most > 0 {
        // What is not shown need not be sorted.
        found.select_nth_unstable_by(most - 1, better);
    }
    found.truncate(most);
    found.sort_unstable_by(better);
    found.into_iter().map(|(_, place)| place).collect()
}

/// How well a word is in a text.
fn word_score(text: &str, word: &str) -> Option<i32> {
    let mut best = None;
    let mut from = 0;
    while let Some(at) = text[from..].find(word).map(|at| at + from) {
        let before = text[..at].chars().next_back();
        if before.is_none() {
            return Some(100);
        }
        if before.is_some_and(|letter| !letter.is_alphanumeric()) {
            return Some(90);
        }
        best = Some(60);
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
    best.or_else(|| in_order(text, word))
}

/// How well the letters of a word are in a text in their order: the closer together the better.
fn in_order(text: &str, word: &str) -> Option<i32> {
    let mut letters = text.chars().enumerate();
    let (mut first, mut last) = (None, 0);
    for wanted in word.chars() {
        let (at, _) = letters.find(|(_, letter)| *letter == wanted)?;
        first.get_or_insert(at);
        last = at;
    }
    let spread = last - first.unwrap_or(0) + 1;
    let gaps = spread.saturating_sub(word.chars().count());
    // Letters that lie all over a text are there by chance.
    (gaps < word.chars().count()).then(|| 40 - i32::try_from(gaps.min(39)).unwrap_or(39))
}

/// Which letters a text has, one bit for each of sixty-four sorts.
fn letters(text: &str) -> u64 {
    text.chars().filter(|letter| !letter.is_whitespace()).fold(0, |all, letter| all | 1 << (u32::from(letter) % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked<'t>(typed: &str, texts: &[&'t str]) -> Vec<&'t str> {
        let ready: Vec<Searched> = texts.iter().map(|text| Searched::new(text)).collect();
        rank(&Query::new(typed), ready.iter().map(|text| (text, 0)), 10).into_iter().map(|place| texts[place]).collect()
    }

    #[test]
    fn what_begins_so_comes_before_what_holds_it_and_that_before_what_has_its_letters() {
        let texts =
            ["a deeper port", "report of today", "import/2026", "open port", "port", "unrelated", "pastoral rt"];
        let found = ranked("port", &texts);
        assert_eq!(found, ["port", "open port", "a deeper port", "import/2026", "report of today"]);
        assert_eq!(ranked("prt", &["report", "port", "pasteurized art"]), ["port", "report"]);
    }

    #[test]
    fn every_word_must_be_there_in_whatever_order_and_case() {
        let texts = ["Nightly/Report worker-1", "nightly/vacuum worker-2", "hourly/report worker-1"];
        assert_eq!(ranked("WORKER-1 night", &texts), ["Nightly/Report worker-1"]);
        assert_eq!(ranked("report", &texts), ["hourly/report worker-1", "Nightly/Report worker-1"]);
        assert_eq!(ranked("report absent", &texts), [""; 0]);
        assert_eq!(ranked("", &texts).len(), 3);
        assert_eq!(ranked("ünï", &["x ÜNÏCODE", "union"]), ["x ÜNÏCODE"]);
    }

    #[test]
    fn of_those_that_answer_alike_the_first_is_first_and_a_bonus_comes_on_top() {
        let texts = ["key/one", "key/two", "key/six"].map(Searched::new);
        let of = |bonus: [i32; 3], most| rank(&Query::new("key"), texts.iter().zip(bonus), most);
        assert_eq!(of([0, 0, 0], 10), [0, 1, 2]);
        assert_eq!(of([0, 0, 5], 10), [2, 0, 1]);
        assert_eq!(of([0, 0, 5], 2), [2, 0]);
        assert_eq!(of([0, 0, 5], 0), [0; 0]);
    }
}
