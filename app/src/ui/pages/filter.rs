//! What a list shows, as its address says it: `?q=owner:worker-1 status:held key:nightly/*&sort=-updated_at`.

use std::fmt::Write as _;

use domain::{JobKey, Owner, Subject};

use crate::api::leases::{ListRequest, Sort, Status};
use crate::api::values::Prefix;

/// The parameter that holds what is looked for.
pub const QUERY: &str = "q";
/// The parameter that holds the order.
pub const SORT: &str = "sort";
/// The parameter that says where the page begins.
pub const CURSOR: &str = "cursor";

/// Where all that a filter finds is to be had as a file; a point and its format follow: `csv` or `json`.
pub const EXPORT: &str = "/core/export/leases";

/// The qualifiers, each with what it is for.
pub const QUALIFIERS: [(&str, &str); 5] = [
    ("key", "keys that begin so: key:nightly/*"),
    ("owner", "the holder: owner:worker-1"),
    ("job", "the job: job:close-month"),
    ("subject", "what it concerns: subject:customer:acme"),
    ("status", "held, breaking, released, expired, broken, transferred or undelivered"),
];

/// One part of a query: a qualifier and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The qualifier.
    pub name: &'static str,
    /// The value.
    pub value: String,
}

impl Part {
    /// As it stands in a query; quoted where it holds white space.
    #[must_use]
    pub fn text(&self) -> String {
        let star = if self.name == "key" { "*" } else { "" };
        if self.value.contains(char::is_whitespace) {
            format!("{}:\"{}{star}\"", self.name, self.value)
        } else {
            format!("{}:{}{star}", self.name, self.value)
        }
    }
}

/// What a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// What is looked for; all of it must hold.
    pub parts: Vec<Part>,
    /// The order; the newest grant first if absent.
    pub sort: Option<Sort>,
}

impl Filter {
    /// The default order.
    pub const NEWEST: Sort = Sort::AcquiredAtDown;

    /// Reads an address' parameters.
    ///
    /// # Errors
    /// What is wrong with them, in words for the reader.
    pub fn parse(query: &str, sort: Option<&str>) -> Result<Self, String> {
        let mut filter = Self { parts: Vec::new(), sort: None };
        if let Some(sort) = sort {
            let known = Sort::parse(sort).ok_or_else(|| format!("There is no order called {sort}."))?;
            filter.sort = Some(known).filter(|sort| *sort != Self::NEWEST);
        }
        for word in words(query) {
            let (name, value) = match word.split_once(':') {
                Some((name, value)) => {
                    let known = QUALIFIERS.iter().find(|(known, _)| *known == name);
                    let names = || QUALIFIERS.map(|(name, _)| format!("{name}:")).join(" ");
                    (
                        known
                            .ok_or_else(|| format!("There is no qualifier {name}. Those that there are: {}", names()))?
                            .0,
                        value,
                    )
                }
                None => ("key", word.as_str()),
            };
            let value = if name == "key" { value.trim_end_matches('*') } else { value };
            if !value.is_empty() {
                filter.parts.retain(|part| part.name != name);
                filter.parts.push(Part { name, value: value.to_owned() });
            }
        }
        filter.request(None)?;
        Ok(filter)
    }

    /// What to ask the server.
    ///
    /// # Errors
    /// If a value cannot be what its qualifier says.
    pub fn request(&self, cursor: Option<String>) -> Result<ListRequest, String> {
        let mut request = ListRequest {
            sort: Some(self.sort.unwrap_or(Self::NEWEST)),
            cursor,
            count: Some(true),
            ..ListRequest::default()
        };
        for Part { name, value } in &self.parts {
            let wrong = |why: &dyn std::fmt::Display| format!("{name}:{value} {why}.");
            match *name {
                "key" => request.prefix = Some(Prefix::parse(value).map_err(|error| wrong(&error))?),
                "owner" => request.owner = Some(Owner::parse(value).map_err(|error| wrong(&error))?),
                "job" => request.job_key = Some(JobKey::parse(value).map_err(|error| wrong(&error))?),
                "subject" => request.subject = Some(Subject::parse(value).map_err(|error| wrong(&error))?),
                _ => request.status = Some(Status::parse(value).ok_or_else(|| wrong(&"is no status"))?),
            }
        }
        Ok(request)
    }

    /// The value of a qualifier.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.parts.iter().find(|part| part.name == name).map(|part| part.value.as_str())
    }

    /// As it stands in the search field.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().map(Part::text).collect::<Vec<_>>().join(" ")
    }

    /// The same with another value for a qualifier, or without it.
    #[must_use]
    pub fn with(&self, name: &'static str, value: Option<&str>) -> Self {
        let mut filter = self.clone();
        filter.parts.retain(|part| part.name != name);
        filter.parts.extend(value.map(|value| Part { name, value: value.to_owned() }));
        filter
    }

    /// The same in another order.
    #[must_use]
    pub fn sorted(&self, sort: Sort) -> Self {
        Self { sort: Some(sort).filter(|sort| *sort != Self::NEWEST), ..self.clone() }
    }

    /// The address of the list that shows this, from `cursor` on.
    #[must_use]
    pub fn address(&self, cursor: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let text = self.text();
        if !text.is_empty() {
            query.append_pair(QUERY, &text);
        }
        if let Some(sort) = self.sort {
            query.append_pair(SORT, sort.as_str());
        }
        if let Some(cursor) = cursor {
            query.append_pair(CURSOR, cursor);
        }
        let query = query.finish();
        if query.is_empty() { "/".to_owned() } else { format!("/?{query}") }
    }
}

/// The address of all that the list at `first` shows, on whatever page, as a file of this format.
#[must_use]
pub fn export(first: &str, format: &str) -> String {
    let query = first.split_once('?').map_or("", |(_, query)| query);
    let typed = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == QUERY);
    match typed {
        Some((_, typed)) => {
            let typed: String = form_urlencoded::byte_serialize(typed.as_bytes()).collect();
            format!("{EXPORT}.{format}?{QUERY}={typed}")
        }
        None => format!("{EXPORT}.{format}"),
    }
}

/// The address of the same list as at `first`, from a cursor on.
#[must_use]
pub fn further(first: &str, cursor: &str) -> String {
    let cursor: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
    let joint = if first.contains('?') { '&' } else { '?' };
    format!("{first}{joint}{CURSOR}={cursor}")
}

/// The words of a query: parted by white space, which quotes keep together.
fn words(query: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for letter in query.chars() {
        match letter {
            '"' => quoted = !quoted,
            letter if letter.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            letter => word.push(letter),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The address of a key's page.
#[must_use]
pub fn lease_address(key: &str) -> String {
    if matches!(key, "." | "..") {
        // Browsers take these for steps between folders, however they are written.
        return format!("/core/leases?key={key}");
    }
    let mut address = String::from("/core/leases/");
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b':' | b'@') {
            address.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_written_back() {
        let filter = Filter::parse("owner:worker-1 status:held key:nightly/*", Some("-updated_at")).unwrap();
        assert_eq!(filter.text(), "owner:worker-1 status:held key:nightly/*");
        let request = filter.request(None).unwrap();
        assert_eq!(request.prefix.unwrap().as_str(), "nightly/");
        assert_eq!((request.status, request.sort), (Some(Status::Held), Some(Sort::UpdatedAtDown)));
        assert_eq!(
            filter.address(Some("c")),
            "/?q=owner%3Aworker-1+status%3Aheld+key%3Anightly%2F*&sort=-updated_at&cursor=c"
        );
        assert_eq!(filter.with("owner", None).text(), "status:held key:nightly/*");
        assert_eq!(Filter::parse("nightly/", None).unwrap().text(), "key:nightly/*");
        assert_eq!(Filter::parse("  ", Some("-acquired_at")).unwrap().address(None), "/");
    }

    #[test]
    fn white_space_is_quoted_and_later_values_replace_earlier_ones() {
        let filter = Filter::parse("owner:\"on call\" owner:x owner:\"on call\"", None).unwrap();
        assert_eq!(filter.text(), "owner:\"on call\"");
        assert_eq!(filter.request(None).unwrap().owner.unwrap().as_str(), "on call");
    }

    #[test]
    fn what_cannot_be_looked_for_is_said_in_words() {
        for (query, sort) in [("colour:red", None), ("status:gone", None), ("subject:acme", None), ("", Some("luck"))] {
            assert!(Filter::parse(query, sort).is_err(), "{query}");
        }
    }

    #[test]
    fn any_key_has_an_address() {
        assert_eq!(lease_address("nightly/report"), "/core/leases/nightly%2Freport");
        assert_eq!(lease_address(".."), "/core/leases?key=..");
        assert_eq!(lease_address("a b%?#ä.."), "/core/leases/a%20b%25%3F%23%C3%A4..");
    }

    #[test]
    fn the_next_page_is_of_the_same_list() {
        for filter in [Filter::default(), Filter::default().with("owner", Some("a b&c"))] {
            assert_eq!(further(&filter.address(None), "c+/="), filter.address(Some("c+/=")));
        }
    }
}
