//! The sign-in page: a plain form that needs no script at all.

use leptos::prelude::*;

use crate::ui::parts::{Shape, ShapeSheet};
use crate::ui::shell::appearance::Appearance;
use crate::ui::shell::choices::Choice as _;
use crate::ui::shell::document::Preamble;

/// What the form shows besides itself.
#[derive(Clone, Debug, Default)]
pub struct SignIn {
    /// Why the last attempt failed.
    pub problem: Option<String>,
    /// Where to go afterwards: a path of this server.
    pub next: Option<String>,
    /// The secret of a one-time link: the form then asks for no token.
    pub link: Option<String>,
    /// The `Cookie` header, for the appearance.
    pub cookies: Option<String>,
}

/// The whole document. The form posts `token` or `link` (and `next`, if there is one) to `/sign-in`.
#[must_use]
pub fn document(options: LeptosOptions, sign_in: SignIn) -> String {
    Owner::new().with(|| view! { <Page options sign_in/> }.to_html())
}

#[component]
fn Page(options: LeptosOptions, sign_in: SignIn) -> impl IntoView {
    let SignIn { problem, next, link, cookies } = sign_in;
    let appearance = cookies.as_deref().map_or_else(Appearance::default, Appearance::in_cookies);
    let invalid = problem.is_some();
    view! {
        <!DOCTYPE html>
        <html lang="en" data-appearance=appearance.as_str()>
            <head>
                <Preamble appearance options/>
                <title>"Sign in · Job Leases"</title>
            </head>
            <body class="alone">
                <ShapeSheet/>
                <main class="card gate">
                    <p class="brand"><Shape of="#lock"/>"Job Leases"</p>
                    <h1>"Sign in"</h1>
                    {problem.map(|problem| view! { <p class="problem" id="problem" role="alert">{problem}</p> })}
                    <form method="post" action="/sign-in">
                        {next.map(|next| view! { <input type="hidden" name="next" value=next/> })}
                        {match link.clone() {
                            Some(link) => view! {
                                <input type="hidden" name="link" value=link/>
                                <p>"This link signs in one browser, once."</p>
                            }
                            .into_any(),
                            None => view! { <TokenField invalid/> }.into_any(),
                        }}
                        <button type="submit" class="button is-main">"Sign in"</button>
                    </form>
                    {link.is_none().then(|| view! {
                        <p class="hint" id="hint">
                            "At its first start the server prints a sign-in link that works once. Unless it was given a
                            token then, it also saves one for administrators beside its database, in the file whose name
                            ends in "<code>"-token"</code>"."
                        </p>
                    })}
                </main>
            </body>
        </html>
    }
}

/// Where the token goes.
#[component]
fn TokenField(invalid: bool) -> impl IntoView {
    view! {
        // For password managers, which keep a password by its user's name.
        <input type="text" name="username" value="Job Leases" autocomplete="username" hidden readonly/>
        <label class="field">
            <span>"API token"</span>
            <input
                type="password"
                name="token"
                required
                autofocus
                autocomplete="current-password"
                spellcheck="false"
                placeholder="jl_"
                aria-invalid=invalid.then_some("true")
                aria-describedby=if invalid { "problem hint" } else { "hint" }
            />
        </label>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_a_form_without_scripts_and_what_it_is_given_is_escaped() {
        let options = LeptosOptions::builder().output_name("job-leases").build();
        let sign_in = SignIn {
            problem: Some("<b>".into()),
            next: Some("/?a=\"><script>".into()),
            link: None,
            cookies: Some("appearance=dark".into()),
        };
        let html = document(options, sign_in);
        assert!(html.starts_with("<!DOCTYPE html>"), "{html}");
        assert!(html.contains(r#"data-appearance="dark""#));
        assert!(html.contains(r#"action="/sign-in""#));
        assert!(html.contains("&lt;b&gt;"));
        assert!(!html.contains("<script"));
        assert!(!html.contains("style="));
    }
}
