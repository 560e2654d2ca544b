//! Trees with random graphs over random contracts, each in two releases: a program with one implementation of each distinct contract
//! has the tools of all graphs of both.
//!
//! `TREES=40 SEED=7` checks as many trees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use graph_model::digest::Digest;

use crate::native_diagnostics::Package;
use crate::random::Random;
use crate::support::{key_file, sign};

/// Ids of tools. Some would have one name in Rust.
const IDS: [&str; 11] = [
    "a/b_c",
    "a/b/c",
    "a/b-c",
    "a/b",
    "shop/reserve",
    "shop/reserve_params",
    "std/vec",
    "type",
    "tools/tools",
    "x1/y_2",
    "x1/y2",
];
/// A tool without a contract.
const FREE: &str = "plain/free";
/// Schemas, each with a value that a graph can write.
const TYPES: [(&str, &str); 11] = [
    ("{ type: string }", "a"),
    ("{ type: integer }", "7"),
    ("{ type: number }", "1.5"),
    ("{ type: boolean }", "true"),
    ("{ enum: [low, high] }", "low"),
    ("{ enum: [low, high, top] }", "low"),
    ("{ type: array, items: { type: string } }", "[a]"),
    ("{ type: object, properties: { x: { type: integer, description: DESCRIBED } }, required: [x] }", "{ x: 1 }"),
    ("{ type: string, x-secret: true }", "\"${inputs.token}\""),
    ("{ type: integer, default: 3 }", "4"),
    ("{ type: integer, default: 5 }", "4"),
];

/// The part of a contract that the program sees: the types of the parameters and the result.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Contract {
    params: Vec<usize>,
    result: Option<usize>,
}

impl Contract {
    fn random(random: &mut Random) -> Self {
        let params: Vec<usize> = (0..random.below(4)).map(|_| random.below(TYPES.len() as u64) as usize).collect();
        let result = match (random.below(4), params.first()) {
            (0, _) => None,
            (1 | 2, Some(&same)) if same < 8 => Some(same),
            _ => Some(random.below(8) as usize),
        };
        Self { params, result }
    }

    /// Writes the contract, with descriptions that mean nothing: in one release those of equal types are equal, in the other they are
    /// not.
    fn text(&self, description: u64) -> String {
        let mut text = format!("version: \"1\"\ntool_type: rust\ndescription: Number {description}.\n");
        let properties = self.params.iter().enumerate().map(|(at, ty)| format!("p{at}: {}", TYPES[*ty].0));
        let properties = properties.collect::<Vec<_>>().join(", ");
        let required = (0..self.params.len()).map(|at| format!("p{at}"));
        let required = required.filter(|_| !properties.contains("default")).collect::<Vec<_>>().join(", ");
        let schema = format!("{{ type: object, properties: {{ {properties} }}, required: [{required}] }}");
        writeln!(text, "config_schema: {schema}").unwrap();
        if let Some(ty) = self.result {
            let schema = format!("{{ type: object, properties: {{ v: {} }}, required: [v] }}", TYPES[ty].0);
            writeln!(text, "result_schema: {schema}").unwrap();
        }
        let mut parts = text.split("DESCRIBED");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.zip(1_u64..).fold(first, |text, (part, at)| {
            text + if (at * description).is_multiple_of(2) { "one" } else { "two" } + part
        })
    }
}

/// A tree of graphs over contracts.
struct Release {
    contracts: BTreeMap<&'static str, Contract>,
    /// For each graph the tools that it calls, and the graphs.
    graphs: Vec<(Vec<&'static str>, Vec<usize>)>,
}

impl Release {
    fn random(random: &mut Random) -> Self {
        let contracts = IDS.into_iter().filter(|_| random.below(4) > 0).collect::<Vec<_>>();
        let contracts = contracts.into_iter().map(|id| (id, Contract::random(random))).collect();
        let mut release = Self { contracts, graphs: Vec::new() };
        release.draw_graphs(random);
        release
    }

    fn draw_graphs(&mut self, random: &mut Random) {
        let ids: Vec<&str> = self.contracts.keys().copied().chain([FREE]).collect();
        self.graphs = (0..2 + random.below(4) as usize)
            .map(|at| {
                let tools = (0..1 + random.below(4)).map(|_| ids[random.below(ids.len() as u64) as usize]).collect();
                let inner = (0..at).filter(|_| random.below(3) == 0).collect();
                (tools, inner)
            })
            .collect();
    }

    /// Returns a later release: some contracts have changed, some are new, and the graphs are others.
    fn next(&self, random: &mut Random) -> Self {
        let mut next = Self { contracts: self.contracts.clone(), graphs: Vec::new() };
        for id in IDS {
            match random.below(5) {
                0 => drop(next.contracts.insert(id, Contract::random(random))),
                1 => drop(next.contracts.remove(id)),
                _ => {}
            }
        }
        next.draw_graphs(random);
        next
    }

    /// Returns the tools that some graph calls.
    fn called(&self) -> BTreeSet<&'static str> {
        self.graphs.iter().flat_map(|(tools, _)| tools).copied().collect()
    }

    fn write(&self, package: &Package, directory: &str, description: u64) {
        let write = |name: &str, text: &str| package.write(&format!("{directory}/{name}"), text);
        let (key, text) = key_file();
        write(&key, &text);
        write("graphs.toml", &sign("[lints]\nG0133 = \"allow\"\n"));
        for (id, contract) in &self.contracts {
            write(&format!("tools/{id}.yaml"), &sign(&contract.text(description)));
        }
        for (at, (tools, inner)) in self.graphs.iter().enumerate() {
            let mut nodes = String::new();
            let inner = inner.iter().map(|inner| (format!("c/g{inner}"), "token: \"${inputs.token}\"".to_owned()));
            let tools = tools.iter().map(|id| {
                let params = self.contracts.get(id).map(|contract| contract.params.as_slice()).unwrap_or_default();
                let params = params.iter().enumerate().map(|(at, ty)| format!("p{at}: {}", TYPES[*ty].1));
                ((*id).to_owned(), params.collect::<Vec<_>>().join(", "))
            });
            for (at, (id, params)) in inner.chain(tools).enumerate() {
                let action = format!("{{ item_id: {id}, params: {{ {params} }} }}");
                writeln!(nodes, "    n{at}: {{ action: {action}, next: n{} }}", at + 1).unwrap();
            }
            let last = nodes.lines().count();
            let text = format!(
                "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: c\npermissions: [rye.*]\n\
                 config_schema: {{ type: object, properties: {{ token: {{ type: string, x-secret: true }} }}, required: [token] }}\n\
                 config:\n  start: n0\n  nodes:\n{nodes}    n{last}: {{ type: return }}\n"
            );
            write(&format!("g{at}.yaml"), &sign(&text));
        }
    }
}

/// Returns the names of the modules of contracts, as the documentation has the rule.
fn names(ids: &BTreeSet<&'static str>) -> BTreeMap<&'static str, String> {
    let plain = |id: &str| id.replace(['/', '-'], "_");
    let name = |id: &'static str| {
        let name = plain(id);
        let is_shared = ids.iter().filter(|other| plain(other) == name).count() > 1;
        let name = if is_shared { format!("{name}_{:.4}", Digest::of(id).to_hex()) } else { name };
        (id, if name == "type" { "r#type".to_owned() } else { name })
    };
    ids.iter().map(|id| name(id)).collect()
}

/// Writes the implementation of a tool.
fn implementation(module: &str, name: &str, id: &str) -> String {
    let (path, method) = (format!("{module}::tools::{name}"), id.replace(['/', '-'], "_").replace("type", "r#type"));
    format!(
        "impl {path}::Tool for Shop {{\n    async fn {method}(&self, _: &Call, _: {path}::Params) -> Result<{path}::Output, ActionError> {{\n        \
         Err(ActionError::permanent(\"none\"))\n    }}\n}}\n"
    )
}

/// A program with the graphs of pairs of releases.
#[derive(Default)]
struct Program {
    build: String,
    modules: String,
    uses: String,
    /// The implementations, each with the id of its tool, and how many graphs of the old release alone call it, also through others.
    tools: Vec<(String, &'static str, usize)>,
    distinct: usize,
    shared: usize,
}

impl Program {
    fn add(&mut self, at: u64, old: &Release, new: &Release) {
        writeln!(self.build, "    graph_compiler::Build::new(\"c{at}/new\").name(\"c{at}_new\").run();").unwrap();
        writeln!(
            self.build,
            "    graph_compiler::Build::new(\"c{at}/old\").name(\"c{at}_old\").tools(\"crate::c{at}_new::tools\").run();"
        )
        .unwrap();
        for release in ["new", "old"] {
            let graphs = format!("graph_runtime::include_graphs!(\"c{at}_{release}\");");
            writeln!(self.modules, "mod c{at}_{release} {{ {graphs} }}").unwrap();
        }
        for (module, release) in [("new", new), ("old", old)] {
            for graph in 0..release.graphs.len() {
                writeln!(self.uses, "    is_graph(c{at}_{module}::G{graph}::new(Shop));").unwrap();
            }
        }
        let meaning = |release: &Release, id: &'static str| (id, release.contracts.get(id).cloned());
        let of_new: BTreeSet<_> = new.called().into_iter().map(|id| meaning(new, id)).collect();
        let of_old: BTreeSet<_> = old.called().into_iter().map(|id| meaning(old, id)).collect();
        self.distinct += of_new.union(&of_old).count();
        self.shared += of_new.intersection(&of_old).count();
        for (id, name) in names(&new.called()) {
            self.tools.push((implementation(&format!("c{at}_new"), &name, id), id, 0));
        }
        for (id, name) in names(&old.called()) {
            if !of_new.contains(&meaning(old, id)) {
                self.tools.push((implementation(&format!("c{at}_old"), &name, id), id, old.graphs_with(id)));
            }
        }
    }

    fn text(&self, without: Option<usize>) -> String {
        let tools = self.tools.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        let tools: String = tools.map(|(_, (text, ..))| text.as_str()).collect();
        format!(
            "#![allow(dead_code, unused_imports)]\nuse graph_runtime::{{ActionError, Call, Graph}};\n\n{}\nstruct Shop;\n\n{tools}\n\
             fn is_graph<G: Graph>(_: G) {{}}\n\nfn main() {{\n{}}}\n",
            self.modules, self.uses
        )
    }
}

impl Release {
    /// Counts the graphs that call a tool, also through others.
    fn graphs_with(&self, id: &str) -> usize {
        let mut with: Vec<bool> = Vec::new();
        for (tools, inner) in &self.graphs {
            with.push(tools.contains(&id) || inner.iter().any(|inner| with[*inner]));
        }
        with.into_iter().filter(|with| *with).count()
    }
}

#[test]
fn a_tool_is_implemented_once_for_all_graphs_and_releases_with_its_contract() {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let mut random = Random::new(number("SEED", 1));
    let mut program = Program::default();
    let releases = (0..number("TREES", 6)).map(|at| {
        let old = Release::random(&mut random);
        let new = old.next(&mut random);
        program.add(at, &old, &new);
        (old, new)
    });
    let releases: Vec<(Release, Release)> = releases.collect();
    assert_eq!(program.tools.len(), program.distinct);
    assert!(program.shared > 0 && program.tools.iter().any(|(.., graphs)| *graphs > 0));
    let build_script = format!("fn main() {{\n{}}}\n", program.build);
    let package = Package::new("contracts", &program.text(None), Some(&build_script));
    for (at, (old, new)) in releases.iter().enumerate() {
        old.write(&package, &format!("c{at}/old"), 1);
        new.write(&package, &format!("c{at}/new"), 2);
    }
    let (passed, _, said) = package.cargo(&[], "");
    assert!(passed, "{said}");

    // Without one that only the old release has, rustc names the contract for each graph that needs it, and says nothing else.
    let without = program.tools.iter().rposition(|(.., graphs)| *graphs > 0).unwrap();
    let (_, id, graphs) = program.tools[without];
    package.write("src/main.rs", &program.text(Some(without)));
    let build = package.build();
    let errors = build.messages.iter().filter(|[code, ..]| code.starts_with('E'));
    let errors: Vec<&str> = errors.map(|[_, message, _]| message.as_str()).collect();
    assert_eq!(errors, vec![format!("`Shop` does not have the tool `{id}`"); graphs]);
    println!("{} tools for {} graphs", program.tools.len(), program.uses.lines().count());
}
