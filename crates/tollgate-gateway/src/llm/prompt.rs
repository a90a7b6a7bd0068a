//! What the body of a request to a language model says about its cost.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::prompt_count::PromptCount;
use super::token_count::TokenCount;
use crate::http::path_variants;

/// A longer name is that of no model.
const MAX_NAME_LEN: usize = 256;

/// The fields of a request that decide its cost. The names of OpenAI's chat completions, completions and responses, and
/// of Anthropic's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) model: Option<String>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    /// The largest of these, also where their names are written in another way.
    largest: Option<u64>,
    answers: Option<u64>,
    /// How many answers are generated, of which the best are sent.
    best_of: Option<u64>,
    /// How many prompts there are.
    prompts: u64,
}

impl Prompt {
    /// Reads a body. Fields that are not looked at are skipped, however deep they are.
    pub(crate) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }

    /// The tokens that the request may generate: by each answer `default`, or what a field says that the upstream
    /// follows on this path. A field that it may ignore can only raise the number.
    pub(crate) fn output(&self, path: &str, default: u64) -> u64 {
        let path = path.to_ascii_lowercase();
        // A path that servers read in different ways may mean any of them.
        let is = |end: &str| path_variants::is_unambiguous(&path) && path.ends_with(end);
        let own = if is("/chat/completions") {
            self.max_tokens.max(self.max_completion_tokens)
        } else if is("/completions") || is("/messages") {
            self.max_tokens
        } else if is("/responses") {
            self.max_output_tokens
        } else {
            None
        };
        let each = own.unwrap_or(default).max(self.largest.unwrap_or(0));
        let answers = self.answers.max(self.best_of).unwrap_or(1).max(1);
        each.saturating_mul(answers).saturating_mul(self.prompts.max(1))
    }

    fn set_most(&mut self, name: &str, most: Option<TokenCount>) {
        // Some servers take 0 for an absent field.
        let most = most.map(|most| most.0).filter(|most| *most > 0);
        self.largest = self.largest.max(most);
        let slot = match name {
            "max_tokens" => &mut self.max_tokens,
            "max_completion_tokens" => &mut self.max_completion_tokens,
            "max_output_tokens" => &mut self.max_output_tokens,
            _ => return,
        };
        *slot = (*slot).max(most);
    }
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PromptVisitor)
    }
}

struct PromptVisitor;

impl<'de> Visitor<'de> for PromptVisitor {
    type Value = Prompt;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Prompt, A::Error> {
        let mut prompt = Prompt::default();
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            // Some servers read names in either case.
            match &*path_variants::normalize(name.as_bytes()) {
                "model" => {
                    let model: Option<String> = map.next_value()?;
                    if model.as_ref().is_some_and(|model| model.len() > MAX_NAME_LEN) {
                        return Err(A::Error::custom("the name of the model is too long"));
                    }
                    set_once(&mut prompt.model, model, "model")?;
                }
                "n" => set_once(&mut prompt.answers, map.next_value::<Option<TokenCount>>()?.map(|n| n.0), "n")?,
                "best_of" => {
                    set_once(&mut prompt.best_of, map.next_value::<Option<TokenCount>>()?.map(|n| n.0), "best_of")?;
                }
                "prompt" => prompt.prompts = prompt.prompts.max(map.next_value::<PromptCount>()?.0),
                "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                    let most = map.next_value::<Option<TokenCount>>()?;
                    prompt.set_most(&name, most);
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(prompt)
    }
}

/// Servers differ in which of two fields of one name they follow.
fn set_once<T, E: Error>(slot: &mut Option<T>, value: Option<T>, name: &'static str) -> Result<(), E> {
    if value.is_some() && slot.is_some() {
        return Err(E::duplicate_field(name));
    }
    *slot = slot.take().or(value);
    Ok(())
}
