//! The targets of issue 19, and which figures miss them.

use crate::world::{Figures, Scene};
use std::fmt::Write;

pub struct Row {
    pub name: &'static str,
    pub scene: Scene,
    pub processes: usize,
    pub figures: Figures,
}

impl Row {
    fn is_ours(&self) -> bool {
        self.name.starts_with("tollgate")
    }

    fn is_cancelled(&self) -> bool {
        self.name.contains("cancelled")
    }

    /// Sixteen processes with less than a request per second each cannot keep these targets, whatever they do: after
    /// the limit has halved, each must be refused once to notice, and 16 of the 150 requests of the phase are 11 %.
    /// With a tolerance of one request, their requests also collide by chance: of requests that come at random with 0.9 of
    /// the limit, such a server refuses 0.9 / 1.9 (Erlang's loss formula). And together they exceed the limit even at
    /// their slowest rate. These figures are shown, and not judged.
    pub fn is_feasible(&self) -> bool {
        self.processes == 1 || self.scene.limit / self.processes as f64 >= 10.0
    }

    pub fn title(&self) -> String {
        let crowd = match (self.processes, self.scene.tasks) {
            (1, 1) => "1 client".to_owned(),
            (1, tasks) => format!("{tasks} tasks of a process"),
            (processes, _) => format!("{processes} processes"),
        };
        format!("{}/s, {crowd}", self.scene.limit)
    }
}

/// A figure that is judged: its name, the figure, must, aim, and whether more is better.
type Target = (&'static str, fn(&Figures) -> f64, f64, f64, bool);

const TARGETS: [Target; 5] = [
    ("share of the limit used", |it| it.used, 0.90, 0.95, true),
    ("refused", |it| it.refused, 0.02, 0.01, false),
    ("Jain index", |it| it.jain, 0.90, 0.95, true),
    ("seconds to 0.9 of a doubled limit", |it| it.found.unwrap_or(f64::INFINITY), 10.0, 5.0, false),
    ("seconds above a halved limit", |it| it.left.unwrap_or(f64::INFINITY), 1.0, 0.3, false),
];

/// No figure may change by more than this if half of the waiters are cancelled: a share, or a tenth of a second.
const CANCELLED: f64 = 0.01;

pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut title = String::new();
    for row in rows {
        if row.title() != title {
            title = row.title();
            let note = if row.is_feasible() { "" } else { " (not judged, see targets.rs)" };
            let _ = writeln!(text, "\n{title}{note}\n");
            let _ = writeln!(text, "| | used | refused | Jain | doubled, s | halved, s |\n|---|---|---|---|---|---|");
        }
        let seconds = |it: Option<f64>| it.map_or("-".to_owned(), |it| format!("{it:.2}"));
        let Figures { used, refused, jain, found, left, .. } = &row.figures;
        let (found, left) = (seconds(*found), seconds(*left));
        let _ = writeln!(text, "| {} | {used:.3} | {refused:.4} | {jain:.3} | {found} | {left} |", row.name);
    }
    text
}

pub struct Judged {
    pub text: String,
    /// How many musts were missed.
    pub musts: usize,
}

pub fn judged(rows: &[Row]) -> Judged {
    let (mut text, mut musts) = (String::new(), 0);
    let ours = || rows.iter().filter(|row| row.is_ours() && row.is_feasible());
    for (name, figure, must, aim, more) in TARGETS {
        let worst = |one: &Row, other: &Row| {
            let order = figure(&one.figures).total_cmp(&figure(&other.figures));
            if more { order } else { order.reverse() }
        };
        let Some(row) = ours().min_by(|one, other| worst(one, other)) else { continue };
        let is_met = |bound: f64| if more { figure(&row.figures) >= bound } else { figure(&row.figures) <= bound };
        let verdict = match (is_met(must), is_met(aim)) {
            (_, true) => "aim met",
            (true, false) => "must met",
            (false, false) => "MISSED",
        };
        musts += usize::from(!is_met(must));
        let value = figure(&row.figures);
        let _ = writeln!(text, "{name}: {value:.4} (must {must}, aim {aim}): {verdict}, worst at {}", row.title());
    }
    for pair in rows.windows(2).filter(|pair| pair[1].is_cancelled() && pair[1].is_feasible()) {
        let change = |figure: fn(&Figures) -> f64| figure(&pair[1].figures) - figure(&pair[0].figures);
        let changes = [-change(|it| it.used), change(|it| it.refused), -change(|it| it.jain)];
        let most = changes.into_iter().fold(0.0, f64::max);
        if most > CANCELLED {
            musts += 1;
            let _ = writeln!(text, "half of the waiters cancelled: {most:.3} worse at {}: MISSED", pair[0].title());
        }
    }
    Judged { text, musts }
}
