//! How close together the rows of lists are.

use super::choices::Choice;

/// What the reader chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Density {
    /// As many rows as can still be read with ease.
    #[default]
    Regular,
    /// More rows: as close as can still be pointed at.
    Compact,
    /// Fewer rows, with more room for a finger.
    Roomy,
}

impl Choice for Density {
    const NAME: &'static str = "density";
    const LABEL: &'static str = "Density";
    const ALL: &'static [Self] = &[Self::Compact, Self::Regular, Self::Roomy];

    fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Compact => "compact",
            Self::Roomy => "roomy",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Regular => "Regular",
            Self::Compact => "Compact",
            Self::Roomy => "Roomy",
        }
    }
}
