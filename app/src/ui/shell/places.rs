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
    /// Its address.
    pub path: &'static str,
    /// Its name in the rail, the breadcrumb and the window's title.
    pub title: &'static str,
    /// Where it belongs.
    pub group: Group,
    /// Whether it is an everyday page, which the rail shows.
    pub in_rail: bool,
}

/// All pages that there are.
pub const PLACES: &[Place] = &[
    Place { path: "/", title: "Job Leases", group: Group::Workspace, in_rail: true },
    // For keys that no path can hold.
    Place { path: "/core/leases", title: "One lease", group: Group::Workspace, in_rail: false },
    Place { path: "/core/leases/*key", title: "One lease", group: Group::Workspace, in_rail: false },
    Place { path: "/core/audit", title: "Operations timeline", group: Group::Operations, in_rail: true },
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
