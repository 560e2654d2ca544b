//! Nested runs: a node whose action is another graph (R188).

use std::future::Future;
use std::pin::Pin;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::secret::Mask;
use graph_model::value::Value;

use super::perform::{Job, Made};
use super::{Ended, Engine};
use crate::error::{Category, Failure, ResumeError, RunError, StartError};
use crate::machine::Request;
use crate::record::Parent;
use crate::run::result_value;
use crate::runtime::{Begin, Runtime, Taken};
use crate::store::StoreError;

/// A nested run that is waited for; behind a pointer, since a run may nest one like itself.
type Running<'a> = Pin<Box<dyn Future<Output = Result<Value, Box<Failure>>> + Send + 'a>>;

impl Engine {
    /// Runs the graph that a node names, with what is left of depth and capabilities, and returns its result (R313).
    ///
    /// Its run is called after this one, so a crash finds it again: what it had committed is not done twice.
    pub(super) fn run_nested<'a>(&'a self, job: &'a Job<'_>, mut request: Request, made: &'a mut Made) -> Running<'a> {
        Box::pin(async move {
            let nested = self.machine.nested(request.tool);
            let machine = nested.ok_or_else(|| Failure::permanent("the program has no such graph"))?;
            let Some(depth) = self.facts.depth.checked_sub(1) else {
                return Err(Box::new(Failure::permanent("graphs are nested deeper than `limits.depth` allows")));
            };
            let (tool, output) = (request.tool, machine.code().settings.secrets.output.clone());
            let inputs = request.arguments.take::<Value>("");
            let id = self.nested_id(job, made.calls);
            made.run = Some(id.clone());
            let mut ceiling = self.facts.ceiling.clone();
            ceiling.push(self.code().permissions.clone());
            let begin = Begin {
                run: id.clone(),
                parent: Some(Parent {
                    run: self.facts.id.clone(),
                    step: job.step,
                    node: self.code().node(job.at.node).name.clone(),
                    item: job.item.map(|(index, _)| index),
                }),
                depth: Some(depth),
                ceiling,
                deadline: self.facts.deadline,
                stop: self.facts.stop.clone(),
                max_steps: None,
                capabilities: None,
                durability: self.durability,
            };
            let runtime = Runtime::of(&self.runtime);
            let taken = match runtime.begin(begin.clone(), machine.clone(), inputs).await {
                Ok(engine) => Ok(Taken::Unfinished(Box::new(engine))),
                Err(StartError::Store { source: StoreError::Exists(_), .. }) => runtime.take_up(begin, machine).await,
                Err(error) => Err(ResumeError::Start(error)),
            };
            let ended = match taken {
                Ok(Taken::Ended(ended)) => Ok(*ended),
                Ok(Taken::Unfinished(engine)) => engine.drive().await,
                Err(ResumeError::Start(StartError::Store { source, .. }) | ResumeError::Store { source, .. }) => {
                    made.broken = Some(Box::new(RunError::Store { run: id.clone(), step: 0, source }));
                    return Err(Box::new(Failure::permanent("the store failed")));
                }
                Err(error) => return Err(Box::new(Failure::permanent(error.to_string()))),
            };
            // What of the output is secret is handed on where this graph's types say so too, as they do unless the two nest
            // each other.
            let known = match self.code().settings.secrets.tools.get(&tool) {
                Some(Mask::Fields(fields)) => fields.get("output"),
                _ => None,
            };
            self.take_nested(&id, ended, known == output.as_ref(), made)
        })
    }

    fn take_nested(
        &self,
        id: &RunId,
        ended: Result<Ended, RunError>,
        is_plain: bool,
        made: &mut Made,
    ) -> Result<Value, Box<Failure>> {
        let error = match ended {
            Ok(ended) => return Ok(ended.result(id, is_plain)),
            Err(error) => error,
        };
        match error {
            RunError::Store { .. } | RunError::Stopped { .. } => {
                let message = error.to_string();
                made.broken = Some(Box::new(error));
                Err(Box::new(Failure::permanent(message)))
            }
            RunError::Cancelled { .. } => {
                made.is_interrupted = true;
                Err(Box::new(Failure::of(Category::Cancelled, error.to_string())))
            }
            RunError::Node { ref failure, ref node, .. } => {
                let message = format!("{} (node `{node}` of run `{id}`)", failure.message);
                Err(Box::new(Failure { message, data: Some(result_value(&error)), ..(**failure).clone() }))
            }
            other => {
                let category =
                    if matches!(other, RunError::Deadline { .. }) { Category::Transient } else { Category::Permanent };
                let data = result_value(&other);
                Err(Box::new(Failure { data: Some(data), ..Failure::of(category, other.to_string()) }))
            }
        }
    }

    /// Returns the id of the run that a call begins: the same each time the call is made after a crash.
    fn nested_id(&self, job: &Job<'_>, call: u64) -> RunId {
        let mut id = format!("{}-{}", self.facts.id, job.step);
        if let Some((item, _)) = job.item {
            id.push_str(&format!("_{item}"));
        }
        if call > 1 {
            id.push_str(&format!("-again{}", call - 1));
        }
        RunId::new(id.clone()).unwrap_or_else(|_| {
            let digest = Digest::of(&id).to_hex();
            RunId::new(format!("nested-{}", &digest[..32])).expect("hex digits are letters of a run id")
        })
    }
}
