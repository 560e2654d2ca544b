//! Cascading configuration: the user's overrides the system's, and the project's overrides both (R159).

use std::collections::HashSet;

use graph_model::name::ItemId;
use graph_signing::ItemKind;
use serde_json::{Map, Value};

use super::error::ItemError;
use super::file;
use super::spaces::{Spaces, TrustedKeys};
use super::yaml::{YamlError, mapping};

/// The directory of configurations, below a space.
const CONFIG: &str = ".ai/config";

impl Spaces {
    /// Reads the configuration `path`, such as `agent/error_classification`, from `.ai/config/<path>.yaml` of all spaces. The
    /// project's values override the user's, and these override the system's (R159). If no space has the file, the
    /// configuration is empty.
    ///
    /// Mappings are merged key by key. Lists of mappings that all have an `id` are merged by id: an element replaces the one
    /// with the same id in place, and other elements are appended. Any other value replaces the old one, even an empty list.
    /// A top-level `extends` is left out (R20).
    ///
    /// A trusted key must have signed every file, as with every item.
    ///
    /// ```
    /// # mod graph_runtime { pub use graph_engine::*; pub mod items { pub use graph_items::*; } pub use items::Spaces; }
    /// # fn example(spaces: graph_runtime::Spaces) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{Classifier, Runtime};
    ///
    /// let patterns = spaces.config("agent/error_classification")?;
    /// let runtime = Runtime::builder().classifier(Classifier::from_value(&patterns.into())?).build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If `path` is not a valid path, or a file cannot be used or read.
    pub fn config(&self, path: &str) -> Result<Map<String, Value>, ItemError> {
        let name = ItemId::new(path).map_err(|reason| ItemError::ConfigPath { path: path.to_owned(), reason })?;
        let trust = TrustedKeys::of(self);
        let mut merged = Map::new();
        for root in self.last_first() {
            let path = root.join(CONFIG).join(format!("{name}.yaml"));
            if file::exists(&path)? {
                let (_, content, ..) = trust.verify(root, CONFIG, &path, |_| ItemKind::YAML)?;
                let refuse = |reason| ItemError::Config { path: path.clone(), reason };
                let mut over = mapping(&content).map_err(refuse)?;
                over.shift_remove("extends");
                merge(&mut merged, over).map_err(refuse)?;
            }
        }
        Ok(merged)
    }
}

/// Merges `over` into `under`. The recursion cannot exhaust the stack: the YAML reader bounds the depth.
fn merge(under: &mut Map<String, Value>, over: Map<String, Value>) -> Result<(), YamlError> {
    for (key, over) in over {
        match (under.get_mut(&key), over) {
            (Some(Value::Object(under)), Value::Object(over)) => merge(under, over)?,
            (Some(Value::Array(under)), Value::Array(over)) => match (ids(&key, under)?, ids(&key, &over)?) {
                (Some(mut at), Some(ids)) => {
                    for (id, element) in ids.into_iter().zip(over) {
                        match at.iter().position(|other| *other == id) {
                            Some(place) => under[place] = element,
                            None => {
                                under.push(element);
                                at.push(id);
                            }
                        }
                    }
                }
                _ => *under = over,
            },
            (_, over) => {
                if let Value::Array(list) = &over {
                    ids(&key, list)?;
                }
                under.insert(key, over);
            }
        }
    }
    Ok(())
}

/// Returns the ids of the elements of the list `key`, if there are elements and all are mappings with an `id`.
fn ids(key: &str, list: &[Value]) -> Result<Option<Vec<Value>>, YamlError> {
    let Some(ids) = list.iter().map(|element| element.get("id").cloned()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut seen = HashSet::new();
    match ids.iter().find(|id| !seen.insert(id.to_string())) {
        Some(id) => Err(YamlError::SameId { list: key.to_owned(), id: id.to_string() }),
        None => Ok(Some(ids).filter(|ids| !ids.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Tree;

    const SYSTEM: &str = "
patterns:
  - { id: quota, category: permanent, only: system }
  - { id: timeout, category: transient }
codes: [1, 2]
retry: { base: 2, max: 30 }
extends: other
";
    const USER: &str = "
patterns:
  - { id: own, category: transient }
  - { id: quota, category: transient }
codes: [3]
";
    const PROJECT: &str = "
retry: { max: 60 }
patterns: [{ id: timeout, category: permanent }]
";

    #[test]
    fn project_overrides_user_and_user_overrides_system() {
        let (project, user, system) = (Tree::new(), Tree::new(), Tree::new());
        for (tree, text) in [(&project, PROJECT), (&user, USER), (&system, SYSTEM)] {
            tree.sign("config/agent/error_classification.yaml", text, 1);
        }
        let spaces = Spaces::at(project.path()).user(user.path()).system(system.path());
        let expected = json!({
            "patterns": [
                {"id": "quota", "category": "transient"},
                {"id": "timeout", "category": "permanent"},
                {"id": "own", "category": "transient"},
            ],
            "codes": [3],
            "retry": {"base": 2, "max": 60},
        });
        assert_eq!(Value::Object(spaces.config("agent/error_classification").unwrap()), expected);
        assert!(spaces.config("agent/other").unwrap().is_empty());
    }

    #[test]
    fn an_empty_list_and_a_list_without_ids_replace() {
        let merged = |under: &str, over: &str| {
            let mut under = mapping(under).unwrap();
            merge(&mut under, mapping(over).unwrap()).map(|()| Value::Object(under))
        };
        assert_eq!(merged("a: [{ id: 1 }]", "a: []").unwrap(), json!({"a": []}));
        assert_eq!(merged("a: [{ id: 1 }]", "a: [{ b: 1 }]").unwrap(), json!({"a": [{"b": 1}]}));
        assert_eq!(merged("a: { b: 1 }", "a: ~").unwrap(), json!({"a": null}));
        let error = merged("a: [{ id: x }]", "a: [{ id: y }, { id: y }]").unwrap_err().to_string();
        assert_eq!(error, r#"two elements of the list `a` have the id `"y"`"#);
    }

    #[test]
    fn a_configuration_is_signed_like_everything_else() {
        let (project, system) = (Tree::new(), Tree::new());
        system.sign("config/a.yaml", "a: 1\n", 1);
        let spaces = Spaces::at(project.path()).system(system.path());
        let error = |spaces: &Spaces| spaces.config("a").unwrap_err().to_string();
        project.write("config/a.yaml", "a: 2\n");
        assert!(error(&spaces).contains("it is not signed"), "{}", error(&spaces));
        let path = project.sign("config/a.yaml", "a: 2\n", 1);
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace("a: 2", "a: 3")).unwrap();
        assert!(error(&spaces).contains("was changed after it was signed"), "{}", error(&spaces));
    }

    #[test]
    fn an_invalid_configuration_is_reported_with_its_file() {
        let tree = Tree::new();
        let path = tree.sign("config/a.yaml", "a: 1\na: 2\n", 1);
        let spaces = Spaces::at(tree.path());
        let error = spaces.config("a").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{}` is not a configuration: the key `a` occurs twice", path.display())),
            "{error}"
        );
        assert!(
            spaces.config("../a").unwrap_err().to_string().starts_with("`../a` is not a path of a configuration: ")
        );
    }
}
