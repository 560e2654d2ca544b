//! Spaces for tests: temporary directories with keys and signed files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use graph_model::name::ItemId;
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

/// A space in a temporary directory.
pub(super) struct Tree(tempfile::TempDir);

pub(super) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

pub(super) fn id(text: &str) -> ItemId {
    ItemId::new(text).unwrap()
}

impl Tree {
    /// Returns a space that trusts the key 1.
    pub(super) fn new() -> Self {
        let tree = Self::empty();
        tree.trust(&KeyFile::new(key(1).public(), "tester"), 1);
        tree
    }

    /// Returns a space without keys.
    pub(super) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file below `.ai`, unsigned.
    pub(super) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(".ai").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a file below `.ai`, signed with the key of that seed.
    pub(super) fn sign(&self, path: &str, text: &str, seed: u8) -> PathBuf {
        let kind = match path.split('/').next().unwrap() {
            "directives" => ItemKind::Directive,
            "knowledge" => ItemKind::Knowledge,
            _ => ItemKind::YAML,
        };
        self.write(path, sign(kind, text, &key(seed), SystemTime::UNIX_EPOCH).unwrap())
    }

    /// Writes the file of a trusted key, signed with the key of that seed.
    pub(super) fn trust(&self, file: &KeyFile, seed: u8) {
        let toml = file.to_signed_toml(&key(seed), SystemTime::UNIX_EPOCH);
        self.write(&format!("config/keys/trusted/{}.toml", file.fingerprint), toml);
    }
}

/// A directive in the form of published ones: the element is in a code block, and the process comes after it and contains
/// things that look like tags.
pub(super) const STATE_GRAPH: &str = r#"# State graph

Runs a graph.

```xml
<directive name="state_graph" version="1.0.0">
  <metadata>
    <description>Runs a state graph &amp; tells how it ended.</description>
    <category>rye/agent/graphs</category>
    <author>tester</author>
    <model tier="general" />
    <limits turns="4" tokens="4096" />
    <permissions>
      <execute>
        <tool>rye.execute.tool.*</tool>
      </execute>
    </permissions>
  </metadata>

  <inputs>
    <input name="graph_id" type="string" required="true">
      Which graph (for example "shop/order")
    </input>
    <input name="parameters" type="object" required="false">What it is given</input>
    <input name="async" type="boolean" required="false">Whether to wait</input>
    <input name="resume_run_id" type="string" required="false">The run to resume</input>
    <input name="capabilities" type="array" required="false">What it may use</input>
    <input name="depth" type="integer" required="false">How deep graphs may nest</input>
  </inputs>

  <outputs>
    <output name="graph_run_id">The run</output>
    <output name="status">How it ended</output>
    <output name="state">What it knew then</output>
    <output name="steps">How many steps it took</output>
  </outputs>
</directive>
```

<process>
  <step name="validate_input">
    Make sure that {input:graph_id} is not empty.
    Else stop.
  </step>

  <step name="build_parameters">
    Begin with {input:parameters}. If {input:async} is true, add `async: true`; a depth is {input:depth|5}.
  </step>

  <step name="execute_graph">
    Call `execute(item_id="{input:graph_id}", parameters=<built parameters>)`.
      - once &amp; for all
  </step>

  <step name="return_result">Return what it returned{input:resume_run_id?}.</step>
</process>

<success_criteria>
  <criterion>{input:graph_id} was run</criterion>
  <criterion>The result has a status</criterion>
</success_criteria>
"#;
