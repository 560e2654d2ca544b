//! The models of agents, as a file of the caller names them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use graph_agents::{Agents, ChatModel, ChatProtocol, Price, Reasoning};
use graph_runtime::Spaces;
use serde::Deserialize;

use super::failure::{RunCommandFailure, USAGE};

/// The most dollars that a million tokens cost.
const MOST_DOLLARS: f64 = 1_000_000.0;

/// A model of the file: the table of its tier.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelSettings {
    protocol: Protocol,
    model: String,
    /// How much the model shall think before it replies.
    reasoning: Option<Effort>,
    url: Option<String>,
    /// The environment variable that has the key.
    key_env: Option<String>,
    price: Option<PriceSettings>,
    /// How many tokens a prompt and its reply may have together.
    context: Option<u32>,
    /// How long the endpoint may send nothing, in seconds.
    silence: Option<u32>,
    most_tokens: Option<u32>,
    #[serde(default)]
    answers_as_json: bool,
    #[serde(default)]
    allow_http: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    OpenAi,
    Anthropic,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
}

/// The prices of a million tokens, in US dollars.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceSettings {
    input: f64,
    output: f64,
}

/// Returns the agents with the models of a file.
pub(super) fn agents(path: &Path, spaces: Spaces) -> Result<Agents, RunCommandFailure> {
    let refused = |reason: String| RunCommandFailure::new(USAGE, format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let tiers: BTreeMap<String, ModelSettings> =
        toml::from_str(&text).map_err(|error| refused(error.to_string().trim_end().to_owned()))?;
    if tiers.is_empty() {
        return Err(refused("it names no model: write a table `[general]` with `protocol` and `model`".to_owned()));
    }
    tiers.into_iter().try_fold(Agents::new(spaces), |agents, (tier, settings)| {
        let model = model(settings).map_err(|reason| refused(format!("the model of `{tier}`: {reason}")))?;
        Ok(agents.tier(tier, model))
    })
}

fn model(settings: ModelSettings) -> Result<ChatModel, String> {
    let protocol = match settings.protocol {
        Protocol::OpenAi => ChatProtocol::OpenAi,
        Protocol::Anthropic => ChatProtocol::Anthropic,
    };
    let mut model = ChatModel::builder(protocol, settings.model);
    if let Some(effort) = settings.reasoning {
        model = model.reasoning(match effort {
            Effort::Low => Reasoning::Low,
            Effort::Medium => Reasoning::Medium,
            Effort::High => Reasoning::High,
        });
    }
    if let Some(url) = settings.url {
        model = model.url(url);
    }
    if let Some(name) = settings.key_env {
        // The value is no part of any message.
        let key = std::env::var(&name).map_err(|_| format!("the variable `{name}` of the environment has no key"))?;
        model = model.key(key);
    }
    if let Some(PriceSettings { input, output }) = settings.price {
        model = model.price(Price { input: micros(input)?, output: micros(output)? });
    }
    if let Some(tokens) = settings.context {
        if tokens == 0 {
            return Err("`context` is a number of tokens above 0".to_owned());
        }
        model = model.context(tokens);
    }
    if let Some(seconds) = settings.silence {
        model = model.silence(Duration::from_secs(u64::from(seconds.max(1))));
    }
    if let Some(most) = settings.most_tokens {
        model = model.most_tokens(most);
    }
    if settings.answers_as_json {
        model = model.answers_as_json();
    }
    if settings.allow_http {
        model = model.allow_http();
    }
    model.build().map_err(|error| error.to_string())
}

/// Returns millionths of dollars, rounded to the nearest.
fn micros(dollars: f64) -> Result<u64, String> {
    if !(0.0..=MOST_DOLLARS).contains(&dollars) {
        return Err(format!("a price is from 0 to {MOST_DOLLARS} dollars for a million tokens"));
    }
    // A price of six decimals is a whole number, whatever its binary fraction.
    format!("{:.0}", dollars * 1_000_000.0).parse().map_err(|_| "a price is a number".to_owned())
}
