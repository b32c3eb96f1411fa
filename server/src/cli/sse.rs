//! Reads a stream of server-sent events.

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The id to resume from, as far as it was told.
    pub(super) id: Option<String>,
    /// What it says; lines are joined with line feeds.
    pub(super) data: String,
}

/// Takes bytes as they come, and gives out events as they are complete.
#[derive(Debug, Default)]
pub(super) struct Reader {
    rest: Vec<u8>,
    data: Option<String>,
    id: Option<String>,
}

impl Reader {
    /// The id of the last event, or the one that was told without any.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Takes what came, gives the events that it completes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            events.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            return self.data.take().map(|data| Event { id: self.id.clone(), data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments have no name; what else there may be says nothing to us.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_however_the_bytes_are_cut() {
        let stream =
            b"id: 1-7\n\n: hello\n\nid: 1-8\r\ndata: {\"a\":1}\r\n\r\ndata:x\ndata: \xc3\xa9\n\nid: 1-9\ndata: half";
        for size in 1..stream.len() {
            let mut reader = Reader::default();
            let events: Vec<Event> = stream.chunks(size).flat_map(|bytes| reader.take(bytes)).collect();
            let event = |data: &str| Event { id: Some("1-8".to_owned()), data: data.to_owned() };
            assert_eq!(events, [event("{\"a\":1}"), event("x\né")], "in pieces of {size}");
        }
        let mut reader = Reader::default();
        assert_eq!(reader.take(b"id: 1-7\n\n"), []);
        assert_eq!(reader.last_id(), Some("1-7"));
    }
}
