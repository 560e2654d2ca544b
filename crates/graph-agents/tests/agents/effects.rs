//! Effects that are counted from outside: however a call fails, in graphs, agents, threads and tasks at each level, and wherever the
//! process dies, each effect happens once, or as often as a `retry` says.
//!
//! [`Expected`] is written from docs/format.md alone. `EFFECTS=2000 SEED=7` sets the number of random cases and the seed; a twentieth
//! as many call the tool that fails over HTTP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_agents::{ModelError, ModelReply, ModelRequest};
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::testing::{FaultyStore, StoreFault, TestBed, graph_test};
use graph_runtime::{ActionError, Call, Category, HttpPolicy, Options, RunId, Runtime, Status, Store, Tasks, Value};
use serde_json::json;

use crate::attacks::finished;
use crate::http_effects::{FastClock, serve};
use crate::tree::{Scripted, Tree, answer, calls};

/// The way in which the tool `test/tell` ends after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Succeeds,
    Permanent,
    Transient,
    RateLimited,
    Cancelled,
    /// A text that the documented table has as transient.
    TransientText,
    PermanentText,
    Panics,
    /// Until the `timeout` of its node is over.
    Stalls,
    /// The first call with a key is a transient failure, and the next one succeeds.
    Once,
}

impl How {
    const ALL: [Self; 10] = [
        Self::Succeeds,
        Self::Permanent,
        Self::Transient,
        Self::RateLimited,
        Self::Cancelled,
        Self::TransientText,
        Self::PermanentText,
        Self::Panics,
        Self::Stalls,
        Self::Once,
    ];

    fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|how| how.name() == name).unwrap()
    }
}

/// The `retry` of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    None,
    /// Two attempts, after any failure.
    Any,
    /// Three attempts, after transient failures.
    Transient,
    /// One attempt.
    Off,
}

impl Own {
    const ALL: [Self; 4] = [Self::None, Self::Any, Self::Transient, Self::Off];

    fn yaml(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Any => "retry: { attempts: 2, delay: 10ms, on: [any] }",
            Self::Transient => "retry: { attempts: 3, delay: 10ms, on: [transient] }",
            Self::Off => "retry: 1",
        }
    }

    /// Returns how often the node makes a call that always fails so.
    fn attempts(self, category: Category, is_of_tool: bool) -> usize {
        match self {
            Self::Any if category != Category::Cancelled => 2,
            Self::Transient if category == Category::Transient => 3,
            // Without `retry`, the runtime repeats a call of a tool three times, and of nothing else.
            Self::None if is_of_tool && matches!(category, Category::Transient | Category::RateLimited) => 4,
            _ => 1,
        }
    }
}

/// The callee of a node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callee {
    /// The graph or agent of the level below.
    Named,
    /// The same by an id that is known only when the call is made.
    Computed,
    /// The same for the element of a list.
    Foreach,
    /// The same in a branch.
    Branch,
    /// The agent as a thread.
    Thread,
    /// The graph or agent as a task.
    Task,
}

/// A node at a level: what it calls, and its `retry`.
#[derive(Debug, Clone, Copy)]
struct Level {
    callee: Callee,
    own: Own,
}

/// A tree of calls: two tools in a graph or an agent, in levels of graphs around it, the innermost first.
#[derive(Debug, Clone)]
struct Case {
    how: How,
    /// The agent whose model fails; else a graph.
    is_agent: bool,
    /// The address of the server that the graph tells, if that is not the tool `test/tell`.
    server: Option<String>,
    /// The `retry` of the node that calls the tool that fails.
    own: Own,
    /// Whether the graph itself has too little time for a call that stalls.
    is_short: bool,
    levels: Vec<Level>,
}

/// The effects of a case, as the pages have them.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    /// How many keys each of the tools is called with.
    keys: usize,
    /// How often the tool that fails is called with one key.
    tells: usize,
    completes: bool,
}

impl Expected {
    fn of(case: &Case) -> Self {
        let failed = match case.how {
            How::Succeeds => None,
            How::Transient | How::TransientText | How::Stalls | How::Once => Some(Category::Transient),
            How::RateLimited => Some(Category::RateLimited),
            How::Cancelled => Some(Category::Cancelled),
            How::Permanent | How::PermanentText | How::Panics => Some(Category::Permanent),
        };
        // An agent makes a call that its model wants as a node without `retry` does.
        let own = if case.is_agent { Own::None } else { case.own };
        let attempts = failed.map_or(1, |category| own.attempts(category, true));
        // A run whose time is over makes no call again.
        let is_over = case.is_short && case.how == How::Stalls;
        let tells = match case.how {
            How::Once => attempts.min(2),
            _ if is_over => 1,
            _ => attempts,
        };
        let succeeds = case.how == How::Succeeds || (case.how == How::Once && attempts > 1);
        let mut fails = match case.is_agent {
            // Its model is asked for another turn after the failure, and is busy.
            true => Some(Category::Transient).filter(|_| !succeeds),
            false => failed.filter(|_| !succeeds),
        };
        let mut keys = 1;
        for Level { callee, own } in &case.levels {
            match (callee, fails) {
                (_, None) => {}
                // Its call succeeds, and tells of the failure.
                (Callee::Task, _) => fails = None,
                // A call that is made again finds the thread of the first one.
                (Callee::Thread, Some(_)) => {}
                (_, Some(category)) => keys *= own.attempts(category, false),
            }
        }
        Self { keys, tells, completes: fails.is_none() }
    }
}

const HEAD: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: ["rye.execute.tool.*"]
"#;

const TOOL: &str = "version: \"1.0.0\"\ntool_type: rust
config_schema: { type: object, properties: { how: { type: string } }, required: [how] }
result_schema: { type: object, properties: { text: { type: string } }, required: [text] }\n";

const AGENT: &str = r#"version: "1.0.0"
tool_type: agent
config:
  directive: workflows/sell
  tools: [test/charge, test/tell]
  limits: { turns: 6 }
config_schema: { type: object, properties: { how: { type: string } }, required: [how] }
result_schema: { type: object, properties: { done: { type: boolean } }, required: [done] }
"#;

const SELL: &str = r#"# Sell

<directive name="sell" version="1.0.0">
  <metadata><description>Sell.</description></metadata>
  <inputs><input name="how" type="string" required="true">How</input></inputs>
  <process><step name="sell">Charge and tell.</step></process>
</directive>
"#;

/// The name of the innermost graph or agent.
const LEAF: &str = "leaf";

impl Case {
    fn write(&self, tree: &Tree) {
        for tool in ["charge", "tell"] {
            tree.write(&format!("graphs/tools/test/{tool}.yaml"), TOOL);
        }
        tree.directive_at("workflows/sell", SELL);
        match self.is_agent {
            true => tree.write(&format!("graphs/tools/shop/{LEAF}.yaml"), AGENT),
            false => tree.write(&format!("graphs/shop/{LEAF}.yaml"), &self.leaf()),
        }
        let mut below = LEAF.to_owned();
        for (at, level) in self.levels.iter().enumerate() {
            let name = format!("level_{}", at + 1);
            tree.write(&format!("graphs/shop/{name}.yaml"), &level.graph(&below));
            below = name;
        }
    }

    fn leaf(&self) -> String {
        let limits = if self.is_short { "limits: { timeout: 5s }\n" } else { "" };
        let timeout = if self.is_short { "" } else { "      timeout: 5s\n" };
        let how = "how: \"${inputs.how}\"";
        let action = match &self.server {
            None => format!("{{ item_id: test/tell, params: {{ {how} }} }}"),
            Some(url) => {
                format!(
                    "{{ item_id: rye/http/request, params: {{ method: POST, url: \"{url}\", json: {{ {how} }} }} }}"
                )
            }
        };
        format!(
            "{HEAD}{limits}{}config:
  start: charge
  nodes:
    charge: {{ action: {{ item_id: test/charge, params: {{ {how} }} }}, next: tell }}
    tell:
      action: {action}
{timeout}      {}
      next: done
    done: {{ type: return }}\n",
            inputs(""),
            self.own.yaml()
        )
    }

    fn outermost(&self) -> String {
        match self.levels.len() {
            0 => LEAF.to_owned(),
            levels => format!("level_{levels}"),
        }
    }
}

fn inputs(below: &str) -> String {
    let more = match below {
        "" => String::new(),
        below => format!(", below: {{ enum: [{below}], default: {below} }}"),
    };
    format!("config_schema: {{ type: object, properties: {{ how: {{ type: string }}{more} }}, required: [how] }}\n")
}

impl Level {
    fn graph(&self, below: &str) -> String {
        let (own, id) = (self.own.yaml(), format!("shop/{below}"));
        let action = |id: &str, how: &str| format!("action: {{ item_id: \"{id}\", params: {{ how: \"{how}\" }} }}");
        let mut text = HEAD.to_owned();
        let plain = |line: String| {
            format!("    group:\n      {line}\n      {own}\n      next: done\n    done: {{ type: return }}\n")
        };
        let (schema, start, nodes) = match self.callee {
            Callee::Named => (inputs(""), "group", plain(action(&id, "${inputs.how}"))),
            Callee::Computed => (inputs(below), "group", plain(action("shop/${inputs.below}", "${inputs.how}"))),
            Callee::Foreach => {
                let each = "type: foreach\n      over: [\"${inputs.how}\"]\n      as: one\n      ";
                (inputs(""), "group", plain(format!("{each}{}", action(&id, "${one}"))))
            }
            Callee::Branch => {
                let nodes = format!(
                    "    begin: {{ type: gate, next: {{ over: [\"${{inputs.how}}\"], as: one, to: group }} }}
    group:\n      {}\n      {own}\n      next: meet
    meet: {{ type: return, waits_for: group }}\n",
                    action(&id, "${one}")
                );
                (inputs(""), "begin", nodes)
            }
            Callee::Thread => {
                let action = "action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: \
                              workflows/sell, inputs: { how: \"${inputs.how}\" } } }";
                (inputs(""), "group", plain(action.to_owned()))
            }
            Callee::Task => {
                let nodes = format!(
                    "    group:
      action: {{ item_id: rye/orchestrate/spawn, params: {{ target: {id}, inputs: {{ how: \"${{inputs.how}}\" }} }} }}
      {own}
      assign: {{ task: \"${{result.task}}\" }}
      next: wait
    wait:
      action: {{ item_id: rye/orchestrate/await, params: {{ tasks: [\"${{state.task}}\"] }} }}
      {own}
      next: done
    done: {{ type: return }}\n"
                );
                (inputs(""), "group", nodes)
            }
        };
        write!(text, "{schema}config:\n  start: {start}\n  nodes:\n{nodes}").unwrap();
        text
    }
}

/// An effect: its tool, and the idempotency key of its call.
type Effect = (String, String);

/// All effects, in their order.
pub(crate) type Effects = Arc<Mutex<Vec<Effect>>>;

/// The world outside of the runs, which sees each effect. It reads journals only to find calls that were made again.
#[derive(Clone, Default)]
struct World {
    effects: Effects,
    /// The store in which the results of calls are looked for, before they are made.
    disk: Arc<Mutex<Option<TestBed>>>,
    /// The calls that were made although their results were in the store.
    again: Arc<Mutex<Vec<Effect>>>,
}

impl World {
    async fn happens(&self, call: &Call) -> usize {
        let effect = (call.tool().to_owned(), call.idempotency_key());
        let bed = self.disk.lock().unwrap().clone();
        if let Some(bed) = bed
            && finished(bed.disk(), call.run_id()).await.contains(&call.step())
        {
            self.again.lock().unwrap().push(effect.clone());
        }
        let mut effects = self.effects.lock().unwrap();
        effects.push(effect.clone());
        effects.iter().filter(|other| **other == effect).count()
    }

    /// Returns how often each effect happened, by tool and key, and forgets them.
    fn take(&self) -> BTreeMap<Effect, usize> {
        let effects = std::mem::take(&mut *self.effects.lock().unwrap());
        effects.into_iter().fold(BTreeMap::new(), |mut counts, effect| {
            *counts.entry(effect).or_default() += 1;
            counts
        })
    }

    fn tools(&self) -> Toolbox {
        let (charging, telling) = (self.clone(), self.clone());
        Toolbox::new()
            .with("test/charge", move |call, _| {
                let world = charging.clone();
                async move {
                    world.happens(&call).await;
                    Ok(json!({ "text": "charged" }))
                }
            })
            .with("test/tell", move |call, params| {
                let world = telling.clone();
                async move {
                    let times = world.happens(&call).await;
                    match How::named(params["how"].as_str().unwrap_or_default()) {
                        How::Permanent => Err(ActionError::permanent("no luck")),
                        How::Transient => Err(ActionError::transient("no luck")),
                        How::Once if times == 1 => Err(ActionError::transient("no luck")),
                        How::RateLimited => Err(ActionError::new(Category::RateLimited, "no luck")),
                        How::Cancelled => Err(ActionError::new(Category::Cancelled, "no luck")),
                        How::TransientText => Err(ActionError::unclassified("connection refused")),
                        How::PermanentText => Err(ActionError::unclassified("no luck")),
                        How::Panics => panic!("no luck"),
                        How::Stalls => {
                            tokio::time::sleep(Duration::from_secs(3_600)).await;
                            Ok(json!({ "text": "late" }))
                        }
                        How::Succeeds | How::Once => Ok(json!({ "text": "told" })),
                    }
                }
            })
    }
}

/// Lets the agent charge and tell. If telling failed, the model is busy from then on.
fn sells(how: How, turn: usize, request: &ModelRequest) -> Result<ModelReply, ModelError> {
    let failed = format!("{:?}", request.messages).contains("result: Err");
    match turn {
        0 => Ok(calls(&[("test_charge", json!({ "how": how.name() }))])),
        1 => Ok(calls(&[("test_tell", json!({ "how": how.name() }))])),
        _ if failed => Err(ModelError::Busy { reason: "busy".to_owned(), after: None }),
        _ => Ok(answer(json!({ "done": true }))),
    }
}

fn id() -> RunId {
    RunId::new("run").unwrap()
}

/// A case with its files.
struct Subject {
    case: Case,
    tree: Tree,
    world: World,
    library: Library,
    graph: Interpreted,
}

impl Subject {
    fn new(mut case: Case) -> Self {
        let (tree, world) = (Tree::new(), World::default());
        if case.server.is_some() {
            case.server = Some(serve(Arc::clone(&world.effects)));
        }
        case.write(&tree);
        let library = Library::open(&tree.path("graphs"), world.tools());
        let of_contract = if case.levels.is_empty() && case.is_agent { "tools/" } else { "" };
        let file = tree.path(&format!("graphs/{of_contract}shop/{}.yaml", case.outermost()));
        let graph = library.graph(&file).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        Self { case, tree, world, library, graph }
    }

    fn process(&self, bed: &TestBed, store: impl Store) -> (Runtime, Tasks) {
        let (how, tasks) = (self.case.how, self.library.tasks());
        let model = Scripted::new(move |turn, request| sells(how, turn, request));
        let (mut builder, mut tools) = (bed.process(store), self.tree.agents(&model).tasks(tasks.clone()));
        if let Some(server) = &self.case.server {
            builder = builder.clock(Arc::new(FastClock::new()));
            tools = tools.http(HttpPolicy::new().allow_internal(server).unwrap());
        }
        let runtime = builder.tools(tools).build().unwrap();
        tasks.serve(&runtime);
        (runtime, tasks)
    }

    async fn start(&self, runtime: &Runtime) -> graph_runtime::Run<Value> {
        let options = Options { run: Some(id()), ..Options::default() };
        let inputs = json!({ "how": self.case.how.name() });
        let Value::Object(inputs) = inputs else { unreachable!() };
        runtime.start_with(options, self.graph.clone(), inputs).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs the case in a process that dies at a write. Returns whether it has died.
    async fn crash(&self, bed: &TestBed, number: u64, written: bool) -> bool {
        let fault = StoreFault::Dies { written };
        let store = FaultyStore::new(bed.disk().clone(), move |write| (write.number == number).then_some(fault));
        let (runtime, tasks) = self.process(bed, store.clone());
        let options = Options { run: Some(id()), ..Options::default() };
        let Value::Object(inputs) = json!({ "how": self.case.how.name() }) else { unreachable!() };
        if let Ok(run) = runtime.start_with(options, self.graph.clone(), inputs).await {
            drop(run.await);
        }
        runtime.shutdown(Duration::ZERO).await;
        drop((runtime, tasks));
        store.is_dead()
    }

    /// Lets another process continue the run unless it has ended, and returns whether it completed.
    async fn finish(&self, bed: &TestBed) -> bool {
        let (runtime, _tasks) = self.process(bed, bed.disk().clone());
        let found = bed.disk().find(&id()).await;
        let status = match found {
            Ok(found) if found.status != Status::Running => found.status,
            Ok(_) => {
                let run = runtime.resume(self.graph.clone(), &id()).await.unwrap_or_else(|error| panic!("{error}"));
                run.await.map_or(Status::Error, |finished| finished.status)
            }
            Err(_) => self.start(&runtime).await.await.map_or(Status::Error, |finished| finished.status),
        };
        runtime.shutdown(Duration::ZERO).await;
        status == Status::Completed
    }

    /// Says what is wrong with the effects of a run that nothing interrupted.
    async fn judge_whole(&self) -> Result<(), String> {
        let expected = Expected::of(&self.case);
        let completes = self.finish(&TestBed::new()).await;
        let effects = self.world.take();
        let of =
            |tool: &str| effects.iter().filter(|((id, _), _)| id == tool).map(|(_, count)| *count).collect::<Vec<_>>();
        let is_right = of("test/charge") == vec![1; expected.keys]
            && of("test/tell") == vec![expected.tells; expected.keys]
            && completes == expected.completes;
        match is_right {
            true => Ok(()),
            false => Err(format!("{:?}: {expected:?}, but completes: {completes}, {effects:#?}", self.case)),
        }
    }

    /// Says what is wrong with the effects of a run whose process died at a write; `None` if it did not.
    async fn judge_crash(&self, number: u64, written: bool) -> Option<Result<(), String>> {
        let (bed, expected) = (TestBed::new(), Expected::of(&self.case));
        *self.world.disk.lock().unwrap() = Some(bed.clone());
        let has_died = self.crash(&bed, number, written).await;
        let completes = self.finish(&bed).await;
        *self.world.disk.lock().unwrap() = None;
        let (effects, again) = (self.world.take(), std::mem::take(&mut *self.world.again.lock().unwrap()));
        if !has_died {
            return None;
        }
        let of =
            |tool: &str| effects.iter().filter(|((id, _), _)| id == tool).map(|(_, count)| *count).collect::<Vec<_>>();
        let (charges, tells) = (of("test/charge"), of("test/tell"));
        // After the crash, the second call with a key succeeds, so that fewer attempts may be needed.
        let is_number = |keys: usize| keys == expected.keys || (self.case.how == How::Once && keys <= expected.keys);
        let is_right = is_number(charges.len())
            && is_number(tells.len())
            && charges.iter().all(|count| *count <= 2)
            && tells.iter().all(|count| *count <= 2 * expected.tells)
            && again.is_empty()
            && (completes == expected.completes || self.case.how == How::Once);
        let case = &self.case;
        Some(match is_right {
            true => Ok(()),
            false => Err(format!(
                "{case:?}, dead at write {number} ({written}): {expected:?}, but completes: {completes}, {effects:#?}, and again \
                 {again:?}"
            )),
        })
    }
}

/// A generator of numbers: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn case(&mut self) -> Case {
        use Callee::{Branch, Computed, Foreach, Named, Task, Thread};
        let is_agent = self.below(3) == 0;
        let count = self.below(4);
        let levels = (0..count).map(|at| {
            let callees: &[Callee] = match (at, is_agent) {
                (0, true) => &[Named, Computed, Foreach, Branch, Thread, Task],
                _ => &[Named, Computed, Foreach, Branch, Task],
            };
            Level { callee: self.one_of(callees), own: self.one_of(&Own::ALL) }
        });
        let levels: Vec<Level> = levels.collect();
        // The text of a failed thread decides its category, and only `any` does not ask for it.
        let is_known = !levels.iter().any(|level| level.callee == Thread);
        let levels = levels.into_iter().map(|level| match level.own {
            Own::Transient if !is_known => Level { own: Own::Any, ..level },
            _ => level,
        });
        let levels = levels.collect();
        let hows = How::ALL.into_iter().filter(|how| !is_agent || *how != How::Stalls).collect::<Vec<_>>();
        let how = self.one_of(&hows);
        // Where a call does not stall, the pauses between its attempts, which are partly random, would decide how many there is time for.
        let is_short = !is_agent && self.below(3) == 0 && how == How::Stalls;
        Case { how, is_agent, server: None, own: self.one_of(&Own::ALL), is_short, levels }
    }

    /// As [`Dice::case`], of a graph that tells a server.
    fn http_case(&mut self) -> Case {
        loop {
            let case = self.case();
            if !case.is_agent && !matches!(case.how, How::Cancelled | How::Panics) {
                return Case { server: Some(String::new()), ..case };
            }
        }
    }
}

/// Each way to fail, below each kind of call without a `retry`.
#[graph_test]
async fn nothing_but_a_tool_is_repeated_without_a_retry(_: TestBed) {
    use Callee::{Branch, Computed, Foreach, Named, Task, Thread};
    let mut wrong = Vec::new();
    for callee in [Named, Computed, Foreach, Branch, Thread, Task] {
        for is_agent in [false, true] {
            if callee == Thread && !is_agent {
                continue;
            }
            let levels = vec![Level { callee, own: Own::None }, Level { callee: Named, own: Own::None }];
            let case = Case { how: How::Transient, is_agent, server: None, own: Own::Off, is_short: false, levels };
            let mut subject = Subject::new(case);
            for how in How::ALL.into_iter().filter(|how| !is_agent || *how != How::Stalls) {
                subject.case.how = how;
                wrong.extend(subject.judge_whole().await.err());
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases are wrong: {}", wrong.len(), wrong.join("\n"));
}

/// Makes a case whole, and with a crash at each write. Returns how many runs that are, and what is wrong with them.
async fn judge(case: Case) -> (usize, Vec<String>) {
    let subject = Subject::new(case);
    let mut wrong: Vec<String> = subject.judge_whole().await.err().into_iter().collect();
    let mut runs = 1;
    for write in 1.. {
        for written in [false, true] {
            let Some(judged) = subject.judge_crash(write, written).await else { return (runs, wrong) };
            wrong.extend(judged.err());
            runs += 1;
        }
    }
    (runs, wrong)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn dice(seed: u64, round: u64) -> Dice {
    Dice((seed << 32 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

fn report(cases: u64, seed: u64, runs: usize, wrong: &[String]) {
    println!("{cases} cases, {runs} runs, seed {seed}");
    let shown: Vec<String> = wrong.iter().take(5).cloned().collect();
    assert!(wrong.is_empty(), "{} of {runs} runs are wrong:\n{}", wrong.len(), shown.join("\n"));
}

/// Random cases, whole and with a crash at each write.
#[graph_test]
async fn effects_happen_once_or_as_a_retry_says(_: TestBed) {
    let (cases, seed) = (number("EFFECTS").unwrap_or(8), number("SEED").unwrap_or(1));
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for round in 0..cases {
        let (made, found) = judge(dice(seed, round).case()).await;
        wrong.extend(found);
        runs += made;
    }
    report(cases, seed, runs, &wrong);
}

/// As [`effects_happen_once_or_as_a_retry_says`], with effects of requests. They take real time, so several cases run at a time.
#[test]
fn effects_of_requests_happen_once_or_as_a_retry_says() {
    let (cases, seed) = (number("EFFECTS").map_or(1, |cases| cases / 20), number("SEED").unwrap_or(1));
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (mut wrong, mut runs) = (Vec::new(), 0);
    tokio.block_on(async {
        let (mut open, mut round) = (tokio::task::JoinSet::new(), 0);
        while round < cases || !open.is_empty() {
            if round < cases && open.len() < 8 {
                open.spawn(judge(dice(seed, round).http_case()));
                round += 1;
            } else if let Some(done) = open.join_next().await {
                let (made, found) = done.unwrap();
                wrong.extend(found);
                runs += made;
            }
        }
    });
    report(cases, seed, runs, &wrong);
}
