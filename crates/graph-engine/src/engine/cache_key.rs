//! The cache key of a call, computed from everything that its result depends on.

use graph_model::capability::{Grants, Pattern};
use graph_model::digest::Digest;
use graph_model::name::ItemId;
use graph_model::value::{Map, Value, canonical_json};
use graph_signing::SecretKey;
use serde_json::json;

use crate::cache::NodeCache;
use crate::call::ToolSettings;
use crate::graph::{CompiledTool, GraphTables};
use crate::services::RuntimeServices;
use crate::tool_caller::Request;

/// A call that is about to be made.
pub(crate) struct Asked<'a> {
    pub(crate) code: &'a GraphTables,
    pub(crate) node: u16,
    pub(crate) tool: &'a CompiledTool,
    pub(crate) request: &'a mut Request,
    /// The thread that it begins, if it does.
    pub(crate) thread: Option<&'a BegunThread>,
}

/// A thread that a call begins.
pub(crate) struct BegunThread {
    /// The capabilities that are passed on to it.
    pub(crate) capabilities: Grants,
    /// The parameters of the call, if its result may be kept.
    params: Option<Value>,
    /// Everything else that its result depends on; `None` if its result is not kept.
    shown: Option<String>,
}

impl BegunThread {
    /// Whether its result still depends on the same.
    pub(crate) fn is_as_before(&self, settings: Option<&dyn ToolSettings>) -> bool {
        self.shown == shown_thread(settings, self.params.as_ref())
    }
}

fn shown_thread(settings: Option<&dyn ToolSettings>, params: Option<&Value>) -> Option<String> {
    settings?.shown_thread(params?)
}

/// Returns the parameters of a call that are given.
fn params_of(tool: &CompiledTool, request: &mut Request) -> Value {
    let values = request.arguments.values_mut();
    match &tool.params {
        None => values.first().cloned().unwrap_or_default(),
        Some(names) => {
            let given = names.iter().zip(values).filter(|(_, value)| !value.is_null());
            Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
    }
}

impl RuntimeServices {
    /// Looks at a thread that a call is about to begin. `is_kept` says whether its result may be kept.
    pub(crate) fn begun_thread(
        &self,
        tool: &CompiledTool,
        request: &mut Request,
        capabilities: Grants,
        is_kept: bool,
    ) -> BegunThread {
        let params = (is_kept && self.cache.is_some()).then(|| params_of(tool, request));
        let shown = shown_thread(self.tool_settings.as_deref(), params.as_ref());
        BegunThread { capabilities, params, shown }
    }

    /// Returns the key of a call (R296); `None` if its result is not to be cached, or the runtime has no cache.
    ///
    /// The key is the SHA-256 of canonical JSON. Values that may be secret enter it only as a hash of the value and a secret
    /// of the runtime's, so that nobody can find a value by trying.
    pub(crate) fn cache_key(&self, asked: Asked<'_>) -> Option<Digest> {
        let Asked { code, node, tool, request, thread } = asked;
        let (NodeCache { salt, tools, .. }, key) = (self.cache.as_ref()?, self.key.as_ref()?);
        let node = code.node(node);
        if !node.cached || code.settings.secrets.tools.contains_key(&request.tool) {
            return None;
        }
        let params = params_of(tool, request);
        let id = request.id.as_ref().or(tool.id.as_ref()).map_or("", ItemId::as_str);
        let settings = self.tool_settings.as_ref();
        let thread = match thread {
            Some(BegunThread { capabilities, shown, .. }) => {
                let capabilities: Vec<&str> = capabilities.patterns().iter().map(Pattern::as_str).collect();
                json!({"capabilities": capabilities, "shown": shown.as_ref()?})
            }
            None => Value::Null,
        };
        let params = match code.settings.secrets.is_empty() {
            true => params,
            false => json!({"hidden": hidden(key, &params)}),
        };
        let variable = |name: &String| {
            let value = std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
            (name.clone(), Value::from(value))
        };
        let env: Map<String, Value> = code.env.iter().map(variable).collect();
        let mut input = json!({
            "schema": 1,
            "kind": "node_input",
            "graph_id": code.id.as_str(),
            "graph_hash": code.digest,
            "node_name": node.name,
            "interpolated_action": {
                "primary": tool.verb.name(), "item_type": tool.item.name(), "item_id": id, "params": params,
            },
            "remote": node.remote.as_deref(),
            "contract_hash": code.settings.contracts.get(&request.tool),
            "tool_version": tools.get(id),
            "salt": salt,
            "system_version": env!("CARGO_PKG_VERSION"),
            // The results of the built-in tools depend on what those tools may reach.
            "config_snapshot_hash": Digest::of(settings.map(|settings| settings.shown()).unwrap_or_default()),
            "env": if env.is_empty() { Value::Null } else { hidden(key, &Value::Object(env)).to_hex().into() },
        });
        if let (Value::Object(input), false) = (&mut input, thread.is_null()) {
            input.insert("thread".to_owned(), thread);
        }
        Some(Digest::of(canonical_json(&input)))
    }
}

fn hidden(key: &SecretKey, value: &Value) -> Digest {
    let (secret, value) = (key.derive("node cache"), Digest::of(canonical_json(value)));
    Digest::of_parts(&[secret.as_slice(), value.as_bytes()])
}
