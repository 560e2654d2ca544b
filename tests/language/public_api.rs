//! The public API of each published crate, in `tests/api`, so that each change of it is visible and deliberate.
//!
//! The sources are read, so no nightly toolchain is needed, and the items of all features are there with their `cfg`.
//! Every public item that can be reached from a crate's root appears where it is reached first, in the order of the
//! paths' lengths and names; elsewhere it is a `use`. An item of another crate is a `use` too. Items that a macro makes
//! appear as the macro's call. Hidden items are not shown.
//!
//! `UPDATE_API=1 cargo test --test language public_api` writes the pages again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, TraitItem, Type, UseTree, Visibility};

/// The path of a module from the crate's root.
type ModulePath = Vec<String>;

/// The place where an item is defined: its module and its name.
type Place = (ModulePath, String);

/// The target of a path.
enum Target {
    Module(ModulePath),
    Item(Place),
    /// An item of another crate.
    Elsewhere,
}

/// A name that a `use` brings into a module.
struct Import {
    /// `*` for everything in a module.
    name: String,
    path: Vec<String>,
    is_public: bool,
    /// The attributes that users see, each on a line.
    attributes: String,
}

/// A module as it is written.
#[derive(Default)]
struct Module {
    items: Vec<Item>,
    imports: Vec<Import>,
}

/// A crate's sources.
struct Sources {
    modules: BTreeMap<ModulePath, Module>,
    impls: Vec<(ModulePath, ItemImpl)>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directories of the workspace's published libraries.
fn libraries() -> Vec<PathBuf> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let members = members.trim_end_matches(']').split(',').map(|member| member.trim().trim_matches('"'));
    let is_published = |directory: &PathBuf| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        !manifest.contains("publish = false") && directory.join("src/lib.rs").exists()
    };
    members.map(|member| root().join(member)).filter(is_published).collect()
}

/// Whether an attribute is `#[name]`, `#[name(…)]` or `#[name = …]`.
fn is(attribute: &Attribute, name: &str) -> bool {
    attribute.path().is_ident(name)
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

/// Copies a piece of syntax through its tokens.
fn copy<T: ToTokens + syn::parse::Parse>(of: &T) -> T {
    syn::parse2(of.to_token_stream()).unwrap()
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| is(one, "cfg") && text(one).contains("cfg (test)"))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| is(one, "doc") && text(one).contains("(hidden)"))
}

/// Removes the attributes that users do not see.
fn strip(attributes: &mut Vec<Attribute>) {
    const MET: [&str; 7] =
        ["cfg", "derive", "deprecated", "must_use", "non_exhaustive", "proc_macro", "proc_macro_derive"];
    attributes.retain(|one| MET.iter().any(|name| is(one, name)));
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl Sources {
    fn read(directory: &Path) -> Self {
        let mut sources = Self { modules: BTreeMap::new(), impls: Vec::new() };
        sources.read_file(&directory.join("src/lib.rs"), &directory.join("src"), Vec::new());
        sources
    }

    /// Reads a file whose submodules are in `inside`.
    fn read_file(&mut self, file: &Path, inside: &Path, path: ModulePath) {
        let source = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.take(parsed.items, inside, path);
    }

    fn take(&mut self, items: Vec<Item>, inside: &Path, path: ModulePath) {
        let mut module = Module::default();
        for item in items {
            match item {
                Item::Mod(one) if is_test(&one.attrs) => {}
                Item::Mod(mut one) => {
                    let name = one.ident.to_string();
                    let (inner, below) = ([&path[..], std::slice::from_ref(&name)].concat(), inside.join(&name));
                    match one.content.take() {
                        Some((_, items)) => self.take(items, &below, inner),
                        None => {
                            let file = inside.join(format!("{name}.rs"));
                            let file = if file.exists() { file } else { below.join("mod.rs") };
                            self.read_file(&file, &below, inner);
                        }
                    }
                    module.items.push(Item::Mod(one));
                }
                Item::Use(mut one) => {
                    let is_seen = is_public(&one.vis) && !is_hidden(&one.attrs);
                    strip(&mut one.attrs);
                    let attributes: String = one.attrs.iter().map(|one| format!("{}\n", text(one))).collect();
                    let import = |name: &str, path: &[String]| Import {
                        name: name.to_owned(),
                        path: path.to_vec(),
                        is_public: is_seen,
                        attributes: attributes.clone(),
                    };
                    flatten(&one.tree, &mut Vec::new(), &mut |name, path| module.imports.push(import(name, path)));
                }
                Item::Impl(one) if !is_test(&one.attrs) => self.impls.push((path.clone(), one)),
                item => module.items.push(item),
            }
        }
        self.modules.insert(path, module);
    }

    /// Finds the target of a path in a module.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Target {
        let Some((first, rest)) = path.split_first() else { return Target::Module(module.to_vec()) };
        if depth > 20 {
            return Target::Elsewhere;
        }
        let parent = module.len().saturating_sub(1);
        match first.as_str() {
            "crate" => return self.resolve(&[], rest, depth + 1),
            "self" => return self.resolve(module, rest, depth + 1),
            "super" => return self.resolve(&module[..parent], rest, depth + 1),
            _ => {}
        }
        let Some(found) = self.modules.get(module) else { return Target::Elsewhere };
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.resolve(&child, rest, depth + 1);
        }
        if found.items.iter().any(|item| name_of(item).is_some_and(|name| name == *first)) {
            return Target::Item((module.to_vec(), first.clone()));
        }
        if let Some(import) = found.imports.iter().find(|import| import.name == *first && import.path != path) {
            let path = [&import.path[..], rest].concat();
            return self.resolve(module, &path, depth + 1);
        }
        for glob in found.imports.iter().filter(|import| import.name == "*") {
            if let Target::Module(of) = self.resolve(module, &glob.path, depth + 1)
                && of != module
                && let target @ (Target::Item(_) | Target::Module(_)) = self.resolve(&of, path, depth + 1)
            {
                return target;
            }
        }
        Target::Elsewhere
    }

    /// Returns the impls of a type, except those of the crate's private traits.
    fn impls_of(&self, place: &Place) -> impl Iterator<Item = &ItemImpl> {
        let is_of = move |(module, one): &&(ModulePath, ItemImpl)| {
            let Type::Path(path) = &*one.self_ty else { return false };
            let path = segments(&path.path);
            let is_shown = one.trait_.as_ref().is_none_or(|(of, _)| self.is_seen(module, &segments(of)));
            matches!(self.resolve(module, &path, 0), Target::Item(found) if found == *place) && is_shown
        };
        self.impls.iter().filter(is_of).map(|(_, one)| one)
    }

    /// Whether a trait is public or belongs to another crate.
    fn is_seen(&self, module: &[String], path: &[String]) -> bool {
        let Target::Item((module, name)) = self.resolve(module, path, 0) else { return true };
        let items = &self.modules[&module].items;
        items.iter().any(|item| matches!(item, Item::Trait(one) if one.ident == name && is_public(&one.vis)))
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, add: &mut impl FnMut(&str, &[String])) {
    match tree {
        UseTree::Path(one) => {
            path.push(one.ident.to_string());
            flatten(&one.tree, path, add);
            path.pop();
        }
        UseTree::Name(one) if one.ident == "self" => add(&path.last().cloned().unwrap_or_default(), path),
        UseTree::Name(one) => add(&one.ident.to_string(), &[&path[..], &[one.ident.to_string()]].concat()),
        UseTree::Rename(one) => add(&one.rename.to_string(), &[&path[..], &[one.ident.to_string()]].concat()),
        UseTree::Glob(_) => add("*", path),
        UseTree::Group(one) => one.items.iter().for_each(|tree| flatten(tree, path, add)),
    }
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(one) => one.ident.to_string(),
        Item::Enum(one) => one.ident.to_string(),
        Item::Fn(one) => one.sig.ident.to_string(),
        Item::Macro(one) => one.ident.as_ref()?.to_string(),
        Item::Static(one) => one.ident.to_string(),
        Item::Struct(one) => one.ident.to_string(),
        Item::Trait(one) => one.ident.to_string(),
        Item::Type(one) => one.ident.to_string(),
        Item::Union(one) => one.ident.to_string(),
        _ => return None,
    })
}

/// Removes private fields, and adds one field named `_private` if there were any.
fn strip_fields(fields: &mut Fields) {
    if let Fields::Named(named) = fields {
        let all = std::mem::take(&mut named.named);
        let has_private = all.iter().any(|field| !is_public(&field.vis));
        named.named = all.into_iter().filter(|field| is_public(&field.vis) && !is_hidden(&field.attrs)).collect();
        if has_private {
            named.named.push(syn::parse_quote!(_private: ()));
        }
    }
    for field in fields.iter_mut() {
        strip(&mut field.attrs);
        if matches!(field.vis, Visibility::Restricted(_)) {
            field.ty = syn::parse_quote!(_);
            field.vis = Visibility::Inherited;
        }
    }
}

/// Returns an item as users see it: without doc texts, bodies and private parts; `None` if users do not see it.
fn shown(item: &Item) -> Option<Item> {
    let mut item: Item = copy(item);
    let (visibility, attributes) = match &mut item {
        Item::Const(one) => (&one.vis, &mut one.attrs),
        Item::Enum(one) => (&one.vis, &mut one.attrs),
        Item::Fn(one) => (&one.vis, &mut one.attrs),
        Item::Static(one) => (&one.vis, &mut one.attrs),
        Item::Struct(one) => (&one.vis, &mut one.attrs),
        Item::Trait(one) => (&one.vis, &mut one.attrs),
        Item::Type(one) => (&one.vis, &mut one.attrs),
        Item::Union(one) => (&one.vis, &mut one.attrs),
        _ => return None,
    };
    if !is_public(visibility) || is_hidden(attributes) || is_test(attributes) {
        return None;
    }
    strip(attributes);
    match &mut item {
        Item::Const(one) => one.expr = syn::parse_quote!(_),
        Item::Static(one) => one.expr = syn::parse_quote!(_),
        Item::Fn(one) => one.block = syn::parse_quote!({}),
        Item::Struct(one) => strip_fields(&mut one.fields),
        Item::Enum(one) => {
            for variant in &mut one.variants {
                strip(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| strip(&mut field.attrs));
            }
        }
        Item::Trait(one) => one.items.iter_mut().for_each(strip_member),
        _ => {}
    }
    Some(item)
}

fn strip_member(member: &mut TraitItem) {
    match member {
        TraitItem::Const(one) => strip(&mut one.attrs),
        TraitItem::Type(one) => strip(&mut one.attrs),
        TraitItem::Fn(one) => {
            strip(&mut one.attrs);
            // Implementors see that there is a default body, but not its content.
            one.default = one.default.take().map(|_| syn::parse_quote!({}));
        }
        _ => {}
    }
}

/// Returns the public parts of an impl without bodies; `None` if there are no such parts.
fn shown_impl(one: &ItemImpl) -> Option<ItemImpl> {
    if is_hidden(&one.attrs) {
        return None;
    }
    let mut one: ItemImpl = copy(one);
    strip(&mut one.attrs);
    let is_of_trait = one.trait_.is_some();
    one.items.retain_mut(|member| match member {
        ImplItem::Type(one) => {
            strip(&mut one.attrs);
            true
        }
        ImplItem::Const(one) => {
            let stays = is_public(&one.vis) && !is_hidden(&one.attrs);
            strip(&mut one.attrs);
            one.expr = syn::parse_quote!(_);
            stays
        }
        ImplItem::Fn(one) => {
            let stays = is_public(&one.vis) && !is_hidden(&one.attrs) && !is_test(&one.attrs);
            strip(&mut one.attrs);
            one.block = syn::parse_quote!({});
            stays
        }
        _ => false,
    });
    (is_of_trait || !one.items.is_empty()).then_some(one)
}

/// The page of a crate, written from its root, with the modules of short paths first.
struct Page<'s> {
    sources: &'s Sources,
    text: String,
    /// The path at which each item was shown.
    items: BTreeMap<Place, String>,
    modules: BTreeSet<ModulePath>,
    waiting: VecDeque<(ModulePath, String)>,
}

impl Page<'_> {
    fn of(name: &str, sources: &Sources) -> String {
        let waiting = VecDeque::from([(Vec::new(), name.to_owned())]);
        let (items, modules) = (BTreeMap::new(), BTreeSet::from([Vec::new()]));
        let mut page = Page { sources, text: String::new(), items, modules, waiting };
        while let Some((module, shown)) = page.waiting.pop_front() {
            page.module(&module, &shown);
        }
        page.text
    }

    fn module(&mut self, path: &ModulePath, shown_as: &str) {
        write!(self.text, "// {shown_as}\n\n").unwrap();
        let sources = self.sources;
        let module = &sources.modules[path];
        if path.is_empty() {
            self.exported_macros();
        }
        let mut names: BTreeSet<String> = module.items.iter().filter_map(name_of).collect();
        names.extend(module.items.iter().filter_map(|item| match item {
            Item::Mod(one) => Some(one.ident.to_string()),
            _ => None,
        }));
        for name in names {
            self.named(path, &name, shown_as);
        }
        for item in &module.items {
            if let Item::Macro(one) = item
                && one.ident.is_none()
            {
                writeln!(self.text, "{}\n", text(&one.mac)).unwrap();
            }
        }
        let mut imports: Vec<&Import> = module.imports.iter().filter(|import| import.is_public).collect();
        imports.sort_by_key(|import| (&import.name, &import.path));
        for import in imports {
            self.import(path, import, shown_as);
        }
    }

    /// Shows the macros that are exported at the root, wherever they are defined.
    fn exported_macros(&mut self) {
        let items = self.sources.modules.values().flat_map(|module| &module.items);
        let mut names: Vec<String> = items
            .filter_map(|item| match item {
                Item::Macro(one) if !is_hidden(&one.attrs) => {
                    one.attrs.iter().find(|attribute| is(attribute, "macro_export"))?;
                    Some(one.ident.as_ref()?.to_string())
                }
                _ => None,
            })
            .collect();
        names.sort();
        for name in names {
            writeln!(self.text, "macro_rules! {name}\n").unwrap();
        }
    }

    /// Shows the items called `name` in a module; a module of this name is shown later.
    fn named(&mut self, module: &ModulePath, name: &str, shown_as: &str) {
        let sources = self.sources;
        let place = (module.clone(), name.to_owned());
        let path = format!("{shown_as}::{name}");
        let defined = sources.modules[module].items.iter();
        for item in defined.filter(|item| name_of(item).is_some_and(|found| found == name)) {
            let Some(item) = shown(item) else { continue };
            if let Some(first) = self.items.get(&place) {
                writeln!(self.text, "use {first} as {path};\n").unwrap();
                return;
            }
            let impls = sources.impls_of(&place).filter_map(shown_impl).map(Item::Impl);
            let mut impls: Vec<String> = impls.map(write_item).collect();
            impls.sort();
            impls.dedup();
            self.text.push_str(&write_item(item));
            impls.iter().for_each(|one| self.text.push_str(one));
            self.text.push('\n');
        }
        let shows_any = sources.modules[module]
            .items
            .iter()
            .any(|item| name_of(item).is_some_and(|found| found == name) && shown(item).is_some());
        if shows_any {
            self.items.insert(place, path.clone());
        }
        let is_module = |item: &Item| matches!(item, Item::Mod(one) if one.ident == name && is_public(&one.vis) && !is_hidden(&one.attrs));
        if sources.modules[module].items.iter().any(is_module) {
            self.wait_for([&module[..], &[name.to_owned()]].concat(), path);
        }
    }

    fn wait_for(&mut self, module: ModulePath, shown_as: String) {
        if self.modules.insert(module.clone()) {
            self.waiting.push_back((module, shown_as));
        }
    }

    /// Shows the items of a `pub use`.
    fn import(&mut self, module: &ModulePath, import: &Import, shown_as: &str) {
        let attributes = &import.attributes;
        let written = import.path.join("::");
        let target = self.sources.resolve(module, &import.path, 0);
        match target {
            Target::Item((of, name)) => {
                let place = (of.clone(), name.clone());
                match self.items.get(&place) {
                    Some(first) => {
                        writeln!(self.text, "{attributes}use {first} as {shown_as}::{};\n", import.name).unwrap();
                    }
                    None => {
                        self.text.push_str(attributes);
                        if name != import.name {
                            writeln!(self.text, "// as {}", import.name).unwrap();
                        }
                        self.named(&of, &name, shown_as);
                    }
                }
            }
            Target::Module(of) if import.name == "*" => {
                let names: BTreeSet<String> = self.sources.modules[&of].items.iter().filter_map(name_of).collect();
                for name in names {
                    self.named(&of, &name, shown_as);
                }
            }
            Target::Module(of) => self.wait_for(of, format!("{shown_as}::{}", import.name)),
            Target::Elsewhere => {
                writeln!(self.text, "{attributes}use {written} as {shown_as}::{};\n", import.name).unwrap();
            }
        }
    }
}

fn write_item(item: Item) -> String {
    prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items: vec![item] })
}

/// Returns the name of a library and its page.
fn page(directory: &Path) -> (String, String) {
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    let text = Page::of(&name.replace('-', "_"), &Sources::read(directory));
    (name, text)
}

#[test]
fn the_public_api_of_each_crate_matches_its_page() {
    let mut differing = Vec::new();
    for (name, text) in libraries().iter().map(|directory| page(directory)) {
        let file = root().join("tests/api").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_API").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &text).unwrap();
        }
        let known = fs::read_to_string(&file).unwrap_or_default();
        if known != text {
            let pairs = known.lines().zip(text.lines()).enumerate();
            let first = pairs.filter(|(_, (known, new))| known != new).map(|(at, (_, new))| (at + 1, new)).next();
            differing.push(format!("tests/api/{name}.txt, from {first:?} on"));
        }
    }
    let differing = differing.join("\n");
    assert!(
        differing.is_empty(),
        "what a crate shows has changed; `UPDATE_API=1` writes it again if it is meant:\n{differing}"
    );
}

#[test]
fn the_page_follows_uses_and_leaves_out_what_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let file = directory.path().join("src").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write(
        "lib.rs",
        "mod inner; pub mod open; pub use inner::{Shown, deep::Deep as Renamed}; pub use std::fmt::Debug; \
         #[cfg(test)] mod tests { pub struct Never; } pub use open::Twice; fn private() {}",
    );
    write(
        "inner.rs",
        "pub mod deep; pub struct Shown { pub seen: u8, hidden: u8 } pub struct Unreached; impl Shown { pub fn ask(&self) -> u8 { 1 } fn own(&self) {} }",
    );
    write(
        "inner/deep.rs",
        "#[non_exhaustive] pub enum Deep { /// Text\n One } impl super::Shown { pub const MOST: u8 = 3; } trait Own {} impl Own for Deep {} impl Clone for Deep { fn clone(&self) -> Self { Self::One } }",
    );
    write(
        "open.rs",
        "pub struct Twice; #[doc(hidden)] pub fn secret() {} pub trait Does { fn it(&self); fn more(&self) { } }",
    );
    let text = Page::of("it", &Sources::read(directory.path()));
    for part in [
        "pub struct Shown {\n    pub seen: u8,\n    _private: (),\n}",
        "pub fn ask(&self) -> u8 {}",
        "pub const MOST: u8 = _;",
        "// as Renamed\n#[non_exhaustive]\npub enum Deep {\n    One,\n}\nimpl Clone for Deep {}",
        "use std::fmt::Debug as it::Debug;",
        "// it::open\n",
        "use it::Twice as it::open::Twice;",
        "fn it(&self);\n    fn more(&self) {}",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for part in ["Never", "Unreached", "private()", "own(", "secret", "Own", "Text", "hidden"] {
        assert!(!text.contains(part), "{part} is in\n{text}");
    }
}
