//! What a response of a language model says about the tokens that it took.

/// The fields of `usage`: those of OpenAI's chat completions (`prompt_tokens`, `completion_tokens`) and responses, and of
/// Anthropic's messages (`input_tokens`, `output_tokens`). Of each field the last value of a response counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    input: Option<u64>,
    /// Input that was written to a cache. Anthropic counts it beside the other input. Input that was read from a cache
    /// (`cache_read_input_tokens`) is left out: it is free of Anthropic's limits.
    cache: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
}

/// A larger number is a mistake of the upstream. It would be a debt for days.
const MAX_TOKENS: u64 = 100_000_000;

impl Usage {
    /// Sets the field of this name. Other fields and implausible numbers are ignored.
    pub(crate) fn set(&mut self, field: &[u8], tokens: u64) {
        let slot = match field {
            b"prompt_tokens" | b"input_tokens" => &mut self.input,
            b"completion_tokens" | b"output_tokens" => &mut self.output,
            b"cache_creation_input_tokens" => &mut self.cache,
            b"total_tokens" => &mut self.total,
            _ => return,
        };
        if tokens <= MAX_TOKENS {
            *slot = Some(tokens);
        }
    }

    /// The tokens in all; `None` if no field was set.
    pub(crate) fn tokens(&self) -> Option<u64> {
        let Self { input, cache, output, total } = *self;
        let parts = [input, cache, output];
        let sum = || parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum());
        total.or_else(sum)
    }
}
