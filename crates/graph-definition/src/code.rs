//! The codes of diagnostics, each with its explanation.

use std::fmt;

/// A kind of mistake.
#[derive(Clone, Copy)]
pub struct DiagnosticCode {
    /// `G` and four digits; never reused for another kind.
    pub id: &'static str,
    /// The kind in a few words.
    pub title: &'static str,
    /// An explanation of the kind, and how to correct it, in Markdown.
    pub explanation: &'static str,
    /// The level unless a setting changes it; `None` if it is always an error.
    ///
    /// A kind with a level is a lint: there is a graph to compile, but it probably does not do what its author meant. A
    /// mistake of any other kind leaves no graph that could be compiled.
    pub lint: Option<Level>,
}

/// The level of a lint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// It is not reported.
    Allow,
    /// It is a warning.
    Warn,
    /// It is an error.
    Deny,
}

impl Level {
    /// Every level with its spelling.
    pub const TABLE: [(Self, &'static str); 3] = [(Self::Allow, "allow"), (Self::Warn, "warn"), (Self::Deny, "deny")];

    /// Finds the level that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling)| *spelling == name).map(|(level, _)| *level)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(level, _)| *level == self).map_or("", |(_, spelling)| spelling)
    }
}

impl PartialEq for DiagnosticCode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for DiagnosticCode {}

impl fmt::Debug for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl DiagnosticCode {
    /// Finds the code that is written `id`.
    pub fn named(id: &str) -> Option<Self> {
        ALL.iter().find(|code| code.id == id).copied()
    }

    /// Whether it is about the trust in a file, and not about the file's contents.
    pub fn is_of_trust(self) -> bool {
        ("G0010"..="G0016").contains(&self.id)
    }

    /// Whether the parts of a graph do not fit together with a mistake of this kind: a shape, a name, a path or an edge is wrong.
    pub fn is_of_parts(self) -> bool {
        ("G0020"..="G0117").contains(&self.id) || ("G0200"..="G0210").contains(&self.id)
    }

    /// Returns the explanation in lines of at most `width` characters, for a lint followed by its level.
    pub fn text(self, width: usize) -> String {
        let mut text = wrapped(self.explanation, width);
        if let Some(level) = self.lint {
            text.push_str(&format!("\n\nThis is a lint. Its default level is `{}`.", level.name()));
        }
        text
    }
}

/// Breaks a text into lines.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

macro_rules! codes {
    (@lint) => { None };
    (@lint $level:ident) => { Some(Level::$level) };
    ($($name:ident = $id:literal $(($level:ident))?, $title:literal, $explanation:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: DiagnosticCode =
                DiagnosticCode { id: $id, title: $title, explanation: $explanation, lint: codes!(@lint $($level)?) };
        )*

        /// Every code, in the order of the ids.
        pub const ALL: &[DiagnosticCode] = &[$($name),*];
    };
}

codes! {
    UNREADABLE = "G0001", "a file cannot be read",
        "The graph, a contract, a settings file or a directory of the tree does not exist, is not a file or directory as \
         it must be, or may not be read. Correct the path, or the permissions of the file. The path in `graph!` and in \
         `graph_compiler::build` is relative to the directory of the package's `Cargo.toml`. The compiler treats a file as \
         absent only if it certainly does not exist. A file that it cannot read may forbid something that no other file \
         forbids, so no graph of the tree compiles until the file can be read.";
    TOO_LARGE = "G0002", "a file is too large",
        "A graph or contract may have at most 4 MiB. A graph of a thousand nodes has about a quarter of a MiB. Split a \
         larger graph into several, and nest them.";
    NOT_TEXT = "G0003", "a file is not UTF-8 text",
        "The file contains bytes that are not UTF-8. The message names the first of them and its line. Save the file as \
         UTF-8.";
    EMPTY = "G0004", "a file is empty",
        "The file contains only white space or, if it is a graph or a contract, only comments. Write the graph or \
         contract, or remove the file.";

    UNSIGNED = "G0010", "a file is not signed",
        "Every file that a graph is compiled from must be signed: the graph itself, the contracts of its tools, the \
         trusted keys. The signature is the first line of the file; only a `#!/…` line may come before it. Review the file \
         and sign it with `graph sign FILE`.";
    ALTERED = "G0011", "a file was changed after it was signed",
        "The text below the signature line differs from the text that was signed. If the change is intended, review it and \
         sign the file again with `graph sign FILE`. Otherwise restore the file.";
    UNTRUSTED = "G0012", "the signing key is not trusted",
        "The signature was made with a key that is not among the trusted keys of the tree. These are the signed `*.toml` \
         files in its `keys` directory. If you trust the owner of the key, add the public key with `graph keys trust`.";
    REVOKED = "G0013", "the signing key was revoked",
        "The file of the key contains `revoked_at`. No signature of a revoked key is trusted, whatever time the signature \
         claims, because the signature does not cover that time. Have the file reviewed and signed with another key.";
    FORGED = "G0014", "the signature does not match the key",
        "The signature line names a trusted key and contains the right hash of the text, but that key did not make the \
         signature. Somebody wrote the line by hand. Treat the file as hostile.";
    MALFORMED_SIGNATURE = "G0015", "the signature line is malformed",
        "The first line begins like a signature but does not have the form `# \
         rye:signed:<time>:<hash>:<signature>:<fingerprint>`. Only an optional `|provider@user` may follow the \
         fingerprint. `graph sign FILE` writes the line again.";
    BAD_KEY_FILE = "G0016", "the file of a trusted key is refused",
        "A `*.toml` file in the tree's `keys` directory is unsigned, was changed, is signed by a key that is not trusted, \
         or contains no Ed25519 public key. A tree with such a file does not compile, because it is not clear which key \
         the file was meant to trust. Correct the file, write it again with `graph keys trust`, or remove it.";
    BAD_SETTINGS = "G0017", "a settings file that cannot be used",
        "`graphs.toml`, or `[package.metadata.graphs]` in `Cargo.toml`, sets the levels of lints. Its table `lints` gives \
         each code one of `\"allow\"`, `\"warn\"` and `\"deny\"`, as in `G0152 = \"allow\"`. Only lints have a level; \
         every other code is always an error. The `graphs.toml` of the tree itself may have schedules: a table \
         `[schedules.ID]` with `graph`, `cron` and `zone` for each. No graph below such a file compiles until the file is corrected, because its \
         intention is not clear.";

    YAML = "G0020", "the text is not YAML",
        "The YAML parser cannot read the file. Indent with spaces, not with tabs. Put a plain text that contains `:` or \
         `#` in quotes.";
    YAML_FEATURE = "G0021", "a part of YAML that graphs do not use",
        "Graphs are written in a small part of YAML 1.2, so that every reader sees the same graph. Anchors, aliases, tags, \
         directives, merge keys, complex keys, and several documents in one file are not allowed. Write the value out \
         wherever it is needed.";
    DUPLICATE_KEY = "G0022", "a duplicate key",
        "A mapping has two keys with the same name. Some readers keep the first and some the last, so neither is right. \
         Remove or rename one of them.";
    AMBIGUOUS_SCALAR = "G0023", "a plain value that readers disagree on",
        "A value such as `yes`, `0777`, `1_000`, `0x1F`, `.inf`, `1e3`, `2026-11-23`, `12:30` or `=` is a boolean, a \
         number, a date or a text, depending on the reader: readers of YAML 1.1 and of YAML 1.2 differ. Put the value in \
         quotes to make it a text, or write the number in plain decimal.";
    FORBIDDEN_CHARACTER = "G0024", "a character that is not allowed in a graph",
        "Control characters, characters that change the direction of text, and invisible characters such as the zero-width \
         space can make a file look different from what it is. In a double-quoted text, write such a character as an \
         escape: `\"\\u202e\"`. It is allowed as it is where it forms an emoji, or joins the letters of a script that \
         needs it. Names cannot contain such characters (`G0034`).";
    TOO_DEEP = "G0025", "nested too deeply, or too many values",
        "Values may nest at most 64 levels deep, and a file may contain at most 500,000 of them. A graph may have at most \
         60,000 nodes, and a node at most 1,000 edges. Split a larger graph into several, and nest them.";
    TWO_READINGS = "G0026", "two YAML readers read the file differently",
        "The file was read with two independent YAML parsers, and their results differ. A signed file must have one \
         meaning. Put the value that the message points at in quotes.";

    LOOK_ALIKE = "G0028"(Deny), "two names that look the same",
        "Two nodes, state keys or inputs have names that a reader cannot distinguish. A letter of one name comes from \
         another script and looks the same, such as the Cyrillic `о` and the Latin `o`, or a letter with a mark is one \
         character in one name and two in the other. A reviewer then approves something other than the graph that runs. \
         Rename one of them.";
    MORE = "G0029", "more mistakes than are shown",
        "At most 100 diagnostics of a file are shown: its first errors and, if there are fewer errors than that, its first \
         warnings. The others are only counted. Correct the ones that are shown, and check again.";

    SHAPE = "G0030", "a value of the wrong shape",
        "The format needs another kind of value here: a mapping, a list, a text, a number or a boolean. Values are not \
         converted: `\"3\"` is a text and not a number. Write the kind of value that the message names.";
    UNKNOWN_FIELD = "G0031", "an unknown field",
        "The format has no such field in this place. A misspelt field would otherwise be ignored silently. Correct the \
         name, or remove the field. A node may have a `description` and a `comment` for its readers.";
    MISSING_FIELD = "G0032", "a field is missing",
        "The format needs a field here that is not present. Add the field that the message names.";
    NOT_A_GRAPH = "G0033", "the file is not a graph",
        "A graph has the fields `tool_type: graph` and `executor_id: rye/core/runtimes/state-graph/runtime`. Contracts of \
         tools belong in the tree's `tools` directory.";
    BAD_NAME = "G0034", "a name that cannot be used",
        "Names of nodes, state keys and inputs consist of visible characters and plain spaces. Ids of items, such as \
         `shop/charge_card`, consist of segments of letters, digits, `_` and `-`, with slashes between them. Choose \
         another name.";
    BAD_SCHEMA = "G0035", "a schema that cannot be used",
        "`config_schema` and `result_schema` are written in a part of JSON Schema: `type`, `properties`, `required`, \
         `items`, `additionalProperties`, `enum`, `default`, `title`, `description`, `examples`. They may also have rules: \
         `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `minLength`, `maxLength`, `pattern`, \
         `format`, `minItems`, `maxItems`, `uniqueItems`, `minProperties`, `maxProperties`, `const`. The runtime checks \
         these when a run starts, before a tool is called, and when its result arrives. The contract of a reducer has no \
         rules, since nothing would check them. Any other keyword is an error, because it would be ignored.";
    NOT_SUPPORTED = "G0036", "a part of the format that this version does not support",
        "The field belongs to the state-graph format, but this version of the compiler does not support it. It refuses the \
         field rather than ignore it. Remove the field.";
    INERT_FIELD = "G0037", "a field that has no effect here",
        "The field belongs to another kind of node, or beside another field. A gate calls nothing, and a failure in it, \
         such as a comparison of values that cannot be compared, ends the run. A return node ends the run too, so it \
         assigns nothing and has no `next`. A foreach collects its results with `collect`, and waits for its calls. \
         `max_concurrency` limits how many calls a foreach with `parallel: true` makes at a time. `op` and `value` belong \
         beside a `path`. `id` of a channel belongs to `messages`, and `order` to `append` and `extend` in a graph with \
         branches. Remove the field, or move it.";
    BAD_DURATION = "G0038", "a duration that cannot be read",
        "A duration is a number of seconds, or a text of numbers with units: `250ms`, `30s`, `2m`, `1h30m`. It is at least \
         one millisecond.";

    TEMPLATE_AS_TEXT = "G0039", "a template where templates are not allowed",
        "Some values are used as they are written: `version`, `value` of a condition, `remote`, the keys of `assign`, `id` of a hook \
         or channel, and the values in schemas. A template in them would be a text that only looks computed. Write the value \
         itself. To compare two values of a run, let a tool compare them, and look at its result.";

    NO_START = "G0101", "the start is missing, or no node that a run can begin in",
        "`config.start` names the node where a run begins, or several nodes, each once: a branch begins at each of them. They \
         must be in `config.nodes`. None of them waits for branches, which have not begun, or is a return that cancels the \
         others at once; and no node of such a graph is called `config.start` itself.";
    UNKNOWN_TARGET = "G0102", "an edge leads to a node that does not exist",
        "`next` names a node that is not in `config.nodes`. Correct the name, or add the node.";
    UNKNOWN_ERROR_TARGET = "G0103", "`on_error` leads to a node that does not exist",
        "The `on_error` of a node names the node to which a failure leads. It must be one of `config.nodes`. The policies \
         `fail` and `continue` are set for the whole graph, in `config.on_error`.";
    UNREACHABLE = "G0104", "a node that no run can reach",
        "No path of `next` and `on_error` edges leads from the start to this node. Add an edge that leads to it, or remove \
         the node. A node that only such nodes lead to is not reported separately.";
    NO_END = "G0105", "a node that no run can leave",
        "No path leads from this node to an end: a return node, a node without `next`, or a list of edges of which none \
         may match. A run that comes here loops until `max_steps` stops it. Add an edge that leads out of the loop.";
    SHADOWED_EDGE = "G0106", "an edge that is never followed",
        "The edges of a node are tried in order, and an edge without `when` always matches. The edges after it are never \
         tried. Move the edge without `when` to the end of the list, or remove the edges after it.";

    BAD_TEMPLATE = "G0110", "a template that cannot be read",
        "`${…}` contains a path, or several with `||` between them: `${state.name || inputs.name}`. There are no \
         calculations and no functions. To write the characters `${` themselves, double the dollar sign: `$${`.";
    UNKNOWN_NAMESPACE = "G0111", "a path that begins with an unknown name",
        "A path begins with `state`, `inputs`, `result` or `visit`, or is `_now` or `_timestamp`. In the action of a \
         foreach, a path may also begin with the name of the item. The paths of a hook depend on its event. A shell \
         variable in a command is written `$NAME` or `$${NAME}`.";
    UNKNOWN_OPERATOR = "G0112", "an unknown operator",
        "The operators are `eq`, `ne` (also `neq`), `gt`, `gte`, `lt`, `lte`, `in`, `contains`, `regex` and `exists`, in \
         lower case.";
    BAD_REGEX = "G0113", "a regular expression that cannot be used",
        "The pattern is not a regular expression of the `regex` crate. Its expressions match in linear time, so they have \
         no look-around and no back-references. Write the pattern without these.";
    UNKNOWN_INPUT = "G0114", "an input that the graph does not declare",
        "The graph reads `inputs.NAME`, but `config_schema.properties` has no such name. Declare the input, or correct the \
         name. Without `config_schema`, any input may be read.";
    UNKNOWN_KEY = "G0115", "a state key that nothing sets",
        "The graph reads `state.NAME`, but no `assign`, no `collect` and no `config.state` sets it. Correct the name, or \
         set the key. An input is read as `inputs.NAME`.";
    NO_RESULT = "G0116", "`result` where it is not available",
        "`result` is the value that the node's own action returned. It can be read only in `assign` and `next` of an \
         action node. A foreach has many results, and collects them in a state key. To use a result elsewhere, assign it \
         to a state key, and read it from `state`.";
    UNKNOWN_FIELD_OF_VALUE = "G0117", "a path to a part that does not exist",
        "The type of the value is known from the input schema or from a tool's contract, and has no such part. The path \
         would always be null when the graph runs. Correct the path, or add the part to the schema.";
    NEVER_COMPARABLE = "G0118", "a comparison that can only fail",
        "The types of both values are known, and the operator cannot compare them: a string is not `gt` a number, and `3` \
         is never equal to `\"3\"`. Compare values of the same type.";
    BAD_CONDITION = "G0119", "a condition that cannot be read",
        "A condition is a comparison (`path`, `op`, `value`) or one of `any`, `all` and `not`, and only one of these. To \
         combine several, nest them in `all` or `any`: `{ all: [{ path: inputs.kind, value: company }, { not: { path: \
         inputs.total, value: 0 } }] }`.";

    UNKNOWN_PARAMETER = "G0120", "a parameter that the tool does not take",
        "The tool's contract has no parameter of this name. Correct the name, or remove the parameter.";
    MISSING_PARAMETER = "G0121", "a missing parameter that the tool needs",
        "The tool's contract lists the parameter in `required`, without a default, and the action does not give it. Add it \
         to `params`. Such a parameter is needed whatever its type is, unless the type allows null, as `[string, \
         \"null\"]` does: null and absent are the same.";
    WRONG_TYPE = "G0122", "a value of the wrong type",
        "The tool's contract gives the parameter another type. A template that is one `${…}` and nothing else keeps the \
         type of the value that it reads; any text around it makes a string.";
    BAD_CONTRACT = "G0123", "a contract that cannot be used",
        "A tool's contract is a signed YAML file in the tree's `tools` directory. Its name is the tool's id in the same \
         case, with `.yaml`: `tools/rye/bash.yaml` for `rye/bash`. It has a `tool_type`: `rust` if the program that embeds \
         the graph executes the tool, `builtin` if the runtime does, `subprocess` if the runtime starts a program that \
         `config` describes, `mcp` if the runtime asks a server that `config` names. Its `config_schema` describes the parameters, and its `result_schema` the result.";
    RESERVED_KEY = "G0124", "a state key that is reserved for the engine",
        "`inputs` and keys that begin with `_` belong to the engine. `inputs` always holds the original inputs of the run, \
         also after a resume. Choose another name for the key.";
    NO_VISIT = "G0125", "`visit` where it is not available",
        "`visit.number` is how often the run has come to the node. `visit.previous` is the result of the node's last \
         visit, or null; for a foreach, it is the collected list. A gate, a foreach without `collect`, and a node with \
         `feedback: false` have no `visit.previous`. A return node is visited once and has no `visit`. To use the value \
         there, assign it to a state key, and read it from `state`.";
    BAD_VARIABLE = "G0126", "a name that an item cannot have",
        "`as` names the item of a foreach in the templates of its action. The name must not hide a namespace, such as \
         `state`, and must not be the key that `collect` names. Choose another name.";
    NOT_A_LIST = "G0127", "a foreach over a value that is not a list",
        "`over` is a list, or a template that is one `${…}` and yields a list. Text around the template makes it a text.";
    AMBIGUOUS_ITEM = "G0128", "an ambiguous id",
        "An action executes the tool of a contract or another graph of the tree, and the id names more than one of them: a \
         contract and a graph, two graphs, or two graphs that would become Rust modules of the same name. Rename one of \
         them.";

    UNKNOWN_TOOL = "G0129"(Warn), "a tool without a contract whose name resembles another's",
        "The tree has no contract for the tool that the action executes, so the compiler knows nothing of the tool. A tool \
         with a similar name exists. If you mean that one, correct the name. Otherwise write a contract, which also gives \
         types to the parameters and the result.";

    NO_PERMISSIONS = "G0130", "the graph declares no permissions",
        "`permissions` lists the capabilities that the graph may use, such as `rye.execute.tool.rye.bash`, or patterns \
         with wildcards. A graph without permissions can call nothing. Add the capabilities that the graph needs.";
    MISSING_PERMISSION = "G0131", "an action that the graph's permissions do not cover",
        "The action needs a capability that no pattern in `permissions` grants. A run would be denied the call. Add the \
         capability to `permissions`.";
    BAD_PERMISSION = "G0132", "a permission that grants nothing",
        "A permission is a pattern of capabilities. It begins with `rye.`, as in `rye.execute.tool.rye.bash`, and may \
         contain `*`, `?` and `[…]`.";
    EXCESS_PERMISSION = "G0133"(Warn), "a permission that grants more than is needed",
        "The nodes and hooks of the graph, and the graphs nested in it, need fewer capabilities than the pattern grants. A \
         mistake in the graph, or in a tool, can do everything that the graph may do. List only the capabilities that the \
         graph needs.";

    MISSING_INSIDE = "G0134"(Deny), "a nested graph that needs more than is permitted",
        "A nested graph may do only what its own permissions and those of the outer graph both allow. The permissions of \
         the outer graph do not cover the needs of the nested one, so its run could not begin, and the node would fail. \
         Add the missing capabilities to the permissions of the outer graph.";

    REFUSED_INPUT = "G0136", "a parameter that the tool refuses, or an input that the nested graph refuses",
        "The contract of the tool, or the graph that the action runs, restricts the value with a rule, such as `maxLength` \
         or `minimum`. The given value breaks the rule, or it is an input of the graph whose own rules allow no value that \
         fits both. The call would not be made, and the node would fail. Give another value, or change one of the rules.";
    DENIED_ID = "G0137"(Warn), "a computed id that the permissions do not cover",
        "The `item_id` is computed from words of an `enum`, so all its possible values are known, and `permissions` does \
         not grant one of them. A run that computes that id is denied the call. Grant the id, or remove the word from the \
         `enum`.";
    REPEATED = "G0138"(Warn), "a list with a duplicate entry",
        "Each entry of `permissions`, of `env_requires`, of the list of an `in` comparison, and of the `on` of a retry \
         counts once, so the second of two equal entries has no effect. Remove it, or replace it with the entry that was \
         meant.";
    NO_CONTRACT = "G0139"(Allow), "a tool without a contract",
        "The action executes a tool for which neither the tree nor the compiler has a contract, or a tool whose id is \
         computed. The compiler does not know the types of its parameters and its result, which of them are read as code, \
         and which are secret. Set this lint to `deny` to notice a contract that was removed.";

    UNKNOWN_EVENT = "G0140", "a hook for an unknown event",
        "The events are `graph_started`, `after_step`, `error`, `limit` and `graph_completed`.";
    BAD_HOOK = "G0141", "a hook that would not do what it says",
        "A hook has at most one control. `retry` has an effect only on the event `error`, and `continue` only on `limit`. \
         `layer` decides the order of the hooks of graph and runtime, and a graph cannot choose it.";

    NOT_ALWAYS_SET = "G0150"(Deny), "a state key that is not set on every path",
        "On some paths to this place nothing has set the key, so it would be null there. The message shows one such path. \
         A key is set by `assign`, by `collect`, and by a first value; a failure that follows `on_error` skips the \
         assignments of its node. Give the key a first value in `config.state` (`null`, if the key may be empty), write a \
         fallback (`${state.price || inputs.price}`), or come here only if the key is set: after an edge with `op: \
         exists`, or one that compares the key.";
    NEVER_SET = "G0151"(Deny), "a state key that is set only later, or elsewhere",
        "The graph sets the key, but not on any path to this place. The key would always be null here. Set it earlier, or \
         read another key.";
    UNREAD = "G0152"(Warn), "a value that nothing reads",
        "The key is written, but no path from here reads it before it is written again or the run ends. Read the key, \
         return it, or remove it. A return node without `output`, and an end without a return node, return the whole state \
         and so read every key.";
    WIDENED = "G0153"(Warn), "values of different types meet",
        "A state key, a list or a fallback holds values of types that have nothing in common, so its type is unknown. The \
         compiler cannot check its uses; they are checked when the graph runs. Use values of one type, or a key for each \
         type.";
    MAYBE_NOTHING = "G0154"(Deny), "a value that may be missing where one is needed",
        "The parameter, or an element or a field of it, is needed, and the given value may be null: an optional input, an \
         optional field of a result, an element that a list may not have. In `a || b`, the last path decides whether the \
         value may be null. The call would fail with a null. Write a fallback, make the value required where it comes from \
         (`required` in the schema), or come here only if the value is set: after an edge with `op: exists`.";

    MISSING_DOLLAR = "G0155"(Warn), "a text that looks like a template",
        "The text contains a path in the syntax of another language, `{state.name}`, `{{ state.name }}`, `$state.name` or \
         `<%= state.name %>`, or is nothing but a path. It is not a template, so the text is used as it is written. To \
         insert the value, write `${state.name}`.";

    UNREAD_INPUT = "G0156"(Warn), "an input that nothing reads",
        "`config_schema` declares the input, but no template and no condition of the graph reads it. A value that is given \
         for it changes nothing. Read the input, or remove it.";
    UNKNOWN_VARIABLE = "G0158"(Warn), "a command reads a variable that nothing sets",
        "A command of `rye/bash` sees `PATH`, `HOME`, `USER`, `SHELL`, `LANG`, `LC_ALL`, `LC_CTYPE`, `TERM`, `TMPDIR`, \
         `TZ`, the variables that `env_requires` names, and those in `env`. This command reads another variable, does not \
         set it itself, and has no default for it as in `${NAME:-…}`. The shell puts nothing in its place. Give the \
         variable in `env`, name it in `env_requires`, or write a default.";

    UNCOVERED = "G0160"(Deny), "edges that leave a case open",
        "The values in the conditions have few possible cases: they are booleans, or words of an `enum`. In one case, \
         which the message shows, no edge is followed, and the run ends there as if it had succeeded. Add an edge for the \
         case, or a last edge without `when`. To end the run there on purpose, write a last edge without `to`; if that is \
         a failure, write `on_no_match: fail`.";
    OPEN_CASE = "G0161"(Warn), "edges that may leave a case open",
        "In one case, which the message shows, no edge is followed, and the run ends there as if it had succeeded. Add a \
         last edge without `when`. To end the run there on purpose, write a last edge without `to`; if that is a failure, \
         write `on_no_match: fail`.";
    NEVER_FOLLOWED = "G0162"(Deny), "an edge that can never be followed",
        "The condition of the edge never holds, or an edge before it is followed wherever it holds. The run never takes \
         this edge. An edge that needs a later visit than `limits.visits` or `max_steps` allows is never followed either. Correct \
         the condition or the order of the edges, raise the limit, or remove the edge.";
    NEEDLESS_DEFAULT = "G0163"(Warn), "a last edge that is never followed",
        "The edges before it cover every case, so no case is left for the edge without `when`. Remove it, so that the \
         compiler reports a case that is added later. If the edge is needed, one of the conditions covers more than was \
         meant.";
    ALWAYS_SAME = "G0164"(Warn), "a comparison that is always true or always false",
        "The type of the value, the paths to this place, and for `visit.number` the limits, leave only the possibilities that the \
         message shows. The comparison has the same result for all of them. Remove the comparison, or correct it.";
    VALUE_OF_EXISTS = "G0165"(Deny), "`exists` with a value",
        "`exists` tests whether there is a value, and ignores its own `value`, even `value: false`. To test that there is \
         no value, compare with null: `{ path: state.key, value: null }`.";

    UNKNOWN_WORD = "G0166"(Deny), "a comparison with a word that the value never is",
        "Some values are always one of a few words, or names of nodes: the data of an event, the status of a nested graph, \
         and the name of the node that failed. The value is compared with another word, so the comparison always has the \
         same result. Correct the word.";

    STUCK_LOOP = "G0170"(Deny), "a loop that cannot end after its first round",
        "The exits of the loop look only at values that no node of the loop changes: inputs, keys that are written \
         elsewhere, and keys that get the value that they have, or the same input each time; or their conditions hold for no value. \
         If no exit is taken in one \
         round, none is taken in any later round, until `max_steps` stops the run with an error. Let a node of the loop \
         write a value that an exit looks at, or count the rounds: `visit.number` is how often the run has come to the \
         node.";
    TOO_FEW_STEPS = "G0171"(Deny), "`max_steps` is too small",
        "Even the shortest path from `start` to an end visits more nodes than `max_steps` allows, so every run would fail. \
         The visits of all branches that surely begin count together. If an edge requires a later visit with \
         `visit.number`, the rounds until then count too. Raise `max_steps`.";
    TOO_DEEP_GRAPHS = "G0172"(Deny), "graphs are nested deeper than `limits.depth` allows",
        "A run of the graph would fail when it begins the innermost graph. Raise `limits.depth`, or nest fewer graphs. A \
         graph that runs itself on every path, directly or through others, is too deep for any limit: add a condition with \
         a path that does not nest it.";
    ANY_TEXT = "G0173"(Warn), "a pattern that is found in every text, or in none",
        "A `regex` or a `pattern` is searched for anywhere in the text. A pattern that may be empty, such as `.*` or `a?`, \
         is found in every text, and so is the empty text of a `contains`. A pattern that needs something before `^` or \
         after `$` is found in no text. The comparison then distinguishes nothing. To match the whole text, write `^…$`; \
         to test whether there is a text, write `op: exists`.";
    NO_EFFECT = "G0174"(Warn), "a setting of a node's calls that has no effect",
        "With `attempts: 1` nothing is retried, because the number includes the first attempt, so the other fields of \
         `retry` have no effect. A `timeout` of a node that is longer than `limits.timeout`, or that of a wait than \
         `limits.deadline`, never passes, because the run ends before. `limits` of a node do nothing if it runs no graph, or \
         if the graph's own limit is lower. Write another value, or remove the setting.";
    SAME_TARGET = "G0175"(Warn), "an edge that makes no difference",
        "Wherever the edge is followed, the edges after it would lead to the same node without it, so its condition \
         decides nothing. Remove the edge, or correct the target of one of them. An edge with a `description` is not \
         reported: its author wants to see it in the history.";
    INJECTION = "G0180"(Deny), "a value becomes a part of code",
        "A contract marks with `x-sink` a parameter whose text is read as code: by a shell, a database, a browser, or as \
         an address. A template there inserts a value into the code, so anyone who can choose the value can write code. \
         Pass the value as data: to a shell command in `env`, to a statement in the list of bound parameters, to a page in \
         a field that is escaped, to an address in `query`. A command may also execute the data that it gets: through \
         `eval`, arithmetic, an unquoted variable, an interpreter that reads stdin, or variables such as `PATH` and \
         `BASH_ENV`. `rye/exec` starts a program with a list of arguments that no shell reads. Numbers, booleans, the \
         time, and words of an `enum` made of letters, digits and `_ . -` are safe. Texts of the graph itself are safe \
         too, such as the items of a foreach over a list in the file, and an input with `const`. An input that the graph \
         declares with the same `x-sink` is also allowed: the caller who gives it writes the code.";
    SECRET_IN_TEXT = "G0181", "a secret becomes a part of a text",
        "A template inserts a secret into a text, so the whole text would have to be secret. Pass the secret by itself. \
         Only a parameter that is secret too may contain a text around a secret, such as `\"Bearer ${inputs.token}\"`.";
    SECRET_REVEALED = "G0182", "a secret in a place that is not marked",
        "A value that `x-secret` marks, or that is made from one, is given to a place that is not marked. With `x-secret: \
         true` on a parameter, a tool or a nested graph promises not to show the value to anybody; a tool without a \
         contract promises nothing. Ids of items and the controls of hooks are visible to everybody. Mark the parameter \
         with `x-secret: true`, or do not pass the secret there.";
    SECRET_COMPARED = "G0183", "a condition that compares a secret",
        "The path of a run is recorded and shown, so a comparison reveals a part of the secret to everybody who sees the \
         path. A condition may only test whether there is a secret: `op: exists`, or `value: null`. Let a tool test \
         anything else.";
    SECRET_IN_SIGHT = "G0184", "a secret is written in the file",
        "A value that `x-secret` marks has a default or a `const` in the graph. Everybody who has the file has the secret. \
         Remove it, and give the value when the run starts.";
    REFUSED_LITERAL = "G0185"(Deny), "a value that a built-in tool always refuses",
        "The graph contains a literal value that the tool never accepts: a path that leads out of the directory, an \
         address with a password in it, a name that no variable can have, a timeout of zero. Every run would fail there. \
         Write a value that the tool accepts.";
    UNAPPROVED = "G0186", "a guarded call with values that nobody approved",
        "A contract with `x-guarded: true` says that a call of its tool needs the approval of a person, unless the graph itself \
         says what the call does. An argument comes from an agent, a tool, a person or an input, and on some path no \
         interrupt shows it. Show it by itself in the payload of an interrupt on each path, before which it has its value, and \
         let the answer decide: whatever the other values are, one answer does not lead to the call. Each approval is for one \
         call, also where a call fails and is made again; where it is made for each element of a list, the payload shows \
         the list too. The last error is never approved, since any failure replaces it: assign it to a key first. Trusted without an \
         approval are the texts of the graph itself, inputs with `x-guarded: true`, for which \
         the caller of the graph vouches, and numbers, booleans and words of an `enum` from functions of the program, signals \
         and answers. A parameter that its contract marks with `x-guarded: false` takes any value.";
    REWRITTEN = "G0187", "a value that changes after its approval",
        "An interrupt shows a value that a guarded call uses, and a node may write the value after that: on the way to the \
         call, or in another branch. The call would use something that nobody has seen. Write the value before the \
         interrupt, or write to another key.";
    SECRET_WRITTEN = "G0188"(Warn), "a secret is written in the file, as a parameter",
        "A parameter that takes a secret gets a text that is written in the graph: a parameter that a contract marks with \
         `x-secret`, or an environment variable or a header whose name says that it holds a secret. Everybody who has the \
         file has the secret. Declare an input with `x-secret: true`, and give the value when the run starts.";
    NOT_SECRET = "G0189"(Warn), "a value that is not secret where a secret is expected",
        "A contract marks the parameter as a secret with `x-secret`, but the given value is not marked: the journal, the \
         state and the output show it like any other value. Mark the input, or the field of the result, that the value \
         comes from.";
    NOT_CACHED = "G0190", "a result that cannot be cached",
        "With `cache_result: true`, the stored result of a call is returned again for the same call. That is wrong if a \
         call does more than return a result, or if its result depends on more than the call. So it is not allowed on a \
         node that runs a graph (the nodes of that graph may have it), that does something with items (they are files that \
         may change), or that begins a thread that is not waited for. Results with secrets in them are not stored either. Remove \
         `cache_result`.";

    NO_DIRECTIVE = "G0191"(Deny), "an agent without its directive",
        "The contract of an agent names a directive, and the project around the tree, the nearest directory with `.ai`, has no such \
         file. Every run of the agent would fail at its first turn. Write the directive, sign it, or correct the id. If it is in the \
         space of a user or of the system, which the compiler does not read, set the lint to `allow`.";
    BAD_DIRECTIVE = "G0192", "a directive that its agent cannot follow",
        "The directive of an agent cannot be read, no trusted key signed it, its signature does not cover its process, it needs inputs \
         that the agent's `config_schema` does not have, or it has outputs that the agent's `result_schema` does not have. Every \
         run of the agent would fail, or answer something else than its directive says. Or the contract allows the agent more than the \
         author of the directive signed: more `turns`, `tokens` or `spend` than its `<limits>`, or a tool that its `<permissions>` do \
         not grant. Correct it and sign it again.";
    WIDENED_LIMIT = "G0193", "a node that allows its agent more than the contract does",
        "`limits` of a node that calls an agent only narrow the limits that the contract of the agent has: `turns`, `tokens`, `spend` \
         and `timeout`. Write less, or raise the limit in the contract.";
    OVER_USAGE = "G0194", "agents that may exceed the limits of their graph together",
        "`limits` at the top level may say how many `turns` and `tokens` all agents of a run take together, and what they `spend`. \
         Every run must keep to it, on all paths: branches add up, paths that exclude each other do not, and loops, retries, elements of \
         lists and agents that agents call multiply. Each agent may use all that its contract, or the node, allows it. If there is no \
         bound, that is an error too. Lower the limits of the agents, bound the loops and lists, or raise the limit.";
    REPEATED_RUN = "G0195"(Warn), "a `retry` that repeats calls which must not be made twice",
        "A node with `retry` runs a graph or an agent. Each attempt is a new run, which makes all calls again, with other idempotency \
         keys. Among them is a guarded one, or one of a server's tool that its contract does not call `idempotent`, so its effect \
         would happen again. Write `retry` at the nodes inside that may be repeated, and remove it from this one.";
    NO_TASK = "G0196"(Deny), "a task that can never begin",
        "A literal `target` of `rye/orchestrate/spawn`, or a literal directive of a thread, names nothing in the tree, or something that \
         only a node can call: a built-in tool, a tool or agent with `x-guarded: true`, or one with inputs that are sinks or \
         guarded. Every run would fail there. Correct the name, or call it by a node. If the program has what is named from \
         outside of the tree, set the lint to `allow`.";
    CHOSEN_ITEM = "G0197"(Deny), "a text that somebody else chooses names what is called",
        "A template in `item_id`, in the `target` of `rye/orchestrate/spawn` or in the directive of a thread contains a text that can be \
         any, such as the answer of an agent. Its writer chooses between all that the graph's permissions grant. An `enum` says which \
         names there are, and so do permissions without `*`. An input that the graph declares with `x-sink: item` is also allowed: the \
         caller who gives it chooses the call.";
    BAD_JOIN = "G0200", "a join and the edges that lead to it do not agree",
        "`waits_for` names the nodes whose edges lead to a node and that it waits for: all of them, and no others. An edge is \
         an entry of `next` or an `on_error`. Add the missing name, or remove the one that does not lead here.";
    UNSYNCHRONISED = "G0201", "branches meet at a node that does not wait for them",
        "Several branches of a fan-out lead to the node, so it would be visited once for each of them, and everything behind \
         it too. Let it wait for the branches with `waits_for`, or lead each branch to a node of its own. Two edges of one \
         `all` that lead to the same node are one edge with two conditions: write `any`.";
    OUTSIDE_JOIN = "G0202", "a path leads to a join from outside of its fan-out",
        "A join belongs to the innermost fan-out that everything that it waits for is inside of. A path that does not come \
         through that fan-out has no branches to wait for. Lead the path through the fan-out: an edge of `all` may have a \
         condition, and the list of `over` may be empty.";
    DEAD_JOIN = "G0203", "a join that waits for itself",
        "The join waits for a branch that comes only after the join, directly or through another join. To repeat the \
         branches, lead the path behind the join back to the node that fans out.";
    GROWTH = "G0204", "a fan-out that its own branches lead back to",
        "A branch leads back to the node that began it without passing a join. Each round would begin further branches while \
         the earlier ones are still active. Let the branches meet at a node with `waits_for`, and lead back from there.";
    RETURN_BESIDE_BRANCHES = "G0205", "a run may return while a branch is active",
        "A `return` ends the run. Here it is in a branch, so other branches of the fan-out may still be active, or their \
         join may not have been visited. Return behind the join. To cancel everything else, write `cancels: true`; to end \
         only the branch, give its last node no `next`.";
    OPEN_END = "G0206", "a branch ends, and no join follows",
        "A branch may end without a return, and nothing waits for the branches of its fan-out. Lead them to a node with \
         `waits_for`: it is visited when all of them have arrived or ended.";
    RACING_WRITE = "G0207", "two branches write one key",
        "Nodes of different branches write the same key of the state, and neither is surely visited before the other. The \
         value would depend on which branch is ahead. Let each branch write a key of its own, and combine them behind the \
         join.";
    RACING_READ = "G0208"(Warn), "a node reads a key that another branch writes",
        "A node sees the state as it was before its step. Whether a node of another branch has written the key by then \
         depends on which branch is ahead. Read the key behind the join, or in the branch that writes it.";
    NO_ARGUMENT = "G0209", "the element of a list is read outside of its branch",
        "The name in `as` is known in the branches of the list, up to their join. Some way to this node is not in such a \
         branch. Read the element in the branch, and assign what is needed later to a key of the state.";
    BAD_ROUTE_BY = "G0210", "a route by a value does not fit the value",
        "`by` leads to a value that is a word of an `enum` or a boolean. `to` has a target for each of its values, and for \
         `\"null\"` if it may be missing, and no others. `true`, `false` and `null` are written in quotes. `{}` is an end.";
    BAD_WRITE = "G0211", "a value does not fit its channel",
        "A channel combines each write with its value: `append` takes one element, `extend` and `union` take a list, `sum` \
         a number, `max` and `min` a number or a text, `merge` an object, `messages` an object or a list of objects. None of \
         them takes null. Write a value of that kind, with a fallback if it may be missing: `${result.note || inputs.note}`.";
    SECRET_COMBINED = "G0212", "a channel would reveal a secret",
        "`union`, `sum`, `max` and `min` compare or add values, and `messages` compares those of its `id`. The result \
         tells something about the values in it. Collect secrets with `append` or `extend`, which leave them as they are.";
    NESTED_LIST = "G0213"(Warn), "a collected list becomes one element",
        "`append` adds one element for each write, and a foreach writes all that it collected at once: the channel would be a \
         list of lists. With `extend`, each result is an element.";
    IDLE_CHANNEL = "G0214"(Warn), "a channel that nothing writes",
        "A channel combines writes, and no node writes to this one. Remove it, or correct its name.";
    BAD_RESET = "G0215", "a key cannot be reset",
        "`reset` gives a channel its first value again. The key is no channel, or it has no first value. Declare it in \
         `channels`, or give it a value in `config.state`.";
    BAD_QUORUM = "G0216", "a quorum that does not fit its fan-out",
        "`need` is the number of branches that a join waits for. The fan-out begins fewer branches that lead to the join, or it \
         says `on_branch_error: stop` or `finish`, although a quorum does without some of its branches. Correct the number, or wait for \
         all branches with `waits_for: [one, other]`.";
    MAY_FALL_SHORT = "G0217", "a quorum may fall short, and nothing says what follows",
        "Fewer branches than the join needs may arrive: a list may be too short, a condition may not hold, or a branch may \
         fail or end before the join. Name the node that is visited instead: `fewer: name`. Values that the branches \
         write are not sure to be set there.";
    IDLE_CANCELS = "G0218"(Warn), "a return that cancels nothing",
        "`cancels: true` lets a run return while branches are active. Where this node is visited, no other branch can be \
         active, and none has yet to reach a join. Remove it: the compiler then reports a branch that is added later.";
    HELD_CALL = "G0219", "a call that is made again with other parameters",
        "With `on_branch_error: finish`, the other branches continue after a failure, and a resumed run visits the failed \
         node again. Its call has the same idempotency key then, so its parameters must be the same. A node of another branch \
         may write the key that they depend on in the meantime. The same holds for a node whose graph can wait: the other branches \
         continue meanwhile, and the node is visited again. A key with `keep: step` has lost its value then.";
    BAD_REDUCER = "G0220", "a reducer that cannot be used",
        "`reduce: { item_id: … }` names a function of the program. A contract in the tree's `tools` directory, with \
         `tool_type: reducer`, describes one write in `config_schema`, and the channel's value in `result_schema`, neither of them \
         secret. A tool does not combine writes, and an action does not call a reducer.";
    BAD_KEEP = "G0221", "a channel is read where it has no value",
        "A channel with `keep: step` has its value in the step after the write only: it is read by a node that each of its edges \
         comes to from a node that writes it, and that is no join. One with `keep: memory` is in no journal: only the `params` of \
         a call of a tool may read it, which are not cached, and nothing collects into it.";
    TOO_LOW_LIMIT = "G0222"(Deny), "`limits` that are too low for any run",
        "Every path from `start` to an end needs a later visit of some node, because its edges compare `visit.number`. \
         `limits.visits` does not allow that many visits of one node, or it does not allow one for each element of a list. Or a run \
         and the runs inside it visit more nodes than `limits.steps` allows, or those that a node begins more than the `limits` of the \
         node. Or the waits that follow each other are longer than `limits.deadline`. Every run would fail there. Raise the limit.";
    BAD_ENTRY = "G0223", "an entry at which no run can begin",
        "An entry leads to a node of `config.nodes` that does not wait for branches. The node is always in the same branches, or in \
         none, and no quorum counts them. In a branch of a list, the element of the branch is an input: `element: inputs.name`; in \
         branches of several lists, there is one for each: `element: { one: inputs.name, other: inputs.other }`. Correct the entry.";
    BAD_SHARE = "G0224", "a key that two graphs cannot share",
        "`share` names keys that the graph of the node's action has too, with the same type and the same channel. Neither graph \
         keeps the key for a while, puts its elements in the order of the branches, or has secrets in it; the inner graph \
         does not reset it, and the node does not assign it. A key that the inner graph reads has only values that it expects. \
         To hand over a value only, write it in `params`; to take one over, \
         read `result.output`.";
    BAD_WAIT = "G0225", "a wait whose end is not clear",
        "`until` of a wait is a text: a date and a time in RFC 3339 with an offset from UTC, as `2026-11-21T20:00:00+01:00` or \
         `2026-11-21T19:00:00Z`. A value that may be null needs a fallback. For a length of time, write `timeout: 2d`. \
         `signals` names signals that the graph declares in `config.signals`. A wait for signals that has a time also says \
         where the run continues if none comes: `on_timeout: name`. So does an interrupt, if no answer comes.";
    UNRECEIVED_SIGNAL = "G0226"(Warn), "a signal that nothing receives",
        "`config.signals` declares the signal, but no wait receives it. The store keeps it, and the run never sees it. Receive it \
         in a wait, `signals: [name]`, or remove it.";
    ENDLESS_QUESTION = "G0227"(Warn), "a question that may never be answered",
        "The interrupt has no `timeout`: a run waits forever if nobody answers it, or if whoever could has lost the role. Say how \
         long it waits, `timeout: 3d`, and where the run continues then: `on_timeout: name`.";
    RARE_ROLE = "G0228"(Warn), "a role that too few people have",
        "The question asks for answers of people with a role, and fewer owners of trusted keys have it than must sign. Give the \
         role to more people: `graph keys trust --role`. Keys that are revoked, whose owner is not known, or whose file names the \
         role without another trusted key that signed the file do not count. The lint concerns only trees whose keys have roles.";
    BAD_TEST = "G0230", "a test that does not fit its graph",
        "A file of tests, as `order.test.yaml`, names something that the graph beside it does not have: a node, an input, a tool, a \
         signal, a key of the state. Or a scripted answer does not fit the contract of its tool, or an input the schema of the \
         graph. Or a case expects nothing, so that it could not fail. `graph test` runs no case of such a file.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_unique() {
        let ids: Vec<&str> = ALL.iter().map(|code| code.id).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(ids, sorted);
        assert!(ids.iter().all(|id| id.len() == 5 && DiagnosticCode::named(id).is_some()));
    }
}
