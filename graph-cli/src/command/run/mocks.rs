//! `graph run --mock`: tools that answer from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use graph_model::name::ItemId;
use graph_runtime::Value;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_testing::{MockedTools, ScriptedTools, TestNames, read_answers};

use super::failure::{PROBLEMS, RunCommandFailure, Voice};

/// The tools of a run that answer from files.
pub(super) struct Mocks {
    tools: Vec<String>,
    scripted: ScriptedTools,
}

/// Splits `TOOL=FILE`.
pub(super) fn mock(text: &str) -> Result<(ItemId, PathBuf), String> {
    let (tool, file) = text.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or("write it as TOOL=FILE")?;
    Ok((ItemId::new(tool).map_err(|error| error.to_string())?, PathBuf::from(file)))
}

impl Mocks {
    /// Reads the answers, and loads the graph with them: `graph` and `library` are the same without.
    pub(super) fn load(
        mocks: &[(ItemId, PathBuf)],
        library: &Library,
        graph: &Interpreted,
        file: &Path,
    ) -> Result<(Self, Library, Interpreted), RunCommandFailure> {
        let inner = graph.interface().inner.iter().filter_map(|inner| ItemId::new(inner.id.as_str()).ok());
        let inner = inner.filter_map(|id| library.graph(&library.find(&id)?).ok());
        let names = TestNames::of(graph, &inner.collect::<Vec<_>>());
        let mut all = BTreeMap::new();
        for (tool, path) in mocks {
            if all.contains_key(tool) {
                return Err(RunCommandFailure::usage(format_args!("`--mock` is given twice for `{tool}`")));
            }
            if let Err(problem) = names.may_be_mocked(tool.as_str()) {
                return Err(RunCommandFailure::usage(problem));
            }
            let answers = read_answers(path, &path.to_string_lossy(), tool.as_str(), &names);
            all.insert(
                tool.clone(),
                answers.map_err(|mistakes| {
                    mistakes.iter().for_each(|mistake| err_coloured!(mistake));
                    let error = format!("the answers of `{tool}` in {} have mistakes", path.display());
                    RunCommandFailure { shown: true, ..RunCommandFailure::new(PROBLEMS, error) }
                })?,
            );
        }
        let tools = all.keys().map(ToString::to_string).collect();
        let scripted = all.into_iter().fold(ScriptedTools::new(), |scripted, (tool, answers)| {
            match library.find(&tool).is_some() {
                true => scripted.graph(tool.as_str(), answers),
                false => scripted.tool(tool.as_str(), answers),
            }
        });
        let library = Library::open(library.root(), MockedTools::new(scripted.clone(), Toolbox::new()));
        let graph = library.graph(file).map_err(|error| RunCommandFailure::of(PROBLEMS, error))?;
        Ok((Self { tools, scripted }, library, graph))
    }

    /// Reports which tools do not run.
    pub(super) fn tell(&self, voice: Voice) {
        voice.note(format_args!("these do not run, and answer from files: {}", self.tools.join(", ")));
    }

    /// Adds to a result the tools that did not run, and reports the answers that were not used.
    pub(super) fn mark(&self, result: &mut Value, voice: Voice) {
        result["mocked"] = self.tools.iter().map(String::as_str).map(Value::from).collect();
        for unused in self.scripted.unused() {
            let times = unused.expected;
            voice.note(format_args!(
                "answer {} of `{}` was used {} of {times} times",
                unused.answer + 1,
                unused.tool,
                unused.used
            ));
        }
    }
}
