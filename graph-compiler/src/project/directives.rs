//! The directives of agents, compared with the contracts of the agents that follow them.
//!
//! A directive is an item of a project, and not of the tree of graphs. If there is a project around the tree, its directive is read
//! here, so that an author hears of mistakes in it before a run does. The runtime reads and verifies it again for each turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_definition::definition::{AgentContract, Contract, SchemaKind, ValueSchema};
use graph_definition::diagnostic::{Diagnostics, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_directive::{Directive, InputType};
use graph_model::capability::Capability;
use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_model::value::Value;
use graph_signing::{ItemKind, KeyRing, SignatureError, normalise, verify};

use super::{Project, display_name, whole};
use crate::files::is_there;
use crate::types::{Type, TypeKind};

/// The directory of a project that makes it one.
const SPACE: &str = ".ai";
/// The directory of its directives, and that of its trusted keys.
const DIRECTIVES: &str = "directives";
const KEYS: &str = "config/keys/trusted";

impl Project {
    /// Checks the directive of an agent, and returns its file. `None` if there is no project around the tree: then the check is left to
    /// the runtime.
    pub(super) fn check_directive(
        &self,
        source: &Arc<SourceFile>,
        contract: &Contract,
        agent: &AgentContract,
        diagnostics: &mut Diagnostics,
    ) -> Option<PathBuf> {
        let space = self.space()?;
        let (id, place) = (&agent.directive.value, SourcePlace::new(source, agent.directive.span.clone()));
        let file = space.join(DIRECTIVES).join(format!("{id}.md"));
        let name = display_name(&self.package, &file);
        if self.text(&file).is_none() && matches!(is_there(&space, &file), Ok(false)) {
            diagnostics
                .lint(code::NO_DIRECTIVE, place, format!("the project has no directive `{id}`"))
                .label(format!("it would be `{name}`"))
                .help("write and sign it, or correct the id; if the space of a user or system has it, set this lint to `allow`");
            return None;
        }
        if let Err(reason) = self.fitting(&space, &file, contract, agent) {
            diagnostics
                .error(code::BAD_DIRECTIVE, place, format!("the agent cannot follow the directive `{id}`: {reason}"))
                .label(format!("it is `{name}`"))
                .help(match reason.is_of_trust {
                    true => format!("read it, then sign it: `graph sign {name}`"),
                    false => "correct the directive and sign it again, or correct the contract".to_owned(),
                });
        }
        Some(file)
    }

    /// Returns the space of the project: that of the nearest directory around the tree that has one. If the tree is inside of the
    /// package, no directory around the package counts.
    fn space(&self) -> Option<PathBuf> {
        let (root, package) = (whole(&self.root), whole(&self.package));
        let is_inside = root != package && root.starts_with(&package);
        let around = root.ancestors().take_while(|directory| !is_inside || directory.starts_with(&package));
        around.map(|directory| directory.join(SPACE)).find(|space| space.join(DIRECTIVES).is_dir())
    }

    /// Reads a directive, and compares it with the contract of the agent that follows it.
    fn fitting(
        &self,
        space: &Path,
        file: &Path,
        contract: &Contract,
        agent: &AgentContract,
    ) -> Result<(), UnfitDirective> {
        let source = self.read(file).map_err(|problem| UnfitDirective::of(problem.message.clone()))?;
        let text = normalise(&source.text);
        match self.trusted(space, &text) {
            Err(error) if !(self.has_drafts && is_draft(&error)) => {
                return Err(UnfitDirective { reason: error.to_string(), is_of_trust: true });
            }
            _ => {}
        }
        let directive = Directive::parse(&text).map_err(|error| UnfitDirective::of(error.to_string()))?;
        if !directive.process_signed {
            let reason = "its signature does not cover its process, which must be inside of the `<directive>` element";
            return Err(UnfitDirective::of(reason.to_owned()));
        }
        let inputs = directive.inputs.iter().filter_map(|input| {
            let property = property(&contract.params, &input.name);
            let needs = input.required && input.default.is_none();
            match property {
                None if needs => {
                    Some(format!("it needs the input `{}`, which `config_schema` does not have", input.name))
                }
                None => None,
                Some((schema, is_sure)) if needs && (!is_sure || schema.nullable) => {
                    Some(format!("it needs the input `{}`, which may be missing by `config_schema`", input.name))
                }
                Some((schema, _)) if !accepts(input.of, schema) => Some(format!(
                    "its input `{}` is of the type {}, and by `config_schema` it is {}",
                    input.name,
                    input.of,
                    Type::of_schema(schema).not_null()
                )),
                Some(_) => None,
            }
        });
        let result = contract.result.as_ref();
        let outputs = directive.outputs.iter().filter_map(|output| {
            let of = output.of.as_deref().and_then(InputType::named);
            match result.and_then(|result| property(result, &output.name)) {
                None => Some(format!("it has the output `{}`, which `result_schema` does not have", output.name)),
                Some((schema, _)) if of.is_some_and(|of| !accepts(of, schema)) => Some(format!(
                    "its output `{}` is of the type {}, and by `result_schema` it is {}",
                    output.name,
                    output.of.as_deref().unwrap_or_default(),
                    Type::of_schema(schema).not_null()
                )),
                Some(_) => None,
            }
        });
        let bounds = wider_limits(&directive, agent).into_iter().chain(tools_beyond(&directive, agent));
        let problems: Vec<String> = inputs.chain(outputs).chain(bounds).collect();
        if problems.is_empty() { Ok(()) } else { Err(UnfitDirective::of(problems.join("; "))) }
    }

    /// Verifies the signature of a directive with the keys of the tree and of the project, as the runtime does.
    fn trusted(&self, space: &Path, text: &str) -> Result<(), SignatureError> {
        let (ring, _, _) = KeyRing::load(&[&space.join(KEYS)]);
        let own = verify(ItemKind::Directive, text, &self.ring);
        let is_refused = |verified: &graph_signing::Verified<'_>| {
            let signer = ring.signer(&verified.signer.fingerprint);
            matches!(signer, Err(SignatureError::Revoked { .. } | SignatureError::Blocked { .. }))
        };
        match own {
            Ok(verified) if !is_refused(&verified) => Ok(()),
            Ok(_) | Err(SignatureError::Untrusted(_)) => verify(ItemKind::Directive, text, &ring).map(|_| ()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the limits of a directive that the contract of its agent exceeds. Its author signed them, so the agent has to keep to them.
fn wider_limits(directive: &Directive, agent: &AgentContract) -> Vec<String> {
    let limits = &agent.limits;
    let dollars = |micros: u64| micros as f64 / 1e6;
    let of_contract = [
        ("turns", Some(f64::from(limits.turns))),
        ("tokens", limits.tokens.map(|tokens| tokens as f64)),
        ("spend", limits.spend.map(dollars)),
    ];
    let mut wider = Vec::new();
    for (name, allowed) in of_contract {
        let Some(most) = directive.limits.get(name).and_then(Value::as_f64) else { continue };
        match allowed {
            Some(allowed) if allowed <= most => {}
            Some(allowed) => wider.push(format!("its limit `{name}` is {most}, and the contract allows {allowed}")),
            None => wider.push(format!("its limit `{name}` is {most}, and the contract has none")),
        }
    }
    wider
}

/// Returns the tools of an agent that its directive does not permit, if it has permissions.
fn tools_beyond(directive: &Directive, agent: &AgentContract) -> Vec<String> {
    if directive.permissions.is_empty() {
        return Vec::new();
    }
    let is_permitted = |tool: &ItemId| {
        let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(tool));
        directive.permissions.iter().any(|pattern| pattern.grants(&capability))
    };
    let beyond = agent.tools.iter().filter(|tool| !is_permitted(&tool.value));
    beyond.map(|tool| format!("it does not permit `{}`, which the contract lists", tool.value)).collect()
}

/// Why an agent cannot follow a directive.
struct UnfitDirective {
    reason: String,
    is_of_trust: bool,
}

impl UnfitDirective {
    fn of(reason: String) -> Self {
        Self { reason, is_of_trust: false }
    }
}

impl std::fmt::Display for UnfitDirective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Whether an author's own signature would correct an error.
fn is_draft(error: &SignatureError) -> bool {
    matches!(
        error,
        SignatureError::Unsigned(_)
            | SignatureError::Malformed(_)
            | SignatureError::Altered { .. }
            | SignatureError::Untrusted(_)
    )
}

/// Returns the schema of a field, and whether an object always has it.
fn property<'s>(schema: &'s ValueSchema, name: &str) -> Option<(&'s ValueSchema, bool)> {
    let SchemaKind::Object(properties) = &schema.kind else { return None };
    let property = properties.iter().find(|property| property.name.value == name)?;
    Some((&property.schema, property.required || property.schema.default.is_some()))
}

/// Whether each value of a schema, other than null, has the type of an input.
fn accepts(of: InputType, schema: &ValueSchema) -> bool {
    match Type::of_schema(schema).kind {
        TypeKind::Never => true,
        TypeKind::Boolean => matches!(of, InputType::Boolean | InputType::Any),
        TypeKind::Integer => matches!(of, InputType::Integer | InputType::Number | InputType::Any),
        TypeKind::Number => matches!(of, InputType::Number | InputType::Any),
        TypeKind::String | TypeKind::Enum(_) => matches!(of, InputType::String | InputType::Any),
        TypeKind::List(_) => matches!(of, InputType::Array | InputType::Any),
        TypeKind::Map(_) | TypeKind::Object(_) => matches!(of, InputType::Object | InputType::Any),
        TypeKind::Any => of == InputType::Any,
    }
}
