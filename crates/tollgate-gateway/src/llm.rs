//! Language models: what a request to one costs.

use std::collections::HashMap;

use super::estimate::Estimate;
use super::name::Name;
use super::prompt::Prompt;

/// What the file says about language models.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Llm {
    /// The tokens that a request may generate that does not say how many.
    pub(crate) output: u64,
    /// How many bytes of a request are taken for one token.
    pub(crate) bytes_per_token: u64,
    /// No request is estimated at more.
    pub(crate) most: Option<u64>,
    /// Whether the limits follow what the upstream says about its own.
    pub(crate) heed: bool,
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
}

impl Llm {
    /// The estimate of a request with this body. One without a body generates nothing, until its response says otherwise.
    pub(crate) fn estimate(&self, body: &[u8]) -> Result<Estimate, serde_json::Error> {
        let heeds = self.heed;
        if body.is_empty() {
            return Ok(Estimate { tokens: 0, rules: vec![Name::new(ALL)], heeds });
        }
        let Prompt { model, most, answers } = Prompt::read(body)?;
        let output = most.unwrap_or(self.output).saturating_mul(answers.unwrap_or(1).max(1));
        let input = (body.len() as u64).div_ceil(self.bytes_per_token);
        let tokens = output.saturating_add(input).min(self.most.unwrap_or(u64::MAX));
        let of_model = model.and_then(|model| self.models.rule_of(&model));
        Ok(Estimate { tokens, rules: [Name::new(ALL)].into_iter().chain(of_model).collect(), heeds })
    }
}

/// The name of the limit that follows how many requests the upstream allows.
pub(crate) fn requests_of(rule: Name) -> Name {
    Name::new(&format!("{rule} requests"))
}
