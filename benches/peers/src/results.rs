//! The measurements: numbers by case, contender and measure, collected over rounds and runs.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// Numbers of one kind, one per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub case: String,
    pub name: String,
    pub measure: String,
    pub rounds: Vec<f64>,
    /// Rounds in which the contender did not finish.
    #[serde(default)]
    pub hung: usize,
}

impl Series {
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.rounds, share)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Without numbers: not a number.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub machine: String,
    pub cores: usize,
    pub date: String,
    pub series: Vec<Series>,
}

impl Results {
    /// No results yet, on this machine, today.
    pub fn here() -> Self {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
        let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().map(|out| out.stdout).unwrap_or_default();
        Self {
            machine: model.map_or("unknown CPU", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            date: String::from_utf8_lossy(&date).trim().to_owned(),
            series: Vec::new(),
        }
    }

    /// The results of several runs, pooled.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self, Failure> {
        let mut all = Self::here();
        for path in paths {
            let one: Self = serde_json::from_str(&std::fs::read_to_string(path)?)?;
            (all.machine, all.cores, all.date) = (one.machine, one.cores, one.date);
            for series in one.series {
                let mine = all.series(&series.case, &series.name, &series.measure);
                mine.rounds.extend(series.rounds);
                mine.hung += series.hung;
            }
        }
        Ok(all)
    }

    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        Ok(std::fs::write(path, serde_json::to_string(self)?)?)
    }

    pub fn add(&mut self, case: &str, name: &str, measure: &str, number: f64) {
        self.series(case, name, measure).rounds.push(number);
    }

    pub fn find(&self, case: &str, name: &str, measure: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.case == case && s.name == name && s.measure == measure)
    }

    pub fn rounds(&self, case: &str, name: &str, measure: &str) -> Option<Vec<f64>> {
        self.find(case, name, measure).map(|series| series.rounds.clone())
    }

    /// The cases with this prefix, in the order in which they were measured.
    pub fn cases(&self, prefix: &str) -> Vec<&str> {
        let mut cases = Vec::new();
        for series in &self.series {
            if series.case.starts_with(prefix) && !cases.contains(&series.case.as_str()) {
                cases.push(series.case.as_str());
            }
        }
        cases
    }

    /// The contenders of a case, and their measures.
    pub fn names_and_measures(&self, case: &str) -> (Vec<&str>, Vec<&str>) {
        let (mut names, mut measures) = (Vec::new(), Vec::new());
        for series in self.series.iter().filter(|series| series.case == case) {
            if !names.contains(&series.name.as_str()) {
                names.push(series.name.as_str());
            }
            // A distribution is for the plots only.
            if !measures.contains(&series.measure.as_str()) && series.measure != "lateness, us" {
                measures.push(series.measure.as_str());
            }
        }
        (names, measures)
    }

    pub fn series(&mut self, case: &str, name: &str, measure: &str) -> &mut Series {
        let place = self.series.iter().position(|s| s.case == case && s.name == name && s.measure == measure);
        let place = place.unwrap_or_else(|| {
            let (case, name, measure) = (case.to_owned(), name.to_owned(), measure.to_owned());
            self.series.push(Series { case, name, measure, rounds: Vec::new(), hung: 0 });
            self.series.len() - 1
        });
        &mut self.series[place]
    }
}
