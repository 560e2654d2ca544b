//! Helpers for the tests of the tools.

use graph_engine::Call;
use graph_model::name::ItemId;
use graph_model::untrusted::Untrusted;
use graph_model::value::{Struct, Value};

use super::ToolConfig;

/// Returns a call by a node whose parameters are untrusted in these parts.
#[cfg(unix)]
pub(super) fn guarded_call(untrusted: Untrusted) -> Call {
    call_with(ToolConfig::new(), &[], untrusted)
}

/// Returns a call by a graph that requires the environment variables `env`.
pub(super) fn call(config: ToolConfig, env: &[&str]) -> Call {
    call_with(config, env, Untrusted::Nothing)
}

fn call_with(config: ToolConfig, env: &[&str], untrusted: Untrusted) -> Call {
    let env = env.iter().map(|name| (*name).to_owned()).collect();
    Call::alone(ItemId::new("rye/bash").unwrap(), env, untrusted, config)
}

/// Asserts that the parameters of a tool are those of its contract: names in order, and defaults.
pub(super) fn assert_contract<P: Struct>(contract: &str) {
    let (_, properties) = contract.split_once("\n  properties:\n").expect("the contract has parameters");
    let lines: Vec<&str> = properties.lines().take_while(|line| line.starts_with("    ")).collect();
    let mut stated: Vec<(&str, Option<Value>)> = Vec::new();
    for line in lines {
        match line.strip_prefix("    ").and_then(|line| line.strip_suffix(':')).filter(|name| !name.starts_with(' ')) {
            Some(name) => stated.push((name, None)),
            None => {
                if let (Some(default), Some(last)) = (line.trim().strip_prefix("default: "), stated.last_mut()) {
                    last.1 = Some(serde_json::from_str(default).unwrap_or_else(|_| default.into()));
                }
            }
        }
    }
    let defaults = P::DEFAULTS.iter().map(|default| default.map(|text| serde_json::from_str(text).expect("JSON")));
    let read: Vec<(&str, Option<Value>)> = P::NAMES.iter().copied().zip(defaults).collect();
    assert_eq!(stated, read);
}
