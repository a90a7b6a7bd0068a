//! The names and units for OpenTelemetry follow its conventions, and docs/metrics.md lists all of them.

use std::collections::BTreeSet;

use tollgate::metrics::{INSTRUMENTS, Instrument, InstrumentKind};

/// The name that an exporter to Prometheus makes: see "Prometheus and OpenMetrics Compatibility" of the specification.
fn prometheus_name(instrument: &Instrument) -> String {
    let mut name = instrument.otel_name.replace('.', "_");
    name += match instrument.unit {
        "s" => "_seconds",
        "{token}/s" => "_per_second",
        // An annotation in braces is no unit.
        unit => unit.strip_prefix('{').and_then(|unit| unit.strip_suffix('}')).map(|_| "").unwrap(),
    };
    if instrument.kind == InstrumentKind::Counter {
        name += "_total";
    }
    name
}

#[test]
fn an_exporter_to_prometheus_gives_each_series_the_name_that_it_has_there() {
    for instrument in INSTRUMENTS {
        assert_eq!(prometheus_name(instrument), instrument.name, "{instrument:?}");
    }
}

#[test]
fn names_are_lower_case_with_dots_in_one_namespace_and_without_unit_or_total() {
    let mut seen = BTreeSet::new();
    for Instrument { otel_name: name, .. } in INSTRUMENTS {
        let words: Vec<_> = name.split(['.', '_']).collect();
        assert!(name.starts_with("rate_limit."), "{name}");
        assert!(words.iter().all(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase())), "{name}");
        assert!(!words.iter().any(|word| ["total", "seconds", "count"].contains(word)), "{name}");
        assert!(seen.insert(name), "{name} twice");
    }
}

#[test]
fn every_instrument_is_in_the_document() {
    let document = include_str!("../../../docs/metrics.md");
    let mut listed = BTreeSet::new();
    for line in document.lines().filter(|line| line.ends_with("` |") && line.matches(" | ").count() == 2) {
        let [kind, unit, names] = line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>().try_into().unwrap();
        for name in names.split(", ") {
            let name = format!("rate_limit.{}", name.trim_matches('`'));
            let instrument = INSTRUMENTS.iter().find(|instrument| instrument.otel_name == name).expect(&name);
            assert_eq!(
                (format!("{:?}", instrument.kind), format!("`{}`", instrument.unit)),
                (kind.into(), unit.into())
            );
            assert!(listed.insert(instrument.name), "{name} twice");
        }
    }
    assert_eq!(listed.len(), INSTRUMENTS.len(), "names in docs/metrics.md");
}
