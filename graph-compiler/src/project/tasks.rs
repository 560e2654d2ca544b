//! The items that calls start as tasks, as far as the tree says what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use graph_definition::definition::{self, Contract, ValueSchema};
use graph_definition::diagnostic::{Diagnostics, nearest};
use graph_definition::tree;
use graph_model::name::ItemId;

use super::nesting::Followers;
use super::{Project, display_name};
use crate::items::{TaskItem, TaskName, TaskTarget};
use crate::types::Type;

impl Project {
    /// Finds what calls start as tasks, and the files that say it.
    pub(super) fn tasks(&self, names: BTreeSet<TaskName>) -> (BTreeMap<TaskName, TaskTarget>, Vec<PathBuf>) {
        let (mut tasks, mut files) = (BTreeMap::new(), Vec::new());
        for name in names {
            let (target, file) = match &name {
                TaskName::Item(id) => self.task(id),
                TaskName::Directive(directive) => self.thread(directive),
            };
            files.extend(file);
            tasks.insert(name, target);
        }
        (tasks, files)
    }

    /// Whether threads of the tree are those of the runtime: it has agents that they can be.
    pub(super) fn has_agents(&self) -> bool {
        !self.followers().agents.is_empty()
    }

    /// Finds the agent that follows a directive.
    fn thread(&self, directive: &str) -> (TaskTarget, Option<PathBuf>) {
        let followers = self.followers();
        match followers.agents.get(directive).map(Vec::as_slice) {
            Some([agent]) => self.task(agent),
            Some(agents) => {
                let ids: Vec<String> = agents.iter().map(|id| format!("`{id}`")).collect();
                (TaskTarget::Refused(format!("several agents follow it: {}", ids.join(", "))), None)
            }
            // Without agents, the program performs the tool itself.
            None if followers.is_part || followers.agents.is_empty() => (TaskTarget::Open, None),
            None => {
                let most = (directive.len() / 5).min(2);
                let near = nearest(directive, followers.agents.keys().map(String::as_str));
                let near = near.filter(|near| strsim::damerau_levenshtein(directive, near) <= most);
                (TaskTarget::Missing(near.map(str::to_owned)), None)
            }
        }
    }

    /// Returns the one agent that follows a directive.
    pub(super) fn follower(&self, directive: &str) -> Option<ItemId> {
        match self.followers().agents.get(directive)?.as_slice() {
            [agent] => Some(agent.clone()),
            _ => None,
        }
    }

    fn followers(&self) -> &Followers {
        self.nesting.followers.get_or_init(|| {
            let mut followers = Followers::default();
            for (id, path) in self.contract_ids() {
                let Ok(id) = ItemId::new(id.as_str()) else { continue };
                match &self.found_contract(&id, self.is_for_review).contract {
                    None => followers.is_part |= self.may_be_agent(path),
                    Some(contract) => {
                        let directive = contract.agent().map(|agent| agent.directive.value.clone());
                        directive
                            .into_iter()
                            .for_each(|name| followers.agents.entry(name).or_default().push(id.clone()));
                    }
                }
            }
            followers
        })
    }

    /// Whether a file says that it is the contract of an agent or a program.
    fn may_be_agent(&self, path: &Path) -> bool {
        let source = self.read(path).ok();
        let yaml = source.and_then(|source| tree::parse(&source, &mut Diagnostics::new()));
        yaml.is_some_and(|yaml| definition::means_graph(&yaml))
    }

    /// Finds the item with an id as a task: a graph, an agent or program, or a tool with a contract in the tree.
    fn task(&self, id: &ItemId) -> (TaskTarget, Option<PathBuf>) {
        let found = self.found_contract(id, self.is_for_review);
        let graphs = self.graphs_called(id);
        let (contract, of_contract) = (found.contract.as_deref(), found.file.is_some() && !found.means_graph());
        match (graphs.as_slice(), contract) {
            ([graph], _) if !of_contract => (self.graph_as_task(id, graph, contract), Some(graph.clone())),
            ([], Some(contract)) if found.file.is_some() => (self.tool_as_task(id, contract), found.file.clone()),
            ([], Some(_)) => (TaskTarget::Refused("the built-in tools are called by nodes".to_owned()), None),
            // Its own mistakes are reported in its file.
            ([], None) if found.file.is_some() || !self.unclear(id).is_empty() => (TaskTarget::Open, None),
            ([], None) => (TaskTarget::Missing(self.similar(id)), None),
            (files, _) => {
                let files = files.iter().chain(found.file.as_ref().filter(|_| of_contract));
                let files: Vec<String> = files.map(|file| format!("`{}`", display_name(&self.package, file))).collect();
                (TaskTarget::Refused(format!("it is the id of several things: {}", files.join(", "))), None)
            }
        }
    }

    fn graph_as_task(&self, id: &ItemId, path: &Path, contract: Option<&Contract>) -> TaskTarget {
        let head = self.head(path);
        let is_vouched_for = |schema: &ValueSchema| schema.has_sink() || schema.has_guarded();
        if head.schema.as_ref().is_some_and(is_vouched_for) {
            let reason = "some of its inputs are sinks or guarded, and only the author of a graph may choose them";
            return TaskTarget::Refused(reason.to_owned());
        }
        let agent = contract.filter(|contract| contract.agent().is_some());
        TaskTarget::Found(TaskItem {
            id: id.clone(),
            file: display_name(&self.package, path),
            inputs: head.inputs.clone(),
            schema: head.schema.clone(),
            needs: self.needs(path),
            levels: self.levels_inside(path, &mut BTreeMap::new()),
            limits: contract.and_then(Contract::agent).map(|agent| agent.limits.clone()),
            answer: agent.and_then(|agent| agent.result.as_ref()).map(Type::of_schema),
        })
    }

    fn tool_as_task(&self, id: &ItemId, contract: &Contract) -> TaskTarget {
        if contract.is_reducer() {
            return TaskTarget::Refused("it is a reducer, and no tool".to_owned());
        }
        let Some(yaml) = tree::parse(&contract.source, &mut Diagnostics::new()) else { return TaskTarget::Open };
        if let Err(reason) = definition::single_call(&yaml, id, contract) {
            return TaskTarget::Refused(reason);
        }
        TaskTarget::Found(TaskItem {
            id: id.clone(),
            file: contract.source.name.clone(),
            inputs: Type::of_schema(&contract.params).not_null(),
            schema: Some(contract.params.clone()),
            needs: Vec::new(),
            levels: Some(0),
            limits: None,
            answer: None,
        })
    }

    /// Returns how many levels of graphs run inside a graph; `None` if they form a circle. `known` has the graphs that were looked at.
    fn levels_inside(&self, path: &Path, known: &mut BTreeMap<PathBuf, Option<u32>>) -> Option<u32> {
        if let Some(levels) = known.get(path) {
            return *levels;
        }
        // A graph that leads back here is in a circle.
        known.insert(path.to_owned(), None);
        let mut levels = 0;
        for id in &self.head(path).calls {
            for inner in self.graphs_called(id) {
                levels = levels.max(self.levels_inside(&inner, known)? + 1);
            }
        }
        known.insert(path.to_owned(), Some(levels));
        Some(levels)
    }
}
