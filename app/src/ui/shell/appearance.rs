//! Light, dark, or as the system is.

use super::choices::Choice;

/// What the reader chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Appearance {
    /// As the system is.
    #[default]
    System,
    /// Always light.
    Light,
    /// Always dark.
    Dark,
}

impl Choice for Appearance {
    const NAME: &'static str = "appearance";
    const LABEL: &'static str = "Appearance";
    const ALL: &'static [Self] = &[Self::System, Self::Light, Self::Dark];

    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::System => "As the system",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }
}

impl Appearance {
    /// What the browser may paint with before any style has arrived.
    #[must_use]
    pub const fn color_scheme(self) -> &'static str {
        match self {
            Self::System => "light dark",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_read_from_among_other_cookies() {
        assert_eq!(Appearance::in_cookies("session=abc; appearance=dark"), Appearance::Dark);
        assert_eq!(Appearance::in_cookies("appearance=light;x=y"), Appearance::Light);
        assert_eq!(Appearance::in_cookies("myappearance=dark"), Appearance::System);
        assert_eq!(Appearance::in_cookies("appearance=pink"), Appearance::System);
        assert_eq!(Appearance::in_cookies(""), Appearance::System);
    }
}
