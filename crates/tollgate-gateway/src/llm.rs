//! Language models: what a request to one costs.

pub(crate) mod estimate;
pub(crate) mod event_scanner;
pub(crate) mod prompt;
pub(crate) mod prompt_count;
pub(crate) mod token_count;
pub(crate) mod usage;
pub(crate) mod usage_scanner;

use std::collections::HashMap;

use crate::request::name::Name;
use estimate::Estimate;
use prompt::Prompt;

/// What the file says about language models.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Llm {
    /// The tokens that a request may generate that does not say how many.
    pub(crate) default_output: u64,
    /// How many bytes of a request are taken for one token.
    pub(crate) bytes_per_token: u64,
    /// No request is estimated at more.
    pub(crate) max_estimate: Option<u64>,
    /// Whether the limits of models follow what the upstream says about its own.
    pub(crate) follows: bool,
    pub(crate) models: Models,
}

/// The name of the limits of all requests to language models.
pub(crate) const ALL: &str = "llm";

/// The rules of the models that have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Models {
    /// By the name of the model, in lower case.
    pub(crate) exact: HashMap<String, Name>,
    /// By the beginning of the name, in lower case, the longest first.
    pub(crate) prefixes: Vec<(String, Name)>,
}

impl Models {
    pub(crate) fn rule_of(&self, model: &str) -> Option<Name> {
        let model = model.trim().to_lowercase();
        let prefix = || self.prefixes.iter().find(|(prefix, _)| model.starts_with(prefix)).map(|(_, name)| *name);
        self.exact.get(&model).copied().or_else(prefix)
    }

    /// The names of their rules.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        self.exact.values().chain(self.prefixes.iter().map(|(_, name)| name)).copied()
    }
}

impl Llm {
    /// The estimate of a request with this path and body.
    pub(crate) fn estimate(&self, path: &str, body: &[u8]) -> Result<Estimate, serde_json::Error> {
        let prompt = Prompt::read(body)?;
        let output = prompt.output(path, self.default_output);
        let most = self.max_estimate.unwrap_or(u64::MAX);
        let input = (body.len() as u64).div_ceil(self.bytes_per_token).min(most);
        let tokens = output.saturating_add(input).min(most);
        // A rule of all models is that of requests without a model too.
        let model = self.models.rule_of(prompt.model.as_deref().unwrap_or_default());
        Ok(Estimate { tokens, input, model, follows: self.follows })
    }
}

/// The name of the limit that follows how many requests the upstream allows.
pub(crate) fn requests_of(rule: Name) -> Name {
    Name::new(&format!("{rule} requests"))
}
