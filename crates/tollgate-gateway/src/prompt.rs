//! What the body of a request to a language model says about its cost.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::count::Count;

/// A longer name is that of no model.
const LONGEST_NAME: usize = 256;

/// The fields of a request that decide its cost. The names of OpenAI's chat completions and responses, and of
/// Anthropic's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) model: Option<String>,
    /// The most tokens that each answer may have.
    pub(crate) most: Option<u64>,
    /// How many answers there are to be.
    pub(crate) answers: Option<u64>,
}

impl Prompt {
    /// Reads a body. Fields that are not looked at are skipped, however deep they are.
    pub(crate) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
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
            match &*name.to_ascii_lowercase() {
                "model" => {
                    let model: Option<String> = map.next_value()?;
                    if model.as_ref().is_some_and(|model| model.len() > LONGEST_NAME) {
                        return Err(A::Error::custom("the name of the model is too long"));
                    }
                    set_once(&mut prompt.model, model, "model")?;
                }
                "n" => set_once(&mut prompt.answers, map.next_value::<Option<Count>>()?.map(|n| n.0), "n")?,
                "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                    let most = map.next_value::<Option<Count>>()?.map(|most| most.0);
                    // The largest, because it is not known which of them the upstream follows.
                    prompt.most = prompt.most.max(most);
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
