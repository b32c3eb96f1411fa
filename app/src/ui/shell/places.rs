//! The places of the console, as data: the rail, the breadcrumb and the list of routes all read this table.

/// The rail's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What people work on every day.
    Workspace,
    /// Running the service.
    Operations,
    /// What is wrong, and how it is mended.
    HealthAndRecovery,
}

impl Group {
    /// In the rail's order.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Operations, Self::HealthAndRecovery];

    /// The heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Workspace => "Workspace",
            Self::Operations => "Operations",
            Self::HealthAndRecovery => "Health and recovery",
        }
    }
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address; a star stands for what comes after it.
    pub path: &'static str,
    /// Its name in the rail, the breadcrumb and the window's title.
    pub title: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Where it belongs.
    pub group: Group,
    /// Whether it is an everyday page, which the rail shows.
    pub in_rail: bool,
    /// The key that goes there after `g`.
    pub key: Option<char>,
    /// Whether it is about one record, which its address must name.
    pub is_of_one: bool,
}

impl Place {
    /// Whether its path is an address as it stands.
    #[must_use]
    pub const fn is_address(&self) -> bool {
        !self.is_of_one
    }
}

/// All pages that there are.
pub const PLACES: &[Place] = &[
    Place {
        path: "/",
        title: "Job Leases",
        about: "every lease, live",
        group: Group::Workspace,
        in_rail: true,
        key: Some('l'),
        is_of_one: false,
    },
    // For keys that no path can hold.
    Place {
        path: "/core/leases",
        title: "One lease",
        about: "a key that is named in the query",
        group: Group::Workspace,
        in_rail: false,
        key: None,
        is_of_one: true,
    },
    Place {
        path: "/core/leases/*key",
        title: "One lease",
        about: "a key, its holder, its past, and what can be done",
        group: Group::Workspace,
        in_rail: false,
        key: None,
        is_of_one: true,
    },
    Place {
        path: "/core/find",
        title: "Find",
        about: "pages and records by their names",
        group: Group::Workspace,
        in_rail: false,
        key: None,
        is_of_one: false,
    },
    Place {
        path: "/core/audit",
        title: "Operations timeline",
        about: "every change, with who brought it about",
        group: Group::Operations,
        in_rail: true,
        key: Some('t'),
        is_of_one: false,
    },
    Place {
        path: "/core/routes",
        title: "Route map",
        about: "every page that there is",
        group: Group::Operations,
        in_rail: false,
        key: Some('r'),
        is_of_one: false,
    },
];

/// The page at an address.
#[must_use]
pub fn place_at(path: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| match place.path.split_once('*') {
        Some((above, _)) => path.starts_with(above.trim_end_matches('/')),
        None => place.path == path,
    })
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ui::App;

    #[tokio::test]
    async fn every_place_is_a_route_and_every_route_a_place() {
        let (routes, _) = leptos_axum::generate_route_list_with_exclusions_and_ssg(App, None);
        let routes: BTreeSet<_> = routes.iter().map(|route| route.path().replace("{*", "*").replace('}', "")).collect();
        let places: BTreeSet<_> = PLACES.iter().map(|place| place.path.to_owned()).collect();
        assert_eq!(routes, places);
    }
}
