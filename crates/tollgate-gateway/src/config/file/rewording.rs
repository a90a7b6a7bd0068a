//! The parser's errors in plain words, with what to write instead.

/// The message of the TOML parser, or a better one.
pub(super) fn reword(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match *quoted.as_slice() {
        [name, ref known @ ..] if message.starts_with("unknown field ") => unknown("setting", name, known),
        [name, ref known @ ..] if message.starts_with("unknown variant ") => unknown("value", name, known),
        [name] if message.starts_with("missing field ") => {
            format!("`{name}` is missing: `tollgate-gateway init example.toml` writes a file with all settings")
        }
        [value] if message.starts_with("invalid type: ") && message.ends_with("expected a string") => {
            format!(
                "`{value}` is not in quotes: write \"{value}\", with a unit where there is one, like \"200/s\" or \"2s\""
            )
        }
        _ if message.ends_with("expected u64") || message.ends_with("expected usize") => {
            format!("{message}: write a whole number, without quotes")
        }
        _ if message.ends_with("expected a boolean") => format!("{message}: write true or false, without quotes"),
        _ => message.to_owned(),
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    // At most one edit, plus one for every four characters.
    let most = 1 + name.chars().count() / 4;
    let distance = |other: &&str| strsim::damerau_levenshtein(name, other);
    let nearest = known.iter().copied().min_by_key(distance).filter(|other| distance(other) <= most);
    match nearest {
        Some(nearest) => format!("there is no {what} `{name}` here: did you mean `{nearest}`?"),
        None => format!("there is no {what} `{name}` here; there are `{}`", known.join("`, `")),
    }
}

#[test]
fn a_mistake_is_told_with_what_was_probably_meant() {
    for (message, expected) in [
        (
            "unknown field `qouta`, expected one of `quota`, `in_flight`",
            "no setting `qouta` here: did you mean `quota`?",
        ),
        (
            "unknown field `rate`, expected one of `quota`, `in_flight`",
            "no setting `rate` here; there are `quota`, `in_flight`",
        ),
        ("unknown variant `by-adress`, expected one of `by-address`, `by-key`", "did you mean `by-address`?"),
        ("missing field `listen`", "`listen` is missing: `tollgate-gateway init"),
        ("invalid type: integer `200`, expected a string", "`200` is not in quotes: write \"200\""),
        ("`soon` is not a duration", "`soon` is not a duration"),
    ] {
        assert!(reword(message).contains(expected), "{}", reword(message));
    }
}
