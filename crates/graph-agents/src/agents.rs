//! One turn of an agent: the prompt, the reply, the calls and the answer in it, and what it cost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use graph_engine::tasks::{ContinuedTask, TaskMessage};
use graph_engine::{ActionError, Call};
use graph_items::{Directive, Spaces};
use graph_model::digest::Digest;
use graph_model::name::ItemId;
use graph_model::number::{JsonError, read_json};
use graph_model::program::{CallLimits, ItemType};
use graph_model::value::{AsView as _, Map, Value};
use graph_tools::{ModelTurn, ModelTurns, ToolConfig, plain_tool_name, tool_names};
use serde::Deserialize;
use serde_json::json;

use crate::context::{self, Context};
use crate::model::{Model, ModelCall, ModelMessage, ModelReply, ModelRequest, ModelTool, Price, Usage};
use crate::prompt;
use crate::talk::{Said, SaidCall};

/// The tool by which a model answers.
pub(crate) const ANSWER: &str = "answer";

/// How many calls of one reply are made.
const MOST_CALLS: usize = 32;

/// How many levels the arguments of a call and an answer have. In the talk, which is a part of a request, each is inside of other values.
const MOST_LEVELS: usize = 64;

/// How many letters of a wrong name the model is shown.
const MOST_OF_NAME: usize = 64;

/// Why a reply that the limit of its tokens ended does nothing. It may look whole, and lack the rest of what the model had to say.
const CUT: &str = "the reply was cut off, since it had as many tokens as a reply may have";

/// How many letters of a wrong answer's mistakes the model is shown.
const MOST_PROBLEMS: usize = 2_000;

/// The models of a program, by the tiers that contracts of agents name, and the spaces of its directives.
///
/// ```
/// use graph_agents::Agents;
/// use graph_items::Spaces;
/// use graph_tools::ToolConfig;
/// # use graph_agents::{Model, ModelFuture, ModelReply, ModelRequest};
/// # #[derive(Debug)]
/// # struct Chat;
/// # impl Model for Chat {
/// #     fn reply<'a>(&'a self, _: ModelRequest, _: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a> {
/// #         Box::pin(async { Ok(ModelReply::default()) })
/// #     }
/// # }
///
/// let agents = Agents::new(Spaces::at(".")).tier("general", Chat);
/// let tools = ToolConfig::new().agents(agents);
/// # drop(tools);
/// ```
#[derive(Clone)]
pub struct Agents {
    spaces: Arc<Spaces>,
    tiers: BTreeMap<String, Arc<dyn Model>>,
}

impl Agents {
    /// Agents that follow the directives of some spaces, and have no model yet.
    pub fn new(spaces: Spaces) -> Self {
        Self { spaces: Arc::new(spaces), tiers: BTreeMap::new() }
    }

    /// Sets the model of a tier.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<String>, model: impl Model) -> Self {
        self.tiers.insert(tier.into(), Arc::new(model));
        self
    }

    async fn turn(&self, call: &Call, request: Value) -> Result<Value, ActionError> {
        let mut request: TurnRequest = serde_json::from_value(request)
            .map_err(|error| ActionError::permanent(format!("the agent's graph asks its model wrongly: {error}")))?;
        request.limits = request.limits.within(call.limits());
        let model = self.tiers.get(&request.tier).ok_or_else(|| {
            let known: Vec<&str> = self.tiers.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "it has no model".to_owned() } else { format!("it has {}", known.join(", ")) };
            ActionError::permanent(format!("the program has no model of the tier `{}`: {known}", request.tier))
        })?;
        let left = request.left(model.price())?;
        let directive = self.directive(&request)?;
        let own = Said::read(request.talk.clone())
            .map_err(|error| ActionError::permanent(format!("the talk of the agent cannot be read: {error}")))?;
        let has_asked = own.iter().any(|said| matches!(said, Said::AskAgain { .. }));
        let mut talk: Vec<Said> = own.into_iter().flat_map(Said::unfolded).collect();
        let mut new = Vec::new();
        if talk.is_empty() {
            new.extend(continued(call).await?);
        }
        new.extend(steered(call, &talk).await?);
        talk.extend(new.iter().cloned().flat_map(Said::unfolded));
        let recent = context::recent(&talk);
        let names = tool_names(request.tools.iter().map(|tool| tool.id.as_str()), &[ANSWER]);
        let mut messages = vec![ModelMessage::User { text: inputs_text(&request.inputs) }];
        messages.extend(recent.iter().map(|said| said.to_message()));
        let window = model.context().map(Context::new);
        if let Some(window) = window {
            window.cut_results(&mut messages);
        }
        let mut asked = ModelRequest {
            system: prompt::system(&directive),
            messages,
            tools: request.tools_of_model(&names),
            most_tokens: left,
        };
        if let Some(window) = window.filter(|window| !window.has_room(&asked, &recent)) {
            let (asked, kept) = window.summary_request(&asked, &directive, &recent)?;
            return summarise(&**model, window, asked, kept, new).await;
        }
        if let Some(window) = window {
            asked.most_tokens = asked.most_tokens.map(|most| most.min(window.left_for_reply(&asked, &recent)));
        }
        let delta = |text: &str| call.emit_text(text);
        let reply = model.reply(asked, &delta).await.map_err(|error| error.to_action_error())?;
        let usage = reply.usage;
        let micros = cost(&**model, usage);
        let mut turn = TurnResult::of(&request, &names, reply, has_asked, micros)?;
        if let (Some(Said::Assistant { prompt, .. }), Some(_)) = (turn.said.first_mut(), window) {
            *prompt = Some(usage.input).filter(|tokens| *tokens > 0);
        }
        turn.said.splice(0..0, new);
        Ok(turn.to_value(usage, micros))
    }

    /// Reads the directive. The inputs fit it, and are not inserted: its text is what its author signed.
    fn directive(&self, request: &TurnRequest) -> Result<Directive, ActionError> {
        let name = &request.directive;
        let refused =
            |reason: String| ActionError::permanent(format!("the directive `{name}` cannot be followed: {reason}"));
        let id = ItemId::new(name.as_str()).map_err(|error| refused(error.to_string()))?;
        let item = self.spaces.find(ItemType::Directive, &id).map_err(|error| refused(error.to_string()))?;
        let directive = Directive::parse(item.content()).map_err(|error| refused(error.to_string()))?;
        if !directive.process_signed {
            return Err(refused(
                "its signature does not cover its process: move it into the `<directive>` element".to_owned(),
            ));
        }
        directive.clone().apply(request.inputs.clone()).map_err(|error| refused(error.to_string()))?;
        Ok(directive)
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents").field("tiers", &self.tiers).finish_non_exhaustive()
    }
}

impl ModelTurns for Agents {
    fn turn<'a>(&'a self, call: &'a Call, request: Value) -> ModelTurn<'a> {
        Box::pin(self.turn(call, request))
    }

    fn directive_digest(&self, directive: &str) -> Option<Digest> {
        let item = self.spaces.find(ItemType::Directive, &ItemId::new(directive).ok()?).ok()?;
        Some(Digest::of(item.content()))
    }
}

/// Makes a turn that asks a model for a summary. `new` has the messages of the turn before it, and `kept` says how many of the last
/// messages prompts have besides the summary.
async fn summarise(
    model: &dyn Model,
    window: Context,
    asked: ModelRequest,
    kept: usize,
    mut new: Vec<Said>,
) -> Result<Value, ActionError> {
    // The summary is for the agent itself, so nobody sees it as it comes.
    let reply = model.reply(asked, &|_| {}).await.map_err(|error| error.to_action_error())?;
    let (usage, micros) = (reply.usage, cost(model, reply.usage));
    let Some(summary) = window.summary(&reply.text, kept) else {
        let message = "the talk of the agent does not fit the context of its model, which wrote no summary of it";
        return Err(ActionError::permanent(message).with_code("agent_context").with_data(took(usage, micros)));
    };
    new.push(summary);
    Ok(TurnResult { said: new, calls: Vec::new(), answer: None }.to_value(usage, micros))
}

/// Returns what a turn cost, in millionths of a US dollar.
fn cost(model: &dyn Model, usage: Usage) -> u64 {
    model.price().map_or(0, |price| price.of(usage))
}

/// Returns what a turn took that failed after the model had replied: the journal has its cost too.
fn took(usage: Usage, micros: u64) -> Value {
    json!({ "tokens": usage.input.saturating_add(usage.output), "micros": micros })
}

/// Returns the talk of the agent that an agent continues, and the message for it, if it does.
async fn continued(call: &Call) -> Result<Vec<Said>, ActionError> {
    let Some(tasks) = call.tool_settings::<ToolConfig>().and_then(ToolConfig::own_tasks) else { return Ok(Vec::new()) };
    let Some(ContinuedTask { run, visits, messages, .. }) = tasks.continued(call).await? else {
        return Ok(Vec::new());
    };
    let talk = Said::read_ended(&visits)
        .map_err(|error| ActionError::permanent(format!("the talk of thread `{run}` cannot be read: {error}")))?;
    // Prompts have nothing of it that a summary stands for.
    let talk = context::recent(&talk).into_iter().cloned().collect();
    let messages = messages.into_iter().map(|TaskMessage { id, text }| Said::Steer { id, text });
    Ok([Said::Earlier { thread: run.to_string(), talk }].into_iter().chain(messages).collect())
}

/// Returns the messages for an agent that is a task, without those that are in the talk. They stay in the inbox of the run, so a turn
/// that is repeated has them too.
async fn steered(call: &Call, talk: &[Said]) -> Result<Vec<Said>, ActionError> {
    let Some(tasks) = call.tool_settings::<ToolConfig>().and_then(ToolConfig::own_tasks) else { return Ok(Vec::new()) };
    let is_known = |id: &str| talk.iter().any(|said| matches!(said, Said::Steer { id: known, .. } if known == id));
    let messages = tasks.messages(call).await?.into_iter().filter(|message| !is_known(&message.id));
    Ok(messages.map(|TaskMessage { id, text }| Said::Steer { id, text }).collect())
}

/// A turn, as the graph of an agent asks for it.
#[derive(Debug, Deserialize)]
struct TurnRequest {
    directive: String,
    tier: String,
    tools: Vec<TurnTool>,
    limits: TurnLimits,
    /// The schema of the answer.
    answer: Value,
    inputs: Map<String, Value>,
    #[serde(default)]
    talk: Value,
    turns: u64,
    tokens: u64,
    micros: u64,
}

#[derive(Debug, Deserialize)]
struct TurnTool {
    id: String,
    #[serde(default)]
    description: String,
    parameters: Value,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct TurnLimits {
    turns: u64,
    tokens: Option<u64>,
    micros: Option<u64>,
}

impl TurnLimits {
    /// Returns these limits, narrowed by those of the node that calls the agent.
    fn within(self, node: CallLimits) -> Self {
        let least = |own: Option<u64>, node: Option<u64>| own.into_iter().chain(node).min();
        Self {
            turns: node.turns.map_or(self.turns, |turns| self.turns.min(u64::from(turns))),
            tokens: least(self.tokens, node.tokens),
            micros: least(self.micros, node.micros),
        }
    }
}

impl TurnRequest {
    /// Returns how many tokens the reply may have, if something is left of each limit.
    fn left(&self, price: Option<Price>) -> Result<Option<u64>, ActionError> {
        let over = |what: String| {
            Err(ActionError::permanent(format!("the agent has no answer, and {what}")).with_code("agent_limit"))
        };
        if self.turns >= self.limits.turns {
            return over(format!("has taken its {} turns", self.limits.turns));
        }
        let mut left = None;
        if let Some(most) = self.limits.tokens {
            match most.checked_sub(self.tokens).filter(|left| *left > 0) {
                Some(tokens) => left = Some(tokens),
                None => return over(format!("has used {} of {most} tokens", self.tokens)),
            }
        }
        if let Some(most) = self.limits.micros {
            let Some(price) = price else {
                let message = format!(
                    "the contract limits what the agent spends, and the model of the tier `{}` has no price",
                    self.tier
                );
                return Err(ActionError::permanent(message));
            };
            match most.checked_sub(self.micros).filter(|left| *left > 0) {
                Some(micros) if price.output > 0 => {
                    // The number of tokens that the rest pays for.
                    let tokens = (u128::from(micros) * 1_000_000 / u128::from(price.output)).max(1);
                    let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
                    left = Some(left.map_or(tokens, |left: u64| left.min(tokens)));
                }
                Some(_) => {}
                None => return over(format!("has spent {} of {most} millionths of a dollar", self.micros)),
            }
        }
        Ok(left)
    }

    fn tools_of_model(&self, names: &[String]) -> Vec<ModelTool> {
        let tools = self.tools.iter().zip(names).map(|(tool, name)| ModelTool {
            name: name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        let answer = ModelTool {
            name: ANSWER.to_owned(),
            description: "Takes your answer, and ends your work.".to_owned(),
            parameters: self.answer.clone(),
        };
        tools.chain([answer]).collect()
    }
}

/// The inputs, as the first message has them.
fn inputs_text(inputs: &Map<String, Value>) -> String {
    format!("The inputs, as JSON:\n{:#}", Value::Object(inputs.clone()))
}

/// The parts of a reply: messages for the talk, calls that are made, and the answer.
struct TurnResult {
    said: Vec<Said>,
    calls: Vec<(String, String, Value)>,
    answer: Option<Value>,
}

impl TurnResult {
    fn of(
        request: &TurnRequest,
        names: &[String],
        reply: ModelReply,
        has_asked: bool,
        micros: u64,
    ) -> Result<Self, ActionError> {
        let usage = reply.usage;
        // The ids of the model may be anything, so calls have those of the agent.
        let ids: Vec<String> = (0..reply.calls.len()).map(|at| format!("{}-{at}", request.turns + 1)).collect();
        let called = ids.iter().zip(&reply.calls).map(|(id, ModelCall { name, arguments, .. })| SaidCall {
            id: id.clone(),
            name: plain_tool_name(name),
            arguments: if is_shallow_object(arguments) { arguments.clone() } else { json!({}) },
        });
        let mut said = vec![Said::Assistant { text: reply.text.clone(), calls: called.collect(), prompt: None }];
        let answers: Vec<&ModelCall> = reply.calls.iter().filter(|call| call.name == ANSWER).collect();
        let answer = match answers.as_slice() {
            // A model without calls may answer as text.
            [] if reply.calls.is_empty() => Some(read_json(unfenced(&reply.text)).or_else(|error| match error {
                JsonError::Syntax(_) => Ok(Value::Null),
                error => Err(error.to_string()),
            })),
            [] => None,
            [answer, ..] => Some(Ok(answer.arguments.clone())),
        };
        if let Some(answer) = answer {
            let (answer, unreadable) =
                answer.map_or_else(|reason| (Value::Null, Some(reason)), |answer| (answer, None));
            let problems = match answers.len() {
                _ if reply.is_cut => CUT.to_owned(),
                0 | 1 if reply.calls.len() <= 1 => match problems(&request.answer, &answer)? {
                    none if none.is_empty() => none,
                    problems => unreadable.or_else(|| unread(&answer)).unwrap_or(problems),
                },
                _ => "it was given together with other calls, none of which was made".to_owned(),
            };
            if problems.is_empty() {
                return Ok(Self { said, calls: Vec::new(), answer: Some(answer) });
            }
            if has_asked {
                let message = format!("the model was asked twice, and its answer does not fit: {problems}");
                return Err(ActionError::permanent(message).with_code("agent_answer").with_data(took(usage, micros)));
            }
            said.extend(ids.iter().map(|id| Said::failed(id, "it was not made")));
            let text = format!("This is no answer: {problems}. Call `{ANSWER}`, alone, with an answer that fits.");
            said.push(Said::AskAgain { text });
            return Ok(Self { said, calls: Vec::new(), answer: None });
        }
        let mut calls = Vec::new();
        for (id, call) in ids.into_iter().zip(reply.calls) {
            let tool = names.iter().position(|name| *name == call.name).and_then(|at| request.tools.get(at));
            match (tool, call.arguments) {
                _ if reply.is_cut => said.push(Said::failed(&id, format!("it was not made: {CUT}"))),
                _ if calls.len() == MOST_CALLS => {
                    said.push(Said::failed(&id, format!("only {MOST_CALLS} calls are made at once")));
                }
                (Some(tool), arguments) if is_shallow_object(&arguments) => {
                    calls.push((id, tool.id.clone(), arguments));
                }
                (Some(_), arguments) => {
                    let reason = match unread(&arguments) {
                        Some(reason) => format!("its arguments cannot be read: {reason}"),
                        None => format!("its arguments are no object of at most {MOST_LEVELS} levels"),
                    };
                    said.push(Said::failed(&id, reason));
                }
                (None, _) => {
                    let name: String = call.name.chars().take(MOST_OF_NAME).collect();
                    said.push(Said::failed(&id, format!("there is no tool with the name {name:?}")));
                }
            }
        }
        Ok(Self { said, calls, answer: None })
    }

    fn to_value(&self, usage: Usage, micros: u64) -> Value {
        let calls =
            self.calls.iter().map(|(id, tool, arguments)| json!({ "id": id, "tool": tool, "arguments": arguments }));
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        json!({
            "said": self.said.iter().map(Said::to_value).collect::<Vec<_>>(),
            "calls": calls.collect::<Vec<_>>(),
            "answer": self.answer,
            "tokens": number(usage.input.saturating_add(usage.output)),
            "micros": number(micros),
        })
    }
}

/// Returns a text without the fence of Markdown around it.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner =
        text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).and_then(|text| text.strip_suffix("```"));
    inner.map_or(text, str::trim)
}

/// Returns why arguments were not read, if they are a text that is nearly JSON.
fn unread(arguments: &Value) -> Option<String> {
    let reason = match read_json(arguments.as_str()?).err()? {
        JsonError::Syntax(_) => return None,
        reason => reason.to_string(),
    };
    Some(reason.chars().take(MOST_PROBLEMS).collect())
}

fn is_shallow_object(value: &Value) -> bool {
    value.is_object() && value.view().is_within(MOST_LEVELS)
}

/// Returns the ways in which an answer does not fit its schema; empty if it fits.
fn problems(schema: &Value, answer: &Value) -> Result<String, ActionError> {
    // The graph takes null for no answer yet.
    if answer.is_null() {
        return Ok("there is no value in it".to_owned());
    }
    if !answer.view().is_within(MOST_LEVELS) {
        return Ok(format!("it has more than {MOST_LEVELS} levels"));
    }
    // With the options by which the engine judges rules: another engine for patterns would need time without a bound.
    let validator = jsonschema::draft202012::options()
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(schema)
        .map_err(|error| ActionError::permanent(format!("the schema of the answer cannot be used: {error}")))?;
    let found: BTreeSet<String> =
        validator.iter_errors(answer).map(|error| format!("{}: {error}", error.instance_path())).collect();
    let text: String = Vec::from_iter(found).join("; ");
    Ok(text.chars().take(MOST_PROBLEMS).collect())
}
