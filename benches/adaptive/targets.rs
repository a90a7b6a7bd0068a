//! The targets of issue 19, and which figures miss them.

use crate::bound::lowest_limit;
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

    /// False below the [bound](lowest_limit), where no clients can keep all targets. Such figures are shown and not
    /// judged.
    pub fn is_feasible(&self) -> bool {
        self.scene.limit >= lowest_limit(self.processes)
    }

    /// Says whether the figures are judged, and why. A process is one client, with any number of tasks.
    fn note(&self) -> String {
        let verdict = if self.is_feasible() { "judged: impossible only" } else { "NOT judged: impossible" };
        let clients = if self.processes == 1 { "1 client".to_owned() } else { format!("{} clients", self.processes) };
        format!("{verdict} below {:.1}/s for {clients}", lowest_limit(self.processes))
    }

    pub fn title(&self) -> String {
        let tasks = match (self.processes, self.scene.tasks) {
            (1, 1) => "1 client".to_owned(),
            (1, tasks) => format!("{tasks} tasks of a process"),
            (processes, _) => format!("{processes} processes"),
        };
        format!("{}/s, {tasks}", self.scene.limit)
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

/// No figure may change by more than this share of it if half of the waiters are cancelled.
const CANCELLED: f64 = 0.01;

pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut title = String::new();
    for row in rows {
        if row.title() != title {
            title = row.title();
            let _ = writeln!(text, "\n**{title}** ({})\n", row.note());
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
        let change = |(_, figure, ..): Target| (figure(&pair[1].figures) / figure(&pair[0].figures) - 1.0).abs();
        let most = TARGETS.map(change).into_iter().fold(0.0, f64::max);
        if most > CANCELLED {
            musts += 1;
            let _ = writeln!(
                text,
                "half of the waiters cancelled: a figure changed by {most:.3} of it at {}: MISSED",
                pair[0].title()
            );
        }
    }
    Judged { text, musts }
}
