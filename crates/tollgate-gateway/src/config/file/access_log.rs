//! The setting `access_log`.

use toml::Spanned;

use super::super::log_destination::Destination;
use super::super::problem::{Located, Problem, Source};
use super::checks::at_optional;

pub(super) fn check_access_log(
    source: &Source<'_>,
    log: Option<&Spanned<String>>,
    has_query: &Spanned<bool>,
) -> Result<Located<Option<Destination>>, Problem> {
    if let Some(log) = log.filter(|log| log.as_ref().is_empty() || log.as_ref().ends_with('/')) {
        let what =
            format!("`{}` is not a file: write one like \"/var/log/tollgate/access.log\", or \"stdout\"", log.as_ref());
        return Err(source.problem(Some(log.span()), what));
    }
    if log.is_none() && *has_query.as_ref() {
        let what = "`access_log_query` has no effect without `access_log`: write where the log goes, or leave this out";
        return Err(source.problem(Some(has_query.span()), what));
    }
    let destination = |text: String| match &*text {
        "stdout" => Destination::Stdout,
        _ => Destination::File(text.into()),
    };
    Ok(at_optional(source, log.cloned()).map(|log| log.map(destination)))
}
